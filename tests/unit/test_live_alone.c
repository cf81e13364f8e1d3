/* SPDX-License-Identifier: MIT */
/* Scripts of edits that no request waits for. They are written after a few seconds; `held` waits
 * for that. */
#include "script.h"

#define A "a:I8:8=abcdefgh "
#define B "b:F32:2x3=1,2,3,4,5,6 "
#define C "c:I8:4=wxyz "
#define Z "z:I8:20000=.{20000} "

static const struct script scripts[] = {
    {"a truncation, at the end of its handle", "auto close",
     "behind 100; hold; open A a.name w trunc; release A; later 1; held; go; fsync",
     "a.name:string= " A_COUNT A_OTHER A_LIST},
    {"what a killed process wrote", "auto close",
     "behind 100; hold; open A a.name w trunc; write A two; release A; later 1; held; go; fsync",
     "a.name:string=two " A_COUNT A_OTHER A_LIST},
    {"the removal of a key, and of one by its backup", "auto",
     "behind 100; hold; rm a.count; later 1; held; go; fsync; mv a.name a.name~; hold; rm a.name~;"
     "later 1; held; go; fsync",
     A_OTHER A_LIST},
    {"the value from before a text that is refused in the end", "auto",
     "behind 100; open A a.name w trunc; write A two; flush A; file a.name:string=two " A_COUNT
         A_OTHER A_LIST
     "; hold; write A '\xff'; flush A =EILSEQ; later 1; held; go; close A =EILSEQ; fsync",
     UNCHANGED},
    {"what was written to a tensor, and a removed tensor", "tensors auto",
     "hold; topen A a/raw w; write A X; release A; held; go; fsync; hold; trmdir c; held; go; "
     "fsync",
     "a:I8:8=Xbcdefgh " B Z},
    {"a new tensor", "tensors auto",
     "behind 100; hold; tmkdir n; tput n/type I8; tput n/shape 2; tput n/raw 12; later 3; held; go;"
     "fsync",
     A B C Z "n:I8:2=12 "},
};

SCRIPTS_MAIN("live_alone", scripts)

/* SPDX-License-Identifier: MIT */
/* Scripts with edits that no request waits for. Such edits are written after a few seconds; `held`
 * waits until the write begins. */
#include "script.h"

#define A "a:I8:8=abcdefgh "
#define B "b:F32:2x3=1,2,3,4,5,6 "
#define C "c:I8:4=wxyz "
#define Z "z:I8:20000=.{20000} "

static const struct script scripts[] = {
    {"a truncation is written after its handle is released", "auto close",
     "behind 100; hold; open A a.name w trunc; release A; later 1; held; go; fsync",
     "a.name:string= " A_COUNT A_OTHER A_LIST},
    {"what a killed process wrote is written", "auto close",
     "behind 100; hold; open A a.name w trunc; write A two; release A; later 1; held; go; fsync",
     "a.name:string=two " A_COUNT A_OTHER A_LIST},
    {"a file made by mknod is closed after a while, and written", "auto close",
     "behind 100; hold; mknod a.new; stat a.new 0; later 9; shown " UNCHANGED "; later 1; held; go;"
     "fsync; text a.new '\n'",
     UNCHANGED "a.new:string= "},
    {"the removal of a key, directly or through its backup, is written", "auto",
     "behind 100; hold; rm a.count; later 1; held; go; fsync; mv a.name a.name~; hold; rm a.name~;"
     "later 1; held; go; fsync",
     A_OTHER A_LIST},
    {"an edited tensor and a removed tensor are written", "tensors auto",
     "hold; topen A a/raw w; write A X; release A; held; go; fsync; hold; trmdir c; held; go; "
     "fsync",
     "a:I8:8=Xbcdefgh " B Z},
    {"a new tensor is written", "tensors auto",
     "behind 100; hold; tmkdir n; tput n/type I8; tput n/shape 2; tput n/raw 12; later 3; held; go;"
     "fsync",
     A B C Z "n:I8:2=12 "},
    {"a key removed while a write fails is removed after a second", "close",
     "behind 100; open A a.count w trunc; write A '9\n'; hold; & flush A; held; rm a.name; go EIO;"
     "wait =EIO; hold; later 1; held; go; close A =EIO; fsync",
     A_COUNT A_OTHER A_LIST},
};

SCRIPTS_MAIN("live_alone", scripts)

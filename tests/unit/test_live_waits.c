/* SPDX-License-Identifier: MIT */
/* Scripts with requests that wait for a write, and with edits that do not fit on the disk. */
#include "script.h"

static const struct script scripts[] = {
    {"a signal interrupts a request that waits for a write begun by another program", "sync",
     "put a.name two; hold; & fsync; held; & fsync; interrupt; go; wait; wait =EINTR; fsync",
     "a.name:string=two " A_COUNT A_OTHER A_LIST},
    {"a signal interrupts the request that began a write, but not one that waits for it", "close",
     "open A a.name w trunc; write A two; hold; & flush A; held; & fsync; interrupt first;"
     "wait =EINTR; go; wait; release A; text a.name 'two\n'",
     "a.name:string=two " A_COUNT A_OTHER A_LIST},
    {"a rename over a key that is about to get the same value waits for it", "close",
     "put .c two; put .d two; hold; & mv .c a.name; held; & mv .d a.name; interrupt; go; wait;"
     "wait =EINTR",
     "a.name:string=two " A_COUNT A_OTHER A_LIST},
    {"no room for an edit: every later fsync and close reports it, and other edits stay", "sync",
     "put a.name two; full; open A a.count w trunc; open B a.count w; write A 9; flush A =ENOSPC; "
     "refused a.count;"
     "fsync A =ENOSPC; flush A =ENOSPC; fsync B =ENOSPC; close B; close A =ENOSPC; good a.name;"
     "text a.name 'two\n'; text a.count '7\n'; full no; put a.other 10; fsync",
     "a.name:string=two " A_COUNT "a.other:u32=10 " A_LIST},
    {"no room for an edit: the close of a duplicate fails too, even if the key is opened again",
     "close",
     "full; open B a.name w trunc; write B two; flush B =ENOSPC; open C a.name w; flush B =ENOSPC;"
     "fsync B =ENOSPC; close C; later 2; full no; write B two 0; flush B; close B",
     "a.name:string=two " A_COUNT A_OTHER A_LIST},
    {"an edit succeeds if there is room by the time it is written", "sync",
     "full; open A a.count w trunc; later 2; full no; write A 9; flush A; close A; fsync",
     A_NAME "a.count:u32=9 " A_OTHER A_LIST},
    {"nothing is written automatically with commit=sync", "sync",
     "put a.name two; later 20; put a.count 9; put a.other 10; put a.name three; rm a.list;"
     "put a.count 10; put a.other 11; file " UNCHANGED,
     "a.name:string=three a.count:u32=10 a.other:u32=11 "},
    {"no room for a rename of a key", "sync",
     "full; mv a.count a.amount =ENOSPC; refused a.count; text a.count '7\n'; gone a.amount;"
     "full no; mv a.name a.title; fsync",
     "a.title:string=one " A_COUNT A_OTHER A_LIST},
    {"no room for a rename: a helper renamed over a key stays a helper", "sync",
     "put .c 12; full; mv .c a.count =ENOSPC; text .c 12; text a.count '7\n'; refused a.count;"
     "full no; mv .c a.count; good a.count; fsync",
     A_NAME "a.count:u32=12 " A_OTHER A_LIST},
    {"no room for a rename: a tensor removed earlier stays removed", "tensors sync",
     "trmdir b; tmv a b; full; tmv c x =ENOSPC; full no; tlist . 'b c z'; fsync; tlist . 'b c z'",
     "b:I8:8=abcdefgh c:I8:4=wxyz z:I8:20000=.{20000} "},
    {"no room for the bytes of one tensor: the bytes of another stay", "tensors sync",
     "tput c/raw WXYZ; topen A a/raw w; write A X; full; topen B a/raw w; flush A =ENOSPC;"
     "terror a 'are free'; release A; release B; ttext a/raw abcdefgh; ttext c/raw WXYZ; full no; "
     "fsync",
     "a:I8:8=abcdefgh b:F32:2x3=1,2,3,4,5,6 c:I8:4=WXYZ z:I8:20000=.{20000} "},
};

SCRIPTS_MAIN("live_waits", scripts)

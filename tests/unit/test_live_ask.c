/* SPDX-License-Identifier: MIT */
/* Requests that wait for the disk's answer, or for a write, as scripts: more come, and signals. */
#include "script.h"

static const struct script scripts[] = {
    {"a signal to what waits for the write that others began", "sync",
     "put a.name two; hold; & fsync; held; & fsync; interrupt; go; wait; wait =EINTR; fsync",
     "a.name:string=two " A_COUNT A_OTHER A_LIST},
    {"a signal to what began the write that others wait for", "close",
     "open A a.name w trunc; write A two; hold; & flush A; held; & fsync; interrupt first;"
     "wait =EINTR; go; wait; release A; text a.name 'two\n'",
     "a.name:string=two " A_COUNT A_OTHER A_LIST},
    {"a signal to what waits for the next write", "sync",
     "put a.name two; hold; & fsync; held; put a.count 9; & fsync; interrupt; go; wait;"
     "wait =EINTR; text a.count '9\n'; fsync",
     "a.name:string=two a.count:u32=9 " A_OTHER A_LIST},
    {"a signal while the disk is asked", "sync",
     "open A a.name w trunc; write A two; hold room; & flush A; held; text a.name 'two\n';"
     "interrupt; wait =EINTR; go; release A; text a.name 'two\n'; fsync; put a.count 9; fsync",
     "a.name:string=two a.count:u32=9 " A_OTHER A_LIST},
    {"a signal while the disk is asked about an edit before", "sync",
     "open A a.name w trunc; write A two; hold room; & flush A; held; open B a.count w trunc;"
     "write B 9; & flush B; interrupt; go; wait; wait =EINTR; release A; release B;"
     "text a.name 'two\n'; text a.count '9\n'; fsync",
     "a.name:string=two a.count:u32=9 " A_OTHER A_LIST},
    {"more edits while the disk is asked: each is answered", "sync",
     "open A a.name w trunc; write A two; hold room; & flush A; held; open B a.count w trunc;"
     "write B 9; & flush B; open C a.other w trunc; write C 10; & flush C; rm a.list; go; wait;"
     "wait; wait; release A; release B; release C; file " UNCHANGED "; fsync",
     "a.name:string=two a.count:u32=9 a.other:u32=10 "},
    {"the answer is no: also to those that were not asked for yet, and to a wait for them", "sync",
     "open A a.name w trunc; write A two; hold room; & flush A; held; open B a.count w trunc;"
     "write B 9; & flush B; & fsync; go ENOSPC; wait =ENOSPC; wait =ENOSPC; wait =ENOSPC;"
     "refused a.name; refused a.count; release A; release B; text a.name 'one\n';"
     "text a.count '7\n'; put a.other 10; fsync",
     A_NAME A_COUNT "a.other:u32=10 " A_LIST},
    {"the answer is no: each later fsync and close says so", "sync",
     "open A a.name w trunc; write A two; open B a.name w; hold room; & flush A; held; go ENOSPC; "
     "wait =ENOSPC;"
     "fsync A =ENOSPC; flush A =ENOSPC; fsync B =ENOSPC; close B; close A =ENOSPC; put a.count 9; "
     "fsync",
     A_NAME "a.count:u32=9 " A_OTHER A_LIST},
    {"what was kept before stays when the answer is no", "sync",
     "put a.name two; hold room; open A a.count w trunc; write A 9; & flush A; held; go ENOSPC;"
     "wait =ENOSPC; release A; text a.name 'two\n'; text a.count '7\n'; refused a.count;"
     "good a.name; fsync",
     "a.name:string=two " A_COUNT A_OTHER A_LIST},
    {"nothing is written by itself in mode sync", "sync",
     "put a.name two; later 20; put a.count 9; put a.other 10; put a.name three; rm a.list;"
     "put a.count 10; put a.other 11; file " UNCHANGED,
     "a.name:string=three a.count:u32=10 a.other:u32=11 "},
    {"a rename is refused after the key was opened by its new name", "sync",
     "put .x 1; rm .x; hold room; & mv a.count a.amount; held; gone a.count; open B a.amount w "
     "trunc;"
     "write B 5; go ENOSPC; wait =ENOSPC; refused a.amount; refused a.count; text a.count '7\n';"
     "close B; good a.amount; text a.amount '5\n'; text a.count '7\n'; fsync",
     UNCHANGED "a.amount:u32=5 "},
    {"a rename of a helper is refused: it is back", "sync",
     "put .c 12; hold room; & mv .c a.count; held; gone .c; text a.count '12\n'; go ENOSPC;"
     "wait =ENOSPC; text .c 12; text a.count '7\n'; refused a.count; mv .c a.count; good a.count;"
     "fsync",
     A_NAME "a.count:u32=12 " A_OTHER A_LIST},
    {"a helper that was renamed while a write that fails went on", "sync",
     "put a.name two; put .c 12; hold; & fsync; held; mv .c a.count; go EIO; wait =EIO;"
     "text a.name 'one\n'; text .c 12; text a.count '7\n'; fsync; mv .c a.count; fsync",
     A_NAME "a.count:u32=12 " A_OTHER A_LIST},
    {"bytes of one tensor are refused, those of another are not", "tensors sync",
     "tput c/raw WXYZ; topen A a/raw w; write A X; hold room; & flush A; held; go ENOSPC;"
     "wait =ENOSPC; terror a 'No space left'; release A; ttext a/raw abcdefgh; ttext c/raw WXYZ;"
     "fsync",
     "a:I8:8=abcdefgh b:F32:2x3=1,2,3,4,5,6 c:I8:4=WXYZ z:I8:20000=.{20000} "},
};

SCRIPTS_MAIN("live_ask", scripts)

/* SPDX-License-Identifier: MIT */
/* Edits that cannot be written, are interrupted, or arrive while others are being written. The
 * scripts check the content of the file, the values shown in the tree, and which calls return the
 * error. See script.h for scripts. */
#include "script.h"

static const struct script scripts[] = {
    {"a helper that became a key is a helper again if its rename fails, even during a rewrite",
     "old sync",
     "put .x '9'; mv .x a.count; text a.count '9\n'; gone .x; open A a.count rw; write A '5';"
     "fail EIO; fsync =EIO; fail; text .x '9'; text a.count '5\n'; close A; fsync; rm .x",
     A_NAME "a.count:u32=5 " A_OTHER A_LIST},
    {"a handle opened during a rename writes the helper if the rename fails", "old close",
     "put .c 12; hold; & mv .c a.count; held; open A a.count rw; go EIO; wait =EIO;"
     "text .c '12\n'; text a.count '7\n'; write A 3; text .c '32\n'; text a.count '7\n'; close A; "
     "rm .c",
     UNCHANGED},
    /* ---- an edit is refused ---- */
    {"an alignment that the strategy cannot write leaves other edits", "sync inplace",
     "put a.count '9'; put general.alignment '64' =EOPNOTSUPP; gone general.alignment;"
     "shown a.name:string=one a.count:u32=9 " A_OTHER A_LIST "; fsync; text a.count '9\n'",
     A_NAME "a.count:u32=9 " A_OTHER A_LIST},
    {"an alignment that was refused because the disk was full is not written later", "sync",
     "put a.count '9'; full; later 2; put general.alignment '64' =ENOSPC;"
     "shown a.name:string=one a.count:u32=9 " A_OTHER A_LIST "; full no; later 2; fsync",
     A_NAME "a.count:u32=9 " A_OTHER A_LIST},
    /* ---- the commit fails ---- */
    {"a failed write leaves the old value in the views and in the file", "auto close",
     "fail EIO; put a.name 'new' =EIO; text a.name 'one\n'; refused a.name; shown " UNCHANGED
     "; fail; put a.name 'newer'; good a.name",
     "a.name:string=newer " A_COUNT A_OTHER A_LIST},
    {"truncate(2) on a full disk reports that it is full", NULL,
     "full; later 2; truncate a.name 0 =ENOSPC; text a.name 'one\n'; refused a.name; fsync;"
     "full no; later 2; truncate a.name 0; fsync",
     "a.name:string= " A_COUNT A_OTHER A_LIST},
    {"a failed fsync loses all accepted edits, and reports that once", "old sync",
     "put a.name 'new'; rm a.count; mv a.other a.moved; put a.new '5'; fail ENOSPC;"
     "fsync =ENOSPC; list a.name a.count a.other a.list; shown " UNCHANGED
     "; refused a.name; fsync; fail; fsync; put a.name 'newer'; good a.name",
     "a.name:string=newer " A_COUNT A_OTHER A_LIST},
    {"a failure is reported again until the file is written again", "old sync",
     "open A a.name w trunc; write A 'new'; flush A; fail ENOSPC; fsync A =ENOSPC;"
     "text a.name 'one\n'; fail; fsync A =ENOSPC; flush A =ENOSPC; fsync A =ENOSPC; write A 'er';"
     "fsync A; text a.name 'newer\n'; close A",
     "a.name:string=newer " A_COUNT A_OTHER A_LIST},
    {"every close reports a failure: NumPy ignores the result of the first one", "auto close",
     "open A a.name w trunc; write A 'new'; fail EIO; flush A =EIO; fail; flush A =EIO; fsync A "
     "=EIO;"
     "close A =EIO; text a.name 'one\n'; fsync",
     UNCHANGED},
    {"a program that opens a key after a failed write gets no error", "old close",
     "open A a.name w trunc; write A 'new'; fail EIO; flush A =EIO; fail; open B a.name rw;"
     "flush B; write B 'x'; flush B; flush A; close B; close A",
     "a.name:string=xne " A_COUNT A_OTHER A_LIST},
    {"a program does not see the failure of another program's key", "old sync",
     "open A a.name w trunc; write A 'new'; fsync A; open B a.count w trunc; write B '9'; flush B;"
     "fail EIO; fsync B =EIO; fail; fsync A; close A; fsync B =EIO; close B =EIO; fsync",
     "a.name:string=new " A_COUNT A_OTHER A_LIST},
    {"a program whose edit is lost during another program's fsync gets the error later", "old sync",
     "put a.name 'new'; open B a.count w trunc; write B '9'; fail EIO; fsync B =EIO; fail;"
     "fsync =EIO; fsync; close B =EIO",
     UNCHANGED},
    {"an fsync waits for the write that contains its edit", "old sync",
     "open A a.name w trunc; write A 'new'; flush A; hold; & fsync; held; put a.count 9; & fsync "
     "A; go EIO;"
     "wait =EIO; wait =EIO; close A =EIO; text a.count '7\n'",
     UNCHANGED},
    {"an fsync whose edit is already written does not wait for the next write", "old sync",
     "open A a.name w trunc; write A 'new'; flush A; hold; & fsync; held; put a.count 9; & fsync "
     "A; go;"
     "wait; wait; file a.name:string=new " A_COUNT A_OTHER A_LIST "; close A",
     "a.name:string=new a.count:u32=9 " A_OTHER A_LIST},
    {"a second close waits for the same write", "old close",
     "open A a.name w trunc; write A 'new'; hold; & flush A; held; & flush A; go EIO; wait =EIO;"
     "wait =EIO; release A",
     UNCHANGED},
    {"fsync of a handle that is open for writing but has not written", "old sync",
     "put a.name 'new'; open B a.name rw; fsync B; file a.name:string=new " A_COUNT A_OTHER A_LIST
     "; put a.count 9; open C a.count rw; fail EIO; fsync C =EIO; fail; close C; fsync B; close B; "
     "fsync",
     "a.name:string=new " A_COUNT A_OTHER A_LIST},
    {"fsync of a handle that only reads (sync FILE) writes the key", "old sync",
     "put a.name 'new'; put a.count 9; open A a.name r; open B a.other r; fsync B;"
     "file " UNCHANGED
     "; fail EIO; fsync A =EIO; fsync A =EIO; fsync B; fsync =EIO; fsync; fail; put a.name 'newer';"
     "fsync A; close A; close B",
     "a.name:string=newer " A_COUNT A_OTHER A_LIST},
    {"an equal text from another program is just as durable", "sync",
     "put a.name 'new'; open B a.name w trunc; write B 'new'; fail EIO; fsync B =EIO; fail;"
     "write B 'new' 0; fsync B; close B; file a.name:string=new " A_COUNT A_OTHER A_LIST,
     "a.name:string=new " A_COUNT A_OTHER A_LIST},
    {"a failed rename leaves the old names", "auto close",
     "fail EIO; mv a.count a.amount =EIO; text a.count '7\n'; gone a.amount;"
     "mv a.count a.other =EIO; text a.count '7\n'; text a.other '8\n'; fail;"
     "list a.name a.count a.other a.list; mv a.count a.amount",
     A_NAME "a.amount:u32=7 " A_OTHER A_LIST},
    {"a helper whose rename fails gets its name back", "auto close",
     "put .c '12'; fail EIO; mv .c a.count =EIO; text .c '12'; text a.count '7\n'; fail;"
     "mv .c a.count; gone .c",
     A_NAME "a.count:u32=12 " A_OTHER A_LIST},
    {"an open helper whose rename fails can still be written", "auto close",
     "open T .c rw creat; write T '1'; flush T; fail EIO; mv .c a.count =EIO; write T '2';"
     "read T '12'; text .c '12'; text a.count '7\n'; fail; mv .c a.count; write T '3'; close T",
     A_NAME "a.count:u32=123 " A_OTHER A_LIST},
    {"an open file goes back with its key to the old name", "close",
     "open A a.name rw append; write A 'x\n'; flush A; fail EIO; mv a.name a.title =EIO;"
     "write A 'y\n'; fail; close A; text a.name 'one\nx\ny\n'; gone a.title",
     "a.name:string=one,x,y " A_COUNT A_OTHER A_LIST},
    {"a failed removal brings the key back", "old",
     "rm a.count; fail EIO; fsync =EIO; text a.count '7\n'; list a.name a.count a.other a.list;"
     "fail; fsync; rm a.count; fsync",
     A_NAME A_OTHER A_LIST},
    {"a failed change of type leaves the old type", "auto close",
     "fail EIO; type a.count u64 =EIO; typed a.count u32; fail; type a.count u64",
     A_NAME "a.count:u64=7 " A_OTHER A_LIST},
    {"a new key whose write fails does not exist", "auto close",
     "fail EIO; put a.new '5' =EIO; gone a.new; fail; put a.new 'text'",
     UNCHANGED "a.new:string=text "},
    {"a failure at the end of the mount is reported as its result", "sync",
     "put a.name 'new'; fail EIO; finish =EIO; file " UNCHANGED, UNCHANGED},

    /* ---- a file that another program changed ---- */
    {"a file that another program changed is not written", NULL,
     "alter; open A a.name w =ESTALE; open A a.name rw =ESTALE; open A "
     "a.name r; read A 'one\n'; "
     "close A;"
     "put a.name 'new' =ESTALE; rm a.count =ESTALE; text a.name 'one\n'; restore;"
     "put a.name 'new'",
     "a.name:string=new " A_COUNT A_OTHER A_LIST},
    {"no edit of any kind is accepted after another program changed the file", "auto close",
     "alter; type a.count u64 =ESTALE; mv a.count a.amount =ESTALE; truncate a.list 0 =ESTALE;"
     "put a.new '5' =ESTALE; mv a.count a.other =ESTALE; list a.name a.count a.other a.list;"
     "put .c '9'; mv .c a.count =ESTALE; text .c '9'; restore; mv .c a.count",
     A_NAME "a.count:u32=9 " A_OTHER A_LIST},
    {"edits accepted before another program changed the file are lost", "old sync",
     "put a.name 'new'; alter; fsync =ESTALE; text a.name 'one\n'; refused a.name; restore; fsync",
     UNCHANGED},

    /* ---- while another edit is being written ---- */
    {"reads and edits continue while a copy is made", "old close",
     "hold; open A a.name w trunc; write A 'new'; & flush A; held; text a.name 'new\n';"
     "text a.count '7\n'; file " UNCHANGED "; open B a.count w trunc; write B '9'; & flush B;"
     "rm a.other; gone a.other; put .x 'helper'; go; wait; wait; release A; release B; fsync",
     "a.name:string=new a.count:u32=9 " A_LIST},
    {"edits that arrive during a write are written together after it", "old sync",
     "put a.name 'two'; hold; & fsync; held; put a.name 'three'; put a.name 'four';"
     "mv a.count a.x; mv a.x a.amount; file " UNCHANGED
     "; go; wait; text a.name 'four\n'; file a.name:string=two " A_COUNT A_OTHER A_LIST "; fsync",
     "a.name:string=four a.amount:u32=7 " A_OTHER A_LIST},
    {"a copy that fails loses the edits it contained and those accepted since", "old sync",
     "put a.name 'lost'; put a.new '5'; hold; & fsync; held; put a.count '9'; rm a.other; go EIO;"
     "wait =EIO; text a.name 'one\n'; gone a.new; text a.count '7\n'; refused a.count; logged "
     "a.count;"
     "fsync; list a.name a.count a.list",
     A_NAME A_COUNT A_LIST},
    {"helpers renamed before and during a failed copy are back", "old sync",
     "put .c '12'; mv .c a.count; hold; & fsync; held; put .d '13'; mv .d a.other; go EIO;"
     "wait =EIO; text .c '12'; text .d '13'; text a.count '7\n'; text a.other '8\n'; fsync",
     UNCHANGED},
    {"repeated saves by rename hold one text each, and a failure brings the last helper back",
     "old sync",
     "put .c '12'; mv .c a.count; put .c '13'; mv .c a.count; put .c '14'; mv .c a.count; helpers "
     "2;"
     "fail EIO; fsync =EIO; fail; text .c '14'; text a.count '7\n'; helpers 2; rm .c; helpers 0",
     UNCHANGED},
    {"a rename that fails while another one waits", "old close",
     "put .c '12'; put .d '13'; hold; & mv .c a.count; held; & mv .d a.other; go EIO; wait =EIO;"
     "wait =EIO; text .c '12'; text .d '13'; text a.count '7\n'; fsync",
     UNCHANGED},
    {"two renames that fail one after the other", "close",
     "put .c '12'; hold; & mv .c a.count; held; & mv a.name a.title; fail EIO; go; wait =EIO;"
     "wait =EIO; fail; text .c '12'; text a.name 'one\n'; list a.name a.count a.other a.list .c;"
     "fsync",
     UNCHANGED},
    {"lost edits and written edits are logged", "old sync",
     "put a.name 'new'; fail EIO; fsync =EIO; logged a.name; quiet; fail; put a.count '8'; quiet;"
     "fsync; logged a.count; put a.count 'x' =EINVAL; logged a.count",
     A_NAME "a.count:u32=8 " A_OTHER A_LIST},
    {"a key created in a failed copy and changed since is lost", "old sync",
     "put a.new '5'; put a.name 'two'; hold; & fsync; held; put a.name 'three'; put a.new '6';"
     "go EIO; wait =EIO; text a.name 'one\n'; gone a.new; fsync",
     UNCHANGED},
    {"a key is created again while its removal is being written", "old sync",
     "rm a.count; hold; & fsync; held; gone a.count; put a.count '9'; text a.count '9\n'; go;"
     "wait; list a.name a.count a.other a.list; fsync",
     A_NAME "a.count:u32=9 " A_OTHER A_LIST},
    {"an fsync waits for the write in progress", "sync",
     "put a.name 'new'; hold; & fsync; held; & fsync; go; wait; wait; file "
     "a.name:string=new " A_COUNT A_OTHER A_LIST,
     "a.name:string=new " A_COUNT A_OTHER A_LIST},

    /* ---- signals ---- */
    {"a signal ends the wait for a copy, which continues", "old close",
     "hold; open A a.name w trunc; write A 'new'; & flush A; held; interrupt; wait =EINTR;"
     "text a.name 'new\n'; release A; go; fsync; text a.name 'new\n'; good a.name",
     "a.name:string=new " A_COUNT A_OTHER A_LIST},
    {"fsync waits for a copy whose first waiter was interrupted", "close",
     "hold; open A a.name w trunc; write A 'new'; & flush A; held; interrupt; wait =EINTR;"
     "& fsync A; go; wait; text a.name 'new\n'; release A",
     "a.name:string=new " A_COUNT A_OTHER A_LIST},
    {"a signal interrupts the fsync of the only edit", "sync",
     "open A a.name w trunc; write A 'new'; hold; & fsync A; held; interrupt; wait =EINTR; go;"
     "fsync; text a.name 'new\n'; release A",
     "a.name:string=new " A_COUNT A_OTHER A_LIST},
    {"a file opened by its new name, after a signal ended its rename, keeps that name", "old close",
     "put .x '9'; hold; & mv .x a.count; held; interrupt; wait =EINTR; open B a.count w trunc;"
     "write B '11\n'; go EIO; fsync =EIO; flush B; close B;"
     "text a.count '11\n'",
     A_NAME "a.count:u32=11 " A_OTHER A_LIST},
    {"a signal interrupts a rename", "close",
     "hold; & mv a.count a.amount; held; interrupt; wait =EINTR; go; fsync; gone a.count;"
     "text a.amount '7\n'; list a.name a.amount a.other a.list",
     A_NAME "a.amount:u32=7 " A_OTHER A_LIST},
    {"a write that fails after a signal is reported by the next fsync", "old close",
     "hold; open A a.name w trunc; write A 'new'; & flush A; held; interrupt; wait =EINTR;"
     "go EIO; release A; fsync =EIO; refused a.name; text a.name 'one\n'; fsync",
     UNCHANGED},
    {"edits that other programs also made are written after a signal", "close",
     "hold; open A a.name w trunc; write A 'new'; & flush A; held; open B a.count w trunc;"
     "write B '9'; & flush B; open C a.other w trunc; write C '10'; & flush C; interrupt; go;"
     "wait; wait; wait =EINTR; release A; release B; release C; fsync",
     "a.name:string=new a.count:u32=9 a.other:u32=10 " A_LIST},
    {"a signal interrupts a write that has not begun", "old close",
     "hold; open A a.name w trunc; write A 'new'; & flush A; held; open B a.count w trunc;"
     "write B '9'; & flush B; interrupt; text a.count '9\n'; go; wait; wait =EINTR; release B;"
     "release A; fsync; text a.count '9\n'",
     "a.name:string=new a.count:u32=9 " A_OTHER A_LIST},
};

SCRIPTS_MAIN("live_faults", scripts)

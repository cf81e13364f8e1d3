/* SPDX-License-Identifier: MIT */
/* Edits that cannot be written, are interrupted, or arrive while others are being written. The
 * scripts check the content of the file, the values shown in the tree, and which calls return the
 * error. See script.h for scripts. */
#include "script.h"

static const struct script scripts[] = {
    /* ---- an edit is refused ---- */
    {"a removal that cannot be made in place is taken back, and other edits are made",
     "auto inplace",
     "rm a.list; gone a.list; put a.count '9'; text a.list '1\n2\n3\n'; refused a.list; rm a.list;"
     "fsync =EOPNOTSUPP; text a.list '1\n2\n3\n'; put a.count '7'; fsync; logged 'a.list'"},
    {"an alignment that the strategy cannot write leaves other edits", "sync inplace",
     "put a.count '9'; put general.alignment '64' =EOPNOTSUPP; gone general.alignment;"
     "shown a.name:string=one a.count:u32=9 " A_OTHER A_LIST "; fsync; text a.count '9\n'",
     A_NAME "a.count:u32=9 " A_OTHER A_LIST},
    {"an alignment that was refused because the disk was full is not written later", "sync",
     "put a.count '9'; full; later 2; put general.alignment '64' =ENOSPC;"
     "shown a.name:string=one a.count:u32=9 " A_OTHER A_LIST "; full no; later 2; fsync",
     A_NAME "a.count:u32=9 " A_OTHER A_LIST},
    /* ---- the commit fails ---- */
    {"every close reports a failure: NumPy ignores the result of the first one", "auto close",
     "open A a.name w trunc; write A 'new'; fail EIO; flush A =EIO; fail; flush A =EIO;"
     "fsync A =EIO; close A =EIO; text a.name 'one\n'; fsync"},
    {"an edit in place that is not finished is named, and not answered 0", "inplace close",
     "open A a.count w trunc; write A 9; fail EIO; flush A =EIO; release A; owes metadata;"
     "put a.count 9 =EIO; owes metadata; fsync =EIO; fail; put a.count 9; owes; fsync",
     A_NAME "a.count:u32=9 " A_OTHER A_LIST},
    {"an equal text from another program is just as durable", "sync",
     "put a.name 'new'; open B a.name w trunc; write B 'new'; fail EIO; fsync B =EIO; fail;"
     "write B 'new' 0; fsync B; close B; file a.name:string=new " A_COUNT A_OTHER A_LIST,
     "a.name:string=new " A_COUNT A_OTHER A_LIST},
    {"an open helper whose rename fails can still be written", "auto close",
     "open T .c rw creat; write T '1'; flush T; fail EIO; mv .c a.count =EIO; write T '2';"
     "read T '12'; text .c '12'; text a.count '7\n'; fail; mv .c a.count; write T '3'; close T",
     A_NAME "a.count:u32=123 " A_OTHER A_LIST},
    {"an open file goes back with its key to the old name", "close",
     "open A a.name rw append; write A 'x\n'; flush A; fail EIO; mv a.name a.title =EIO;"
     "write A 'y\n'; fail; close A; text a.name 'one\nx\ny\n'; gone a.title",
     "a.name:string=one,x,y " A_COUNT A_OTHER A_LIST},

    /* ---- a file that another program changed ---- */
    {"a file that another program changed is not written", NULL,
     "alter; open A a.name w =ESTALE; open A a.name rw =ESTALE; open A a.name r; read A 'one\n';"
     "close A; put a.name 'new' =ESTALE; rm a.count =ESTALE; text a.name 'one\n'; restore;"
     "put a.name 'new'",
     "a.name:string=new " A_COUNT A_OTHER A_LIST},
    {"no edit of any kind is accepted after another program changed the file", "auto close",
     "alter; type a.count u64 =ESTALE; mv a.count a.amount =ESTALE; truncate a.list 0 =ESTALE;"
     "put a.new '5' =ESTALE; mv a.count a.other =ESTALE; list a.name a.count a.other a.list;"
     "put .c '9'; mv .c a.count =ESTALE; text .c '9'; restore; mv .c a.count",
     A_NAME "a.count:u32=9 " A_OTHER A_LIST},
    /* ---- while another edit is being written ---- */
    {"two renames that fail one after the other", "close",
     "put .c '12'; hold; & mv .c a.count; held; & mv a.name a.title; fail EIO; go; wait =EIO; wait "
     "=EIO; fail; text .c '12'; text a.name 'one\n'; list a.name a.count a.other a.list .c; fsync"},
    {"an fsync waits for the write in progress", "sync",
     "put a.name 'new'; hold; & fsync; held; & fsync; go; wait; wait; file "
     "a.name:string=new " A_COUNT A_OTHER A_LIST,
     "a.name:string=new " A_COUNT A_OTHER A_LIST},

    /* ---- signals ---- */
    {"fsync waits for a copy whose first waiter was interrupted", "close",
     "hold; open A a.name w trunc; write A 'new'; & flush A; held; interrupt; wait =EINTR;"
     "& fsync A; go; wait; text a.name 'new\n'; release A",
     "a.name:string=new " A_COUNT A_OTHER A_LIST},
    {"a signal interrupts the fsync of the only edit", "sync",
     "open A a.name w trunc; write A 'new'; hold; & fsync A; held; interrupt; wait =EINTR; go;"
     "fsync; text a.name 'new\n'; release A",
     "a.name:string=new " A_COUNT A_OTHER A_LIST},
    {"a signal interrupts a rename", "close",
     "hold; & mv a.count a.amount; held; interrupt; wait =EINTR; go; fsync; gone a.count;"
     "text a.amount '7\n'; list a.name a.amount a.other a.list",
     A_NAME "a.amount:u32=7 " A_OTHER A_LIST},
    {"edits that other programs also made are written after a signal", "close",
     "hold; open A a.name w trunc; write A 'new'; & flush A; held; open B a.count w trunc;"
     "write B '9'; & flush B; open C a.other w trunc; write C '10'; & flush C; interrupt; go;"
     "wait; wait; wait =EINTR; release A; release B; release C; fsync",
     "a.name:string=new a.count:u32=9 a.other:u32=10 " A_LIST},

    /* ---- the log ---- */
    {"each kind of edit of a key is logged", NULL,
     "put a.name 'newer'; fsync; logged 'a.name: changed; '; put a.list '[4]'; fsync;"
     "logged 'a.list: changed; '; put a.new:u16 '5'; fsync; logged 'a.new: new; '; rm a.new; fsync;"
     "logged 'a.new: removed; '; mv a.count a.amount; fsync;"
     "logged 'a.count: renamed to a.amount; '; type a.amount u64; fsync;"
     "logged 'a.amount: changed; '; quiet; put a.amount 'x' =EINVAL; logged 'a.amount: refused: '",
     "a.name:string=newer a.amount:u64=7 " A_OTHER "a.list:array[i32]=4 "},
    {"edits that are written together are logged as one each", "sync",
     "mv a.count a.amount; put a.amount '9'; put a.new '5'; rm a.new; fsync;"
     "logged 'a.count: renamed to a.amount; '; quiet",
     A_NAME "a.amount:u32=9 " A_OTHER A_LIST},
    {"each kind of edit of a tensor is logged", "tensors",
     "put /c/raw WXyz; fsync; logged 'tensors/c: changed; '; mkdir /n; put /n/type I8;"
     "put /n/shape 3; put /n/raw 123; fsync; logged 'tensors/n: new; '; rmdir /a; fsync;"
     "logged 'tensors/a: removed; '; mv /n /d; fsync; logged 'tensors/n: renamed to d; ';"
     "put /b/shape '6\n'; fsync; logged 'tensors/b: changed; '; quiet; put /c/raw abc =EINVAL;"
     "logged 'tensors/c: refused: it has 3 of 4 bytes'; put /b/shape '5\n' =EINVAL;"
     "logged 'tensors/b: refused: the shape has 5 elements, the tensor has 6'",
     "b:F32:6=1,2,3,4,5,6 c:I8:4=WXyz z:I8:20000=.{20000} d:I8:3=123 "},
};

SCRIPTS_MAIN("live_faults", scripts)

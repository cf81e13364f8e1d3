/* SPDX-License-Identifier: MIT */
/* Lines that edits write to the log. See script.h for scripts. */
#include "script.h"

static const struct script scripts[] = {
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

SCRIPTS_MAIN("live log", scripts)

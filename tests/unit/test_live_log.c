/* SPDX-License-Identifier: MIT */
/* Lines that edits write to the log. See script.h for scripts. */
#include "script.h"

#define A "a:I8:8=abcdefgh "
#define B "b:F32:2x3=1,2,3,4,5,6 "
#define C "c:I8:4=wxyz "
#define Z "z:I8:20000=.{20000} "

static const struct script scripts[] = {
    {"a changed value is logged", NULL,
     "put a.name 'newer'; fsync; logged 'a.name: changed; '; quiet",
     "a.name:string=newer " A_COUNT A_OTHER A_LIST},
    {"a changed array is logged", NULL,
     "put a.list '[4]'; fsync; logged 'a.list: changed; '; quiet",
     A_NAME A_COUNT A_OTHER "a.list:array[i32]=4 "},
    {"a new key is logged", NULL, "put a.new:u16 '5'; fsync; logged 'a.new: new; '; quiet",
     UNCHANGED "a.new:u16=5 "},
    {"a removed key is logged", NULL, "rm a.count; fsync; logged 'a.count: removed; '; quiet",
     A_NAME A_OTHER A_LIST},
    {"a renamed key is logged", NULL,
     "mv a.count a.amount; fsync; logged 'a.count: renamed to a.amount; '; quiet",
     A_NAME "a.amount:u32=7 " A_OTHER A_LIST},
    {"a key renamed and changed in one edit is logged", "sync",
     "mv a.count a.amount; put a.amount '9'; fsync;"
     "logged 'a.count: renamed to a.amount; '; quiet",
     A_NAME "a.amount:u32=9 " A_OTHER A_LIST},
    {"a key whose type changed is logged", NULL,
     "type a.count u64; fsync; logged 'a.count: changed; '; quiet",
     A_NAME "a.count:u64=7 " A_OTHER A_LIST},
    {"a key that was never in the file is not logged", "sync",
     "put a.new '5'; rm a.new; put a.name 'new'; fsync;"
     "logged 'a.name: changed; '; quiet",
     "a.name:string=new " A_COUNT A_OTHER A_LIST},
    {"a refused text is logged", NULL, "put a.count 'x' =EINVAL; logged 'a.count: refused: '",
     UNCHANGED},
    {"changed bytes of a tensor are logged", "tensors",
     "tput c/raw WXyz; fsync; logged 'tensors/c: changed; '; quiet", A B "c:I8:4=WXyz " Z},
    {"a new tensor is logged", "tensors",
     "tmkdir n; tput n/type I8; tput n/shape 3; tput n/raw 123; fsync;"
     "logged 'tensors/n: new; '; quiet",
     A B C Z "n:I8:3=123 "},
    {"a removed tensor is logged", "tensors",
     "trmdir a; fsync; logged 'tensors/a: removed; '; quiet", B C Z},
    {"a renamed tensor is logged", "tensors",
     "tmv a d; fsync; logged 'tensors/a: renamed to d; '; quiet", "d:I8:8=abcdefgh " B C Z},
    {"a tensor renamed and changed in one edit is logged", "tensors sync",
     "tmv a d; tput d/raw ABCDEFGH; fsync;"
     "logged 'tensors/a: renamed to d; '; quiet",
     "d:I8:8=ABCDEFGH " B C Z},
    {"a tensor whose shape changed is logged", "tensors",
     "tput b/shape '6\n'; fsync; logged 'tensors/b: changed; '; quiet",
     A "b:F32:6=1,2,3,4,5,6 " C Z},
    {"a refused tensor is logged", "tensors",
     "tput a/raw abc =EINVAL; logged 'tensors/a: refused: it has 3 of 8 bytes'", A B C Z},
    {"a refused shape is logged", "tensors",
     "tput b/shape '5\n' =EINVAL;"
     "logged 'tensors/b: refused: the shape has 5 elements, the tensor has 6'",
     A B C Z},
};

SCRIPTS_MAIN("live log", scripts)

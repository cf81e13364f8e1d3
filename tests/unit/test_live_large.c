/* SPDX-License-Identifier: MIT */
/* Edits of a model over 64 MiB as scripts: those that copy it are not waited for. */
#include "script.h"

#define B "b:F32:2x3=1,2,3,4,5,6 "
#define BIG "big:I8:69206016=.{69206016} "

static const struct script scripts[] = {
    {"a large model is written later", "tensors large auto",
     "put a.name two; file " UNCHANGED "; text a.name 'two\n'; put a.count 9; hold; & fsync; held;"
     "put a.other 10; tput c/raw WXYZ; tmv a d; text a.other '10\n'; ttext c/raw WXYZ; go; wait; "
     "file "
     "a.name:string=two a.count:u32=9 a.other:u32=8 " A_LIST "; fsync; put a.count x =EINVAL",
     "d:I8:8=abcdefgh " B "c:I8:4=WXYZ " BIG},
    {"a large model: many parts", "tensors large sync",
     "topen A big/raw rw; tdots A 300 8192; close A; tdotted big/raw 300 8192; fsync; topen A "
     "big/raw w;"
     "write A . 0; close A; ttext a/raw abcdefgh; trmdir big",
     "a:I8:8=abcdefgh " B "c:I8:4=wxyz "},
    {"a large model that another program has changed", "tensors large auto",
     "put a.name two; fsync; alter; put a.name three =ESTALE; tput c/raw WXYZ =ESTALE; restore;"
     "text a.name 'two\n'; ttext c/raw wxyz; put a.name four; tput c/raw 1234; fail EIO; fsync "
     "=EIO;"
     "text a.name 'two\n'; ttext c/raw wxyz; fail",
     "a:I8:8=abcdefgh " B "c:I8:4=wxyz " BIG},
};

SCRIPTS_MAIN("live_large", scripts)

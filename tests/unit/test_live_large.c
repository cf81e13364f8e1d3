/* SPDX-License-Identifier: MIT */
/* Scripts of edits to a model of more than 64 MiB. No call waits for edits that copy the model. */
#include "script.h"

#define B "b:F32:2x3=1,2,3,4,5,6 "
#define BIG "big:I8:69206016=.{69206016} "

static const struct script scripts[] = {
    {"an edit of a large model is written later", "tensors large auto",
     "still; put a.name two; file " UNCHANGED "; text a.name 'two\n'; put a.count 9; put /c/raw "
     "WXYZ; mv /a /d; text /c/raw WXYZ; file " UNCHANGED
     "; fsync; file a.name:string=two a.count:u32=9 a.other:u32=8 " A_LIST
     "; put a.count x =EINVAL",
     "d:I8:8=abcdefgh " B "c:I8:4=WXYZ " BIG},
    {"conversions of a large model are collected", "tensors large auto",
     "put /a/type 'F32\n'; put /b/type 'F16\n'; put /big/type 'F16\n'; tfile a:I8:8=abcdefgh " B
     "c:I8:4=wxyz " BIG "; values /b/f32 '1 2 3 4 5 6'; fsync",
     "a:F32:8=97,98,99,100,101,102,103,104 b:F16:2x3=12 c:I8:4=wxyz big:F16:69206016=138412032 "},
    {"a large model of many parts is written", "tensors large sync",
     "open A /big/raw rw; dots A 264 262144; close A; dotted /big/raw 264 262144; fsync;"
     "open A /big/raw w; write A . 0; close A; text /a/raw abcdefgh; rmdir /big",
     "a:I8:8=abcdefgh " B "c:I8:4=wxyz "},
    {"a large model that another program changed is not written", "tensors large auto",
     "put a.name two; fsync; edits same; alter; edits changed; put a.name three =ESTALE;"
     "put /c/raw WXYZ =ESTALE; restore; text a.name 'two\n'; text /c/raw wxyz; put a.name four;"
     "put /c/raw 1234; fail EIO; fsync =EIO; text a.name 'four\n'; text /c/raw 1234; fail; fsync",
     "a:I8:8=abcdefgh " B "c:I8:4=1234 " BIG},
    {"a close waits for an edit in place of a large model", "tensors large inplace auto",
     "put a.name two; file a.name:string=two " A_COUNT A_OTHER A_LIST
     "; put /a/raw 12345678; tfile a:I8:8=12345678 " B "c:I8:4=wxyz " BIG
     "; edits same; put a.name one; put a.name one",
     "a:I8:8=12345678 " B "c:I8:4=wxyz " BIG},
};

SCRIPTS_MAIN("live_large", scripts)

/* SPDX-License-Identifier: MIT */
/* Scripts that create new tensors step by step, and sometimes fail to add them. */
#include "script.h"

#define REST "b:F32:2x3=1,2,3,4,5,6 c:I8:4=wxyz z:I8:20000=.{20000} "
#define MODEL "a:I8:8=abcdefgh " REST
#define FAR "99999999999999999"

static const struct script scripts[] = {
    {"what an fsync that was interrupted would have heard is told to no other", "tensors sync",
     "tput a/raw Xbcdefgh; hold; & fsync; held; tmkdir n; topen A n/raw creat w; write A abcd 0;"
     "write A x " FAR " =EFBIG; release A; tput n/type I8; tput n/shape 4; & fsync; interrupt; go;"
     "wait; wait =EINTR; trmdir c; fsync; tlist . 'a b z n'",
     "a:I8:8=Xbcdefgh b:F32:2x3=1,2,3,4,5,6 z:I8:20000=.{20000} "},
    {"a tensor whose bytes were refused is not added", "tensors",
     "tmkdir n; tput n/type I8; tput n/shape 4; topen A n/raw creat w; trunc A 4; write A ab 0;"
     "write A x " FAR " =EFBIG; release A; logged 'tensors/n: refused: '; terror n 'long'; fsync "
     "=EFBIG; tlist . 'a b c z n'; tfile " MODEL "; terror n 'long'; tput n/raw abcd; fsync;"
     "ttext n/raw abcd",
     MODEL "n:I8:4=abcd "},
    {"a tensor with refused bytes is not added, even if its type and shape come later", "tensors",
     "tmkdir n; topen A n/raw creat w; write A abcd 0; write A x " FAR " =EFBIG; release A;"
     "tput n/type I8; tput n/shape 4; fsync =EFBIG; tlist . 'a b c z n'; tfile " MODEL,
     MODEL},
    {"refused values do not count if raw is written", "tensors",
     "tmkdir n; topen A n/f32 creat w; write A x " FAR " =EFBIG; release A; tput n/raw abcd;"
     "tput n/type I8; tput n/shape 4; fsync; ttext n/raw abcd",
     MODEL "n:I8:4=abcd "},
    {"once a refused view is removed, the other views make the tensor", "tensors",
     "tmkdir n; topen A n/f32.npy creat rw trunc; tnpy A 2 '1 2'; close A; topen A n/f32 creat w;"
     "write A x " FAR " =EFBIG; release A; fsync =EFBIG; terror n 'long'; trm n/f32; fsync;"
     "tvalues n/f32 '1 2'",
     MODEL "n:F32:2=1,2 "},
    {"fsync waits until the kernel releases a closed handle", "tensors",
     "tmkdir n; tput n/type I8; tput n/shape 1; topen A n/raw creat w; write A x; flush A; & fsync;"
     "& fsync; release A; wait; wait; tfile " MODEL "n:I8:1=x ",
     MODEL "n:I8:1=x "},
    {"fsync does not wait for a release at the end of the mount", "tensors",
     "still; tmkdir n; tput n/type I8; tput n/shape 1; topen A n/raw creat w; write A x; flush A;"
     "& fsync; hurry; wait; tfile " MODEL "n:I8:1=x ; release A",
     MODEL "n:I8:1=x "},
    {"what a new tensor lacks is reported at the end of the mount", "tensors",
     "tmkdir n; tput n/type I8; fsync; unsaved 'tensors/n: a new tensor: still needs shape, and "
     "raw or "
     "values;'; topen A n/f32.npy creat w; write A '\x93"
     "NUM'; close A; fsync;"
     "terror n 'its NumPy header is incomplete'",
     MODEL},
    {"a new tensor keeps its place when it is edited and renamed", "tensors",
     "tmkdir m; tput m/type I8; tput m/shape 1; tput m/raw x; tmkdir n; tput n/type I8; tput "
     "n/shape 1;"
     "tput n/raw y; fsync; tput m/raw z; fsync; tlist . 'a b c z m n'; tput a/raw 12345678; tmv m "
     "o;"
     "tput o/raw w; fsync; tlist . 'a b c z o n'",
     "a:I8:8=12345678 " REST "o:I8:1=w n:I8:1=y "},
    {"new tensors are added in the order in which they were closed", "tensors",
     "tmkdir m; tput m/type I8; tput m/shape 1; tmkdir n; tput n/type I8; tput n/shape 1;"
     "topen A m/raw creat w; write A x; topen B n/raw creat w; write B y; flush A; flush B; "
     "release B;"
     "release A; fsync",
     MODEL "m:I8:1=x n:I8:1=y "},
    {"a new tensor refused at the end of the mount is logged once", "tensors close",
     "tmkdir n; tput n/type I8; tput n/shape 4; topen A n/raw creat w; trunc A 4;"
     "write A x " FAR " =EFBIG; release A; logged 'refused'; later 4; put a.name two; quiet;"
     "terror n 'long'; finish",
     MODEL},
    /* ---- a new tensor that replaces a removed one ---- */
    {"a tensor that replaces a removed one, refused once on a full disk, is the only one of its "
     "name",
     "sync tensors",
     "trmdir c; tmkdir c; tput c/type 'I8\n'; tput c/shape '4\n'; tput c/raw 'ABCD'; full; later 1;"
     "put a.count '10' =ENOSPC; fsync =ENOSPC; tlist . 'a b z c'; ttext c/raw 'ABCD'; full no;"
     "later 2; put a.count '9'; tput c/raw 'ABCD'; fsync; tlist . 'a b c z'",
     "a:I8:8=abcdefgh b:F32:2x3=1,2,3,4,5,6 c:I8:4=ABCD z:I8:20000=.{20000} "},
    {"a tensor that was removed stays removed if a rename to its name is refused", "tensors close",
     "trmdir c; tgone c/raw; full; later 1; tmv a c =ENOSPC; full no; tgone c/raw; later 3;"
     "fsync",
     "a:I8:8=abcdefgh b:F32:2x3=1,2,3,4,5,6 z:I8:20000=.{20000} "},
    {"a new tensor that cannot be written stays, and fsync tries again", "tensors auto close",
     "tmkdir n; tput n/type I8; tput n/shape 1; tput n/raw x; fail EIO; fsync =EIO; terror n "
     "'cannot'; "
     "tlist . 'a b c z n'; ttext n/raw x; fail; fsync",
     MODEL "n:I8:1=x "},
    {"a collected new tensor that cannot be written stays, and is named", "tensors sync",
     "tmkdir n; tput n/type I8; tput n/shape 1; tput n/raw x; trmdir c; fail EIO; fsync =EIO; owes "
     "tensors/n tensors/c; fail; fsync; tmkdir c; tput c/type I8; tput c/shape 4; tput c/raw wxyz; "
     "trmdir n",
     "a:I8:8=abcdefgh b:F32:2x3=1,2,3,4,5,6 z:I8:20000=.{20000} c:I8:4=wxyz "},
};

SCRIPTS_MAIN("live_makings", scripts)

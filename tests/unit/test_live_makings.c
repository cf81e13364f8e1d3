/* SPDX-License-Identifier: MIT */
/* Scripts that create new tensors step by step, and sometimes fail to add them. */
#include "script.h"

#define REST "b:F32:2x3=1,2,3,4,5,6 c:I8:4=wxyz z:I8:20000=.{20000} "
#define MODEL "a:I8:8=abcdefgh " REST
#define FAR "99999999999999999"

/* A new tensor, one of whose files is still open, is being added. */
#define MAKES_OPEN                                                                              \
    "mkdir /n; put /n/type I8; put /n/shape 4; open A /n/raw creat rw; write A abcd; flush A; " \
    "hold; & fsync; held; "

static const struct script scripts[] = {
    {"what an fsync that was interrupted would have heard is told to the next one", "tensors sync",
     "put /a/raw Xbcdefgh; hold; & fsync; held; mkdir /n; open A /n/raw creat w; write A abcd 0;"
     "write A x " FAR " =EFBIG; release A; put /n/type I8; put /n/shape 4; & fsync; interrupt; go;"
     "wait; wait =EINTR; rmdir /c; fsync =EFBIG; list / 'a b z n'",
     "a:I8:8=Xbcdefgh b:F32:2x3=1,2,3,4,5,6 z:I8:20000=.{20000} "},
    {"a tensor whose bytes were refused is not added", "tensors",
     "mkdir /n; put /n/type I8; put /n/shape 4; open A /n/raw creat w; trunc A 4; write A ab 0;"
     "write A x " FAR " =EFBIG; release A; logged 'tensors/n: refused: '; refused /n 'long'; fsync "
     "=EFBIG; list / 'a b c z n'; tfile " MODEL "; refused /n 'long'; put /n/raw abcd; fsync;"
     "text /n/raw abcd",
     MODEL "n:I8:4=abcd "},
    {"a tensor with refused bytes is not added, even if its type and shape come later", "tensors",
     "mkdir /n; open A /n/raw creat w; write A abcd 0; write A x " FAR " =EFBIG; release A;"
     "put /n/type I8; put /n/shape 4; fsync =EFBIG; list / 'a b c z n'; tfile " MODEL},
    {"refused values do not count if raw is written", "tensors",
     "mkdir /n; open A /n/f32 creat w; write A x " FAR " =EFBIG; release A; put /n/raw abcd;"
     "put /n/type I8; put /n/shape 4; fsync; text /n/raw abcd",
     MODEL "n:I8:4=abcd "},
    {"once a refused view is removed, the other views make the tensor", "tensors",
     "mkdir /n; open A /n/f32.npy creat rw trunc; npy A 2 '1 2'; close A; open A /n/f32 creat w;"
     "write A x " FAR " =EFBIG; release A; fsync =EFBIG; refused /n 'long'; rm /n/f32; fsync;"
     "values /n/f32 '1 2'",
     MODEL "n:F32:2=1,2 "},
    {"a new tensor whose values find no room is tried again by fsync, not by time", "tensors close",
     "mkdir /n; put /n/type F16; put /n/shape 2; open A /n/f32 creat w; poke A 0 '1 2'; close A;"
     "full; fsync =ENOSPC; refused /n 'draft'; full no; later 9; tfile " MODEL "; fsync;"
     "values /n/f32 '1 2'",
     MODEL "n:F16:2=4 "},
    {"fsync hears that a tensor which its timer is adding cannot be added", "tensors close",
     "behind 100; hold; mkdir /n; put /n/type I8; put /n/shape 2; put /n/raw 12; later 3; held;"
     "& fsync; fail EIO; go EIO; wait =EIO; tfile " MODEL "; fail; fsync",
     MODEL "n:I8:2=12 "},
    {"... and so does a second fsync", "tensors close",
     "mkdir /n; put /n/type I8; put /n/shape 2; put /n/raw 12; hold; & fsync; held; & fsync;"
     "fail EIO; go EIO; wait =EIO; wait =EIO; tfile " MODEL "; fail; fsync",
     MODEL "n:I8:2=12 "},
    {"fsync waits until the kernel releases a closed handle", "tensors",
     "mkdir /n; put /n/type I8; put /n/shape 1; open A /n/raw creat w; write A x; flush A; & fsync;"
     "& fsync; release A; wait; wait; tfile " MODEL "n:I8:1=x ",
     MODEL "n:I8:1=x "},
    {"fsync does not wait for a release at the end of the mount", "tensors",
     "still; mkdir /n; put /n/type I8; put /n/shape 1; open A /n/raw creat w; write A x; flush A;"
     "& fsync; hurry; wait; tfile " MODEL "n:I8:1=x ; release A",
     MODEL "n:I8:1=x "},
    {"what a new tensor lacks is reported at the end of the mount", "tensors",
     "mkdir /n; put /n/type I8; fsync; unsaved 'tensors/n: a new tensor: still needs shape, and "
     "raw or "
     "values;'; open A /n/f32.npy creat w; write A '\x93"
     "NUM'; close A; fsync; refused /n 'its NumPy header is incomplete'"},
    {"a new tensor keeps its place when it is edited and renamed", "tensors",
     "mkdir /m; put /m/type I8; put /m/shape 1; put /m/raw x; mkdir /n; put /n/type I8;"
     "put /n/shape 1; put /n/raw y; fsync; put /m/raw z; fsync; list / 'a b c z m n';"
     "put /a/raw 12345678; mv /m /o; put /o/raw w; fsync; list / 'a b c z o n'",
     "a:I8:8=12345678 " REST "o:I8:1=w n:I8:1=y "},
    {"new tensors are added in the order in which they were closed", "tensors",
     "mkdir /m; put /m/type I8; put /m/shape 1; mkdir /n; put /n/type I8; put /n/shape 1;"
     "open A /m/raw creat w; write A x; open B /n/raw creat w; write B y; flush A; flush B;"
     "release B; release A; fsync",
     MODEL "m:I8:1=x n:I8:1=y "},
    {"all new tensors are added in one rewrite, by fsync and by time", "tensors close",
     "mkdir /m; put /m/type I8; put /m/shape 1; put /m/raw x; later 1; mkdir /n; put /n/type I8;"
     "put /n/shape 1; put /n/raw y; hold; & fsync; held; go EIO; wait =EIO; tfile " MODEL
     "; put /m/raw z; put /n/raw w; later 1; hold; later 1; held; go EIO; tfile " MODEL "; fsync",
     MODEL "m:I8:1=z n:I8:1=w "},
    {"a new tensor refused at the end of the mount is logged once", "tensors close",
     "mkdir /n; put /n/type I8; put /n/shape 4; open A /n/raw creat w; trunc A 4; write A x " FAR
     " =EFBIG; release A; logged 'refused'; later 4; put a.name two; quiet;"
     "refused /n 'long'; finish"},
    {"what is stored through a mapping of a new tensor while it is added is an edit of it",
     "tensors", MAKES_OPEN "write A X 0; release A; go; wait; fsync; text /n/raw Xbcd",
     MODEL "n:I8:4=Xbcd "},
    {"what is written to a new tensor that is added as the mount ends is named", "tensors close",
     MAKES_OPEN "write A X 0; flush A; hurry; go; wait; refused /n 'cannot be judged'; release A",
     MODEL "n:I8:4=abcd "},
    {"a new tensor that is still being written when the daemon ends is not added", "tensors",
     "mkdir /n; put /n/type I8; put /n/shape 4; open A /n/raw creat w; trunc A 4; write A ab 0;"
     "finish"},
    /* ---- a new tensor that replaces a removed one ---- */
    {"a tensor that replaces a removed one, refused once on a full disk, is the only one of its "
     "name",
     "sync tensors",
     "rmdir /c; mkdir /c; put /c/type 'I8\n'; put /c/shape '4\n'; put /c/raw 'ABCD'; full; later 1;"
     "put a.count '10' =ENOSPC; fsync =ENOSPC; list / 'a b z c'; text /c/raw 'ABCD'; full no;"
     "later 2; put a.count '9'; put /c/raw 'ABCD'; fsync; list / 'a b c z'",
     "a:I8:8=abcdefgh b:F32:2x3=1,2,3,4,5,6 c:I8:4=ABCD z:I8:20000=.{20000} "},
    {"a tensor that was removed stays removed if a rename to its name is refused", "tensors close",
     "rmdir /c; gone /c/raw; full; later 1; mv /a /c =ENOSPC; full no; gone /c/raw; later 3; fsync",
     "a:I8:8=abcdefgh b:F32:2x3=1,2,3,4,5,6 z:I8:20000=.{20000} "},
    {"a new tensor that cannot be written stays, and fsync tries again", "tensors auto close",
     "mkdir /n; put /n/type I8; put /n/shape 1; put /n/raw x; fail EIO; fsync =EIO;"
     "refused /n 'cannot'; list / 'a b c z n'; text /n/raw x; fail; fsync",
     MODEL "n:I8:1=x "},
    {"a collected new tensor that cannot be written stays, and is named", "tensors sync",
     "mkdir /n; put /n/type I8; put /n/shape 1; put /n/raw x; rmdir /c; fail EIO; fsync =EIO; owes "
     "tensors/n tensors/c; fail; fsync; mkdir /c; put /c/type I8; put /c/shape 4; put /c/raw wxyz; "
     "rmdir /n",
     "a:I8:8=abcdefgh b:F32:2x3=1,2,3,4,5,6 z:I8:20000=.{20000} c:I8:4=wxyz "},
};

SCRIPTS_MAIN("live_makings", scripts)

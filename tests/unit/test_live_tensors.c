/* SPDX-License-Identifier: MIT */
/* Tensors edited as programs do it, as scripts. */
#include "script.h"

#define A "a:I8:8=abcdefgh "
#define B "b:F32:2x3=1,2,3,4,5,6 "
#define C "c:I8:4=wxyz "
#define BA "b:F32:2x3="

static const struct script scripts[] = {
    {"mv: a tensor has another name, and its bytes", "tensors",
     "tlist . 'a b c'; tmv a d; tlist . 'd b c'; ttext d/raw 'abcdefgh'; tgone a; fsync;"
     "tfile d:I8:8=abcdefgh " B C "; tmv d a; tmv b b; tmv d e =ENOENT; tmv a b =ENOTEMPTY;"
     "tmvnew a b =EEXIST; tmvnew a a =EEXIST; tmv a % =EINVAL; tmv a x%zz =EINVAL; tmv none x "
     "=ENOENT; tmv a b/x =EPERM; tmv a/raw a/x =EPERM",
     A B C},
    {"rm -r: gone at once, and from the file at fsync", "tensors",
     "trm a/raw; tgone a/raw; trm a/raw =ENOENT; trm a/none =ENOENT; trmdir a; tlist . 'b c';"
     "tgone a; trmdir a =ENOENT; trm a =EISDIR; trmdir b/raw =ENOTDIR; fsync; tfile " B C
     "; reopen; tlist . 'b c'",
     B C},
    {"the last tensor stays", "tensors",
     "trmdir a; trmdir b; trmdir c; tlist . ''; fsync =EPERM; tlist . 'a b c';"
     "terror a 'the model would have no tensor left'; tforgive a; terror a x =ENODATA",
     A B C},
    {"what was removed comes back at its place", "tensors",
     "trmdir b; fsync; tfile " A C "; tmkdir b; tput b/type F32; tput b/shape '2 3';"
     "tfloats b/f32 '1 2 3 4 5 6'; fsync; tfile " A B C,
     A B C},
    {"bytes of the same length", "tensors",
     "tput a/raw ABCDEFGH; ttext a/raw ABCDEFGH; fsync; tfile a:I8:8=ABCDEFGH " B C
     "; tput a/raw abcdefgh; tput a/raw abc =EINVAL; terror a 'it has 3 of 8 bytes'; ttext a/raw "
     "abcdefgh;"
     "tput a/raw abcdefghi =EFBIG; ttext a/raw abcdefgh",
     A B C},
    {"dd: some bytes in the middle", "tensors",
     "topen A a/raw rw; write A XY 2; read A abXYefgh; ttext a/raw abcdefgh; close A;"
     "ttext a/raw abXYefgh; topen A a/raw w; write A Z 7; flush A; write A Q 0; close A",
     "a:I8:8=QbXYefgZ " B C},
    {"values, of floats and of bytes", "tensors",
     "tfloats b/f32 '9 8 7 6 5 4'; tvalues b/f32 '9 8 7 6 5 4'; tvalues b/raw '9 8 7 6 5 4';"
     "tfloats c/f32 '65 66 67 68'; ttext c/raw ABCD; tfloats c/f32 '65.5 66 67 68' =ERANGE;"
     "tfloats c/f32 '65 66 67 128' =ERANGE; ttext c/raw ABCD; fsync",
     A BA "9,8,7,6,5,4 c:I8:4=ABCD "},
    {"an .npy: values alone", "tensors",
     "topen A b/f32.npy rw; tpoke A 128 '3 1'; tpoke A 148 '7'; close A; tvalues b/f32 '3 1 3 4 5 "
     "7'",
     A BA "3,1,3,4,5,7 " C},
    {"echo TYPE > type, SHAPE > shape", "tensors",
     "tput b/type 'F16\n'; ttext b/type 'F16\n'; tvalues b/f32 '1 2 3 4 5 6'; tstat b/raw 12;"
     "tput b/type F32; tput b/shape '6\n'; ttext b/shape '6\n'; tput b/shape '5\n' =EINVAL;"
     "tput b/shape 'x\n' =EINVAL; tput b/type 'none\n' =EINVAL; terror b 'none'; tput b/shape '3 "
     "2'",
     A "b:F32:3x2=1,2,3,4,5,6 " C},
    {"a type is converted when its line is whole", "tensors",
     "topen A b/type w trunc; write A F; write A 16; write A '\n'; ttext b/type 'F16\n'; close A;"
     "topen A b/type w trunc; close A; ttext b/type 'F16\n'; topen A b/type rw; write A XX;"
     "close A =EINVAL; tput b/type F32",
     A B C},
    {"a new tensor: mkdir, type, shape, raw", "tensors",
     "tmkdir n; tmkdir n =EEXIST; tmkdir a =EEXIST; tmkdir a/x =EPERM; tlist . 'a b c n';"
     "tlist n ''; terror n 'it is not whole yet'; tput n/type I8; tput n/shape 3; tlist n 'type "
     "shape';"
     "fsync; terror n 'raw'; tput n/raw 123; fsync; tfile " A B C
     "n:I8:3=123 ; ttext n/raw 123; ttext n/shape '3\n'",
     A B C "n:I8:3=123 "},
    {"a new tensor, by numpy alone", "tensors",
     "tmkdir n; topen A n/f32 creat w; tpoke A 0 '1 2'; close A; tput n/shape 2; fsync",
     A B C "n:F32:2=1,2 "},
    {"a new tensor that is renamed, and one that is removed", "tensors",
     "tmkdir n; tmkdir m; tmv n k; tlist . 'a b c k m'; tput k/type I8; tput k/raw x; trm k/raw;"
     "tgone k/raw; trm k/raw =ENOENT; tput k/raw yz; tput k/shape 2; trmdir m; fsync",
     A B C "k:I8:2=yz "},
    {"another view of the tensor is busy", "tensors",
     "topen A a/raw rw; write A X; topen B a/f32 w =EBUSY; topen B a/raw w; write B Y 1; close B;"
     "close A; topen B a/f32 w; close B",
     "a:I8:8=XYcdefgh " B C},
    {"rsync: a helper beside the view, renamed over it", "tensors",
     "topen A a/.raw.x1 creat excl w; write A 12345678; tlist a "
     "'type shape raw f32 f32.npy offset .raw.x1'; close A; ttext a/.raw.x1 12345678;"
     "tmv a/.raw.x1 a/raw; ttext a/raw 12345678; tgone a/.raw.x1; tput a/.h x; tmv a/.h a/.k; trm "
     "a/.k;"
     "tmv a/.k a/raw =ENOENT; tput a/.h 1; tmv a/.h a/raw =EINVAL; ttext a/.h 1; trm a/.h",
     "a:I8:8=12345678 " B C},
    {"two programs look again, each for its own", "tensors",
     "as 1; topen A a/raw rw; as 2; topen B a/raw rw; write A X 0; write B Y 1; read A XYcdefgh;"
     "close A; close B",
     "a:I8:8=XYcdefgh " B C},
    {"truncate and write again", "tensors",
     "topen A a/raw w trunc; write A 12345678; close A; topen A a/raw w; trunc A 4; close A;"
     "ttext a/raw 12345678; ttruncate a/raw 8; ttruncate a/raw 4; ttruncate a/raw 9 =EFBIG",
     "a:I8:8=12345678 " B C},
    {"a key and a tensor in one edit", "tensors",
     "put a.name two; tput a/raw ABCDEFGH; tmv c k; fsync; shown a.name:string=two a.count:u32=7 "
     "a.other:u32=8 a.list:array[i32]=1,2,3 ",
     "a:I8:8=ABCDEFGH " B "k:I8:4=wxyz "},
    {"in place: bytes that others still read", "tensors inplace",
     "topen A a/raw r; topen B b/f32 r; tput a/raw ABCDEFGH; fsync; read A abcdefgh;"
     "tfloats b/f32 '6 5 4 3 2 1'; fsync; ttext a/raw ABCDEFGH; close A; close B",
     "a:I8:8=ABCDEFGH " BA "6,5,4,3,2,1 " C},
    {"a copy that fails: all as before", "tensors close",
     "fail EIO; tput a/raw ABCDEFGH =EIO; ttext a/raw abcdefgh; tmv a d =EIO; tlist . 'a b c';"
     "fail; tput a/raw 12345678",
     "a:I8:8=12345678 " B C},
};

SCRIPTS_MAIN("live_tensors", scripts)

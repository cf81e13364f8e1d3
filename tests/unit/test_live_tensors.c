/* SPDX-License-Identifier: MIT */
/* Scripts that edit tensors as programs do. */
#include "script.h"

#define A "a:I8:8=abcdefgh "
#define B "b:F32:2x3=1,2,3,4,5,6 "
#define Z "z:I8:20000=.{20000} "
#define C "c:I8:4=wxyz " Z
#define BA "b:F32:2x3="

#define BYTES_60 "012345678901234567890123456789012345678901234567890123456789"

/* A new tensor whose next write is held. */
#define MAKES "tmkdir n; tput n/type I8; tput n/shape 3; tput n/raw abc; hold; "

static const struct script scripts[] = {
    {"mv renames a tensor and keeps its bytes", "tensors",
     "tlist . 'a b c z'; tmv a d; tlist . 'd b c z'; ttext d/raw 'abcdefgh'; tgone a; fsync;"
     "tfile d:I8:8=abcdefgh " B C "; tmv d a; tmv b b; tmv d e =ENOENT; tmv a b =ENOTEMPTY;"
     "tmvnew a b =EEXIST; tmvnew a a =EEXIST; tmv a % =EINVAL; tmv a x%zz =EINVAL; tmv none x "
     "=ENOENT; tmv a b/x =EPERM; tmv a/raw a/x =EPERM",
     A B C},
    {"rm -r hides a tensor immediately, and fsync removes it from the file", "tensors",
     "trm a/raw; tgone a/raw; trm a/raw =ENOENT; trm a/none =ENOENT; trmdir a; tlist . 'b c z';"
     "tgone a; trmdir a =ENOENT; trm a =EISDIR; trmdir b/raw =ENOTDIR; fsync; tfile " B C
     "; reopen; tlist . 'b c z'",
     B C},
    {"raw bytes of the same length can be written", "tensors",
     "tput a/raw ABCDEFGH; ttext a/raw ABCDEFGH; fsync; tfile a:I8:8=ABCDEFGH " B C
     "; tput a/raw abcdefgh; tput a/raw abc =EINVAL; terror a 'it has 3 of 8 bytes'; ttext a/raw "
     "abcdefgh;"
     "tput a/raw abcdefghi =EFBIG; ttext a/raw abcdefgh",
     A B C},
    {"dd writes some bytes in the middle", "tensors",
     "topen A a/raw rw; write A XY 2; read A abXYefgh; ttext a/raw abXYefgh; tvalues "
     "a/f32 '97 98 99 100 101 102 103 104'; close A; tvalues a/f32 '97 98 88 89 101 102 103 104'; "
     "ttext a/raw abXYefgh; topen A a/raw w; write A Z 7; flush A; write A Q 0; close A",
     "a:I8:8=QbXYefgZ " B C},
    {"values of floats and of bytes can be written", "tensors",
     "tfloats b/f32 '9 8 7 6 5 4'; tvalues b/f32 '9 8 7 6 5 4'; tvalues b/raw '9 8 7 6 5 4';"
     "tfloats c/f32 '65 66 67 68'; ttext c/raw ABCD; tfloats c/f32 '65.5 66 67 68' =ERANGE;"
     "tfloats c/f32 '65 66 67 128' =ERANGE; terror c 'exactly as I8'; ttext c/raw ABCD; fsync",
     A BA "9,8,7,6,5,4 c:I8:4=ABCD " Z},
    {"a program writes some values of an .npy in place", "tensors",
     "topen A b/f32.npy rw; tpoke A 128 '3 1'; tpoke A 148 '7'; close A; tvalues b/f32 '3 1 3 4 5 "
     "7'",
     A BA "3,1,3,4,5,7 " C},
    {"echo changes a type or shape", "tensors",
     "tput b/type 'F16\n'; ttext b/type 'F16\n'; tvalues b/f32 '1 2 3 4 5 6'; tstat b/raw 12;"
     "tput b/type F32; tput b/shape '6\n'; ttext b/shape '6\n'; tput b/shape '5\n' =EINVAL;"
     "tput b/shape 'x\n' =EINVAL; tput b/type 'none\n' =EINVAL; terror b 'none'; tput b/shape '3 "
     "2'",
     A "b:F32:3x2=1,2,3,4,5,6 " C},
    {"a type is converted once its line is complete", "tensors",
     "topen A b/type w trunc; write A F; write A 16; write A '\n'; ttext b/type 'F16\n'; close A;"
     "topen A b/type w trunc; close A; ttext b/type 'F16\n'; topen A b/type rw; write A XX;"
     "close A =EINVAL; tput b/type F32",
     A B C},
    {"a new tensor is made with mkdir, type, shape and raw", "tensors",
     "tmkdir n; tmkdir n =EEXIST; tmkdir a =EEXIST; tmkdir a/x =EPERM; tlist . 'a b c z n';"
     "tlist n ''; terror n 'it is not complete yet'; tput n/type I8; tput n/shape 3; tlist n 'type "
     "shape';"
     "fsync; terror n 'raw'; tput n/raw 123; fsync; tfile " A B C
     "n:I8:3=123 ; ttext n/raw 123; ttext n/shape '3\n'",
     A B C "n:I8:3=123 "},
    {"a new tensor is made from f32 and a shape", "tensors",
     "tmkdir n; topen A n/f32 creat w; tpoke A 0 '1 2'; close A; tput n/shape 2; fsync",
     A B C "n:F32:2=1,2 "},
    {"one new tensor is renamed, and one is removed", "tensors",
     "tmkdir n; tmkdir m; tmv n k; tlist . 'a b c z k m'; tput k/type I8; tput k/raw x; trm k/raw;"
     "tgone k/raw; trm k/raw =ENOENT; tput k/raw yz; tput k/shape 2; trmdir m; fsync",
     A B C "k:I8:2=yz "},
    {"a view cannot be written while another view of the tensor is", "tensors",
     "topen A a/raw rw; write A X; topen B a/f32 w =EBUSY; topen B a/raw w; write B Y 1; close B;"
     "close A; topen B a/f32 w; close B",
     "a:I8:8=XYcdefgh " B C},
    {"a view that was flushed before it was whole keeps others out", "tensors",
     "topen A a/raw w trunc; write A 1234; flush A =EINVAL; topen B a/f32 w =EBUSY;"
     "write A 5678 4; close A;"
     "topen B a/f32 w; close B",
     "a:I8:8=12345678 " B C},
    {"the last tensor is removed while the removal of another one is written", "tensors close",
     "trmdir a; hold; & fsync; held; trmdir b; trmdir c; trmdir z =EPERM; tlist . 'b c z'; go;"
     "wait; tlist . 'b c z'; fsync; tlist . 'b c z'",
     B C},
    {"a new tensor is removed while it is written", "tensors close",
     MAKES "& fsync; held; trmdir n; tgone n; go; wait; tgone n; fsync", A B C},
    {"... and that fails", "tensors close",
     MAKES "& fsync; held; trmdir n; tgone n; go EIO; wait =EIO; tgone n; fsync", A B C},
    {"a new tensor is renamed while it is written", "tensors close",
     MAKES "& fsync; held; & tmv n k; go; wait; wait; tgone n; tlist . 'a b c z k'; fsync",
     A B C "k:I8:3=abc "},
    {"... and that fails", "tensors close",
     MAKES "& fsync; held; & tmv n k; go EIO; wait =EIO; wait; tlist . 'a b c z k'; fsync",
     A B C "k:I8:3=abc "},
    {"a new tensor is written while it is added", "tensors close",
     MAKES "& fsync; held; topen B n/raw w; write B xyz; & flush B; release B; go; wait; wait;"
           "ttext n/raw xyz; fsync",
     A B C "n:I8:3=xyz "},
    {"... and that fails", "tensors close",
     MAKES
     "& fsync; held; topen B n/raw w; write B xyz; & flush B; release B; go EIO; wait =EIO; wait;"
     "ttext n/raw xyz; fsync",
     A B C "n:I8:3=xyz "},
    {"two programs write one view, each at its own offset", "tensors",
     "topen A a/raw rw; topen B a/raw rw; write A X 0; write B Y 1; read A XYcdefgh;"
     "close A; close B",
     "a:I8:8=XYcdefgh " B C},
    {"a view is truncated and written again", "tensors",
     "topen A a/raw w trunc; write A 12345678; close A; topen A a/raw w; trunc A 4; close A;"
     "ttext a/raw 12345678; ttruncate a/raw 8; ttruncate a/raw 4; ttruncate a/raw 9 =EFBIG",
     "a:I8:8=12345678 " B C},
    {"a key and a tensor are written in one edit", "tensors",
     "put a.name two; tput a/raw ABCDEFGH; tmv c k; fsync; shown a.name:string=two a.count:u32=7 "
     "a.other:u32=8 a.list:array[i32]=1,2,3 ",
     "a:I8:8=ABCDEFGH " B "k:I8:4=wxyz " Z},
    {"in place: readers see the changed bytes", "tensors inplace",
     "topen A a/raw r; topen B b/f32 r; tput a/raw ABCDEFGH; fsync; read A ABCDEFGH;"
     "tfloats b/f32 '6 5 4 3 2 1'; fsync; ttext a/raw ABCDEFGH; close A; close B",
     "a:I8:8=ABCDEFGH " BA "6,5,4,3,2,1 " C},
    {"a failed copy leaves everything as before", "tensors close",
     "fail EIO; tput a/raw ABCDEFGH =EIO; ttext a/raw abcdefgh; tmv a d =EIO; tlist . 'a b c z';"
     "fail; tput a/raw 12345678",
     "a:I8:8=12345678 " B C},
    /* ---- parts of a tensor that has several pages ---- */
    {"parts of a tensor are read before and after they are written", "tensors",
     "topen A z/raw rw; write A one 4095; write A two 8190; write A X 0; write A Y 19999; flush A;"
     "ttext z/raw 'X.{4094}one.{4092}two.{11806}Y'; write A Z 12288; close A;"
     "ttext z/raw 'X.{4094}one.{4092}two.{4095}Z.{7710}Y'; topen A z/f32 rw; tpoke A 4 '65 66'; "
     "close A;"
     "ttext z/raw 'XAB.{4092}one.{4092}two.{4095}Z.{7710}Y'; fsync; topen A z/raw w; write A @ 5; "
     "close A; ttext z/raw 'XAB..@.{4089}one.{4092}two.{4095}Z.{7710}Y'",
     A B "c:I8:4=wxyz z:I8:20000=XAB..@.{4089}one.{4092}two.{4095}Z.{7710}Y "},
    {"parts of a renamed and reshaped tensor are written", "tensors",
     "put a.name two; topen A z/raw rw; write A one 10; close A; tmv z y; tput y/shape '2 10000';"
     "ttext y/raw '.{10}one.{19987}'; topen A y/raw rw; write A two 13; close A; fsync;"
     "ttext y/raw '.{10}onetwo.{19984}'",
     A B "c:I8:4=wxyz y:I8:2x10000=.{10}onetwo.{19984} "},
    {"in place: parts of a tensor are written while other programs read it", "tensors inplace",
     "topen A z/raw r; topen B z/raw w; write B one 4095; close B; fsync; ttext z/raw "
     "'.{4095}one.{15902}'; topen C z/raw r; topen B z/raw w; write B 1 0; write B 2 19999; close "
     "B;"
     "fsync; ttext z/raw '1.{4094}one.{15901}2'; tput c/raw WXYZ; fsync; close A; close C;"
     "topen B z/raw w; write B 3 0; close B; fsync",
     A B "c:I8:4=WXYZ z:I8:20000=3.{4094}one.{15901}2 "},
    {"in place: a different length is refused", "tensors inplace sync",
     "tput b/type F16 =EOPNOTSUPP; ttext b/type 'F32\n'; put a.name two; fsync; tmkdir n;"
     "tput n/shape 1; tfloats n/f32 1; fsync =EOPNOTSUPP; tlist . 'a b c z n'",
     A B C},
    {"a tensor with more parts than can be mapped one by one", "tensors sync",
     "topen A z/raw w; tdots A 255 70; close A; tdotted z/raw 255 70; topen A z/raw w; tdots A 285 "
     "70;"
     "close A; tdotted z/raw 285 70; mv a.name a.nom; tdotted z/raw 285 70; fsync; tdotted z/raw "
     "285 70;"
     "tput z/raw x =EINVAL; tdotted z/raw 285 70; trmdir z",
     A B "c:I8:4=wxyz "},
    {"in place: parts are written over bytes kept for readers", "tensors inplace sync",
     "topen A z/raw r; topen B z/raw w; write B one 4095; close B; fsync; topen C z/raw r;"
     "topen B z/raw w; write B two 5; close B; ttext z/raw '.....two.{4087}one.{15902}'; fsync;"
     "topen B z/raw w; write B 3 0; write B 4 19999; close B; ttext z/raw "
     "'3....two.{4087}one.{15901}4'; mv a.name a.nom; ttext z/raw '3....two.{4087}one.{15901}4';"
     "fsync; close A; close C; ttext z/raw '3....two.{4087}one.{15901}4'; mv a.nom a.name",
     A B "c:I8:4=wxyz z:I8:20000=3....two.{4087}one.{15901}4 "},
    /* ---- edits that are refused at the end ---- */
    {"an accepted part stays when the rest is refused", "tensors",
     "topen A c/f32 rw; tpoke A 0 '65 66'; flush A; ttext c/raw AByz; tpoke A 8 '1.5'; close A "
     "=ERANGE;"
     "ttext c/raw AByz; terror c '1.5'; tput c/raw wxyz; topen A z/f32 w; tpoke A 0 '65'; tpoke A "
     "40000 '66'; flush "
     "A;"
     "ttext z/raw 'A.{9999}B.{9999}'; tpoke A 80 '1000'; close A =ERANGE;"
     "ttext z/raw 'A.{9999}B.{9999}'",
     A B "c:I8:4=wxyz z:I8:20000=A.{9999}B.{9999} "},
    {"an .npy of a different shape is accepted, and one with bad values is refused", "tensors",
     "topen A b/f32.npy rw trunc; tnpy A '3, 1' '7 8 9'; close A; tvalues b/f32 '7 8 9';"
     "ttext b/shape '3 1\n'; topen A c/f32.npy rw trunc; tnpy A '2, 3' '1 2 3 4 5 6'; flush A;"
     "ttext c/shape '2 3\n'; tpoke A 128 '0.5'; close A =ERANGE; ttext c/shape '2 3\n';"
     "tput c/raw ABCDEF",
     A "b:F32:3x1=7,8,9 c:I8:2x3=ABCDEF " Z},
    /* ---- texts ---- */
    {"texts are appended to, read during a write, and refused if too long", "tensors",
     "topen A b/type rw trunc; write A F1; read A F1; size A 2; write A 6; trunc A 2;"
     "write A 'X\n' 2 =EINVAL; read A 'F1X\n'; close A =EINVAL; topen A b/type rw; write A 'F16\n' "
     "0; close A; ttext b/type 'F16\n';"
     "tadd b/type 'F32\n' =EINVAL; tput b/type 'F32\n'; topen A b/shape w trunc; write A 6 5; "
     "close A =EINVAL; topen A b/shape w trunc; write A 6 5000 =EFBIG; close A =EFBIG; topen A "
     "b/type w append trunc; write A F3; write A '2\n'; close A; tput "
     "b/type F32",
     A B C},
    {"texts that name a type, and texts that do not", "tensors",
     "tput b/type 'f16\r\n'; ttext b/type 'F16\n'; tput b/type '  F32 \t\n\n  '; tput b/type F16;"
     "tput b/type 'F32 '; ttext b/type 'F32\n'; tput b/type F1 =EINVAL; terror b 'did you mean "
     "F16';"
     "tput b/type ' ' =EINVAL; tput b/type 'F 16' =EINVAL; tput b/type 'F16\nx' =EINVAL;"
     "terror b 'more than one line'; tput b/type unknown:7x =EINVAL; tput b/type unknown:77 "
     "=EOPNOTSUPP; terror b 'unknown:77'; tput b/type 'Q4_2\n' =EOPNOTSUPP; terror b 'retired';"
     "ttext b/type 'F32\n'",
     A B C},
    {"texts that are a shape, and texts that are not", "tensors",
     "tput b/shape ' 3\t2 \r\n\n'; ttext b/shape '3 2\n'; tput b/shape '02 3'; tput b/shape '2 3 ';"
     "tput b/shape '6 0' =EINVAL; tput b/shape '1 1 1 2 3' =EINVAL; tput b/shape '2,3' =EINVAL;"
     "tput b/shape '(2 3)\n' =EINVAL; tput b/shape '-6\n' =EINVAL; tput b/shape '2 3\n4' =EINVAL;"
     "tput b/shape '4294967296 4294967296' =EINVAL; terror b 'overflows'; tput b/shape "
     "18446744073709551622 =EINVAL; ttext b/shape '2 3\n'",
     A B C},
    {"a shorter shape is written over the old one, whose rest is then cut off", "tensors",
     "topen A b/shape rw; size A 4; write A '6\n' 0; ttext b/shape '6\n3\n'; trunc A 2; close A;"
     "ttext b/shape '6\n'; topen A b/shape rw; write A '3 2\n' 0; ttext b/shape '3 2\n'; close A;"
     "topen A b/shape rw; write A '6\n' 0; close A =EINVAL; ttext b/shape '3 2\n'; tput b/shape '2 "
     "3'",
     A B C},
    {"a view too short at the close is dropped, even if a reader still has it open", "tensors",
     "topen A a/raw rw trunc; write A 123; tnote A; tnode B r; read B 123; close A =EINVAL;"
     "ttext a/raw abcdefgh; topen A a/raw rw; write A X 1; close A; ttext a/raw aXcdefgh; close B",
     "a:I8:8=aXcdefgh " B C},
    {"fallocate succeeds within the size of a view", "tensors",
     "topen A a/raw w; allocate A 0 8; allocate A 0 9 =EFBIG; allocate A 0 9 keep; "
     "allocate A 18446744073709551615 2 =EFBIG; allocate A 4 4 keep; write A X 1; close A;"
     "topen A a/raw r; allocate A 0 8 =EOPNOTSUPP; close A; topen A a/type w; allocate A 0 8; "
     "close A",
     "a:I8:8=aXcdefgh " B C},
    {"fsync of a handle writes what it has accepted", "tensors",
     "topen A a/raw w; write A X; fsync A; tfile a:I8:8=Xbcdefgh " B C
     "; write A Y 1; fsync A; close A;"
     "topen A c/f32 w; tpoke A 0 '0.5'; fsync A =ERANGE; close A =ERANGE; topen A b/type w trunc;"
     "write A F1; fsync A =EINVAL; trunc A 0; write A 'F16\n' 0; fsync A; close A; tput b/type F32",
     "a:I8:8=XYcdefgh " B C},
    /* ---- new tensors ---- */
    {"a new tensor takes the name of one just removed", "tensors",
     "trmdir a; tmkdir a; tlist . 'b c z a'; tput a/type I8; tput a/shape 8; tput a/raw 12345678;"
     "fsync; tlist . 'a b c z'; trmdir c; tmv a c; tlist . 'c b z'; fsync",
     "c:I8:8=12345678 " B Z},
    {"a tensor is renamed over a new tensor that was removed", "tensors",
     "tmkdir n; tput n/type I8; tput n/shape 2; tput n/raw xy; later 3; ttext n/raw xy; trmdir n;"
     "tmv c n; tlist . 'a b n z'; fsync",
     A B "n:I8:4=wxyz " Z},
    {"names of new tensors have at most 63 bytes and no NUL", "tensors",
     "tmkdir n; tmkdir m; tmv n % =EINVAL; tmv n 'x%00y' =EINVAL; tmv n x%zz =EINVAL;"
     "tmv n " BYTES_60 "0123 =ENAMETOOLONG; tmv n " BYTES_60 BYTES_60 BYTES_60 BYTES_60
     "0123456789abcdef =ENAMETOOLONG; tmv n " BYTES_60
     "%~0123456789abcdef =ENAMETOOLONG; tmv n m =ENOTEMPTY;"
     "tmkdir " BYTES_60 "0123 =ENAMETOOLONG; tmkdir " BYTES_60 "%~0123456789abcdef =ENAMETOOLONG;"
     "tmkdir " BYTES_60 "012; tmv n " BYTES_60 "210; tlist . 'a b c z " BYTES_60 "210 m " BYTES_60
     "012'; tgone n; tmv m n; tgone m; trmdir " BYTES_60 "210; trmdir " BYTES_60 "012; trmdir n;"
     "tlist . 'a b c z'; fsync",
     A B C},
    {"two new tensors are edited before they are written", "tensors",
     "tmkdir n; tput n/type I8; tput n/raw 12; tput n/shape 2; tmkdir m; tput m/shape 1; tfloats "
     "m/f32 5;"
     "put a.name two; fsync; ttext n/raw 12; tput n/raw 34; topen A m/f32 w; tpoke A 0 6; close A;"
     "tmv n k; tmv m l; tput l/type F16; ttext k/raw 34; tvalues l/f32 6; trmdir k; fsync",
     A B C "l:F16:1=2 "},
    /* ---- files that are not closed ---- */
    {"what no close has judged is dropped at the end of the mount", "tensors",
     "topen A a/raw w; write A X; topen B b/type w; tmkdir n; topen C n/raw creat w; write C 1; "
     "finish",
     A B C},
    {"a refused edit is reported as not saved", "tensors",
     "tput c/raw x =EINVAL; unsaved 'tensors/c: it has 1 of 4 bytes;'; tforgive c; unsaved; tput "
     "c/raw x =EINVAL",
     A B C},
    {"views that cannot be written are ignored", "tensors",
     "tput a/offset 5; tput a/stats x; trm a/offset; tput a/offset 7; ttruncate a/offset 0;"
     "topen A a/offset w; write A x; allocate A 0 5; fsync A; close A",
     A B C},
    {"programs look up views that they never open", "tensors",
     "topen A a/raw r; close A; topen A a/raw rw; topen B a/raw rw; write A 1 0; write "
     "B 2 1;"
     "close A; close B; topen A c/raw w; topen B c/raw w; topen C z/raw w; write C x; "
     "close C;"
     "close A; close B; topen A a/raw w; topen B c/raw w; close A; close B",
     "a:I8:8=12cdefgh " B "c:I8:4=wxyz z:I8:20000=x.{19999} "},
    {"only the keys of a split model can be edited", "tensors split",
     "tlist . 'a b c z other'; tmv other o =EROFS; trmdir a =EROFS; tmkdir n =EROFS;"
     "topen A a/raw w =EROFS; terror a 'merge it first'; put a.name two; fsync; ttext a/raw "
     "abcdefgh",
     "a:I8:8=abcdefgh " B "c:I8:4=wxyz " Z "other:I8:9001=-{9001} "},
    /* ---- access by nodes ---- */
    {"a node is opened for writing while another view is being written", "tensors",
     "topen A a/raw rw; tnote A; topen B a/raw r; tnode C r;"
     "close C; close B; close A; topen A a/f32 rw; tpoke A 0 '65';"
     "tnode C w =EBUSY; tnode C r; close C; close A; tnode C w; write C B; close C",
     "a:I8:8=Bbcdefgh " B C},
    /* ---- failures ---- */
    {"a tensor that cannot be added fails no other program", "tensors",
     "tmkdir n; tput n/type Q8_0; tput n/shape 1; later 4; put a.name 'new'; open A a.name rw; "
     "fsync A;"
     "close A; tlist . 'a b c z n'",
     A B C},
    /* ---- rare cases ---- */
    {"views that are ignored can be written, read and synced", "tensors",
     "topen A a/offset rw; write A 5; trunc A 0; allocate A 0 8; read A ''; flush A; fsync A; "
     "close "
     "A; trm a/offset; topen A a/offset creat rw; write A 5; close A",
     A B C},
    {"writes are refused one after another", "tensors",
     "topen A a/raw w; write A x 8 =EFBIG; write A x 8 =EFBIG; close A =EFBIG; topen A b/shape w "
     "trunc; write A 2 5000 =EFBIG; write A 2 5000 =EFBIG; terror b 'at most'; "
     "trunc A 0; write A '6\n' 0; close A; topen A b/type w; write A '' 0; close A",
     A "b:F32:6=1,2,3,4,5,6 " C},
    {"files that a new tensor lacks do not exist", "tensors",
     "tmkdir n; tgone n/raw; tgone n/none; trm n/raw =ENOENT; tput n/offset 1; trm n/offset; trm "
     "n/offset =ENOENT; tput n/type I8; tforgive n; terror n 'not complete yet'; trm n/type; tput "
     "n/shape 1; tput n/raw x; trm n/shape; fsync; terror n 'still needs'; trmdir n",
     A B C},
    {"a tensor takes the name of one that was removed", "tensors",
     "trmdir b; fsync; tmv c b; tmv b d; tmkdir b; tput b/type I8; tput b/shape 1; tput b/raw x;"
     "fsync; tlist . 'a d z b'; tgone 'x%~0123456789abcdef'",
     A "d:I8:4=wxyz " Z "b:I8:1=x "},
    {"values are refused if their header is missing", "tensors",
     "topen A z/f32.npy w trunc; write A xxxx 70000; flush A =EINVAL; close A =EINVAL;"
     "terror z 'its NumPy header is incomplete'; ttext z/raw '.{20000}'",
     A B C},
    {"a reader of an earlier state calls fsync after the last writer has closed",
     "tensors auto close",
     "topen A a/raw rw; write A X; flush A; tnote A; tnode R r; write A Y 1; close A; fsync R;"
     "read R XYcdefgh; close R; fsync",
     "a:I8:8=XYcdefgh " B C},
    {"a draft is dropped, and the next one at the same node is accepted", "tensors",
     "topen A a/raw r; topen B a/raw w trunc; write B 12; close B =EINVAL; ttext a/raw abcdefgh; "
     "topen B a/raw w; write B X; close B; close A",
     "a:I8:8=Xbcdefgh " B C},
    {"pending edits are written as soon as the end is announced", "tensors",
     "tput a/raw 12345678; hurry; finish", "a:I8:8=12345678 " B C},
    /* ---- one edit at a time ---- */
    {"the last tensor cannot be removed, and the attempt brings back what is not written",
     "tensors",
     "trmdir a; trmdir b; trmdir c; tlist . z; trmdir z =EPERM; tlist . 'a b c z'; ttext a/raw "
     "abcdefgh; terror z 'no tensor left'; fsync; tforgive z; terror z x =ENODATA",
     A B C},
    {"a tensor that is removed and made again before that is written gets its place back",
     "tensors",
     "trmdir b; tmkdir b; tput b/type F32; tput b/shape '2 3'; tfloats b/f32 '6 5 4 3 2 1'; fsync;"
     "tfile " A BA "6,5,4,3,2,1 " C "; trmdir a; fsync; tmkdir a; tput a/type I8; tput a/shape 2;"
     "tput a/raw xy; fsync",
     BA "6,5,4,3,2,1 " C "a:I8:2=xy "},
    {"a tensor takes the name of one whose removal is not written", "tensors",
     "trmdir b; tmv c b; ttext b/raw wxyz; fsync", A "b:I8:4=wxyz " Z},
    {"a tensor's folder holds its views and nothing else", "tensors",
     "topen A a/.raw.x1 creat excl w =EPERM; tput a/none x =EPERM; tmv a/raw a/x =EPERM; trm a/.h "
     "=ENOENT; tmkdir n; tput n/.t I8 =EPERM; tlist n ''; trmdir n",
     A B C},
    {"who has a view open sees what is written to it, everybody else what was accepted", "tensors",
     "topen A a/raw r; topen B a/raw rw; write B X; read A Xbcdefgh; tvalues a/f32 '97 98 99 100 "
     "101 102 103 104'; write B 1 99 =EFBIG; flush B =EFBIG; close B =EFBIG; read A abcdefgh;"
     "topen B a/raw w; write B Y 1; close B; read A aYcdefgh; close A",
     "a:I8:8=aYcdefgh " B C},
    {"a program writes on after another view was edited", "tensors",
     "topen A z/raw rw; write A one; flush A; topen B z/f32 rw; tpoke B 40000 '66'; write A X 5 "
     "=EBUSY; close B; write A two 100; close A; ttext z/raw 'one.{97}two.{9897}B.{9999}'",
     A B "c:I8:4=wxyz z:I8:20000=one.{97}two.{9897}B.{9999} "},
    {"a refused view whose program has closed it keeps nobody from another one", "tensors",
     "topen A c/f32 w trunc; tpoke A 0 '1 2 3 0.5'; flush A =ERANGE; tput c/raw WXYZ; release A;"
     "ttext c/raw WXYZ",
     A B "c:I8:4=WXYZ " Z},
    {"a view that is too short stays with the program that writes it", "tensors",
     "topen A a/raw w trunc; write A 1234; flush A =EINVAL; ttext a/type 'I8\n'; write A 5678; "
     "close A",
     "a:I8:8=12345678 " B C},
    {"a new tensor waits for the files that are being written, and is judged two seconds later",
     "tensors auto",
     "tmkdir n; tput n/type I8; tput n/shape 4; topen A n/raw creat w; write A 12; fsync; terror n "
     "'has 2 of 4 bytes'; write A 34; close A; tput n/f32 xx; ttext n/f32 ''; fsync; tlist . 'a b "
     "c "
     "z n'",
     A B C "n:I8:4=1234 "},
    {"what is written to a new tensor after it was judged is an edit of it", "tensors",
     "tmkdir n; tput n/type I8; tput n/shape 4; topen A n/raw creat rw; write A 1234; fsync; write "
     "A X 1; read A 1X34; close A; ttext n/raw 1X34",
     A B C "n:I8:4=1X34 "},
    {"what is written to a removed tensor is gone with it", "tensors",
     "topen A a/raw w; write A X; trmdir a; write A Y; close A; fsync; tmkdir n; topen A n/raw "
     "creat "
     "w; write A 1; trmdir n; write A 2; close A",
     B C},
    {"collected edits of tensors stay when they cannot be written", "tensors sync",
     "tput a/raw 12345678; tmv c k; trmdir b; fail EIO; fsync =EIO; tlist . 'a k z'; ttext a/raw "
     "12345678; ttext k/raw wxyz; fail; fsync",
     "a:I8:8=12345678 k:I8:4=wxyz " Z},
    {"an edit waits for the one before it", "tensors close",
     "topen A a/raw w; topen B c/raw w; write A 12345678; write B WXYZ; hold; & flush A; held; & "
     "flush B; & tmv z y; tvalues a/f32 '97 98 99 100 101 102 103 104'; go; wait; wait; wait; "
     "close A; close B; tlist . 'a "
     "b c y'",
     "a:I8:8=12345678 " B "c:I8:4=WXYZ y:I8:20000=.{20000} "},
    {"an edit whose write fails is taken back, and the view is judged again", "tensors close",
     "topen A a/raw rw; write A 12345678; fail EIO; flush A =EIO; tvalues a/f32 '97 98 99 100 101 "
     "102 103 104'; fail; flush A; close A",
     "a:I8:8=12345678 " B C},
    {"the header of an .npy alone is no error for ten seconds", "tensors",
     "topen A b/f32.npy rw trunc; tnpy A '3, 2' ''; close A; terror b x =ENODATA; tstat b/f32.npy "
     "128; later 9; topen A b/f32.npy rw; tpoke A 128 '6 5 4 3 2 1'; close A; ttext b/shape '3 "
     "2\n'; topen A b/f32.npy rw trunc; tnpy A '6' ''; close A; later 11; tstat b/f32.npy 152;"
     "ttext b/shape '3 2\n'; topen A b/f32.npy rw; tpoke A 128 '9'; close A",
     A "b:F32:3x2=9,5,4,3,2,1 " C},
    {"an unfinished new tensor is dropped with what it lacks", "tensors",
     "tmkdir n; tmkdir m; tput m/type I8; fsync; unsaved 'tensors/m: a new tensor: still needs "
     "shape, and raw or values;tensors/n: a new tensor: it is not complete yet;'",
     A B C},
};

SCRIPTS_MAIN("live_tensors", scripts)

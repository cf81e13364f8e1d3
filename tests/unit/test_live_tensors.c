/* SPDX-License-Identifier: MIT */
/* Scripts that edit tensors, and make them, as programs do. */
#include "script.h"

#define A "a:I8:8=abcdefgh "
#define B "b:F32:2x3=1,2,3,4,5,6 "
#define Z "z:I8:20000=.{20000} "
#define C "c:I8:4=wxyz " Z
#define BA "b:F32:2x3="

#define BYTES_60 "012345678901234567890123456789012345678901234567890123456789"

/* How a write that is held ends. */
#define GOES_OR_FAILS "go; wait|go EIO; wait =EIO"
/* A new tensor whose next write is held. */
#define MAKES "mkdir /n; put /n/type I8; put /n/shape 3; put /n/raw abc; hold; "
#define FAR "99999999999999999"

/* A new tensor, one of whose files is still open, is being added. */
#define MAKES_OPEN                                                                              \
    "mkdir /n; put /n/type I8; put /n/shape 4; open A /n/raw creat rw; write A abcd; flush A; " \
    "hold; & fsync; held; "

static const struct script scripts[] = {
    {"mv renames a tensor and keeps its bytes", "tensors",
     "list / 'a b c z'; mv /a /d; list / 'd b c z'; text /d/raw 'abcdefgh'; gone /a; fsync;"
     "tfile d:I8:8=abcdefgh " B C "; mv /d /a; mv /b /b; mv /d /e =ENOENT; mv /a /b =ENOTEMPTY;"
     "mvnew /a /b =EEXIST; mvnew /a /a =EEXIST; mv /a /% =EINVAL; mv /a /x%zz =EINVAL; mv /none /x "
     "=ENOENT; mv /a /b/x =EPERM; mv /a/raw /a/x =EPERM"},
    {"rm -r hides a tensor immediately, and fsync removes it from the file", "tensors",
     "rm /a/raw; gone /a/raw; rm /a/raw =ENOENT; rm /a/none =ENOENT; rmdir /a; list / 'b c z';"
     "gone /a; rmdir /a =ENOENT; rm /a =EISDIR; rmdir /b/raw =ENOTDIR; fsync; tfile " B C
     "; reopen; list / 'b c z'",
     B C},
    {"dd writes some bytes in the middle", "tensors",
     "open A /a/raw rw; write A XY 2; read A abXYefgh; text /a/raw abXYefgh; values "
     "/a/f32 '97 98 99 100 101 102 103 104'; close A; values /a/f32 '97 98 88 89 101 102 103 104'; "
     "text /a/raw abXYefgh; open A /a/raw w; write A Z 7; flush A; write A Q 0; close A",
     "a:I8:8=QbXYefgZ " B C},
    {"values of floats and of bytes can be written", "tensors",
     "floats /b/f32 '9 8 7 6 5 4'; values /b/f32 '9 8 7 6 5 4'; values /b/raw '9 8 7 6 5 4';"
     "floats /c/f32 '65 66 67 68'; text /c/raw ABCD; floats /c/f32 '65.5 66 67 68' =ERANGE;"
     "floats /c/f32 '65 66 67 128' =ERANGE; refused /c 'exactly as I8'; text /c/raw ABCD; fsync",
     A BA "9,8,7,6,5,4 c:I8:4=ABCD " Z},
    {"echo changes a type or shape", "tensors",
     "put /b/type 'F16\n'; text /b/type 'F16\n'; values /b/f32 '1 2 3 4 5 6'; stat /b/raw 12; put "
     "/b/type F32; put /b/shape '6\n'; text /b/shape '6\n'; put /b/shape '5\n' =EINVAL; put "
     "/b/shape 'x\n' =EINVAL; put /b/type 'none\n' =EINVAL; refused /b 'none'; put /b/shape '3 2'",
     A "b:F32:3x2=1,2,3,4,5,6 " C},
    {"a type is converted once its line is complete", "tensors",
     "open A /b/type w trunc; write A F; write A 16; write A '\n'; text /b/type 'F16\n'; close A;"
     "open A /b/type w trunc; close A; text /b/type 'F16\n'; open A /b/type rw; write A XX;"
     "close A =EINVAL; put /b/type F32"},
    {"a new tensor is made with mkdir, type, shape and raw", "tensors",
     "mkdir /n; mkdir /n =EEXIST; mkdir /a =EEXIST; mkdir /a/x =EPERM; list / 'a b c z n';"
     "list /n ''; refused /n 'it is not complete yet'; put /n/type I8; put /n/shape 3;"
     "list /n 'type shape'; fsync; refused /n 'raw'; put /n/raw 123; fsync; tfile " A B C
     "n:I8:3=123 ; text /n/raw 123; text /n/shape '3\n'",
     A B C "n:I8:3=123 "},
    {"a new tensor is made from f32 and a shape", "tensors",
     "mkdir /n; put /n/raw ''; open A /n/f32 creat w; poke A 0 '1 2'; close A; put /n/shape 2; "
     "fsync",
     A B C "n:F32:2=1,2 "},
    {"one new tensor is renamed, and one is removed", "tensors",
     "mkdir /n; mkdir /m; mv /n /k; list / 'a b c z k m'; put /k/type I8; put /k/raw x; rm /k/raw;"
     "gone /k/raw; rm /k/raw =ENOENT; put /k/raw yz; put /k/shape 2; rmdir /m; fsync",
     A B C "k:I8:2=yz "},
    {"a view cannot be written while another view of the tensor is", "tensors",
     "open A /a/raw rw; write A X; open B /a/f32 w =EBUSY; open B /a/raw w; write B Y 1; close B;"
     "close A; open B /a/f32 w; close B",
     "a:I8:8=XYcdefgh " B C},
    {"a view that was flushed before it was whole keeps others out", "tensors",
     "open A /a/raw w trunc; write A 1234; flush A =EINVAL; open B /a/f32 w =EBUSY; write A 5678 4;"
     "close A; open B /a/f32 w; close B",
     "a:I8:8=12345678 " B C},
    {"the last tensor is removed while the removal of another one is written", "tensors close",
     "rmdir /a; hold; & fsync; held; rmdir /b; rmdir /c; rmdir /z =EPERM; list / 'b c z'; go;"
     "wait; list / 'b c z'; fsync; list / 'b c z'",
     B C},
    {"... and the list of tensors is read meanwhile", "tensors close",
     "hold; open A /z/raw w; write A W; & flush A; held; rmdir /a; rmdir /b; list / 'c z';"
     "rmdir /c; list / z; rmdir /z =EPERM; list / 'a b c z'; go; wait; close A; later 3; fsync",
     A B "c:I8:4=wxyz z:I8:20000=W.{19999} "},
    {"a conversion that waits when the mount ends is not made", "tensors close",
     "hold; open X /a/raw w; write X X; & flush X; held; open T /c/type w trunc; write T F32;"
     "& flush T; hurry; go; wait; wait =EINTR; release T; release X; text /c/type 'I8\n'",
     "a:I8:8=Xbcdefgh " B C},
    {"a new tensor is removed while it is written, or that fails", "tensors close",
     MAKES "& fsync; held; rmdir /n; gone /n; @; gone /n; fsync", NULL, GOES_OR_FAILS},
    {"a new tensor is renamed while it is written, or that fails", "tensors close",
     MAKES "& fsync; held; & mv /n /k; @; wait; gone /n; list / 'a b c z k'; fsync",
     A B C "k:I8:3=abc ", GOES_OR_FAILS},
    {"a new tensor is written while it is added, or that fails", "tensors close",
     MAKES "& fsync; held; open B /n/raw w; write B xyz; & flush B; release B; @; wait;"
           "text /n/raw xyz; fsync",
     A B C "n:I8:3=xyz ", GOES_OR_FAILS},
    {"a new tensor gets another shape while it is added, or that fails", "tensors close",
     MAKES "& fsync; held; open S /n/shape w trunc; write S '3 1'; & flush S; release S; @; wait;"
           "fsync; text /n/shape '3 1\n'",
     A B C "n:I8:3x1=abc ", GOES_OR_FAILS},
    {"two programs write one view, each at its own offset", "tensors",
     "open A /a/raw rw; open B /a/raw rw; write A X 0; flush A; write B Y 1; read A XYcdefgh;"
     "early A XYcdefgh; close A; close B",
     "a:I8:8=XYcdefgh " B C},
    {"a view is truncated and written again", "tensors",
     "open A /a/raw w trunc; write A 12345678; close A; open A /a/raw w; trunc A 4; close A;"
     "text /a/raw 12345678; truncate /a/raw 8; truncate /a/raw 4; truncate /a/raw 9 =EFBIG",
     "a:I8:8=12345678 " B C},
    {"in place: readers see the changed bytes", "tensors inplace",
     "open A /a/raw r; open B /b/f32 r; put /a/raw ABCDEFGH; fsync; read A ABCDEFGH;"
     "floats /b/f32 '6 5 4 3 2 1'; fsync; text /a/raw ABCDEFGH; close A; close B",
     "a:I8:8=ABCDEFGH " BA "6,5,4,3,2,1 " C},
    /* ---- parts of a tensor that has several pages ---- */
    {"parts of a tensor are read before and after they are written", "tensors",
     "open A /z/raw rw; write A one 4095; write A two 8190; write A X 0; write A Y 19999; flush A;"
     "text /z/raw 'X.{4094}one.{4092}two.{11806}Y'; write A Z 12288; close A;"
     "text /z/raw 'X.{4094}one.{4092}two.{4095}Z.{7710}Y'; open A /z/f32 rw; poke A 4 '65 66';"
     "close A; text /z/raw 'XAB.{4092}one.{4092}two.{4095}Z.{7710}Y'; fsync; open A /z/raw w;"
     "write A @ 5; close A; text /z/raw 'XAB..@.{4089}one.{4092}two.{4095}Z.{7710}Y'",
     A B "c:I8:4=wxyz z:I8:20000=XAB..@.{4089}one.{4092}two.{4095}Z.{7710}Y "},
    {"parts of a renamed and reshaped tensor are written", "tensors",
     "put a.name two; open A /z/raw rw; write A one 10; close A; mv /z /y; put /y/shape '2 10000';"
     "text /y/raw '.{10}one.{19987}'; open A /y/raw rw; write A two 13; close A; fsync;"
     "text /y/raw '.{10}onetwo.{19984}'",
     A B "c:I8:4=wxyz y:I8:2x10000=.{10}onetwo.{19984} "},
    {"in place: parts of a tensor are written while other programs read it", "tensors inplace",
     "open A /z/raw r; open B /z/raw w; write B one 4095; close B; fsync;"
     "text /z/raw '.{4095}one.{15902}'; open C /z/raw r; open B /z/raw w; write B 1 0;"
     "write B 2 19999; close B; fsync; text /z/raw '1.{4094}one.{15901}2'; put /c/raw WXYZ; fsync;"
     "close A; close C; open B /z/raw w; write B 3 0; close B; fsync",
     A B "c:I8:4=WXYZ z:I8:20000=3.{4094}one.{15901}2 "},
    {"in place: a different length is refused", "tensors inplace sync",
     "put /b/type F16 =EOPNOTSUPP; text /b/type 'F32\n'; put a.name two; fsync; mkdir /n;"
     "put /n/shape 1; floats /n/f32 1; fsync =EOPNOTSUPP; list / 'a b c z n'"},
    {"a tensor with more parts than can be mapped one by one", "tensors sync",
     "open A /z/raw w; dots A 255 70; close A; dotted /z/raw 255 70; open A /z/raw w;"
     "dots A 285 70; close A; dotted /z/raw 285 70; mv a.name a.nom; dotted /z/raw 285 70; fsync;"
     "dotted /z/raw 285 70; put /z/raw x =EINVAL; dotted /z/raw 285 70; rmdir /z",
     A B "c:I8:4=wxyz "},
    {"in place: parts are written over bytes kept for readers", "tensors inplace sync",
     "open A /z/raw r; open B /z/raw w; write B one 4095; close B; fsync; open C /z/raw r;"
     "open B /z/raw w; write B two 5; close B; text /z/raw '.....two.{4087}one.{15902}'; fsync;"
     "open B /z/raw w; write B 3 0; write B 4 19999; close B; text /z/raw "
     "'3....two.{4087}one.{15901}4'; mv a.name a.nom; text /z/raw '3....two.{4087}one.{15901}4';"
     "fsync; close A; close C; text /z/raw '3....two.{4087}one.{15901}4'; mv a.nom a.name",
     A B "c:I8:4=wxyz z:I8:20000=3....two.{4087}one.{15901}4 "},
    /* ---- edits that are refused at the end ---- */
    {"an accepted part stays when the rest is refused", "tensors",
     "open A /c/f32 rw; poke A 0 '65 66'; flush A; text /c/raw AByz; poke A 8 '1.5';"
     "close A =ERANGE; text /c/raw AByz; refused /c '1.5'; put /c/raw wxyz; open A /z/f32 w;"
     "poke A 0 '65'; poke A 40000 '66'; flush A; text /z/raw 'A.{9999}B.{9999}'; poke A 80 '1000';"
     "close A =ERANGE; text /z/raw 'A.{9999}B.{9999}'",
     A B "c:I8:4=wxyz z:I8:20000=A.{9999}B.{9999} "},
    {"an .npy of a different shape is accepted, and one with bad values is refused", "tensors",
     "open A /b/f32.npy rw trunc; npy A '3, 1' '7 8 9'; close A; values /b/f32 '7 8 9';"
     "text /b/shape '3 1\n'; open A /c/f32.npy rw trunc; npy A '2, 3' '1 2 3 4 5 6'; flush A;"
     "text /c/shape '2 3\n'; poke A 128 '0.5'; close A =ERANGE; text /c/shape '2 3\n';"
     "put /c/raw ABCDEF",
     A "b:F32:3x1=7,8,9 c:I8:2x3=ABCDEF " Z},
    /* ---- texts ---- */
    {"texts are appended to, read during a write, and refused if too long", "tensors",
     "open A /b/type rw trunc; write A F1; read A F1; size A 2; write A 6; trunc A 2;"
     "write A 'X\n' 2 =EINVAL; read A 'F1X\n'; close A =EINVAL; open A /b/type rw; write A 'F16\n' "
     "0; close A; text /b/type 'F16\n';"
     "add /b/type 'F32\n' =EINVAL; put /b/type 'F32\n'; open A /b/shape w trunc; write A 6 5; "
     "close A =EINVAL; open A /b/shape w trunc; write A 6 5000 =EFBIG; close A =EFBIG; open A "
     "/b/type w append trunc; write A F3; write A '2\n'; close A; put /b/type F32"},
    {"texts that name a type, and texts that do not", "tensors",
     "put /b/type 'f16\r\n'; text /b/type 'F16\n'; put /b/type '  F32 \t\n\n  '; put /b/type F16;"
     "put /b/type 'F32 '; text /b/type 'F32\n'; put /b/type F1 =EINVAL;"
     "refused /b 'did you mean F16'; put /b/type ' ' =EINVAL; put /b/type 'F 16' =EINVAL;"
     "put /b/type 'F16\nx' =EINVAL; refused /b 'more than one line';"
     "put /b/type unknown:77 =EOPNOTSUPP; refused /b 'unknown:77';"
     "put /b/type 'Q4_2\n' =EOPNOTSUPP; refused /b 'retired'; text /b/type 'F32\n'"},
    {"texts that are a shape, and texts that are not", "tensors",
     "put /b/shape ' 3\t2 \r\n\n'; text /b/shape '3 2\n'; put /b/shape '02 3'; put /b/shape '2 3 ';"
     "put /b/shape '6 0' =EINVAL; put /b/shape '1 1 1 2 3' =EINVAL; put /b/shape '2,3' =EINVAL;"
     "put /b/shape '(2 3)\n' =EINVAL; put /b/shape '-6\n' =EINVAL; put /b/shape '2 3\n4' =EINVAL;"
     "put /b/shape '4294967296 4294967296' =EINVAL; refused /b 'overflows'; put /b/shape "
     "18446744073709551622 =EINVAL; text /b/shape '2 3\n'"},
    {"a shorter shape is written over the old one, whose rest is then cut off", "tensors",
     "open A /b/shape rw; size A 4; write A '6\n' 0; text /b/shape '6\n3\n'; trunc A 2; close A;"
     "text /b/shape '6\n'; open A /b/shape rw; write A '3 2\n' 0; text /b/shape '3 2\n'; close A;"
     "open A /b/shape rw; write A '6\n' 0; close A =EINVAL; text /b/shape '3 2\n'; put /b/shape '2 "
     "3'"},
    {"a view too short at the close is dropped, even if a reader still has it open", "tensors",
     "open A /a/raw rw trunc; write A 123; note A; node B r; read B 123; close A =EINVAL;"
     "text /a/raw abcdefgh; open A /a/raw rw; write A X 1; close A; text /a/raw aXcdefgh; close B",
     "a:I8:8=aXcdefgh " B C},
    {"fallocate succeeds within the size of a view", "tensors",
     "open A /a/raw w; allocate A 0 8; allocate A 0 9 =EOPNOTSUPP; allocate A 0 9 keep; allocate A "
     "18446744073709551615 2 =EOPNOTSUPP; allocate A 4 4 keep; write A X 1; close A; open A /a/raw "
     "r; allocate A 0 8 =EOPNOTSUPP; close A; open A /a/type w; allocate A 0 8; close A",
     "a:I8:8=aXcdefgh " B C},
    {"fsync of a handle writes what it has accepted", "tensors",
     "open A /a/raw w; write A X; fsync A; tfile a:I8:8=Xbcdefgh " B C
     "; write A Y 1; fsync A; close A;"
     "open A /c/f32 w; poke A 0 '0.5'; fsync A =ERANGE; close A =ERANGE; open A /b/type w trunc;"
     "write A F1; fsync A =EINVAL; trunc A 0; write A 'F16\n' 0; fsync A; close A; put /b/type F32",
     "a:I8:8=XYcdefgh " B C},
    /* ---- new tensors ---- */
    {"a new tensor takes the name of one just removed", "tensors",
     "rmdir /a; mkdir /a; list / 'b c z a'; put /a/type I8; put /a/shape 8; put /a/raw 12345678;"
     "fsync; list / 'a b c z'; rmdir /c; mv /a /c; list / 'c b z'; fsync",
     "c:I8:8=12345678 " B Z},
    {"a tensor is renamed over a new tensor that was removed", "tensors",
     "mkdir /n; put /n/type I8; put /n/shape 2; put /n/raw xy; later 3; text /n/raw xy; rmdir /n;"
     "mv /c /n; list / 'a b n z'; fsync",
     A B "n:I8:4=wxyz " Z},
    {"names of new tensors have at most 63 bytes and no NUL", "tensors",
     "mkdir /n; mkdir /m; mv /n /% =EINVAL; mv /n /'x%00y' =EINVAL; mv /n /x%zz =EINVAL; mv /n "
     "/" BYTES_60 "0123 =ENAMETOOLONG; mv /n /" BYTES_60 BYTES_60 BYTES_60 BYTES_60
     "0123456789abcdef =ENAMETOOLONG; mv /n /" BYTES_60
     "%~0123456789abcdef =ENAMETOOLONG; mv /n /m =ENOTEMPTY; mkdir /" BYTES_60
     "0123 =ENAMETOOLONG; mkdir /" BYTES_60 "%~0123456789abcdef =ENAMETOOLONG;"
     "mkdir /" BYTES_60 "012; mv /n /" BYTES_60 "210; list / 'a b c z " BYTES_60 "210 m " BYTES_60
     "012'; gone /n; mv /m /n; gone /m; rmdir /" BYTES_60 "210; rmdir /" BYTES_60 "012; rmdir /n;"
     "list / 'a b c z'; fsync"},
    {"two new tensors are edited before they are written", "tensors",
     "mkdir /n; put /n/type I8; put /n/raw 12; put /n/shape 2; mkdir /m; put /m/shape 1; floats "
     "/m/f32 5;"
     "put a.name two; fsync; text /n/raw 12; put /n/raw 34; open A /m/f32 w; poke A 0 6; close A;"
     "mv /n /k; mv /m /l; put /l/type F16; text /k/raw 34; values /l/f32 6; rmdir /k; fsync",
     A B C "l:F16:1=2 "},
    {"a wrong type or shape of a new tensor is refused by the write of its line", "tensors",
     "mkdir /n; open A /n/type w creat; write A 'Q9\n' =EINVAL; close A =EINVAL; refused /n 'not a "
     "type';open A /n/shape w creat; write A '0 64\n' =EINVAL; close A =EINVAL; rmdir /n"},
    /* ---- files that are not closed ---- */
    {"what no close has judged is dropped at the end of the mount", "tensors",
     "open A /a/raw w; write A X; open B /b/type w; mkdir /n; put /n/type I8; put /n/shape 4;"
     "open C /n/raw creat w; trunc C 4; write C ab 0; finish"},
    {"only the keys of a split model can be edited", "tensors split",
     "list / 'a b c z other'; mv /other /o =EROFS; rmdir /a =EROFS; mkdir /n =EROFS; open A /a/raw "
     "w =EROFS; refused /a 'merge it first'; put a.name two; fsync; text /a/raw abcdefgh",
     "a:I8:8=abcdefgh " B "c:I8:4=wxyz " Z "other:I8:9001=-{9001} "},
    /* ---- access by nodes ---- */
    {"a node is opened for writing while another view is being written", "tensors",
     "open A /a/raw rw; note A; open B /a/raw r; node C r;"
     "close C; close B; close A; open A /a/f32 rw; poke A 0 '65';"
     "node C w =EBUSY; node C r; close C; close A; node C w; write C B; close C",
     "a:I8:8=Bbcdefgh " B C},
    /* ---- failures ---- */
    {"a tensor that cannot be added fails no other program", "tensors",
     "mkdir /n; put /n/type Q8_0; put /n/shape 1; later 4; put a.name 'new'; open A a.name rw;"
     "fsync A; close A; list / 'a b c z n'"},
    /* ---- rare cases ---- */
    {"writes to computed views are ignored", "tensors",
     "put /a/offset 5; put /a/stats x; rm /a/offset; open A /a/offset creat rw; write A 5; trunc A "
     "0; allocate A 0 8; read A ''; flush A; fsync A; close A; truncate /a/offset 0"},
    {"bytes that are refused or left aside do not stay in the kernel's pages", "tensors",
     "open A /a/raw rw; open B /a/f32 rw; poke B 0 '97'; write A X =EBUSY; refused /a 'another "
     "view'; close B; close A =EBUSY; open A /a/raw r; pages A dropped; killed A; open A /a/raw r;"
     "pages A dropped; open B /a/raw r; pages B dropped; close B; close A; open A /a/raw rw; pages "
     "A kept; full; write A X =ENOSPC; close A "
     "=ENOSPC; open A /a/raw r; pages A dropped; close A; full no; open A /c/f32 rw; poke A 0 "
     "'0.5'; flush A =ERANGE; open B /c/f32 rw; pages B dropped; close B; open B /c/f32 r; pages B "
     "kept; close B; close A =ERANGE; mkdir /n; put /n/raw x; open A /n/f32 creat w; poke A 0 '1';"
     "close A; open A /n/f32 r; pages A dropped; close A; rmdir /n"},
    {"values that are written beside raw count once the tensor is made", "tensors",
     "mkdir /n; put /n/type I8; put /n/shape 4; put /n/raw abcd; open A /n/f32 creat w;"
     "poke A 0 '1 2 3 4'; flush A; fsync; poke A 4 '65'; close A",
     A B C "n:I8:4=aAcd "},
    {"a new tensor waits for its type and its shape to be written", "tensors",
     "mkdir /n; put /n/type F64; put /n/shape 2; floats /n/f32 '1 2'; open T /n/type w; write T 16 "
     "1; open S /n/shape w; write S '1 2'; fsync; refused /n 'its type is being written'; close T;"
     "fsync; refused /n 'its shape'; close S; fsync",
     A B C "n:F16:1x2=4 "},
    {"fsync by a reader does not judge what another program writes", "tensors",
     "open A /a/raw w; open B /a/raw r; write A X 0; fsync B; tfile " A B C
     "; write A x 8 =EFBIG; fsync B; close A =EFBIG; close B"},
    {"a full disk refuses a write, and takes it once it has room", "tensors",
     "full; open A /a/raw w; write A ABCDEFGH =ENOSPC; close A =ENOSPC; text /a/raw abcdefgh;"
     "full no; put /a/raw ABCDEFGH",
     "a:I8:8=ABCDEFGH " B C},
    {"writes are refused one after another", "tensors",
     "open A /a/raw w; write A x 8 =EFBIG; write A x 8 =EFBIG; close A =EFBIG; open A /b/shape w "
     "trunc; write A 2 5000 =EFBIG; write A 2 5000 =EFBIG; refused /b 'at most'; "
     "trunc A 0; write A '6\n' 0; close A; open A /b/type w; write A '' 0; close A",
     A "b:F32:6=1,2,3,4,5,6 " C},
    {"files that a new tensor lacks do not exist", "tensors",
     "mkdir /n; gone /n/raw; gone /n/none; rm /n/raw =ENOENT; put /n/offset 1; rm /n/offset;"
     "rm /n/offset =ENOENT; put /n/type I8; forgive /n; refused /n 'not complete yet'; rm /n/type;"
     "put /n/shape 1; put /n/raw x; rm /n/shape; fsync; refused /n 'still needs'; rmdir /n"},
    {"a tensor takes the name of one that was removed", "tensors",
     "rmdir /b; fsync; mv /c /b; mv /b /d; mkdir /b; put /b/type I8; put /b/shape 1; put /b/raw x;"
     "fsync; list / 'a d z b'; gone /'x%~0123456789abcdef'",
     A "d:I8:4=wxyz " Z "b:I8:1=x "},
    {"values are refused if their header is missing", "tensors",
     "open A /z/f32.npy w trunc; write A xxxx 70000; flush A =EINVAL; close A =EINVAL;"
     "refused /z 'its NumPy header is incomplete'; text /z/raw '.{20000}'"},
    {"a reader of an earlier state calls fsync after the last writer has closed",
     "tensors auto close",
     "open A /a/raw rw; write A X; flush A; note A; node R r; write A Y 1; close A; fsync R;"
     "read R XYcdefgh; close R; fsync",
     "a:I8:8=XYcdefgh " B C},
    {"a signal ends the daemon: pending edits are written, and what was not flushed is none",
     "tensors",
     "put /a/raw 12345678; open A /b/raw w; write A X; hurry; write A Y =EROFS;"
     "flush A =EROFS; close A =EROFS; finish",
     "a:I8:8=12345678 " B C},
    /* ---- one edit at a time ---- */
    {"the last tensor cannot be removed, and the attempt brings back what is not written",
     "tensors",
     "open A /a/raw r; rmdir /a; rmdir /b; rmdir /c; list / z; rmdir /z =EPERM; text /a/raw "
     "abcdefgh; list / 'a b c z'; refused /z 'no tensor left'; put /a/raw 12345678; text /a/raw "
     "12345678; rmdir /a; rmdir /b; rmdir /c; list / z; read A 12345678; rmdir /z =EPERM;"
     "put /a/raw abcdefgh; read A abcdefgh; close A; fsync"},
    {"the last tensor cannot be removed, and a removed one whose name is taken stays removed",
     "tensors",
     "rmdir /a; rmdir /b; mkdir /b; rmdir /c; rmdir /z =EPERM; list / 'a c z b'; rmdir /b; fsync;"
     "list / 'a c z'",
     A C},
    {"a tensor that is removed and made again before that is written gets its place back",
     "tensors",
     "rmdir /b; mkdir /b; put /b/type F32; put /b/shape '2 3'; floats /b/f32 '6 5 4 3 2 1'; fsync;"
     "tfile " A BA "6,5,4,3,2,1 " C "; rmdir /a; fsync; mkdir /a; put /a/type I8; put /a/shape 2;"
     "put /a/raw xy; fsync",
     BA "6,5,4,3,2,1 " C "a:I8:2=xy "},
    {"a tensor's folder holds its views and nothing else", "tensors",
     "open A /a/.raw.x1 creat excl w =EPERM; put /a/none x =EPERM; mv /a/raw /a/x =EPERM; rm /a/.h "
     "=ENOENT; mkdir /n; put /n/.t I8 =EPERM; list /n ''; rmdir /n"},
    {"who has a view open sees what is written to it, everybody else what was accepted", "tensors",
     "open A /a/raw r; open B /a/raw rw; write B X; read A Xbcdefgh; values /a/f32 '97 98 99 100 "
     "101 102 103 104'; write B 1 99 =EFBIG; flush B =EFBIG; close B =EFBIG; read A abcdefgh;"
     "open B /a/raw w; write B Y 1; close B; read A aYcdefgh; close A",
     "a:I8:8=aYcdefgh " B C},
    {"a program goes on after another view was edited, but not after it was refused for that",
     "tensors",
     "open A /z/raw rw; write A one; flush A; open C /z/raw rw; open B /z/f32 rw; poke B 40000 "
     "'66';"
     "write A X 5 =EBUSY; flush A =EBUSY; close B; write A X 5 =EBUSY; close A =EBUSY;"
     "write C two 100; close C; text /z/raw 'one.{97}two.{9897}B.{9999}'",
     A B "c:I8:4=wxyz z:I8:20000=one.{97}two.{9897}B.{9999} "},
    {"a refused view whose program has closed it keeps nobody from another one", "tensors",
     "open A /c/f32 w trunc; poke A 0 '1 2 3 0.5'; flush A =ERANGE; put /c/raw WXYZ; release A;"
     "text /c/raw WXYZ",
     A B "c:I8:4=WXYZ " Z},
    {"who wrote a refused view hears of it at each close, whatever is written since", "tensors",
     "open A /c/f32 w trunc; poke A 0 '1 2 3 0.5'; flush A =ERANGE; put /c/raw WXYZ; flush A "
     "=ERANGE; open B /c/f32 w; flush B; poke B 12 '88'; flush A =ERANGE; close B; close A =ERANGE",
     A B "c:I8:4=WXYX " Z},
    {"a new tensor waits for the files that are being written, and is judged two seconds later",
     "tensors auto",
     "mkdir /n; put /n/type I8; put /n/shape 4; open A /n/raw creat w; write A 12; fsync;"
     "refused /n 'has 2 of 4 bytes'; write A 34; close A; put /n/f32 xx; text /n/f32 ''; fsync;"
     "list / 'a b c z n'",
     A B C "n:I8:4=1234 "},
    {"what is written to a new tensor after it was judged is an edit of it", "tensors",
     "mkdir /n; put /n/type I8; put /n/shape 4; open A /n/raw creat rw; write A 1234;"
     "put /a/raw ABCDEFGH; fsync; size A 4; read A 1234; write A X 1; read A 1X34; close A;"
     "text /n/raw 1X34",
     "a:I8:8=ABCDEFGH " B C "n:I8:4=1X34 "},
    {"what is written to a removed tensor is gone with it", "tensors",
     "open A /a/raw w; write A X; rmdir /a; write A Y; close A; fsync; mkdir /n;"
     "open A /n/raw creat w; write A 1; rmdir /n; write A 2; close A",
     B C},
    {"collected edits of tensors stay when they cannot be written", "tensors sync",
     "put /a/raw 12345678; mv /c /k; rmdir /b; fail EIO; fsync =EIO; list / 'a k z'; text /a/raw "
     "12345678; text /k/raw wxyz; fail; fsync",
     "a:I8:8=12345678 k:I8:4=wxyz " Z},
    {"an edit waits for the one before it", "tensors close",
     "open A /a/raw w; open B /c/raw w; write A 12345678; write B WXYZ; hold; & flush A; held;"
     "& flush B; & mv /z /y; values /a/f32 '97 98 99 100 101 102 103 104'; go; wait; wait; wait;"
     "close A; close B; list / 'a b c y'",
     "a:I8:8=12345678 " B "c:I8:4=WXYZ y:I8:20000=.{20000} "},
    {"an edit whose write fails is taken back, and the view is judged again", "tensors close",
     "open A /a/raw rw; write A 12345678; fail EIO; flush A =EIO; mv /c /d =EIO; gone /d; values "
     "/a/f32 '97 98 99 100 101 "
     "102 103 104'; fail; flush A; close A",
     "a:I8:8=12345678 " B C},
    {"who wrote what was dropped twice hears of it", "tensors",
     "open M /c/f32 rw; poke M 0 '65'; open W /c/f32 rw; poke W 4 '0.5'; close W =ERANGE;"
     "open W /c/f32 rw; poke W 8 '66'; close W; open W /c/f32 rw; poke W 4 '0.5'; close W =ERANGE;"
     "open W /c/f32 rw; poke W 8 '67'; close W; flush M =ERANGE; close M =ERANGE; text /c/raw wxCz",
     A B "c:I8:4=wxCz " Z},
    {"who wrote nothing hears of nothing", "tensors",
     "open P /b/f32.npy rw; open A /b/f32.npy rw trunc; npy A '2, 3' '1 4 2 5 3 6' fortran; close "
     "A;"
     "open A /b/f32 rw; poke A 0 '7'; close A; flush P; close P",
     A "b:F32:2x3=7,2,3,4,5,6 " C},
    {"what was written to a tensor that comes back is kept", "tensors sync",
     "open A /b/f32 rw; poke A 0 '7'; rmdir /b; close A; rmdir /c; rmdir /z; rmdir /a =EPERM;"
     "values /b/f32 '7 2 3 4 5 6'",
     A "b:F32:2x3=7,2,3,4,5,6 " C},
    {"a type shows when it is true", "tensors close",
     "open A /b/type w trunc; write A F16; hold; & flush A; held; text /b/type 'F32\n'; go; wait;"
     "close A; text /b/type 'F16\n'",
     A "b:F16:2x3=12 " C},
    {"a view of a new tensor is removed while it is written, or has no room", "tensors close",
     "behind 1000; mkdir /n; put /n/type I8; put /n/shape 8; open A /n/raw creat w; write A 1234;"
     "rm /n/raw; write A 5678; close A; fsync; gone /n/raw; full; open A /n/raw creat w;"
     "write A 12345678 =ENOSPC; close A =ENOSPC; later 3; due; later 3; due; full no;"
     "fsync =ENOSPC; fsync; rmdir /n"},
    {"an .npy is cut and extended again", "tensors",
     "open A /b/f32.npy rw; trunc A 140; trunc A 152; close A", A "b:F32:2x3=1,2,3,0,0,0 " C},
    {"the header of an .npy alone is no error for ten seconds", "tensors",
     "open A /b/f32.npy rw trunc; npy A '6' ''; close A; later 11; unsaved 'tensors/b: only the "
     "header of a NumPy array was written;'; put /b/type F32; open A /b/f32.npy rw trunc; npy A "
     "'3, "
     "2' ''; close A; good /b; stat /b/f32.npy 128; later 9; open A /b/f32.npy rw; poke A 128 '6 5 "
     "4 3 2 1'; close A; text /b/shape '3 2\n'; open A /b/f32.npy rw trunc; npy A '6' ''; close A;"
     "later 11; stat /b/f32.npy 152; text /b/shape '3 2\n'; open A /b/f32.npy rw; poke A 128 '9';"
     "close A; open A /b/f32.npy rw trunc; npy A '6' ''; close A; later 11; refused /b 'only'; "
     "open "
     "A /b/f32.npy rw trunc; npy A '6' ''; close A; finish; logged 'only the header'",
     A "b:F32:3x2=9,5,4,3,2,1 " C},
    {"an array in another order stays as it is while it is open, and what is stored later is its "
     "own",
     "tensors",
     "open A /b/f32.npy rw trunc; npy A '2, 3' '1 4 2 5 3 6' fortran; flush A; flush A;"
     "values /b/f32 '1 2 3 4 5 6'; poke A 132 '9'; flush A; values /b/f32 '1 2 3 9 5 6';"
     "poke A 136 '8'; release A; values /b/f32 '1 8 3 9 5 6'; values /b/f32.npy '1 8 3 9 5 6'",
     A BA "1,8,3,9,5,6 " C},
    {"an array in another order is over once another view is written", "tensors",
     "open A /b/f32.npy rw trunc; npy A '2, 3' '1 4 2 5 3 6' fortran; flush A; open B /b/f32 rw;"
     "poke B 0 '7'; close B; poke A 132 '9' =ESTALE; refused /b 'open it again'; flush A =ESTALE;"
     "open B /b/f32.npy rw; poke B 132 '8'; close B; good /b; poke A 132 '9' =ESTALE; trunc A 0;"
     "npy A '6' '7 8 3 4 5 6'; close A",
     A "b:F32:6=7,8,3,4,5,6 " C},
    {"... or another program writes it after a refusal", "tensors",
     "open A /c/f32.npy rw trunc; npy A '2, 2' '1 2 3 0.5' fortran; flush A =ERANGE; open B "
     "/c/f32.npy rw; poke A 140 '4' =ERANGE; poke B 128 '65'; close B; close A =ERANGE",
     A B "c:I8:4=Axyz " Z},
    {"who opens a view before what was stored there is judged goes on with it", "tensors close",
     "open Z /z/raw w; write Z W; hold; & flush Z; held; open C /c/f32 w; poke C 0 '0.5'; release "
     "C;"
     "open C /c/f32 w; open A /a/raw w; write A X; release A; open F /a/f32 w; close F; open A "
     "/a/raw rw;"
     "read A Xbcdefgh; write A Y 1; go; wait; text /c/raw wxyz; refused /c '0.5'; close C; close A;"
     "close Z",
     "a:I8:8=XYcdefgh " B "c:I8:4=wxyz z:I8:20000=W.{19999} "},
    {"a refusal is over once what is stored is written again", "tensors",
     "put /a/raw abc =EINVAL; refused /a 'it has 3 of 8 bytes'; unsaved 'tensors/a: it has 3 of 8 "
     "bytes;'; put /a/raw abcdefgh; good /a"},
    {"an unfinished new tensor is dropped with what it lacks", "tensors",
     "mkdir /n; mkdir /m; put /m/type I8; fsync; unsaved 'tensors/n: a new tensor: it is not "
     "complete yet;tensors/m: a new tensor: still needs shape, and raw or values;'; open A "
     "/n/f32.npy creat w; write A '\x93"
     "NUM'; close A; fsync; refused /n 'its NumPy header is incomplete'"},
    {"a removed tensor can be opened as long as the kernel knows its file", "tensors",
     "open A /c/raw r; note A; rmdir /c; fsync; text /a/raw abcdefgh; node B r; read B wxyz; close "
     "B; read A wxyz; close A",
     "a:I8:8=abcdefgh b:F32:2x3=1,2,3,4,5,6 z:I8:20000=.{20000} "},

    /* ==== new tensors ==== */
    {"what an fsync that was interrupted would have heard is told to the next one", "tensors sync",
     "put /a/raw Xbcdefgh; hold; & fsync; held; mkdir /n; open A /n/raw creat w; write A abcd 0;"
     "write A x " FAR " =EFBIG; release A; put /n/type I8; put /n/shape 4; & fsync; interrupt; go;"
     "wait; wait =EINTR; rmdir /c; fsync =EFBIG; list / 'a b z n'",
     "a:I8:8=Xbcdefgh b:F32:2x3=1,2,3,4,5,6 z:I8:20000=.{20000} "},
    {"a tensor whose bytes were refused is not added", "tensors",
     "mkdir /n; put /n/type I8; put /n/shape 4; open A /n/raw creat w; trunc A 4; write A ab 0;"
     "write A x " FAR " =EFBIG; release A; logged 'tensors/n: refused: '; refused /n 'long'; fsync "
     "=EFBIG; list / 'a b c z n'; tfile " A B C "; refused /n 'long'; put /n/raw abcd; fsync;"
     "text /n/raw abcd",
     A B C "n:I8:4=abcd "},
    {"refused values do not count if raw is written", "tensors",
     "mkdir /n; open A /n/f32 creat w; write A x " FAR " =EFBIG; release A; put /n/raw abcd;"
     "put /n/type I8; put /n/shape 4; fsync; text /n/raw abcd",
     A B C "n:I8:4=abcd "},
    {"once a refused view is removed, the other views make the tensor", "tensors",
     "mkdir /n; open A /n/f32.npy creat rw trunc; npy A 2 '1 2'; close A; open A /n/f32 creat w;"
     "write A x " FAR " =EFBIG; release A; fsync =EFBIG; refused /n 'long'; rm /n/f32; fsync;"
     "values /n/f32 '1 2'",
     A B C "n:F32:2=1,2 "},
    {"a new tensor whose values find no room is tried again by fsync, not by time", "tensors close",
     "mkdir /n; put /n/type F16; put /n/shape 2; open A /n/f32 creat w; poke A 0 '1 2'; close A;"
     "full; fsync =ENOSPC; refused /n 'draft'; full no; later 9; tfile " A B C "; fsync;"
     "values /n/f32 '1 2'",
     A B C "n:F16:2=4 "},
    {"fsync hears that a tensor which its timer is adding cannot be added", "tensors close",
     "behind 100; hold; mkdir /n; put /n/type I8; put /n/shape 2; put /n/raw 12; later 3; held;"
     "& fsync; fail EIO; go EIO; wait =EIO; tfile " A B C "; fail; fsync",
     A B C "n:I8:2=12 "},
    {"... and so does a second fsync", "tensors close",
     "mkdir /n; put /n/type I8; put /n/shape 2; put /n/raw 12; hold; & fsync; held; & fsync;"
     "fail EIO; go EIO; wait =EIO; wait =EIO; tfile " A B C "; refused /n 'cannot'; text /n/raw 12;"
     "fail; fsync",
     A B C "n:I8:2=12 "},
    {"fsync waits until the kernel releases a closed handle", "tensors",
     "mkdir /n; put /n/type I8; put /n/shape 1; open A /n/raw creat w; write A x; flush A; & fsync;"
     "& fsync; release A; wait; wait; tfile " A B C "n:I8:1=x ",
     A B C "n:I8:1=x "},
    {"fsync does not wait for a release at the end of the mount", "tensors",
     "still; mkdir /n; put /n/type I8; put /n/shape 1; open A /n/raw creat w; write A x; flush A;"
     "& fsync; hurry; wait; tfile " A B C "n:I8:1=x ; release A",
     A B C "n:I8:1=x "},
    {"a new tensor keeps its place when it is edited and renamed", "tensors",
     "mkdir /m; put /m/type I8; put /m/shape 1; put /m/raw x; mkdir /n; put /n/type I8;"
     "put /n/shape 1; put /n/raw y; fsync; put /m/raw z; fsync; list / 'a b c z m n';"
     "put /a/raw 12345678; mv /m /o; put /o/raw w; fsync; list / 'a b c z o n'",
     "a:I8:8=12345678 " B C "o:I8:1=w n:I8:1=y "},
    {"new tensors are added in the order in which they were closed", "tensors",
     "mkdir /m; put /m/type I8; put /m/shape 1; mkdir /n; put /n/type I8; put /n/shape 1;"
     "open A /m/raw creat w; write A x; open B /n/raw creat w; write B y; flush A; flush B;"
     "release B; release A; fsync",
     A B C "m:I8:1=x n:I8:1=y "},
    {"all new tensors are added in one rewrite, by fsync and by time", "tensors close",
     "mkdir /m; put /m/type I8; put /m/shape 1; put /m/raw x; later 1; mkdir /n; put /n/type I8;"
     "put /n/shape 1; put /n/raw y; hold; & fsync; held; go EIO; wait =EIO; tfile " A B C
     "; put /m/raw z; put /n/raw w; later 1; hold; later 1; held; go EIO; tfile " A B C "; fsync",
     A B C "m:I8:1=z n:I8:1=w "},
    {"a new tensor refused at the end of the mount is logged once", "tensors close",
     "mkdir /n; put /n/type I8; put /n/shape 4; open A /n/raw creat w; trunc A 4; write A x " FAR
     " =EFBIG; release A; logged 'refused'; later 4; put a.name two; quiet;"
     "refused /n 'long'; finish"},
    {"what is stored through a mapping of a new tensor while it is added is an edit of it",
     "tensors", MAKES_OPEN "write A X 0; release A; go; wait; fsync; text /n/raw Xbcd",
     A B C "n:I8:4=Xbcd "},
    {"what is written to a new tensor that is added as the mount ends is written", "tensors close",
     MAKES_OPEN "write A X 0; flush A; hurry; go; wait; release A", A B C "n:I8:4=Xbcd "},
    {"a Fortran array that is written on while its tensor is added stays one", "tensors close",
     "mkdir /n; put /n/type F32; open A /n/f32.npy creat rw; npy A '2, 3' '1 4 2 5 3 6' fortran;"
     "close A; hold; & fsync; held; open A /n/f32.npy rw; poke A 132 '4'; close A; go; wait; fsync",
     A B C "n:F32:2x3=1,2,3,4,5,6 "},
    {"what is closed while its tensor is added comes before a later fsync", "tensors close",
     MAKES_OPEN "write A X 0; flush A; & fsync; go; wait; wait; tfile " A B C "n:I8:4=Xbcd ;",
     A B C "n:I8:4=Xbcd "},
    /* ---- a new tensor that replaces a removed one ---- */
    {"a tensor that replaces a removed one, refused once on a full disk, is the only one of its "
     "name",
     "sync tensors",
     "rmdir /c; mkdir /c; put /c/type 'I8\n'; put /c/shape '4\n'; put /c/raw 'ABCD'; full; later 1;"
     "put a.count '10' =ENOSPC; fsync =ENOSPC; list / 'a b z c'; text /c/raw 'ABCD'; full no;"
     "later 2; put a.count '9'; put /c/raw 'ABCD'; fsync; list / 'a b c z'",
     "a:I8:8=abcdefgh b:F32:2x3=1,2,3,4,5,6 c:I8:4=ABCD z:I8:20000=.{20000} "},
    {"a close waits while another one has its text judged", "tensors close",
     "open A /b/type w trunc; open B /b/type w; write A F1; write B 6 2; hold; & flush A; held;"
     "& flush B; go EIO; wait =EIO; wait; release A; release B; text /b/type 'F16\n'; put /b/type "
     "F32"},
    {"a tensor that was removed stays removed if a rename to its name is refused", "tensors close",
     "rmdir /c; gone /c/raw; full; later 1; mv /a /c =ENOSPC; full no; gone /c/raw; later 3; fsync",
     "a:I8:8=abcdefgh b:F32:2x3=1,2,3,4,5,6 z:I8:20000=.{20000} "},
    {"a name that an interrupted rename is giving a tensor is taken", "tensors close",
     "hold; & mv /c /n; held; interrupt; wait =EINTR; mkdir /n =EEXIST; go; fsync;"
     "list / 'a b n z'; text /n/raw wxyz",
     "a:I8:8=abcdefgh b:F32:2x3=1,2,3,4,5,6 n:I8:4=wxyz z:I8:20000=.{20000} "},
    {"tensors removed while a new one is added are back if it cannot be: one stays",
     "tensors close",
     MAKES_OPEN "rmdir /a; rmdir /b; rmdir /c; rmdir /z; go EIO; wait =EIO; rmdir /n; release A;"
                "later 3; fsync; list / 'a b c z'"},
    {"a name is made again while the write that adds, removes or renames its tensor runs or fails",
     "tensors close",
     MAKES_OPEN
     "rmdir /n; mkdir /n; go EIO; wait =EIO; rmdir /n; release A; rmdir /a; fsync; tfile " B C
     "; rmdir /b; hold; & fsync; held; mkdir /b; go EIO; wait =EIO; rmdir /c; rmdir /z =EPERM;"
     "list / 'c z b'; rmdir /b; fsync; hold; & mv /c /d; held; interrupt; wait =EINTR; rmdir /c;"
     "mkdir /c; go; put /c/type I8; put /c/shape 1; put /c/raw x; fsync",
     "z:I8:20000=.{20000} c:I8:1=x "},
    {"a collected new tensor that cannot be written stays, and is named", "tensors sync",
     "mv /b /d; put /d/type F16; fsync; logged 'tensors/b: renamed to d, F32 -> F16; ';"
     "mkdir /n; put /n/type I8; put /n/shape 1; put /n/raw x; hold; & fsync; held; go EIO; wait "
     "=EIO;"
     "owes tensors/n; rmdir /c; fsync; mkdir /c; put /c/type I8; put /c/shape 4; put /c/raw wxyz;"
     "rmdir /n",
     "a:I8:8=abcdefgh d:F16:2x3=12 z:I8:20000=.{20000} c:I8:4=wxyz "},
};

SCRIPTS_MAIN("live_tensors", scripts)

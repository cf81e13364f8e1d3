/* SPDX-License-Identifier: MIT */
/* Names in metadata/: renames, helpers, keys with or without a type, names that can be neither; and
 * the calls that programs make to save a file: of those that tests/mount/editors.py does not run, and
 * what it does not look at. See script.h for scripts. */
#include "script.h"

#define TYPED(type, text, shown)                                                      \
    {                                                                                 \
        "a new " type, "auto",                                                        \
            "put a.new:" type " '" text "'; typed a.new " type "; good a.new; fsync", \
            UNCHANGED "a.new:" type "=" shown " "                                     \
    }
#define SAVED A_NAME "a.count:u32=12 " A_OTHER A_LIST

static const struct script scripts[] = {
    /* ---- types and places of removed keys ---- */
    {"a key created under another key's old name does not take its place", NULL,
     "mv a.count a.number; put a.count 5; fsync; put a.number 6; fsync; list a.name a.number "
     "a.other a.list a.count; put a.count 7; fsync; list a.name a.number a.other a.list a.count",
     A_NAME "a.number:u32=6 " A_OTHER A_LIST "a.count:u32=7 "},
    /* ---- removals ---- */
    {"a removed key disappears from all views before the removal is written", NULL,
     "still; rm a.count; shown " A_NAME A_OTHER A_LIST "; file " UNCHANGED
     "; list a.name a.other a.list; rm a.list; shown " A_NAME A_OTHER
     "; put a.list x =EINVAL; shown " A_NAME A_OTHER A_LIST "; put a.count 9; shown " A_NAME
     "a.count:u32=9 " A_OTHER A_LIST
     "; rm a.name; mv a.other a.number; shown a.count:u32=9 a.number:u32=8 " A_LIST
     "; fsync; shown a.count:u32=9 a.number:u32=8 " A_LIST,
     "a.count:u32=9 a.number:u32=8 " A_LIST},
    {"a removal is written with the next edit of another key", "auto close",
     "rm a.count; put a.name 'new'; file a.name:string=new " A_OTHER A_LIST,
     "a.name:string=new " A_OTHER A_LIST},
    {"all keys except the architecture can be removed", NULL,
     "rm a.name; rm a.count; rm a.other; rm a.list; list; fsync; list; shown ", ""},
    {"a key created again immediately keeps its type and place", NULL,
     "rm a.count; put a.count '5'; typed a.count u32; list a.name a.count a.other a.list; fsync",
     A_NAME "a.count:u32=5 " A_OTHER A_LIST},
    {"a key created again in a later mount is a new key", NULL,
     "rm a.count; reopen; put a.count '-5'; typed a.count i32",
     A_NAME A_OTHER A_LIST "a.count:i32=-5 "},
    {"a key is removed, created again and removed", NULL,
     "rm a.count; put a.count '5'; rm a.count; fsync", A_NAME A_OTHER A_LIST},
    {"a new key that is removed before it has a value never existed", NULL,
     "open A a.new w creat; rm a.new; write A 'x'; close A; gone a.new; fsync"},
    {"writes to a removed key are discarded", NULL,
     "open A a.name rw trunc; write A 'lost'; rm a.name; read A 'lost'; write A ' too';"
     "put a.name 'new'; close A; text a.name 'new\n'; fsync",
     "a.name:string=new " A_COUNT A_OTHER A_LIST},
    {"a removed helper can still be written through its handle", NULL,
     "open A .x rw creat; write A 'one'; rm .x; gone .x; write A 'two'; read A 'onetwo';"
     "close A; put .x 'other'; text .x 'other'"},
    /* ---- renames between keys ---- */
    {"a renamed key keeps its place, type and value", NULL,
     "mv a.count a.amount; gone a.count; text a.amount '7\n'; typed a.amount u32;"
     "list a.name a.amount a.other a.list; fsync; mv a.amount a.count; mv a.count a.amount",
     A_NAME "a.amount:u32=7 " A_OTHER A_LIST},
    {"a key renamed over another gives it its value, but not its type or place", NULL,
     "type a.other u64; mv a.count a.other; gone a.count; text a.other '7\n'; typed a.other u64;"
     "fsync; mv a.other a.name; text a.name '7\n'",
     "a.name:string=7 " A_LIST},
    {"renaming a key over one whose type it does not fit is refused", NULL,
     "mv a.name a.count =EINVAL; text a.name 'one\n'; text a.count '7\n'; refused a.count;"
     "list a.name a.count a.other a.list; fsync"},
    {"renames to and from invalid names are refused", NULL,
     "mv a.count a..b =EINVAL; mv a.count split.x =EPERM; mv a.gone a.x =ENOENT;"
     "mvnew a.count a.other =EEXIST; mvnew a.count a.amount; mv a.amount a.amount",
     A_NAME "a.amount:u32=7 " A_OTHER A_LIST},
    {"swapping the names of two keys through a third name keeps their places", NULL,
     "mv a.count a.x; mv a.other a.count; mv a.x a.other; fsync; text a.count '8\n';"
     "text a.other '7\n'",
     A_NAME "a.other:u32=7 a.count:u32=8 " A_LIST},

    /* ---- while the files are open ---- */
    {"a draft follows its renamed key", NULL,
     "open A a.name rw trunc; write A 'new'; mv a.name a.title; gone a.name; text a.title 'new';"
     "write A ' title'; close A; text a.title 'new title\n'; fsync",
     "a.title:string=new title " A_COUNT A_OTHER A_LIST},
    {"a draft follows its key over another key, whose own draft is discarded", NULL,
     "open A a.count w trunc; write A '9'; open B a.other w trunc; write B '10'; mv a.count "
     "a.other; close B; text a.other '9'; close A; text a.other '9\n'; gone a.count; fsync",
     A_NAME "a.other:u32=9 " A_LIST},
    {"a new key is renamed before its close", NULL,
     "open A a.new w creat; write A '5'; mv a.new a.newer; write A '6'; close A; gone a.new;"
     "text a.newer '56\n'; open B a.x w creat; write B '9'; mv a.x a.count; close B; fsync",
     A_NAME "a.count:u32=9 " A_OTHER A_LIST "a.newer:u32=56 "},
    {"a helper is renamed over a key before its last write", NULL,
     "open T .t w creat; write T '1'; mv .t a.count; text a.count '1\n'; write T '2'; close T;"
     "text a.count '12\n'; fsync",
     A_NAME "a.count:u32=12 " A_OTHER A_LIST},
    {"a helper is renamed over a key before its first write", NULL,
     "open T .t w creat; mv .t a.count; text a.count ''; write T '12'; close T;"
     "text a.count '12\n'; fsync; open U .u w creat; mv .u a.name; close U",
     "a.name:string= a.count:u32=12 " A_OTHER A_LIST},
    {"an open key becomes a helper, and a key again", NULL,
     "open A a.name rw trunc; write A 'new'; mv a.name .n; write A 'er'; text .n 'newer';"
     "flush A; gone a.name; mv .n a.name; text a.name 'newer\n'; close A; fsync",
     "a.name:string=newer " A_COUNT A_OTHER A_LIST},
    {"what is appended to another program's text goes on it as it is stored", NULL,
     "open A a.list w append; put a.list '[7, 8]'; write A '9\n'; close A; text a.list '7\n8\n9\n'",
     A_NAME A_COUNT A_OTHER "a.list:array[i32]=7,8,9 "},
    {"a backup keeps its text while the key is written again", NULL,
     "open A a.name r; mv a.name a.name~; put a.name 'new'; read A 'one\n';"
     "text a.name~ 'one\n'; close A; fsync",
     "a.name:string=new " A_COUNT A_OTHER A_LIST},

    {"a reader keeps its text while the key is renamed", NULL,
     "open R a.name r; mv a.name a.title; read R 'one\n'; size R 4; mv a.title .x; size R 4;"
     "read R 'one\n'; mv .x a.title; close R",
     "a.title:string=one " A_COUNT A_OTHER A_LIST},

    /* ---- helpers ---- */
    {"a key that exists only as a backup comes back at the end of the mount", NULL,
     "mv a.count a.count~; fsync; gone a.count; list a.name a.other a.list a.count~; reopen;"
     "list a.name a.count a.other a.list"},
    {"removing a key's backup removes the key", NULL,
     "mv a.count a.count~; rm a.count~; gone a.count; fsync", A_NAME A_OTHER A_LIST},
    {"a renamed backup is still a backup", NULL,
     "mv a.count a.count~; mv a.count~ .b; rm .b; fsync", A_NAME A_OTHER A_LIST},
    {"removing an older backup does not remove the key", NULL,
     "mv a.count a.count~; put a.count '9'; mv a.count a.count.bak; rm a.count~; fsync;"
     "gone a.count; reopen; text a.count '9\n'",
     A_NAME "a.count:u32=9 " A_OTHER A_LIST},
    {"a backup renamed back is the key", NULL,
     "mv a.count a.count~; mv a.count~ a.count; text a.count '7\n'; typed a.count u32;"
     "list a.name a.count a.other a.list; fsync"},
    {"a helper or a key is renamed over a helper", NULL,
     "put .x 'x'; put .y 'y'; mv .x .y; gone .x; text .y 'x'; mv a.name .y; text .y 'one\n';"
     "mv .y a.name; fsync"},
    {"a helper with a type is renamed before its first write", NULL,
     "open T .t w creat; type .t u64; mv .t a.new; write T '5'; close T; typed a.new u64;"
     "open U .u w creat; type .u array[u8]; mv .u a.tags; write U '[1, 2]'; close U;"
     "open V .v w creat; type .v f32; mv .v a.count; write V '1.5'; close V",
     A_NAME "a.count:f32=1.5 " A_OTHER A_LIST "a.new:u64=5 a.tags:array[u8]=1,2 "},
    {"a helper, with or without a type, becomes a new key", NULL,
     "put .x '5'; mv .x a.new; put .y '5'; type .y u64; mv .y a.newer; fsync",
     UNCHANGED "a.new:u32=5 a.newer:u64=5 "},
    {"st_mtime changes when a key is written, and moves with a helper", NULL,
     "time noted a.count; time same a.other; put a.name 'new'; type a.list array[u8]; time same "
     "a.count; fsync; time same a.count; put a.count '8'; time moved a.count; put .c '9'; time "
     "noted .c; mv .c a.count; time same a.count; mv a.count a.count~; time same a.count~; fsync",
     "a.name:string=new a.count:u32=9 " A_OTHER "a.list:array[u8]=1,2,3 "},
    {"a helper has its own draft when it is opened again", NULL,
     "open A .x rw creat; write A 'abc'; open B .x w append; write B 'd'; close A;"
     "text .x 'abcd'; close B; text .x 'abcd'; open C .x w trunc; close C; text .x ''"},

    /* A key counts as removed if it was renamed to a backup that was then lost. */
    {"replacing a key's backup with a helper removes the key", NULL,
     "put .x 'x'; mv a.count a.count~; mv .x a.count~; fsync; gone a.count; rm a.count~; reopen;"
     "gone a.count",
     A_NAME A_OTHER A_LIST},
    {"general.architecture comes back if its backup is overwritten", NULL,
     "mv general.architecture b~; mv a.count b~; text general.architecture 'test\n'; fsync;"
     "rm b~; fsync",
     A_NAME A_OTHER A_LIST},

    /* Removed keys return to their old positions, whatever the order. */
    {"a key renamed through a helper keeps its type", NULL,
     "type a.count u64; mv a.count .x; mv .x a.amount; typed a.amount u64; fsync; gone a.count",
     A_NAME A_OTHER A_LIST "a.amount:u64=7 "},
    {"a string that looks like a number stays a string when renamed through a helper", NULL,
     "put a.name '5'; mv a.name a.name~; mv a.name~ a.title; typed a.title string; fsync",
     A_COUNT A_OTHER A_LIST "a.title:string=5 "},
    {"a key that replaces another through a helper gets the other's type", NULL,
     "mv a.count .x; mv .x a.name; typed a.name string; gone a.count; fsync",
     "a.name:string=7 " A_OTHER A_LIST},

    {"a removed helper that is still open does not prevent a key from taking its name", NULL,
     "open N a.new w creat; open H a.new.tmp w creat; rm a.new.tmp; rm a.new; close N;"
     "mv a.count a.new.tmp; write H x; close H; typed a.new.tmp u32; text a.new.tmp '7\n'; fsync",
     A_NAME "a.new.tmp:u32=7 " A_OTHER A_LIST},
    {"a new file gets its type before its text", NULL,
     "open A b.new w creat; type b.new u32; write A 5; close A; typed b.new u32; open A c.new w "
     "creat;"
     "type c.new u8; write A '300\n' =ERANGE; close A =ERANGE; gone c.new; type .h u8 =ENOENT",
     UNCHANGED "b.new:u32=5 "},

    /* ==== helpers ==== */
    {"a helper exists, causes no warning, and disappears with the mount", "auto",
     "put @ 7; text @ 7; rm @; quiet", NULL,
     ".x|#x|x~|a.x~|.a.x|1|4913|123456789|a.name.tmp|a.name.new|a.name.swp|a.namea1B2c3.bck"},
    {"a helper that is one only if it is created as by mkstemp(3)", "auto",
     "open A @ rw mkstemp; write A 7; close A; text @ 7; rm @; quiet", NULL,
     "sedaBc|sed1234567|tmpabc|tmp_b_c1|tmpabcdefgh|AbCd1234"},
    {"a helper that is one only if a key is renamed to it", "auto",
     "put .x 7; mv .x @ =EINVAL; mv a.name @; gone a.name; text @ 'one\n'; put @ two; text @ two",
     NULL, "a.name.bak|a.name.orig|a.name.old|a.name.save"},
    {"no helper, even if it is created as by mkstemp(3)", "auto",
     "open A @ rw mkstemp =EINVAL; gone @", NULL,
     "x|sedab|sed-abc|tmpab|tmp-abc|tm_abc|abcdefg|abcdefghi|abcd_123|abcd-123"},
    {"a key", "auto", "put @ x; quiet; fsync", UNCHANGED "@:string=x ",
     "a.name.rej|a.name.a1B2c3|a.namea1B2c3|a.no.bak|a.name.bad|a.name.baks|a.name.a1B2c|"
     "a.name.a1B2c3d|a.name.a1B-c3|a.name.a1B_c3|a.namea1B2c.bck|a.namea1B2c3d.bck|"
     "a.namea1B_c3.bck|a.namea1B2c3.bak|a.namea1B2c3.bc|a.no1234.bck|a1B2c3.bck|A-z_9.0"},
    {"an invalid name", "auto", "put @ x =EINVAL; gone @; logged refused", NULL,
     "a.name.bak:u32|x|x:u8|12345-|a..x|a.|a.x%20|a.x+|a.new:|a.new:u9|a.new:u80|a.new:array|"
     "a.new:array[]|a.new:array[u8|a.new:array[u8]]|a.new:array[array2]|a.new:arrayx[u8]|"
     "a..x:u8|:u8|sedaBc|sed1234567|tmpabc|tmp_b_c1|tmpabcdefgh|AbCd1234|a.name.bak|a.name.orig|"
     "a.name.old|a.name.save"},
    {"KEY:TYPE creates a key of that type", "auto",
     "put a.new:@ 1; typed a.new @; good a.new; fsync", UNCHANGED "a.new:@=1 ",
     "i16|u32|i32|f32|string|u64|i64|f64"},
    TYPED("u8", "255", "255"),
    TYPED("i8", "-128", "-128"),
    TYPED("u16", "65535", "65535"),
    TYPED("bool", "true", "true"),
    TYPED("array[u8]", "[1, 2]", "1,2"),
    TYPED("array[string]", "[]", ""),
    {"an existing key is not created again, whatever type is requested", NULL,
     "open A a.count w creat excl =EEXIST; open A a.count:u32 w creat excl =EEXIST;"
     "open A a.count:u8 w creat excl =EEXIST; open A a.new:u8 w creat excl; write A 5; close A;"
     "typed a.count u32; fsync",
     UNCHANGED "a.new:u8=5 "},
    {"a helper created with a type in its name is found without it", "auto",
     "put .x:u8 'y'; text .x 'y'; gone .x:u8; list a.name a.count a.other a.list .x"},
    {"KEY:TYPE exists while the key has that type", "auto",
     "put a.count:u32 '9'; text a.count:u32 '9\n'; gone a.count:u64; put a.count:u64 '10';"
     "gone a.count:u32; typed a.count u64; list a.name a.count a.other a.list; fsync",
     A_NAME "a.count:u64=10 " A_OTHER A_LIST},
    {"KEY:TYPE can be renamed and removed", "auto",
     "put a.flag:u8 1; mv a.flag:u8 a.mark; typed a.mark u8; gone a.flag; rm a.mark:u16 =ENOENT;"
     "mv a.mark:u16 a.flag =ENOENT; rm a.mark:u8; gone a.mark; put a.flag:u8 2;"
     "mv a.flag:u8 a.flag; text a.flag '2\n'; fsync",
     UNCHANGED "a.flag:u8=2 "},
    {"a handle that reads a helper cannot write it, and its close does nothing", NULL,
     "put .x hi; open A .x r; flush A; read A hi; write A x =EBADF; trunc A 1 =EINVAL; read A hi;"
     "close A; text .x hi; fsync"},
    {"removed names cannot be opened for writing", NULL,
     "open A a.name r; note A; rm a.name; node B w =ESTALE; fsync; node B r =ESTALE; close A",
     A_COUNT A_OTHER A_LIST},
    {"ggufs' own keys are not shown and cannot be created", "split",
     "put split.no 5 =EPERM; rm split.no =ENOENT;"
     "mv split.no a.no =ENOENT; mv a.name split.x =EPERM; open A .x w creat; mv .x split.y =EPERM;"
     "write A 1; close A; mv .x split.y =EPERM; put ggufs.reserve x =EPERM; text .x 1;"
     "mv .x split.no =EPERM; gone split.no; rm split.no =ENOENT; text .x 1"},
    {"what a process wrote before it was killed counts", NULL,
     "open A a.name w trunc; write A two; release A; open B a.count w trunc; write B 'x\n' =EINVAL;"
     "release B; open C a.other w trunc; release C; text a.name 'two\n'; text a.count '7\n';"
     "text a.other '8\n'; fsync",
     "a.name:string=two " A_COUNT A_OTHER A_LIST},
    {"a helper with the key's own text is renamed over it while it is read", NULL,
     "put .c 7; open R .c r; mv .c a.count; gone .c; read R 7; text a.count '7\n'; close R; fsync"},
    {"a helper renamed over a removed key gets a type before its first write", NULL,
     "rm a.count; open U .u w creat; mv .u a.count; type a.count f32; shown " UNCHANGED
     "; write U 1.5; close U; typed a.count f32; fsync",
     A_NAME "a.count:f32=1.5 " A_OTHER A_LIST},

    /* ==== editors: the key is not the last one, so a change in its position would be noticed ==== */
    /* ---- vim ---- */
    {"vim moves the key aside for a probe and a backup, and writes it again", NULL,
     "open P 4913 w creat excl; close P; rm 4913; gone 4913; mv a.count a.count~; gone a.count;"
     "text a.count~ '7\n'; open A a.count w creat trunc; write A '12\n'; fsync A; close A; text "
     "a.count '12\n'; rm a.count~; fsync; list a.name a.count a.other a.list; typed a.count u32",
     SAVED},
    {"vim: a refused text is put back by vim itself", NULL,
     "mv a.count a.count~; open A a.count w creat trunc; write A 'x\n' =EINVAL; close A =EINVAL;"
     "text a.count '7\n'; mv a.count~ a.count; text a.count '7\n'; fsync;"
     "list a.name a.count a.other a.list; refused a.count"},
    {"vim replaces an earlier backup", NULL,
     "put a.count~ 'old'; mv a.count a.count~; put a.count '12'; text a.count~ '7\n'; mv a.count "
     "a.count~; put a.count '13'; text a.count~ '12\n'; mv a.count a.count~; put a.count '12'",
     SAVED},
    /* ---- emacs, nano, ed ---- */
    {"emacs creates a lock file and an auto-save file, and renames the key to a backup", NULL,
     "open L .#-emacsaB3dE6 rw creat excl; write L user@host.1; close L; mvnew .#-emacsaB3dE6 "
     ".#a.count;"
     "put #a.count# '1'; mv a.count a.count~;"
     "open A a.count w creat trunc; write A '12\n'; fsync A; close A; rm #a.count#;"
     "rm .#a.count; fsync; list a.name a.count a.other a.list a.count~; text a.count~ '7\n'",
     SAVED},
    {"emacs saves twice, and the backup remains the first text", NULL,
     "mv a.count a.count~; put a.count '11'; put a.count '12'; text a.count~ '7\n'; fsync", SAVED},
    /* ---- programs that rename a new file over the old one ---- */
    {"rsync -X sets the type of the hidden file", NULL,
     "open T .a.count.Ab12Cd rw creat excl; write T '12\n'; close T; type .a.count.Ab12Cd u32;"
     "mv .a.count.Ab12Cd a.count; put .a.new.Ab12Cd '5\n'; type .a.new.Ab12Cd u64;"
     "mv .a.new.Ab12Cd a.new; typed a.new u64; fsync",
     SAVED "a.new:u64=5 "},
    {"gedit renames .goutputstream over the key after an fsync", NULL,
     "open T .goutputstream-A1B2C3 rw creat excl; write T '12\n'; fsync T;"
     "mv .goutputstream-A1B2C3 a.count; close T; text a.count '12\n'; fsync",
     SAVED},
    {"gedit with backups, like rsync -b, renames the key to a backup", NULL,
     "open T .goutputstream-A1B2C3 rw creat excl; write T '12\n'; fsync T; close T;"
     "mv a.count a.count~; mv .goutputstream-A1B2C3 a.count; text a.count~ '7\n'; fsync",
     SAVED},
    {"a key's text is judged as the type of the key that it is renamed over, as it was written",
     NULL,
     "open T a.name.AbCdEf rw creat excl; open R a.name.AbCdEf r; write T '1.0'; write T '0\n';"
     "fsync T; close T; typed a.name.AbCdEf f32; mv a.name.AbCdEf a.name; text a.name '1.00\n';"
     "close R; open T a.new1 rw creat; open R a.new1 r; write T '007'; close T; type a.new1 u64;"
     "mv a.new1 a.name; close R; text a.name '7\n'; open T a.new2 rw creat; open R a.new2 r;"
     "write T 5.0; close T; mv a.new2 a.count =EINVAL; close R; rm a.new2; put a.list1 x;"
     "mv a.list1 a.list =EINVAL; refused a.list; rm a.list1; fsync",
     "a.name:string=7 " A_COUNT A_OTHER A_LIST},
    {"JetBrains moves the key aside, renames its file to the key, and removes the old one", NULL,
     "put a.count___jb_tmp___ '12\n'; mv a.count a.count___jb_old___; mv a.count___jb_tmp___ "
     "a.count;"
     "rm a.count___jb_old___; fsync; list a.name a.count a.other a.list; quiet",
     SAVED},
    {"sed -i on a key's name with its type", NULL,
     "open T sedAb1Cd2 rw mkstemp; write T '12\n'; close T; mv sedAb1Cd2 a.count:u32; fsync",
     SAVED},
    /* ---- programs that move the old file away and write a new one ---- */
    {"helix moves the key aside and removes that backup after the save", NULL,
     "mv a.count a.countAb1Cd2.bck; open A a.count w creat trunc; write A '12\n'; fsync A;"
     "close A; rm a.countAb1Cd2.bck; fsync; list a.name a.count a.other a.list",
     SAVED},
    {"helix puts the key back after a refused text", NULL,
     "mv a.count a.countAb1Cd2.bck; open A a.count w creat trunc; write A 'x\n' =EINVAL;"
     "close A =EINVAL; mv a.countAb1Cd2.bck a.count; text a.count '7\n'; fsync;"
     "list a.name a.count a.other a.list"},
    {"perl -i.orig renames the key to a backup and goes on reading it", NULL,
     "open R a.count r; mv a.count a.count.orig; open A a.count w creat trunc; read R '7\n';"
     "write A '12\n'; close R; close A; text a.count.orig '7\n'; fsync",
     SAVED},
    /* ---- programs that remove the old file and make a new one ---- */
    {"keys that cannot be removed are refused before anything changes", NULL,
     "rm general.architecture =EPERM; mv general.architecture a.x =EPERM;"
     "text general.architecture 'test\n'; mv general.architecture general.architecture~;"
     "rm general.architecture~; text general.architecture 'test\n'; fsync"},
};

SCRIPTS_MAIN("live_names", scripts)

/* SPDX-License-Identifier: MIT */
/* Names in metadata/: helpers, keys with or without a type, and names that can be neither. See
 * script.h for scripts. */
#include "script.h"

#define TYPED(type, text, shown)                                                      \
    {                                                                                 \
        "a new " type, "auto",                                                        \
            "put a.new:" type " '" text "'; typed a.new " type "; good a.new; fsync", \
            UNCHANGED "a.new:" type "=" shown " "                                     \
    }

static const struct script scripts[] = {
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
};

SCRIPTS_MAIN("live helpers", scripts)

/* SPDX-License-Identifier: MIT */
/* Names in metadata/: helpers, keys with or without a type, and names that can be neither. See
 * script.h for scripts. */
#include "script.h"

/* A file that is not a key: it exists, causes no warning, and disappears with the mount. */
#define HELPER(name)                                                                      \
    {                                                                                     \
        "helper " name, "auto", "put " name " '7'; text " name " '7'; rm " name "; quiet" \
    }
/* The same, but only if it is created as by mkstemp(3). */
#define MKSTEMP(name)                                                                             \
    INVALID(name),                                                                                \
    {                                                                                             \
        "made by mkstemp: " name, "auto",                                                         \
            "open A " name " rw mkstemp; write A 7; close A; text " name " 7; rm " name "; quiet" \
    }
/* The same, but only if a key is renamed to it. */
#define BACKUP(name)                                                             \
    INVALID(name),                                                               \
    {                                                                            \
        "backup " name, "auto",                                                  \
            "put .x 7; mv .x " name " =EINVAL; mv a.name " name "; gone a.name;" \
            "text " name " 'one\n'; put " name " two; text " name " two"         \
    }
#define NO_HELPER(name)                                      \
    {                                                        \
        "made by mkstemp, but not a helper: " name, "auto",  \
            "open A " name " rw mkstemp =EINVAL; gone " name \
    }
#define KEY(name)                                                                          \
    {                                                                                      \
        "key " name, "auto", "put " name " 'x'; quiet; fsync", UNCHANGED name ":string=x " \
    }
#define INVALID(name)                                                                      \
    {                                                                                      \
        "invalid " name, "auto", "put " name " 'x' =EINVAL; gone " name "; logged refused" \
    }
/* KEY:TYPE creates a key of that type. */
#define TYPED(type, text, shown)                                                      \
    {                                                                                 \
        "a new " type, "auto",                                                        \
            "put a.new:" type " '" text "'; typed a.new " type "; good a.new; fsync", \
            UNCHANGED "a.new:" type "=" shown " "                                     \
    }

static const struct script scripts[] = {
    HELPER(".x"),
    HELPER("#x"),
    HELPER("x~"),
    HELPER("a.x~"),
    HELPER(".a.x"),
    HELPER("1"),
    HELPER("4913"),
    HELPER("123456789"),
    MKSTEMP("sedaBc"),
    MKSTEMP("sed1234567"),
    MKSTEMP("tmpabc"),
    MKSTEMP("tmp_b_c1"),
    MKSTEMP("tmpabcdefgh"),
    MKSTEMP("AbCd1234"),
    HELPER("a.name.tmp"),
    HELPER("a.name.new"),
    HELPER("a.name.swp"),
    HELPER("a.namea1B2c3.bck"),
    BACKUP("a.name.bak"),
    BACKUP("a.name.orig"),
    BACKUP("a.name.old"),
    BACKUP("a.name.save"),
    INVALID("a.name.bak:u32"),
    INVALID("x"),
    INVALID("x:u8"),
    INVALID("12345-"),
    NO_HELPER("x"),
    NO_HELPER("sedab"),
    NO_HELPER("sed-abc"),
    NO_HELPER("tmpab"),
    NO_HELPER("tmp-abc"),
    NO_HELPER("tm_abc"),
    NO_HELPER("abcdefg"),
    NO_HELPER("abcdefghi"),
    NO_HELPER("abcd_123"),
    NO_HELPER("abcd-123"),
    KEY("a.name.rej"),
    KEY("a.name.a1B2c3"),
    KEY("a.namea1B2c3"),
    KEY("a.no.bak"),
    KEY("a.name.bad"),
    KEY("a.name.baks"),
    KEY("a.name.a1B2c"),
    KEY("a.name.a1B2c3d"),
    KEY("a.name.a1B-c3"),
    KEY("a.name.a1B_c3"),
    KEY("a.namea1B2c.bck"),
    KEY("a.namea1B2c3d.bck"),
    KEY("a.namea1B_c3.bck"),
    KEY("a.namea1B2c3.bak"),
    KEY("a.namea1B2c3.bc"),
    KEY("a.no1234.bck"),
    KEY("a1B2c3.bck"),
    KEY("A-z_9.0"),
    INVALID("a..x"),
    INVALID("a."),
    INVALID("a.x%20"),
    INVALID("a.x+"),
    INVALID("a.new:"),
    INVALID("a.new:u9"),
    INVALID("a.new:u80"),
    INVALID("a.new:array"),
    INVALID("a.new:array[]"),
    INVALID("a.new:array[u8"),
    INVALID("a.new:array[u8]]"),
    INVALID("a.new:array[array2]"),
    INVALID("a.new:arrayx[u8]"),
    INVALID("a..x:u8"),
    TYPED("u8", "255", "255"),
    TYPED("i8", "-128", "-128"),
    TYPED("u16", "65535", "65535"),
    TYPED("i16", "1", "1"),
    TYPED("u32", "1", "1"),
    TYPED("i32", "1", "1"),
    TYPED("f32", "1", "1"),
    TYPED("bool", "true", "true"),
    TYPED("string", "1", "1"),
    TYPED("u64", "1", "1"),
    TYPED("i64", "1", "1"),
    TYPED("f64", "1", "1"),
    TYPED("array[u8]", "[1, 2]", "1,2"),
    TYPED("array[string]", "[]", ""),
    {"an existing key is not created again, whatever type is requested", NULL,
     "open A a.count w creat excl =EEXIST; open A a.count:u32 w creat excl =EEXIST;"
     "open A a.count:u8 w creat excl =EEXIST; open A a.new:u8 w creat excl; write A 5; close A;"
     "typed a.count u32; fsync",
     UNCHANGED "a.new:u8=5 "},
    {"a helper created with a type in its name is found without it", "auto",
     "put .x:u8 'y'; text .x 'y'; gone .x:u8; list a.name a.count a.other a.list .x"},
    INVALID(":u8"),
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
     "put .x hi; open A .x r; flush A; read A hi; write A x =EBADF; trunc A 1; read A h; close A;"
     "text .x h; fsync"},
    {"links cannot be opened, nor can removed names be opened for writing", NULL,
     "link .l target; open A .l r =ELOOP; open A .l w =ELOOP; rm .l; open A a.name r; note A;"
     "rm a.name; node B w =ESTALE; fsync; node B r =ESTALE; close A",
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

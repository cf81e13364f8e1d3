/* SPDX-License-Identifier: MIT */
/* Names in metadata/: helpers, keys with or without a type, and names that can be neither. See
 * script.h for scripts. */
#include "script.h"

/* A file that is not a key: it exists, causes no warning, and disappears with the mount. */
#define HELPER(name)                                                                       \
    {                                                                                      \
        "helper " name, "auto", "put " name " '7'; text " name " '7'; rm " name "; quiet", \
            UNCHANGED                                                                      \
    }
#define STRAY(name)                                                                             \
    {                                                                                           \
        "not a key: " name, "auto", "put " name " '7'; logged '" name ": not saved'; rm " name, \
            UNCHANGED                                                                           \
    }
#define KEY(name)                                                                          \
    {                                                                                      \
        "key " name, "auto", "put " name " 'x'; quiet; fsync", UNCHANGED name ":string=x " \
    }
#define INVALID(name)                                                              \
    {                                                                              \
        "invalid " name, "auto", "put " name " 'x' =EINVAL; gone " name, UNCHANGED \
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
    HELPER("sedaBc"),
    HELPER("sed1234567"),
    HELPER("tmpabc"),
    HELPER("tmp_b_c1"),
    HELPER("tmpabcdefgh"),
    HELPER("AbCd1234"),
    HELPER("a.name.bak"),
    HELPER("a.name.orig"),
    HELPER("a.name.tmp"),
    HELPER("a.name.new"),
    HELPER("a.name.old"),
    HELPER("a.name.rej"),
    HELPER("a.name.swp"),
    HELPER("a.name.save"),
    HELPER("a.name.a1B2c3"),
    HELPER("a.namea1B2c3.bck"),
    STRAY("x"),
    STRAY("sedab"),
    STRAY("sed_ab1"),
    STRAY("sed-abc"),
    STRAY("tmpab"),
    STRAY("tmp-abc"),
    STRAY("tm_abc"),
    STRAY("abcdefg"),
    STRAY("abcdefghi"),
    STRAY("abcd_123"),
    STRAY("abcd-123"),
    STRAY("12345-"),
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
     "put .x:u8 'y'; text .x 'y'; gone .x:u8; list a.name a.count "
     "a.other a.list .x",
     UNCHANGED},
    STRAY(":u8"),
    {"KEY:TYPE exists while the key has that type", "auto",
     "put a.count:u32 '9'; text a.count:u32 '9\n'; gone a.count:u64; put a.count:u64 '10';"
     "gone a.count:u32; typed a.count u64; list a.name a.count a.other a.list; fsync",
     A_NAME "a.count:u64=10 " A_OTHER A_LIST},
    {"KEY:TYPE can be renamed and removed", "auto",
     "put a.flag:u8 1; mv a.flag:u8 a.mark; typed a.mark u8; gone a.flag; rm a.mark:u16 =ENOENT;"
     "mv a.mark:u16 a.flag =ENOENT; rm a.mark:u8; gone a.mark; put a.flag:u8 2; mv a.flag:u8 "
     "a.flag;"
     "text a.flag '2\n'; fsync",
     UNCHANGED "a.flag:u8=2 "},
    {"a handle that reads a helper cannot write it, and its close does nothing", NULL,
     "put .x hi; open A .x r; flush A; read A hi; write A x =EBADF; trunc A 1; read A h; close A;"
     "text .x h; fsync",
     UNCHANGED},
    {"links cannot be opened, nor can removed names be opened for writing", NULL,
     "link .l target; open A .l r =ELOOP; open A .l w =ELOOP; rm .l; open A a.name r; tnote A;"
     "rm a.name; tnode B w =ESTALE; tnode B r; close B; fsync;"
     "tnode B r =ESTALE; close A",
     A_COUNT A_OTHER A_LIST},
    {"ggufs' own keys are not shown and cannot be created", "split",
     "put split.no 5 =EPERM; rm split.no =ENOENT;"
     "mv split.no a.no =ENOENT; mv a.name split.x =EPERM; open A .x w creat; mv .x split.y =EPERM;"
     "write A 1; close A; mv .x split.y =EPERM; put ggufs.reserve x =EPERM; text .x 1;"
     "mv .x split.no =EPERM; gone split.no; rm split.no =ENOENT; text .x 1",
     UNCHANGED},
    {"what a process wrote before it was killed counts", NULL,
     "open A a.name w trunc; write A two; release A; open B a.count w trunc; write B x =EINVAL;"
     "release B; open C a.other w trunc; release C; text a.name 'two\n'; text a.count '7\n';"
     "text a.other '8\n'; fsync",
     "a.name:string=two " A_COUNT A_OTHER A_LIST},
    {"setting the type of a helper with a name that no key can have leaves it a helper", NULL,
     "put foo%zz 5; type foo%zz u8; text foo%zz 5; gone foo; fsync; rm foo%zz", UNCHANGED},
    {"a helper with the key's own text is renamed over it while it is read", NULL,
     "put .c 7; open R .c r; mv .c a.count; gone .c; read R 7; text a.count '7\n'; close R; fsync",
     UNCHANGED},
    {"an open helper keeps its content when it gets a type", NULL,
     "open A foo w creat; write A 5; flush A; type foo u8; text foo '5\n'; typed foo u8; write A 6;"
     "close A; text foo '56\n'; put bar 7; open B bar rw; type bar u16; text bar '7\n'; close B;"
     "text bar '7\n'; put baz 8; open C baz w append; type baz u32; write C 9; close C;"
     "text baz '89\n'; open D qux w creat; write D 1; type qux i8; close D; text qux '1\n';"
     "open E tux w creat; type tux i16; write E 2; close E; put rad 3; open R rad r; type rad u8;"
     "read R 3; close R; open F raw w creat; open R raw r; write F 4; type raw u8; read R 4;"
     "close F; close R; open F ran w creat; write F 5; flush F; open R ran r; type ran u8; read R "
     "5;"
     "close F; close R; fsync",
     UNCHANGED "foo:u8=56 bar:u16=7 baz:u32=89 qux:i8=1 tux:i16=2 rad:u8=3 raw:u8=4 ran:u8=5 "},
    {"an open helper that does not fit the type set on it stays a helper", NULL,
     "open A foo w creat; write A 500; flush A; type foo u8 =ERANGE; text foo 500; write A 1;"
     "close A; text foo 5001; type foo u16; text foo '5001\n'; fsync",
     UNCHANGED "foo:u16=5001 "},
    {"a helper renamed over a removed key gets a type before its first write", NULL,
     "rm a.count; open U .u w creat; mv .u a.count; type a.count f32; shown " UNCHANGED
     "; write U 1.5; close U; typed a.count f32; fsync",
     A_NAME "a.count:f32=1.5 " A_OTHER A_LIST},
};

SCRIPTS_MAIN("live helpers", scripts)

/* SPDX-License-Identifier: MIT */
/* Names in metadata/ that are removed, renamed, taken by helpers and given back, even while their
 * files are open. See script.h for scripts. */
#include "script.h"

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
};

SCRIPTS_MAIN("live_names", scripts)

/* SPDX-License-Identifier: MIT */
/* Open files in metadata/: drafts, handles, closes and releases, types and refusals; text that the
 * write refuses, and text that only the close judges. See script.h for scripts, test_live_names.c for
 * names. */
#include "script.h"

static const struct script scripts[] = {
    {"a model that nobody edits stays as it is", NULL,
     "list a.name a.count a.other a.list; text a.name 'one\n'; text a.list '1\n2\n3\n';"
     "stat a.count 2; typed a.list array[i32]; shown " UNCHANGED "; file " UNCHANGED "; fsync"},

    /* ---- one handle ---- */
    {"a write is a draft until the close", NULL,
     "open A a.name w trunc; write A 'new'; stat a.name 3; shown " UNCHANGED "; flush A;"
     "shown a.name:string=new " A_COUNT A_OTHER A_LIST "; text a.name 'new\n'; release A;"
     "text a.name 'new\n'",
     "a.name:string=new " A_COUNT A_OTHER A_LIST},
    {"reads and sizes are those of the draft until it is accepted", NULL,
     "open A a.name rw trunc; write A 'a draft'; read A 'a draft'; text a.name 'a draft';"
     "size A 7; stat a.name 7; flush A; read A 'a draft'; size A 7; text a.name 'a draft\n';"
     "stat a.name 8; close A",
     "a.name:string=a draft " A_COUNT A_OTHER A_LIST},
    {"the last newline of a string is not part of it, but earlier ones are", NULL,
     "put a.name 'new\n\n'; text a.name 'new\n\n'; put a.new '\n'; text a.new '\n'",
     "a.name:string=new, " A_COUNT A_OTHER A_LIST "a.new:string= "},
    {"a write in the middle keeps what is around it", NULL,
     "open A a.name rw; write A 'X' 1; close A; text a.name 'oXe\n'; open A a.count w;"
     "write A '9' 1; close A",
     "a.name:string=oXe a.count:u32=79 " A_OTHER A_LIST},
    {"a text written in pieces is judged once it is complete", NULL,
     "open A a.count w trunc; write A '1'; write A '2'; write A '3\n'; close A;"
     "open A a.list w trunc; write A '[1,'; write A ' 2'; write A ']'; close A",
     A_NAME "a.count:u32=123 " A_OTHER "a.list:array[i32]=1,2 "},
    {"a shell appends to a key", NULL, "add a.list '4\n5\n'; add a.name 'more'",
     "a.name:string=one,more " A_COUNT A_OTHER "a.list:array[i32]=1,2,3,4,5 "},
    {"writing the same text again changes nothing", "sync",
     "put a.name 'one\n'; put a.count ' 7\r\n'; put a.list '[1, 2, 3]'; alter; fsync; restore"},
    {"fsync makes a write durable, and the program can go on writing", NULL,
     "open A a.name w trunc; write A 'new'; fsync A; file a.name:string=new " A_COUNT A_OTHER A_LIST
     "; write A ' and more'; close A; fsync; text a.name 'new and more\n'",
     "a.name:string=new and more " A_COUNT A_OTHER A_LIST},
    {"a program truncates a key before it writes", NULL,
     "open A a.name w; trunc A 0; write A 'new'; close A; truncate a.list 2",
     "a.name:string=new " A_COUNT A_OTHER "a.list:array[i32]=1 "},
    {"ftruncate shortens a text, and the close accepts it", NULL,
     "open A a.name rw; trunc A 2; read A 'on'; close A; text a.name 'on\n'",
     "a.name:string=on " A_COUNT A_OTHER A_LIST},
    {"a text may be written from its end", NULL,
     "open A a.count w trunc; write A '3\n' 2; write A '12' 0; close A; open B a.name w trunc;"
     "write B 'b' 1; write B 'a' 0; close B",
     "a.name:string=ab a.count:u32=123 " A_OTHER A_LIST},
    {"a hole in a number is refused", NULL,
     "open A a.count w trunc; write A '5' 2; close A =EINVAL; text a.count '7\n'"},
    {"a program writes, truncates and writes again", NULL,
     "open A a.count w trunc; write A '1'; trunc A 0; flush A; good a.count; write A '5' 0;"
     "close A",
     A_NAME "a.count:u32=5 " A_OTHER A_LIST},
    {"texts over 1 GiB are refused", NULL,
     "open A a.name rw; trunc A 1073741825 =EFBIG; read A 'one\n'; close A; open A a.name rw;"
     "write A 'x' 1073741824 =EFBIG; close A =EFBIG; open B .x rw creat; write B 'x';"
     "trunc B 1073741825 =EFBIG; write B 'x' 1073741824 =EFBIG; read B 'x'; close B"},
    {"keys and helpers have the documented attributes", NULL,
     "attrs a.name 'user.gguf.name user.gguf.type'; attr a.name user.gguf.name a.name;"
     "put .x 'x'; attrs .x ''; type .x u8; attrs .x user.gguf.type; put a.count 'x' =EINVAL;"
     "attrs a.count 'user.gguf.name user.gguf.type user.gguf.error'; open A a.new:u8 w creat;"
     "attr a.new user.gguf.name a.new; attr a.new user.gguf.type u8; write A '5'; close A",
     UNCHANGED "a.new:u8=5 "},

    /* ---- mere truncations ---- */
    {"a mere truncation makes an empty string or array", NULL,
     "open A a.name w trunc; flush A; text a.name ''; shown " UNCHANGED "; release A;"
     "open A a.list w trunc; close A; open A a.count w trunc; close A; text a.count '7\n'; fsync",
     "a.name:string= " A_COUNT A_OTHER "a.list:array[i32]= "},
    {"truncate(2) by name is a mere truncation", NULL,
     "truncate a.name 0; truncate a.count 0; text a.name '\n'; text a.count '7\n'",
     "a.name:string= " A_COUNT A_OTHER A_LIST},
    {"a truncation followed by data is a write", NULL, "truncate a.name 0; put a.name 'new'; fsync",
     "a.name:string=new " A_COUNT A_OTHER A_LIST},
    {"an empty new file is an empty string, or is dropped if its type has no empty value", NULL,
     "open A a.new w creat trunc; close A; text a.new '\n'; open A llama.context_length w creat;"
     "close A; gone llama.context_length; fsync",
     UNCHANGED "a.new:string= "},
    {"a new key is created when its file is closed", NULL,
     "open A a.new w creat excl; list a.name a.count a.other a.list a.new; shown " UNCHANGED
     "; write A '5'; close A; typed a.new u32; open A a.new w creat excl =EEXIST",
     UNCHANGED "a.new:u32=5 "},

    /* ---- several handles ---- */
    {"two writers share one draft", NULL,
     "open A a.name rw trunc; open B a.name rw; write A 'abc'; read B 'abc'; write B 'X' 1;"
     "read A 'aXc'; size B 3; close A; close B",
     "a.name:string=aXc " A_COUNT A_OTHER A_LIST},
    {"two programs append one after the other", NULL,
     "open A a.list w append; open B a.list w append; write A '4\n'; write B '5\n';"
     "write A '6\n'; close A; close B",
     A_NAME A_COUNT A_OTHER "a.list:array[i32]=1,2,3,4,5,6 "},
    {"a reader keeps the text it opened; the next reader sees the new text", NULL,
     "open R a.name r; read R 'one\n'; put a.name 'new'; open S a.name r; read S 'new\n';"
     "close R; close S",
     "a.name:string=new " A_COUNT A_OTHER A_LIST},
    {"a truncation by another handle restarts the draft", NULL,
     "open A a.name w trunc; write A 'abc'; open B a.name w trunc; write B 'x'; close A; close B",
     "a.name:string=x " A_COUNT A_OTHER A_LIST},
    {"a close by a handle that wrote nothing does not judge the draft", NULL,
     "open A a.count w trunc; open B a.count rw; write A '-'; flush B; close B; trunc A 0;"
     "write A '5' 0; close A; good a.count",
     A_NAME "a.count:u32=5 " A_OTHER A_LIST},
    {"a close in a forked child accepts what has been written so far", NULL,
     "open A a.name w trunc; flush A; write A 'a'; flush A; write A 'b'; flush A;"
     "text a.name 'ab\n'; write A 'c'; close A",
     "a.name:string=abc " A_COUNT A_OTHER A_LIST},
    {"a number grows from close to close", NULL,
     "open A a.count w trunc; write A '1'; flush A; text a.count '1\n'; write A '2'; close A",
     A_NAME "a.count:u32=12 " A_OTHER A_LIST},
    {"after an accepted draft the next writer begins from what is stored", NULL,
     "open A a.name w trunc; write A 'abc'; flush A; open B a.name w append; write B 'd';"
     "close B; text a.name 'abc\nd\n'; release A",
     "a.name:string=abc,d " A_COUNT A_OTHER A_LIST},
    {"a write past the end of an accepted text appends to the stored text", NULL,
     "open A a.name w trunc; write A 'abc'; flush A; write A 'd' 4; close A;"
     "text a.name 'abc\nd\n'",
     "a.name:string=abc,d " A_COUNT A_OTHER A_LIST},
    {"an empty file with two writers, one of which writes nothing", NULL,
     "open A a.name w trunc; open B a.name w; close A; text a.name ''; close B; text a.name '\n'",
     "a.name:string= " A_COUNT A_OTHER A_LIST},

    /* ---- refusals ---- */
    {"a bad text is refused by the write that completes it", NULL,
     "open A a.count w trunc; write A 'seven\n' =EINVAL; close A =EINVAL; refused a.count;"
     "text a.count '7\n'; put a.count '8'; good a.count",
     A_NAME "a.count:u32=8 " A_OTHER A_LIST},
    {"a bad text written in pieces is refused by the close", NULL,
     "open A a.list w trunc; write A '[1'; write A ', 2'; close A =EINVAL; refused a.list;"
     "text a.list '1\n2\n3\n'"},
    {"values out of range, not UTF-8 or of the wrong type are refused", NULL,
     "put a.count '4294967296' =ERANGE; put a.count '-1' =ERANGE; put a.new '\xff\xfe' =EILSEQ;"
     "put a.list '1\nx\n' =EINVAL; put a.count '1.5' =EINVAL; gone a.new; refused a.count;"
     "refused a.list"},
    {"a truncation restarts a refused draft", NULL,
     "open A a.count w trunc; write A 'x\n' =EINVAL; trunc A 0; write A '5' 0; close A; good "
     "a.count",
     A_NAME "a.count:u32=5 " A_OTHER A_LIST},
    {"a refused draft is not shown, and the next writer begins from what is stored", NULL,
     "open A a.list rw append; write A 'x\n' =EINVAL; flush A =EINVAL; text a.list '1\n2\n3\n';"
     "add a.list '4\n'; text a.list '1\n2\n3\n4\n'; release A; text a.list '1\n2\n3\n4\n'",
     A_NAME A_COUNT A_OTHER "a.list:array[i32]=1,2,3,4 "},
    {"a refused new key is not created", NULL,
     "put a.new:u8 '256' =ERANGE; gone a.new; open A llama.context_length w creat; write A '-';"
     "close A =EINVAL; gone llama.context_length; put a.new:u8 '255'",
     UNCHANGED "a.new:u8=255 "},
    {"a refused draft does not undo what another handle wrote in between", NULL,
     "open A a.count w trunc; write A '12'; flush A; put a.count '9'; open B a.count w append;"
     "write B 'x\n' =EINVAL; close B =EINVAL; text a.count '9\n'; release A; text a.count '9\n';"
     "fsync",
     A_NAME "a.count:u32=9 " A_OTHER A_LIST},
    {"a close refuses a write past the end of the stored text", NULL,
     "open A a.count w; write A 'x\n' 2; close A =EINVAL; open A a.count w trunc; write A '1';"
     "flush A; open B a.count w; write B 'x\n' 2; release A; close B =EINVAL; text a.count '1\n';"
     "put a.count '7'; open A a.count rw; mv a.count .x; mv .x a.count; write A 'x\n' 2;"
     "close A =EINVAL; text a.count '7\n';"},
    {"a key that is truncated, renamed to a helper and back, and then written", NULL,
     "open A a.count w trunc; mv a.count .x; mv .x a.count; write A 'x\n' =EINVAL;"
     "close A =EINVAL; text a.count '7\n'; open A a.count w trunc; mv a.count .x; mv .x a.count;"
     "write A '9'; close A; text a.count '9\n'; gone .x",
     A_NAME "a.count:u32=9 " A_OTHER A_LIST},
    {"an extended text is not a whole text; a shortened one is", NULL,
     "open A a.count w trunc; trunc A 3; write A 'x\n'; close A =EINVAL; open A a.count w trunc;"
     "write A '1'; trunc A 1; write A 'x\n'; close A =EINVAL; open A a.count w trunc;"
     "write A '12'; trunc A 1; write A 'x' 1; close A =EINVAL; text a.count '7\n'"},
    {"a refused draft does not undo a type set after a close that changed nothing", NULL,
     "open A a.count w trunc; write A '7'; flush A; type a.count u64; write A 'x\n';"
     "close A =EINVAL; text a.count '7\n'; typed a.count u64",
     A_NAME "a.count:u64=7 " A_OTHER A_LIST},
    {"a program that has written nothing does not see what another one's was refused for", NULL,
     "open A a.list rw append; open B a.list w trunc; write B 'x\n' =EINVAL; close B =EINVAL;"
     "read A '1\n2\n3\n'; write A '4\n'; close A",
     A_NAME A_COUNT A_OTHER "a.list:array[i32]=1,2,3,4 "},
    {"a temporary that is renamed over a key before it is closed keeps the key's type", NULL,
     "open A a.count.aBcDeF w creat excl mkstemp; write A 8192; mv a.count.aBcDeF a.count; close A;"
     "typed a.count u32",
     A_NAME "a.count:u32=8192 " A_OTHER A_LIST},
    {"a handle whose write was refused leaves no truncation either", NULL,
     "open A a.list w trunc; write A 'x\n' =EINVAL; release A; text a.list '1\n2\n3\n'"},
    {"removing user.gguf.error has no effect, and no other attribute can be removed", NULL,
     "forgive a.count user.gguf.type =EPERM; forgive a.count user.other =ENODATA; put a.count 'x' "
     "=EINVAL; refused a.count; forgive a.count; refused a.count"},
    {"keys that only ggufs may write, and invalid names, are refused", NULL,
     "put split.count '1' =EPERM; put ggufs.reserve ' ' =EPERM; put a..b 'x' =EINVAL;"
     "put 'a.b c' 'x' =EINVAL; open A a.name r; write A 'x' =EBADF; close A"},

    /* ---- types ---- */
    {"KEY:TYPE creates a key of that type", NULL,
     "put a.new:u8 '1'; typed a.new u8; put a.tags:array[string] '\"x\"\n'; text a.new:u8 '1\n';"
     "list a.name a.count a.other a.list a.new a.tags",
     UNCHANGED "a.new:u8=1 a.tags:array[string]=\"x\" "},
    {"KEY:TYPE changes the type of an existing key, unless the text is refused", NULL,
     "put a.count:u8 '300' =ERANGE; put a.count '300'; typed a.count u32; put a.count:u64 '1';"
     "typed a.count u64; put a.count '5000000000'",
     A_NAME "a.count:u64=5000000000 " A_OTHER A_LIST},
    {"a type set by its attribute is accepted if the value fits", NULL,
     "type a.count u64; type a.other f32; type a.name u8 =EINVAL; type a.list array[u8];"
     "type a.list u8 =EINVAL; type a.count nonsense =EINVAL; text a.other '8\n'; refused a.name",
     A_NAME "a.count:u64=7 a.other:f32=8 a.list:array[u8]=1,2,3 "},
    {"a type set while a key is being written applies to its text", NULL,
     "open A a.new w creat; write A '1'; type a.new u64; close A; open A a.count w trunc;"
     "write A '9'; type a.count f64; write A '.5'; close A",
     A_NAME "a.count:f64=9.5 " A_OTHER A_LIST "a.new:u64=1 "},
    {"tar creates a key, sets its type and then writes it", NULL,
     "mknod a.new; type a.new u64; fsync; open A a.new w; write A '1'; close A; mknod a.made;"
     "type a.made array[u8]; open A a.made w; close A; mknod a.loss; fsync; stat a.loss 0;"
     "mv a.loss a.lost; list a.name a.count a.other a.list a.new a.made a.lost",
     UNCHANGED "a.new:u64=1 a.made:array[u8]= "},
    {"the type of a new key is inferred from its text", NULL,
     "put a.a 'true'; put a.b '-1'; put a.c '1e3'; put a.d '[\"x\", \"y\"]';"
     "put a.e '[1, \"x\"]'; put a.f '18446744073709551615'; put a.g 'v1'",
     UNCHANGED "a.a:bool=true a.b:i32=-1 a.c:f32=1000 a.d:array[string]=\"x\",\"y\" "
               "a.e:string=[1, \"x\"] a.f:u64=18446744073709551615 a.g:string=v1 "},
    {"a standardized key gets its type from the table", NULL,
     "put llama.context_length '4096'; put llama.rope.freq_base '10000'; put general.name '5'",
     UNCHANGED
     "llama.context_length:u32=4096 llama.rope.freq_base:f32=10000 general.name:string=5 "},
    {"setting an alignment moves the tensors, and removing it moves them back", NULL,
     "put general.alignment '64'; typed general.alignment u32; fsync; shown " UNCHANGED
     "general.alignment:u32=64; put general.alignment '48' =EINVAL;"
     "type general.alignment u64 =EINVAL; mv general.alignment a.x =EINVAL; rm general.alignment;"
     "fsync; put general.alignment '4096'; fsync; put general.alignment '32'",
     UNCHANGED "general.alignment:u32=32 "},

    /* ---- split models ---- */
    {"keys of a split model are edited in its first file", "split",
     "list a.name a.count a.other a.list; put a.name 'new'; put a.new '5'; rm a.other; fsync;"
     "put split.count '5' =EPERM; mv a.count a.amount; type a.amount u64; reopen;"
     "list a.name a.amount a.list a.new",
     "a.name:string=new a.amount:u64=7 " A_LIST "a.new:u32=5 "},
    {"the alignment of a split model can be set", "split",
     "put general.alignment '64'; fsync; text general.alignment '64\n'",
     UNCHANGED "general.alignment:u32=64 "},

    /* ---- the end of the mount ---- */
    {"pending edits are written at the end of the mount", "sync",
     "put a.name 'new'; rm a.count; mv a.other a.moved; file " UNCHANGED
     "; reopen; list a.name a.moved a.list",
     "a.name:string=new a.moved:u32=8 " A_LIST},
    {"helpers that remain at the end do not become keys", NULL,
     "put 4913 'x'; put .hidden 'y'; put a.name~ 'z'; put .#a.name 'user@host'; type 4913 u8;"
     "type a.name~ u8; put b.no~ 5; type b.no~ u8; put #b 6; type #b u8; fsync; quiet; reopen;"
     "logged 4913; list a.name a.count a.other a.list"},
    {"a backup left by sed -i.bak is named in the log when it goes", NULL,
     "mv a.count a.count.bak; put a.count 9; put a.count.tmp 5; put .x 5; reopen;"
     "logged 'a.count.bak: it is not '; list a.name a.count a.other a.list",
     A_NAME "a.count:u32=9 " A_OTHER A_LIST},
    {"one mount writes several edits", NULL,
     "put a.name 'two'; put a.name 'three'; fsync; put a.name 'four'; put a.count '9';"
     "put a.name 'five'; text a.name 'five\n'; fsync; put a.count '10'",
     "a.name:string=five a.count:u32=10 " A_OTHER A_LIST},

    /* If a draft is refused after part of it had been accepted, the old value comes back. */
    {"text that is not UTF-8 is refused by the write", NULL,
     "open A a.name w trunc; write A 'caf\xe9\n' =EILSEQ; close A =EILSEQ; text a.name 'one\n';"
     "open A a.list w trunc; write A '1\n'; close A; put a.new:array[string] '\"a\xff\"\n' =EILSEQ;"
     "fsync",
     "a.name:string=one " A_COUNT A_OTHER "a.list:array[i32]=1 "},

    /* A child forked by another thread closes the file in the middle of a text. */
    {"a text that is incomplete at a close can be continued", NULL,
     "open A a.list w trunc; open B a.list w; write A '[4,'; flush A =EINVAL; flush B;"
     "text a.list '1\n2\n3\n'; write A ' 5]'; close A; close B; text a.list '4\n5\n'; fsync",
     "a.name:string=one " A_COUNT A_OTHER "a.list:array[i32]=4,5 "},
    {"a text that is incomplete at the last close is dropped", NULL,
     "open A a.list w trunc; write A '[4,'; close A =EINVAL; text a.list '1\n2\n3\n';"
     "refused a.list; put a.count '12'; add a.list '4\n'; text a.list '1\n2\n3\n4\n'; fsync",
     "a.name:string=one a.count:u32=12 " A_OTHER "a.list:array[i32]=1,2,3,4 "},
    {"the next writer after a refused incomplete text begins from what is stored", NULL,
     "open A a.list w trunc; write A '[4,'; flush A =EINVAL; open B a.list w append; write B '4\n';"
     "close B; text a.list '1\n2\n3\n4\n'; release A; text a.list '1\n2\n3\n4\n'; fsync",
     A_NAME A_COUNT A_OTHER "a.list:array[i32]=1,2,3,4 "},
    /* When the daemon ends, it drops drafts that no flush, fsync or release has judged. */
    {"a draft that is still open at the end of the mount is dropped", NULL,
     "open A a.name w trunc; write A 'new'; open B a.count w trunc; open C a.new w creat;"
     "write C '5'"},
    {"writes after the last close are dropped at the end of the mount", NULL,
     "open A a.name w trunc; write A 'new'; flush A; write A ' and more'",
     "a.name:string=new " A_COUNT A_OTHER A_LIST},

    /* Pending edits to the same key replace each other. */
    {"1,000 keys are created and removed one by one", "sync",
     "fill 1000; fsync; empty 1000; fsync"},
    /* Names with a type. */
    {"a backup has no type of its own, but its key gets the type back", NULL,
     "mv a.count a.count~; attrs a.count~ ''; mv a.count~ a.count; typed a.count u32; fsync"},
    {"truncate(2) changes a file that is not open", "close",
     "put a.new 'false'; truncate a.new 2 =EINVAL; text a.new 'false\n'; refused a.new;"
     "truncate a.name 2; file a.name:string=on " A_COUNT A_OTHER A_LIST "a.new:bool=false ;"
     "truncate a.list 0; truncate a.count 0; text a.list ''",
     "a.name:string=on " A_COUNT A_OTHER "a.list:array[i32]= a.new:bool=false "},
    {"one UTF-8 character may be split over two writes", NULL,
     "open A a.name w trunc; write A '\xc3'; write A '\xa9\n'; close A; text a.name '\xc3\xa9\n';"
     "open A a.name w trunc; write A '\xc3\n' =EILSEQ; close A =EILSEQ; fsync",
     "a.name:string=\xc3\xa9 " A_COUNT A_OTHER A_LIST},
    {"KEY:TYPE exists while KEY has that type or is about to get it", NULL,
     "put a.tags:array[u8] '[1, 2]'; text a.tags:array[u8] '1\n2\n'; gone a.tags:array[i8];"
     "gone a.tags:u8; open A a.new:u8 w creat; size A 0; stat a.new:u8 0; gone a.new:u16; close A;"
     "gone a.new:u8 a.new; fsync",
     UNCHANGED "a.tags:array[u8]=1,2 "},
    {"a key's type is changed between two writes of a program", NULL,
     "open A a.count rw; write A 9; flush A; type a.count u64; write A 1; close A;"
     "typed a.count u64; fsync",
     A_NAME "a.count:u64=91 " A_OTHER A_LIST},
    {"an empty helper that was closed once empties the key that it is renamed over", NULL,
     "open T .t w creat; flush T; mv .t a.name; text a.name '\n'; close T; fsync",
     "a.name:string= " A_COUNT A_OTHER A_LIST},
    {"bad texts are refused immediately, and equal ones change nothing", NULL,
     "put a.count '  \n' =EINVAL; put a.count '99999999999\n' =ERANGE; put a.new:f32 1;"
     "put a.new '1e999\n' =ERANGE; put a.list '[99999999999]\n' =ERANGE; open A a.name rw;"
     "write A ''; trunc A 4; close A; put a.name ''; open A a.name w trunc; close A;"
     "truncate a.name 2000000000 =EFBIG; fsync",
     "a.name:string= " A_COUNT A_OTHER A_LIST "a.new:f32=1 "},
    {"a write of zero bytes to a truncated file makes its text empty", NULL,
     "open A a.name w trunc; write A ''; close A; text a.name '\n'; open A a.count w trunc;"
     "write A ''; close A =EINVAL; text a.count '7\n'; fsync",
     "a.name:string= " A_COUNT A_OTHER A_LIST},
    {"a program can write past the end of a key that was removed", NULL,
     "open A a.name rw; write A two; flush A; rm a.name; write A x 9; close A; gone a.name; fsync",
     A_COUNT A_OTHER A_LIST},
    {"the text of a key that went before it was read is no empty one", NULL,
     "open A a.name rw; rm a.name; read A '' =ESTALE; close A; open A a.count rw;"
     "open B a.count rw; read B '7\n'; put .x 9; mv .x a.count; read A '7\n'; close A; close B;"
     "open A a.count rw; put .x 10; mv .x a.count; read A '' =ESTALE; close A",
     "a.count:u32=10 " A_OTHER A_LIST},

    /* ==== what the write refuses, and the close ==== */
    {"what is appended after a truncation that was no edit follows the stored text", NULL,
     "open A a.count w append; truncate a.count 0; write A '\n'; close A; good a.count"},
    {"number: a text that can become no value is refused by the write", "auto",
     "open A a.count w trunc; write A '@\n' =EINVAL; close A =EINVAL; refused a.count", NULL,
     "x|7x|7 8|-\n|1.5"},
    {"array: a text that can become no value is refused by the write", "auto",
     "open A a.list w trunc; write A '@\n' =EINVAL; close A =EINVAL; refused a.list", NULL,
     "-\n|x|1.5\n|1\n-\n|[1, x]\n|[1]]\n"},
    {"number: a text that could become a value is refused by the close", "auto",
     "open A a.count w trunc; write A '@'; close A =EINVAL; refused a.count", NULL, "-"},
    {"array: a text that could become a value is refused by the close", "auto",
     "open A a.list w trunc; write A '@'; close A =EINVAL; refused a.list", NULL,
     "-|1\n-|[1|[1\n|[1,\n"},
    {"a text in two writes is judged by its beginning only", "auto",
     "open A a.count w trunc; write A '1'; write A 'x\n'; close A =EINVAL;"
     "open A a.list w trunc; write A '1\n'; write A 'x\n'; close A =EINVAL"},
    {"a truncation to the same or a smaller size leaves the text judged at each write", "auto",
     "open A a.count w trunc; write A '12'; trunc A 2; write A 'x\n'; close A =EINVAL;"
     "open A a.count w trunc; write A '12'; trunc A 1; write A 'x' 1; close A =EINVAL"},
    {"a truncation that makes a text longer leaves it to the close", "auto",
     "open A a.count w trunc; write A '12'; trunc A 5; write A 'x' 0; close A =EINVAL"},
    {"a type set while a key is written applies to the next write", "sync",
     "open A a.count w trunc; write A 5; flush A; type a.count u8; write A '300\n' 0 =ERANGE;"
     "close A =ERANGE; text a.count '5\n'; typed a.count u8; type a.count u32;"
     "open A a.count w trunc; write A 5; flush A; type a.count u64; write A 5000000000 0; close A;"
     "text a.count '5000000000\n'; typed a.count u64; fsync;"
     "open A a.other w trunc; write A 5; type a.other u64; write A 5000000000 0; close A; fsync",
     A_NAME "a.count:u64=5000000000 a.other:u64=5000000000 " A_LIST},
    {"a bool is judged as it is written", "auto",
     "put a.new:bool 'true'; open A a.new w trunc; write A 'f'; write A 'alse\n'; close A;"
     "open A a.new w trunc; write A 'f\n' =EINVAL; close A =EINVAL;"
     "open A a.new w trunc; write A 'fx\n' =EINVAL; close A =EINVAL; text a.new 'false\n'",
     UNCHANGED "a.new:bool=false "},
    {"a float is judged as it is written", "auto",
     "put a.new:f32 '1'; open A a.new w trunc; write A '-i'; write A 'nf\n'; close A;"
     "open A a.new w trunc; write A '1e\n' =EINVAL; close A =EINVAL;"
     "open A a.new w trunc; write A '1e'; write A '1'; close A; text a.new '10\n'",
     UNCHANGED "a.new:f32=10 "},

    /* ---- a refused write after an accepted one ---- */
    {"a key that was renamed over another while open does not change the other one's type", NULL,
     "open A a.name w trunc; write A '5\n'; flush A; mv a.name a.count; text a.count '5\n';"
     "write A 'x\n'; close A =EINVAL; text a.count '5\n'; typed a.count u32",
     "a.count:u32=5 " A_OTHER A_LIST},
    {"a new key that was renamed while open keeps its accepted value", NULL,
     "open A b.x creat w; write A '9\n'; flush A; mv b.x b.y; write A 'junk\n';"
     "close A =EINVAL; text b.y '9\n'",
     UNCHANGED "b.y:u32=9 "},
};

SCRIPTS_MAIN("live", scripts)

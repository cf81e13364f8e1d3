/* SPDX-License-Identifier: MIT */
/* One edit at a time: what was answered with success is in the file, what was refused is not, and
 * what waits is shown and named; the order of edits that wait for their turn, their signals, and
 * names that change meanwhile; edits that cannot be written, or are interrupted. See script.h for
 * scripts. */
#include "script.h"

#define NEW_LIST "a.list:array[i32]=9 "
#define TWO "a.name:string=two "
#define NINE "a.count:u32=9 "

/* Begin an edit of a.other whose copy is held, so that all others wait; handle X. */
#define BUSY "hold; open X a.other w trunc; write X 9; & flush X; held;"
#define DONE "go; wait;"
#define A_BUSY "a.other:u32=9 "

/*
 * An edit that fails and is repeated: what begins it, the call that fails, the same call later, and
 * the keys after it, but for a.list, which comes last.
 */
#define FLUSH                                                                    \
    "open A a.name w trunc; write A two;", "flush A", "write A two 0; flush A;", \
        TWO A_COUNT A_OTHER, "a.name"
#define FSYNC                                                                    \
    "open A a.name w trunc; write A two;", "fsync A", "write A two 0; fsync A;", \
        TWO A_COUNT A_OTHER, "a.name"
#define HELPER "put .c 9;", "mv .c a.count", "mv .c a.count;", A_NAME NINE A_OTHER, "a.count"
#define RENAME \
    "", "mv a.count a.amount", "mv a.count a.amount;", A_NAME "a.amount:u32=7 " A_OTHER, "a.count"
#define REPLACE \
    "", "mv a.other a.count", "mv a.other a.count;", A_NAME "a.count:u32=8 ", "a.count a.other"
#define TYPE "", "type a.count u64", "type a.count u64;", A_NAME "a.count:u64=7 " A_OTHER, "a.count"
#define TRUNCATE \
    "", "truncate a.name 0", "truncate a.name 0;", "a.name:string= " A_COUNT A_OTHER, "a.name"

/* The errors of a copy. */
#define ERRORS "EIO|ENOSPC|EDQUOT"
/* The copy fails: the edit is refused. */
#define COPY_FAILS_(what, how, begin, call, again, after, name)                       \
    {                                                                                 \
        what " whose copy fails changes nothing", how,                                \
            begin "fail @;" call " =@; shown " UNCHANGED "; file " UNCHANGED          \
                  "; fail; shown " UNCHANGED ";" again "file " after A_LIST "; owes", \
            after A_LIST, ERRORS                                                      \
    }
#define COPY_FAILS(what, how, ...) COPY_FAILS_(what, how, __VA_ARGS__)
/* The disk is full: the edit is refused, and what was accepted before stays. */
#define NO_ROOM_(what, begin, call, again, after, name)                           \
    {                                                                             \
        what " without room on the disk changes nothing", NULL,                   \
            "put a.list '[9]';" begin "full;" call                                \
            " =ENOSPC; shown " A_NAME A_COUNT A_OTHER NEW_LIST "; full no;" again \
            "fsync; file " after NEW_LIST "; owes",                               \
            after NEW_LIST                                                        \
    }
#define NO_ROOM(what, ...) NO_ROOM_(what, __VA_ARGS__)
/* Collected, and fails with the others: it stays, and is written when that is possible. */
#define COLLECTED_(what, begin, call, again, after, name)                                       \
    {                                                                                           \
        what " that was collected outlasts an error", "sync",                                   \
            begin call "; shown " after A_LIST "; fail @; fsync =@; shown " after A_LIST        \
                       "; file " UNCHANGED "; owes " name                                       \
                       "; fsync =@; put .x y; fail; fsync; file " after A_LIST "; rm .x; owes", \
            after A_LIST, ERRORS                                                                \
    }
#define COLLECTED(what, ...) COLLECTED_(what, __VA_ARGS__)
/* At the end it is lost, and named in the log. */
#define LOST(what, edit, line)                                                 \
    {                                                                          \
        what " that cannot be written at the end is named in the log", "sync", \
            edit "; fail EIO; finish =EIO; logged '" line "'"                  \
    }

static const struct script scripts[] = {
    /* ---- success is a promise ---- */
    COPY_FAILS("a close", "auto close", FLUSH),
    COPY_FAILS("an fsync", NULL, FSYNC),
    COPY_FAILS("a rename over a key", "auto close", HELPER),
    COPY_FAILS("a rename", "auto close", RENAME),
    COPY_FAILS("a rename of a key over another", "auto close", REPLACE),
    COPY_FAILS("a type", "auto close", TYPE),
    COPY_FAILS("a truncation", "auto close", TRUNCATE),
    NO_ROOM("a close", FLUSH),
    NO_ROOM("an fsync", FSYNC),
    NO_ROOM("a rename over a key", HELPER),
    NO_ROOM("a rename", RENAME),
    NO_ROOM("a rename of a key over another", REPLACE),
    NO_ROOM("a type", TYPE),
    NO_ROOM("a truncation", TRUNCATE),
    COLLECTED("a close", FLUSH),
    COLLECTED("a rename over a key", HELPER),
    COLLECTED("a rename", RENAME),
    COLLECTED("a rename of a key over another", REPLACE),
    COLLECTED("a type", TYPE),
    COLLECTED("a truncation", TRUNCATE),
    LOST("a value", "put a.name two", "a.name"),
    LOST("a new key", "put a.new two", "a.new"),
    LOST("a removal", "rm a.count", "a.count"),
    LOST("a rename", "mv a.count a.amount", "a.count"),
    {"collected edits of all kinds wait together, and are written together", "sync",
     "put a.name two; rm a.count; mv a.other a.moved; put a.new 5; fail ENOSPC; fsync =ENOSPC;"
     "list a.name a.moved a.list a.new; shown " TWO "a.moved:u32=8 " A_LIST
     "a.new:u32=5 ; file " UNCHANGED
     "; owes a.name a.count a.other a.new; put a.new 6; fsync =ENOSPC; fail;"
     "fsync; file " TWO "a.moved:u32=8 " A_LIST "a.new:u32=6 ; owes",
     TWO "a.moved:u32=8 " A_LIST "a.new:u32=6 "},
    {"a refused fsync takes back its own text only", "sync",
     "put a.name two; open A a.count w trunc; write A 9; fail EIO; fsync A =EIO; fsync A =EIO;"
     "shown " TWO A_COUNT A_OTHER A_LIST "; owes a.name a.count; fail; close A =EIO; fsync;"
     "refused a.count; put a.count 10; good a.count; fsync; owes",
     TWO "a.count:u32=10 " A_OTHER A_LIST},
    {"an edit that is written at once brings what waits", "sync",
     "put a.name two; rm a.count; fail EIO; fsync =EIO; fail; open A a.other w trunc; write A 9;"
     "fsync A; file " TWO A_BUSY A_LIST "; close A",
     TWO A_BUSY A_LIST},
    {"a removal that cannot be written is still there for the next edit", "auto close",
     "rm a.count; fail EIO; fsync =EIO; gone a.count; list a.name a.other a.list; file " UNCHANGED
     "; owes a.count; put a.name two =EIO; shown " A_NAME A_OTHER A_LIST "; fail; put a.name two;"
     "file " TWO A_OTHER A_LIST "; owes",
     TWO A_OTHER A_LIST},
    {"an fsync of a text that is collected already fails, and refuses nothing", "sync",
     "put a.name two; open A a.name w trunc; write A two; fail EIO; fsync A =EIO; good a.name;"
     "text a.name 'two\n'; fail; fsync A; file " TWO A_COUNT A_OTHER A_LIST "; close A",
     TWO A_COUNT A_OTHER A_LIST},
    {"any fsync writes everything, and fails while that fails", "sync",
     "put a.name two; open R a.count r; open W a.count w; fail EIO; fsync R =EIO; fsync W =EIO;"
     "close W; fsync =EIO; fail; fsync R; file " TWO A_COUNT A_OTHER A_LIST "; close R",
     TWO A_COUNT A_OTHER A_LIST},
    {"edits that were accepted before another program changed the file wait", "sync",
     "put a.name two; alter; fsync =ESTALE; text a.name 'two\n'; owes a.name; restore; fsync; owes",
     TWO A_COUNT A_OTHER A_LIST},
    {"a helper that became a key is one, however its write ends", "sync",
     "put .c 9; mv .c a.count; fail EIO; fsync =EIO; fail; gone .c; text a.count '9\n';"
     "put .c 10; fsync; file " A_NAME NINE A_OTHER A_LIST "; rm .c",
     A_NAME NINE A_OTHER A_LIST},
    {"a refused close is heard until the key is written again, and by no other", "close",
     "open B a.name rw; open A a.name w trunc; write A two; fail EIO; flush A =EIO; fail; flush B;"
     "flush A =EIO; fsync A =EIO; close B; open B a.name rw; flush B; write B x; flush B; flush A;"
     "fsync A; write A y 1; close A; close B",
     "a.name:string=xye " A_COUNT A_OTHER A_LIST},
    {"what was accepted stays when the rest is refused", NULL,
     "open A a.count w trunc; write A '12'; flush A; write A 'x\n'; flush A =EINVAL; text a.count "
     "'12\n'; refused a.count; release A; open A a.list w trunc; write A '5\n'; flush A; write A "
     "'6 6'; flush A =EINVAL; text a.list '5\n'; close A =EINVAL; open A a.new:u8 w creat; write A "
     "'25'; flush A; write A '6\n'; close A =ERANGE; text a.new '25\n'",
     A_NAME "a.count:u32=12 " A_OTHER "a.list:array[i32]=5 a.new:u8=25 "},
    {"a refused text can be written over, by its handle and by another", NULL,
     "open A a.count w trunc; write A 'x\n' =EINVAL; write A '5' 0; close A; text a.count '5\n';"
     "open A a.count w trunc; flush A; write A 'x\n' =EINVAL; open B a.count w; write B '6' 0;"
     "close B; close A; text a.count '6\n'; good a.count",
     A_NAME "a.count:u32=6 " A_OTHER A_LIST},
    {"a text that is incomplete at a close can go on", NULL,
     "open A a.list w trunc; write A '[4,'; flush A =EINVAL; text a.list '1\n2\n3\n';"
     "write A ' 5]'; close A; text a.list '4\n5\n'; good a.list",
     A_NAME A_COUNT A_OTHER "a.list:array[i32]=4,5 "},
    {"a line that is appended is refused by the write", NULL,
     "open A a.count w append; write A '5\n' =EINVAL; close A =EINVAL; text a.count '7\n'; refused "
     "a.count; open A a.list w append; write A '4\n'; write A 'x\n' =EINVAL; close A =EINVAL"},
    {"a standardized key is refused by the write", NULL,
     "open A llama.context_length w creat; write A 'x\n' =EINVAL; close A =EINVAL;"
     "gone llama.context_length"},

    /* ---- the order of the queue ---- */
    {"reads do not wait for a copy, and see it when it is done", "close",
     BUSY "text a.count '7\n'; list a.name a.count a.other a.list; text a.other 9; stat a.name 4;"
          "shown " UNCHANGED "; put .x 'helper'; rm .x; " DONE
          "text a.other '9\n'; shown " A_NAME A_COUNT A_BUSY A_LIST "; close X",
     A_NAME A_COUNT A_BUSY A_LIST},
    {"what a close brings is the text at that moment", "close",
     BUSY "open A a.name w trunc; write A two; & flush A; write A three; read A twothree;" DONE
          "wait; shown " TWO A_COUNT A_BUSY A_LIST "; file " TWO A_COUNT A_BUSY A_LIST
          "; text a.name twothree; close A; close X",
     "a.name:string=twothree " A_COUNT A_BUSY A_LIST},
    {"what a close brings goes with its key that is renamed before it", "close",
     BUSY "open A a.name w trunc; write A two; & mv a.name a.title; & flush A;" DONE
          "wait; wait; file a.title:string=two " A_COUNT A_BUSY A_LIST "; close A; close X",
     "a.title:string=two " A_COUNT A_BUSY A_LIST},
    {"what a close brings goes with its key that is renamed after it", "close",
     BUSY "open A a.name w trunc; write A two; & flush A; & mv a.name a.title;" DONE
          "wait; wait; file a.title:string=two " A_COUNT A_BUSY A_LIST "; close A; close X",
     "a.title:string=two " A_COUNT A_BUSY A_LIST},
    {"what a close brings goes with its key that is removed", "close",
     BUSY "open A a.name w trunc; write A two; & flush A; rm a.name; gone a.name;" DONE
          "wait; gone a.name; close A; close X; fsync",
     A_COUNT A_BUSY A_LIST},
    {"a key is removed and created while its close waits", "close",
     BUSY "open A a.count w trunc; write A 9; & flush A; rm a.count; open B a.count w creat;"
          "write B 10; & flush B;" DONE
          "wait; wait; close A; close B; text a.count '10\n'; close X",
     A_NAME "a.count:u32=10 " A_BUSY A_LIST},
    {"a key is moved aside while its close waits, and back", "close",
     BUSY "open A a.name w trunc; write A two; & flush A; mv a.name a.name~; gone a.name;" DONE
          "wait; text a.name~ two; mv a.name~ a.name; text a.name 'two\n'; close A; close X",
     TWO A_COUNT A_BUSY A_LIST},
    {"a key is moved aside while its close waits: the key has the text", "close",
     BUSY "open A a.name w trunc; write A two; & flush A; mv a.name a.name~;" DONE
          "wait; text a.name~ two; file " TWO A_COUNT A_BUSY A_LIST "; close A; close X",
     TWO A_COUNT A_BUSY A_LIST},
    {"a new key is moved aside while its close is written: it is hidden, too", "close",
     "hold; open A a.new w creat; write A 5; & flush A; held; mv a.new a.new~;" DONE
     "gone a.new; text a.new~ 5; close A; rm a.new~; fsync"},
    {"a new key is renamed while its close waits, is written, or fails", "close",
     BUSY "open A a.new w creat; write A 5; & flush A; & mv a.new a.newer;" DONE
          "wait; wait; close A; list a.name a.count a.other a.list a.newer; rm a.newer; close X;"
          "hold; open A a.new w creat; write A 6; & flush A; held; & mv a.new a.newer;" DONE
          "wait; close A; list a.name a.count a.other a.list a.newer; hold; open A a.x w creat;"
          "write A 7; & flush A; held; & mv a.x a.y; go EIO; wait =EIO; wait; gone a.x; write A 8 "
          "0; close A",
     A_NAME A_COUNT A_BUSY A_LIST "a.newer:u32=6 a.y:u32=8 "},
    {"a new key is renamed while its close fails, and its release tries again", "close",
     "hold; open A a.z w creat; write A 6; & flush A; held; & mv a.z a.count; release A; go EIO;"
     "wait =EIO; wait; fsync; gone a.z",
     A_NAME "a.count:u32=6 " A_OTHER A_LIST},
    {"a shell's truncation is still written when another program appends", "close",
     BUSY "open A a.name w trunc; release A; text a.name ''; open B a.name w append; write B two;"
          "release B; open C a.count w trunc; write C 9; release C; open D a.count w append;"
          "write D 1; release D; & truncate a.count 1; & truncate a.name 2;" DONE
          "wait; wait; fsync; text a.count '9\n'; text a.name 'tw\n'; release X",
     "a.name:string=tw " NINE A_BUSY A_LIST},
    {"what was written is refused, and another program appended meanwhile", "close",
     "hold; open A a.list w trunc; write A '5\n'; release A; held; open B a.list w append;"
     "write B '6\n'; & flush B; go EIO; wait; close B; text a.list '5\n6\n'; good a.list",
     A_NAME A_COUNT A_OTHER "a.list:array[i32]=5,6 "},
    {"a key is truncated by name while another program has it open", NULL,
     "open A a.name rw; truncate a.name 0; write A x; flush A; text a.name 'x\n';"
     "truncate a.name 0; write A yz 0; close A; open A a.list rw; truncate a.list 4; write A '5\n';"
     "close A; text a.list '5\n2\n'",
     "a.name:string=yz " A_COUNT A_OTHER "a.list:array[i32]=5,2 "},
    {"a truncation of a number while its text waits is no edit", "close",
     BUSY "open A a.count w trunc; write A 9; release A; & truncate a.count 0;"
          "open B a.count w trunc; release B;" DONE "wait; fsync; text a.count '9\n'; release X",
     A_NAME NINE A_BUSY A_LIST},
    {"a key is moved aside while its close is written: both have the text", "close",
     "hold; open A a.name w trunc; write A two; & flush A; held; mv a.name a.name~; " DONE
     "gone a.name; text a.name~ two; close A; reopen; text a.name 'two\n'",
     TWO A_COUNT A_OTHER A_LIST},
    {"a key is moved aside while its close fails: the helper has the text", "close",
     "hold; open A a.name w trunc; write A two; & flush A; held; mv a.name a.name~; go EIO;"
     "wait =EIO; gone a.name; text a.name~ two; close A; reopen; text a.name 'one\n'"},
    {"two programs write one key one after the other", "close",
     BUSY "open A a.name w trunc; write A two; & flush A; open B a.name w trunc; write B three;"
          "& flush B; text a.name three;" DONE "wait; wait; text a.name 'three\n'; close A;"
          "close B; close X",
     "a.name:string=three " A_COUNT A_BUSY A_LIST},
    {"three programs write three keys while a copy is made", "close",
     BUSY "open A a.name w trunc; write A two; & flush A; open B a.count w trunc; write B 9;"
          "& flush B; & type a.list array[u8]; & fsync; shown " UNCHANGED ";" DONE
          "wait; wait; wait; wait; file " TWO NINE A_BUSY "a.list:array[u8]=1,2,3 ; close A;"
          "close B; close X",
     TWO NINE A_BUSY "a.list:array[u8]=1,2,3 "},
    {"edits that wait behind one that fails are made", "close",
     BUSY "open A a.name w trunc; write A two; & flush A; & mv a.count a.amount; go EIO; wait =EIO;"
          "wait; wait; refused a.other; file " TWO "a.amount:u32=7 " A_OTHER A_LIST
          "; close X =EIO; close A",
     TWO "a.amount:u32=7 " A_OTHER A_LIST},
    {"edits that wait behind an fsync that fails are collected with what it left", "sync",
     "put a.name two; hold; & fsync; held; open A a.count w trunc; write A 9; & flush A;"
     "& mv a.other a.moved; go EIO; wait =EIO; wait; wait; shown " TWO NINE "a.moved:u32=8 " A_LIST
     "; file " UNCHANGED "; fsync; close A",
     TWO NINE "a.moved:u32=8 " A_LIST},
    {"an fsync behind one that fails tries again", "sync",
     "put a.name two; hold; & fsync; held; & fsync; go EIO; wait =EIO; wait; file " TWO A_COUNT
         A_OTHER A_LIST,
     TWO A_COUNT A_OTHER A_LIST},
    {"a second close behind one that fails tries again", "close",
     "open A a.name w trunc; write A two; hold; & flush A; held; & flush A; go EIO; wait =EIO;"
     "wait; good a.name; file " TWO A_COUNT A_OTHER A_LIST "; flush A; fsync A; close A",
     TWO A_COUNT A_OTHER A_LIST},
    {"a close hears nothing of what another handle wrote after it", "close",
     BUSY "open A a.count w trunc; open B a.count w; write A 9; & flush A; write B 'x\n' 1;" DONE
          "wait; flush A; close A; close B =EINVAL; text a.count '9\n'; close X",
     A_NAME NINE A_BUSY A_LIST},
    {"all that wrote a text hear that it is refused for what one wrote last", "close",
     BUSY
     "open A a.count w trunc; open B a.count w; write A 1; write B 2 1; & flush B; write A 3 "
     "2;" DONE
     "wait; write A 'x\n'; flush B; close A =EINVAL; close B =EINVAL; text a.count '12\n'; close X",
     A_NAME "a.count:u32=12 " A_BUSY A_LIST},
    {"names are swapped while copies are made and fail", "close",
     "hold; & mv a.name a.x; held; & mv a.count a.y; go EIO; wait =EIO; wait; mv a.other a.count;"
     "mv a.y a.other; fsync",
     A_NAME "a.other:u32=7 a.count:u32=8 " A_LIST},
    {"two helpers are renamed over one key", "close",
     "put .c two; put .d three; hold; & mv .c a.name; held; & mv .d a.name; text a.name 'one\n';"
     "go; wait; wait; gone .c .d; text a.name 'three\n'",
     "a.name:string=three " A_COUNT A_OTHER A_LIST},
    {"the rename of a helper fails, and the one behind it is made", "close",
     "put .c two; put .d three; hold; & mv .c a.name; held; & mv .d a.name; go EIO; wait =EIO;"
     "wait; text .c two; gone .d; text a.name 'three\n'; rm .c",
     "a.name:string=three " A_COUNT A_OTHER A_LIST},
    {"who opens a key while a helper is renamed over it has the old file", "close",
     "put .c 12; hold; & mv .c a.count; held; open A a.count rw; read A '7\n'; go EIO; wait =EIO;"
     "write A 3; close A; text .c 12; text a.count '3\n'; rm .c; put .c 12; hold; & mv .c a.count;"
     "held; open A a.count rw; write A 5; & flush A; go; wait; wait; text a.count '12\n'; close A;"
     "text a.count '12\n'",
     A_NAME "a.count:u32=12 " A_OTHER A_LIST},
    {"a key is moved aside and back while a helper is renamed over it", "close",
     "put .c two; hold; & mv .c a.name; held; mv a.name a.name~; & mv a.name~ a.name; go; wait;"
     "wait; text a.name 'one\n'; gone .c a.name~"},
    {"what a killed program wrote waits for nobody, and is written", NULL,
     "hold; open X a.other w trunc; write X 9; & fsync X; held; open A a.name w trunc; write A two;"
     "release A; open B a.list w trunc; release B;" DONE "fsync; text a.name 'two\n'; close X",
     TWO A_COUNT A_BUSY "a.list:array[i32]= "},

    /* ---- signals ---- */
    {"a close that was interrupted in the queue is judged at the release", "close",
     BUSY "open A a.name w trunc; write A two; & flush A; interrupt;" DONE
          "wait =EINTR; shown " A_NAME A_COUNT A_BUSY A_LIST
          "; text a.name two; release A; text a.name 'two\n'; close X",
     TWO A_COUNT A_BUSY A_LIST},
    {"a close that was interrupted in the queue, and whose text is bad", "close",
     BUSY "open A a.list w trunc; write A '[4,'; & flush A; interrupt;" DONE "wait =EINTR;"
          "good a.list; release A; refused a.list; text a.list '1\n2\n3\n'; close X",
     A_NAME A_COUNT A_BUSY A_LIST},
    {"other edits that were interrupted in the queue did not happen", "close",
     "put .c 9;" BUSY "& mv a.name a.title; interrupt; & mv .c a.count; interrupt;"
     "& type a.count u64; interrupt; & truncate a.name 0; interrupt; & fsync; interrupt;" DONE
     "wait =EINTR; wait =EINTR; wait =EINTR; wait =EINTR; wait =EINTR; shown " A_NAME A_COUNT A_BUSY
         A_LIST "; text .c 9; rm .c; close X",
     A_NAME A_COUNT A_BUSY A_LIST},
    {"edits that were interrupted after they began are made", "close",
     "hold; & type a.count u64; held; interrupt; wait =EINTR; go; fsync; typed a.count u64; hold;"
     "& mv a.count a.amount; held; interrupt; wait =EINTR; go; fsync; gone a.count; hold;"
     "& truncate a.name 0; held; interrupt; wait =EINTR; go; fsync; text a.name '\n'",
     "a.name:string= a.amount:u64=7 " A_OTHER A_LIST},
    {"a close was interrupted, and its text is written on", "close",
     "hold; open A a.name w trunc; write A two; & flush A; held; interrupt; wait =EINTR;"
     "write A three; go; fsync; shown " TWO A_COUNT A_OTHER A_LIST "; close A",
     "a.name:string=twothree " A_COUNT A_OTHER A_LIST},
    {"a close was interrupted and then fails: its release tries again if it comes before", "close",
     "hold; open A a.name w trunc; write A two; & flush A; held; interrupt; wait =EINTR; release A;"
     "go EIO; fsync; text a.name 'two\n'; good a.name; hold; open A a.count w trunc; write A 9;"
     "& flush A; held; interrupt; wait =EINTR; go EIO; fsync; refused a.count; release A;"
     "text a.count '7\n'",
     TWO A_COUNT A_OTHER A_LIST},
    {"the first of two is interrupted: both are made", "close",
     BUSY "open A a.name w trunc; write A two; & flush A; interrupt first; wait =EINTR; go; wait;"
          "file " TWO A_COUNT A_BUSY A_LIST "; release X; close A",
     TWO A_COUNT A_BUSY A_LIST},
    {"a helper is removed after a signal ended its rename: the key has its text", "close",
     "put .c 9; hold; & mv .c a.count; held; interrupt; wait =EINTR; rm .c; go; fsync;"
     "text a.count '9\n'; typed a.count u32; gone .c",
     A_NAME NINE A_OTHER A_LIST},
    {"a helper is removed after a signal ended its rename, which fails", "close",
     "put .c 9; hold; & mv .c a.count; held; interrupt; wait =EINTR; rm .c; go EIO; fsync;"
     "text a.count '7\n'; refused a.count; gone .c"},
    {"a key is removed after a signal ended a rename over it: it stays removed", "close",
     "put .c 9; hold; & mv .c a.count; held; interrupt; wait =EINTR; rm a.count; go; fsync;"
     "text .c 9; rm .c; gone a.count; hold; & mv a.other a.name; held; interrupt; wait =EINTR;"
     "rm a.name; go; fsync; gone a.name a.other; put .c 9; hold; & mv .c a.list; held; interrupt;"
     "wait =EINTR; rm a.list; go EIO; fsync; gone a.list; text .c 9; rm .c",
     ""},
    {"a helper is renamed after a signal ended its rename over a key", "close",
     "put .c 9; hold; & mv .c a.count; held; interrupt; wait =EINTR; mv .c .d; go; fsync;"
     "text a.count '9\n'; text .d 9; rm .d",
     A_NAME NINE A_OTHER A_LIST},
    {"a key is moved aside after a signal ended a rename over it", "close",
     "put .c 9; hold; & mv .c a.count; held; interrupt; wait =EINTR; mv a.count a.count~; go;"
     "fsync; gone a.count; text a.count~ '7\n'; text .c 9; rm .c",
     A_NAME NINE A_OTHER A_LIST},
    {"a new key that is renamed over a key leaves it its type and, unwritten, its value", NULL,
     "open A a.new w creat trunc; type a.new string; mv a.new a.count; release A; typed a.count "
     "u32;"
     "text a.count '7\n'; fsync"},
    {"a helper that became a key at last is no error any more", NULL,
     "put .c abc; mv .c llama.context_length =EINVAL; owes .c; put .c 9;"
     "mv .c llama.context_length; fsync; owes",
     A_NAME A_COUNT A_OTHER A_LIST "llama.context_length:u32=9 "},
    {"a rename is repeated after a signal", "close",
     "put .c 9; hold; & mv .c a.count; held; interrupt; wait =EINTR; & mv .c a.count; go; wait;"
     "text a.count '9\n'; put .c 10; hold; & mv .c a.count; held; interrupt; wait =EINTR;"
     "& mv .c a.count; go EIO; wait; text a.count '10\n'; gone .c",
     A_NAME "a.count:u32=10 " A_OTHER A_LIST},
    {"a key that was opened by its old name after a signal ended a rename over it", "close",
     "put .x 9; hold; & mv .x a.count; held; interrupt; wait =EINTR; open B a.count w trunc;"
     "write B '11\n'; go EIO; fsync; text .x 9; close B; text a.count '11\n'; rm .x",
     A_NAME "a.count:u32=11 " A_OTHER A_LIST},

    /* ---- removals ---- */
    {"a helper takes a removal back", NULL,
     "rm a.count; put .c x; mv .c a.count =EINVAL; text a.count '7\n'; refused a.count; rm a.count;"
     "put .c 9; mv .c a.count; typed a.count u32; list a.name a.count a.other a.list",
     A_NAME NINE A_OTHER A_LIST},
    {"a key takes a removal back", NULL,
     "rm a.count; mv a.name a.count =EINVAL; text a.count '7\n'; rm a.count; mv a.other a.count;"
     "list a.name a.count a.list; typed a.count u32",
     A_NAME "a.count:u32=8 " A_LIST},
    {"a rename that did not happen does not take a removal back", "close",
     BUSY "rm a.count; put .c 9; & mv .c a.count; interrupt; & mv a.name a.count; interrupt;" DONE
          "wait =EINTR; wait =EINTR; gone a.count; fsync; gone a.count; text .c 9; rm .c; close X",
     A_NAME A_BUSY A_LIST},
    {"a removal that was written is final: a new key, for a create, a helper and a key", NULL,
     "type a.count u64; rm a.count; fsync; put a.count -5; typed a.count i32; rm a.count; fsync;"
     "put .c true; mv .c a.count; list a.name a.other a.list a.count; rm a.count; fsync;"
     "mv a.name a.count; list a.count a.other a.list",
     "a.count:string=one " A_OTHER A_LIST},
    {"a removal is written with an edit of another key, and final", "auto close",
     "rm a.count; put a.other 9; put a.count -5", A_NAME A_BUSY A_LIST "a.count:i32=-5 "},
    {"a removal is not final while other edits are collected", "sync",
     "rm a.count; put a.other 9; put a.new 5; put a.count -5 =ERANGE; text a.count '7\n';"
     "rm a.count; put a.count 9; fsync",
     A_NAME NINE A_BUSY A_LIST "a.new:u32=5 "},
    {"keys that are removed and created one by one are in their new order", NULL,
     "rm a.list; fsync; rm a.name; fsync; rm a.other; fsync; rm a.count; fsync; put a.count 7;"
     "fsync; put a.list '[1,2,3]'; fsync; put a.name one; fsync; put a.other 8; fsync;"
     "list a.count a.list a.name a.other",
     A_COUNT "a.list:array[u32]=1,2,3 " A_NAME A_OTHER},
    {"a key is created while its removal is written: it is a new one", "sync",
     "rm a.count; hold; & fsync; held; gone a.count; open A a.count w creat; write A 9; & flush A;"
     "go; wait; wait; list a.name a.other a.list a.count; close A; fsync; text a.count '9\n'",
     A_NAME A_OTHER A_LIST NINE},
    {"a key is created while its removal fails: it is the old one", "sync",
     "rm a.count; hold; & fsync; held; open A a.count w creat; write A 9; & flush A; go EIO;"
     "wait =EIO; wait; list a.name a.count a.other a.list; close A; fsync",
     A_NAME NINE A_OTHER A_LIST},
    {"a key is removed while its own edit is written, or fails", "close",
     "hold; open A a.count w trunc; write A 9; & flush A; held; rm a.count; gone a.count; go; wait;"
     "gone a.count; close A; file " A_NAME NINE A_OTHER A_LIST "; fsync; gone a.count; hold;"
     "open A a.other w trunc; write A 9; & flush A; held; rm a.other; go EIO; wait =EIO;"
     "gone a.other; close A; fsync",
     A_NAME A_LIST},
    {"a new key is removed while its edit waits, or is written", "close",
     BUSY "open A a.new w creat; write A 5; & flush A; rm a.new; gone a.new;" DONE "wait;"
          "gone a.new; close A; fsync; close X; hold; open A a.new w creat; write A 5; & flush A;"
          "held; rm a.new; gone a.new; go; wait; gone a.new; close A; fsync; gone a.new",
     A_NAME A_COUNT A_BUSY A_LIST},
    {"a key is removed while another one is written: the removal follows", "close",
     BUSY "rm a.count; gone a.count;" DONE "gone a.count; shown " A_NAME A_BUSY A_LIST
          "; file " A_NAME A_COUNT A_BUSY A_LIST "; owes a.count; close X; fsync; owes",
     A_NAME A_BUSY A_LIST},

    /* ---- keys that step aside ---- */
    {"a key's backup is written over and removed: the key is removed", NULL,
     "mv a.count a.count~; put a.count~ other; fsync; file " UNCHANGED
     "; rm a.count~; gone a.count; fsync",
     A_NAME A_OTHER A_LIST},
    {"a key's backup is written over, and the key created again", NULL,
     "mv a.count a.count~; put a.count~ other; put a.count 9; text a.count~ other; rm a.count~;"
     "text a.count '9\n'; fsync",
     A_NAME NINE A_OTHER A_LIST},
    {"a key's backup is removed, and the key created again", NULL,
     "mv a.count a.count~; rm a.count~; put a.count x =EINVAL; text a.count '7\n';"
     "mv a.count a.count~; rm a.count~; put a.count 9; list a.name a.count a.other a.list",
     A_NAME NINE A_OTHER A_LIST},
    {"a key that steps aside while others are written stays in the file", NULL,
     "mv a.count a.count~; put a.name two; fsync; gone a.count; file " TWO A_COUNT A_OTHER A_LIST
     "; shown " TWO A_COUNT A_OTHER A_LIST "; reopen; text a.count '7\n'",
     TWO A_COUNT A_OTHER A_LIST},
    {"a key steps aside, and another one takes its name", NULL,
     "mv a.count a.count~; mv a.name a.count =EINVAL; text a.count '7\n'; mv a.count a.count~;"
     "mv a.other a.count; list a.name a.count a.list a.count~; rm a.count~; text a.count '8\n'",
     A_NAME "a.count:u32=8 " A_LIST},
    {"two backups of two keys in one helper remove both, and a new key is the last", NULL,
     "mv a.name b~; mv a.count b~; rm b~; gone a.name a.count b~; fsync; put a.count 9; fsync",
     A_OTHER A_LIST NINE},

    /* ---- helpers over keys ---- */
    {"a helper is renamed over a key, and written on meanwhile and later", "close",
     "open T .t w creat; write T 1; hold; & mv .t a.count; held; write T 2; go; wait; gone .t;"
     "text a.count 12; file " A_NAME "a.count:u32=1 " A_OTHER A_LIST "; flush T; file " A_NAME
     "a.count:u32=12 " A_OTHER A_LIST "; write T 'x\n'; close T =EINVAL; text a.count '12\n';"
     "typed a.count u32",
     A_NAME "a.count:u32=12 " A_OTHER A_LIST},
    {"a helper with two handles is renamed over a key that is being written", NULL,
     "open A a.count w; write A 5; open T .t w creat; write T 1; open U .t rw; mv .t a.count;"
     "write A 6; close A; text a.count '1\n'; write U 2; text a.count 2; read U 2; close T; close "
     "U",
     A_NAME "a.count:u32=2 " A_OTHER A_LIST},
    {"an unwritten helper is renamed over a key, and its text is refused", NULL,
     "open T .t w creat; mv .t a.count; text a.count ''; shown " UNCHANGED
     "; write T 'x\n' =EINVAL; close T =EINVAL; text a.count '7\n'; refused a.count;"
     "mv a.count a.count~; open T .t w creat; mv .t a.count; write T 'x\n' =EINVAL;"
     "close T =EINVAL; text a.count '7\n'; text a.count~ '7\n'"},
    {"an unwritten helper is renamed over a key and stays empty: a truncation", NULL,
     "open T .t w creat; mv .t a.count; close T; text a.count '7\n'; open T .t w creat; mv .t "
     "a.list; close T; text a.list ''; open T .t w creat; mv .t a.new; close T; text a.new '\n'",
     A_NAME A_COUNT A_OTHER "a.list:array[i32]= a.new:string= "},
    {"an unwritten helper is renamed over a key, and its write fails", "auto close",
     "open T .t w creat; mv .t a.count; write T 9; fail EIO; close T =EIO; text a.count '7\n';"
     "refused a.count; fail; open T .t w creat; mv .t a.count; write T 9; fsync T; close T",
     A_NAME NINE A_OTHER A_LIST},

    {"a helper is written while it is renamed over a key", "close",
     BUSY "open T .t w creat; write T 1; & mv .t a.count; write T 2;" DONE
          "wait; close T; file " A_NAME "a.count:u32=12 " A_BUSY A_LIST "; close X",
     A_NAME "a.count:u32=12 " A_BUSY A_LIST},

    /* ---- types ---- */
    {"a type is set while a close waits: the text comes first", "close",
     BUSY "open A a.count w trunc; write A 9; & flush A; & type a.count u64;" DONE "wait; wait;"
          "typed a.count u64; text a.count '9\n'; close A; close X",
     A_NAME "a.count:u64=9 " A_BUSY A_LIST},
    {"a type is set while a close is written", "close",
     "hold; open A a.count w trunc; write A 300; & flush A; held; & type a.count u64;"
     "& type a.count u8; go; wait; wait; wait =ERANGE; typed a.count u64; refused a.count; close A",
     A_NAME "a.count:u64=300 " A_OTHER A_LIST},
    {"a type is set while a close fails", "close",
     "hold; open A a.count w trunc; write A 9; & flush A; held; & type a.count u64; go EIO;"
     "wait =EIO; wait; text a.count '7\n'; typed a.count u64; release A",
     A_NAME "a.count:u64=7 " A_OTHER A_LIST},
    {"KEY:TYPE is written while another copy is made", "close",
     BUSY "open A a.count:u64 w creat trunc; write A 9; & flush A; open B a.new:u8 w creat;"
          "write B 5; & flush B; typed a.new u8;" DONE "wait; wait; close A; close B;"
          "typed a.count u64; typed a.new u8; close X",
     A_NAME "a.count:u64=9 " A_BUSY A_LIST "a.new:u8=5 "},
    {"KEY:TYPE is appended to while its last text is written", "close",
     "put a.new 9; hold; open A a.new w trunc; write A 8; & flush A; held;"
     "open B a.new:u64 w creat append; go; wait; write B 1; close B; typed a.new u64; close A",
     UNCHANGED "a.new:u64=81 "},
    {"tar creates a key while another copy is made", "close",
     BUSY
     "rm a.count; mknod a.count; type a.count u32; open A a.count w; write A 9; & flush A;" DONE
     "wait; close A; list a.name a.count a.other a.list; close X",
     A_NAME NINE A_BUSY A_LIST},
    {"arrays of arrays are kept and moved, and never changed", "deep",
     "text a.deep '[1, 2]\n[3]\n'; put a.deep '[1, 2]\n[3]\n'; put a.deep '[4]\n' =EOPNOTSUPP;"
     "refused a.deep; add a.deep '[4]\n' =EOPNOTSUPP; truncate a.deep 0 =EOPNOTSUPP; open A a.deep "
     "w trunc; close A; text a.deep '[1, 2]\n[3]\n'; type a.deep array[string] =EOPNOTSUPP; typed "
     "a.deep array[array[u8]]; type a.deep array[array[u8]]; mv a.count a.deep =EOPNOTSUPP; put .c "
     "5; mv .c a.deep =EOPNOTSUPP; rm .c; mv a.deep a.deep~; mv a.deep~ a.deep; mv a.deep a.deeper;"
     "mv a.deeper a.deep; put a.name two; fsync; rm a.deep; put a.deep '[4]\n' =EOPNOTSUPP; fsync",
     TWO A_COUNT A_OTHER A_LIST A_DEEP},

    /* ---- errors, and what they are told of ---- */
    {"an error stays until a good write, and goes with its key", NULL,
     "put a.count x =EINVAL; owes a.count; mv a.count a.amount; good a.amount; fsync; owes;"
     "put a.count 5; open A a.amount r; note A; node B r; read B '7\n'; close B; close A;"
     "put a.count x =EINVAL; rm a.count; fsync; owes; put a.name~ x; put a.amount.tmp x;"
     "owes a.amount.tmp",
     A_NAME "a.amount:u32=7 " A_OTHER A_LIST},

    /* ---- the end ---- */
    {"a signal ends the daemon: what was asked for is made, and nothing more", "close",
     "open B a.list w trunc; write B '[9]'; rm a.count;" BUSY
     "open A a.name w trunc; write A two; & flush A; hurry; flush B =EROFS; fsync B =EROFS;"
     "open C a.name w =EROFS; put a.new 5 =EROFS; rm a.name =EROFS; mv a.name a.title =EROFS;"
     "type a.other u64 =EROFS; truncate a.name 0 =EROFS; put .x 5; mv .x a.name =EROFS;" DONE
     "wait; read B '[9]'; finish; file " TWO A_BUSY A_LIST,
     TWO A_BUSY A_LIST},
    {"a signal ends the daemon while a write fails: the next attempt writes it", "sync",
     "put a.name two; hold; & fsync; held; open A a.count w trunc; write A 9; & flush A; hurry;"
     "go EIO; wait =EIO; wait; finish; file " TWO NINE A_OTHER A_LIST,
     TWO NINE A_OTHER A_LIST},
    {"what a signal found written but not closed is no edit, at the release either", NULL,
     "open A a.name w trunc; write A two; open B a.new w creat; write B 9; hurry; release A;"
     "flush B =EROFS; release B; text a.name 'one\n'; gone a.new"},

    /* ---- time ---- */
    {"edits of a large model are collected, and written ten seconds after the last", "large auto",
     "behind 100; hold; put a.name two; text a.name 'two\n'; later 9; put a.count 9; later 9;"
     "rm a.other; file " UNCHANGED "; shown " TWO NINE A_LIST "; later 1; held; go; fsync",
     TWO NINE A_LIST},
    {"edits of a large model are written after a minute at the latest", "large auto",
     "behind 1000; hold; put a.name a; later 9; put a.name b; later 9; put a.name c; later 9;"
     "put a.name d; later 9; put a.name e; later 9; put a.name f; later 9; put a.name two; "
     "file " UNCHANGED "; later 6; held; go; fsync",
     TWO A_COUNT A_OTHER A_LIST},
    {"a refused edit does not keep collected ones from being written", "large auto",
     "behind 100; put a.name two; full; put a.count 9 =ENOSPC; full no; hold; later 10; held; go;"
     "fsync",
     TWO A_COUNT A_OTHER A_LIST},
    {"after a write that failed, only who asks for it writes", "large auto",
     "behind 1000; hold; put a.name two; later 10; held; go EIO; put a.count 9; put a.other 9;"
     "later 100; put a.count 10; file " UNCHANGED
     "; owes a.name a.count a.other; fsync; owes; hold; put a.count 9; later 10; held; go; fsync",
     TWO NINE A_BUSY A_LIST},

    /* ==== edits that cannot be written ==== */
    /* ---- an edit is refused ---- */
    {"a removal that cannot be made in place is taken back, and other edits are made",
     "auto inplace",
     "rm a.list; gone a.list; put a.count '9'; text a.list '1\n2\n3\n'; refused a.list; rm a.list;"
     "fsync =EOPNOTSUPP; text a.list '1\n2\n3\n'; put a.count '7'; fsync; logged 'a.list'"},
    {"an alignment that the strategy cannot write leaves other edits", "sync inplace",
     "put a.count '9'; put general.alignment '64' =EOPNOTSUPP; gone general.alignment;"
     "shown a.name:string=one a.count:u32=9 " A_OTHER A_LIST "; fsync; text a.count '9\n'",
     A_NAME "a.count:u32=9 " A_OTHER A_LIST},
    {"an alignment that was refused because the disk was full is not written later", "sync",
     "put a.count '9'; full; later 2; put general.alignment '64' =ENOSPC;"
     "shown a.name:string=one a.count:u32=9 " A_OTHER A_LIST "; full no; later 2; fsync",
     A_NAME "a.count:u32=9 " A_OTHER A_LIST},
    /* ---- the commit fails ---- */
    {"every close reports a failure: NumPy ignores the result of the first one", "auto close",
     "open A a.name w trunc; write A 'new'; fail EIO; flush A =EIO; fail; flush A =EIO;"
     "fsync A =EIO; close A =EIO; text a.name 'one\n'; fsync"},
    {"an edit in place that is not finished is named, and not answered 0", "inplace close",
     "open A a.count w trunc; write A 9; fail EIO; flush A =EIO; release A; owes 'the last edit';"
     "put a.count 9 =EIO; owes 'the last edit'; fsync =EIO; fail; put a.count 9; fsync; owes",
     A_NAME "a.count:u32=9 " A_OTHER A_LIST},
    {"an edit in place that stopped in its middle is shown as a whole", "tensors inplace close",
     "open A /z/raw w; dots A 20000 1; torn; flush A =EIO; dotted /z/raw 20000 1; fsync =EIO;"
     "dotted /z/raw 20000 1; fail; fsync; dotted /z/raw 20000 1; close A",
     "a:I8:8=abcdefgh b:F32:2x3=1,2,3,4,5,6 c:I8:4=wxyz z:I8:20000=X{20000} "},
    {"a key that is created while its removal is written keeps its place if that fails", "close",
     "rm a.count; hold; & fsync; held; open A a.count w creat trunc; go EIO; wait =EIO; fsync;"
     "write A 9; close A; fsync",
     A_NAME "a.count:u32=9 " A_OTHER A_LIST},
    {"a removal that failed and was taken back stops no timer", "auto",
     "behind 100; rm a.count; hold; & fsync; held; open A a.count w creat trunc; go EIO; wait =EIO;"
     "write A 7; close A; rm a.other; later 2; due; file " A_NAME A_COUNT A_LIST,
     A_NAME A_COUNT A_LIST},
    {"a text that is accepted does not hide that a later one was refused", "sync",
     "put a.name two; open A a.count w trunc; write A 77; hold; & fsync; held; & flush A;"
     "open B a.count w trunc; write B 'bad\n' =EINVAL; go; wait; wait; refused a.count;"
     "text a.count '77\n'; close B =EINVAL; release A",
     "a.name:string=two a.count:u32=77 " A_OTHER A_LIST},
    {"an equal text from another program is just as durable", "sync",
     "put a.name 'new'; open B a.name w trunc; write B 'new'; fail EIO; fsync B =EIO; fail;"
     "write B 'new' 0; fsync B; close B; file a.name:string=new " A_COUNT A_OTHER A_LIST,
     "a.name:string=new " A_COUNT A_OTHER A_LIST},
    {"an open helper whose rename fails can still be written", "auto close",
     "open T .c rw creat; write T '1'; flush T; fail EIO; mv .c a.count =EIO; write T '2';"
     "read T '12'; text .c '12'; text a.count '7\n'; fail; mv .c a.count; write T '3'; close T",
     A_NAME "a.count:u32=123 " A_OTHER A_LIST},
    {"an open file goes back with its key to the old name", "close",
     "open A a.name rw append; write A 'x\n'; flush A; fail EIO; mv a.name a.title =EIO;"
     "write A 'y\n'; fail; close A; text a.name 'one\nx\ny\n'; gone a.title",
     "a.name:string=one,x,y " A_COUNT A_OTHER A_LIST},

    /* ---- a file that another program changed ---- */
    {"a file that another program changed is not written", NULL,
     "alter; open A a.name w =ESTALE; open A a.name rw =ESTALE; open A a.name r; read A 'one\n';"
     "close A; put a.name 'new' =ESTALE; rm a.count =ESTALE; text a.name 'one\n'; restore;"
     "put a.name 'new'",
     "a.name:string=new " A_COUNT A_OTHER A_LIST},
    {"no edit of any kind is accepted after another program changed the file", "auto close",
     "alter; type a.count u64 =ESTALE; mv a.count a.amount =ESTALE; truncate a.list 0 =ESTALE;"
     "put a.new '5' =ESTALE; mv a.count a.other =ESTALE; list a.name a.count a.other a.list;"
     "put .c '9'; mv .c a.count =ESTALE; text .c '9'; restore; mv .c a.count",
     A_NAME "a.count:u32=9 " A_OTHER A_LIST},
    /* ---- while another edit is being written ---- */
    {"two renames that fail one after the other", "close",
     "put .c '12'; hold; & mv .c a.count; held; & mv a.name a.title; fail EIO; go; wait =EIO; wait "
     "=EIO; fail; text .c '12'; text a.name 'one\n'; list a.name a.count a.other a.list .c; fsync"},
    {"an fsync waits for the write in progress", "sync",
     "put a.name 'new'; hold; & fsync; held; & fsync; go; wait; wait; file "
     "a.name:string=new " A_COUNT A_OTHER A_LIST,
     "a.name:string=new " A_COUNT A_OTHER A_LIST},

    /* ---- signals ---- */
    {"fsync waits for a copy whose first waiter was interrupted", "close",
     "hold; open A a.name w trunc; write A 'new'; & flush A; held; interrupt; wait =EINTR;"
     "& fsync A; go; wait; text a.name 'new\n'; release A",
     "a.name:string=new " A_COUNT A_OTHER A_LIST},
    {"a signal interrupts the fsync of the only edit", "sync",
     "open A a.name w trunc; write A 'new'; hold; & fsync A; held; interrupt; wait =EINTR; go;"
     "fsync; text a.name 'new\n'; release A",
     "a.name:string=new " A_COUNT A_OTHER A_LIST},
    {"a signal interrupts a rename", "close",
     "hold; & mv a.count a.amount; held; interrupt; wait =EINTR; go; fsync; gone a.count;"
     "text a.amount '7\n'; list a.name a.amount a.other a.list",
     A_NAME "a.amount:u32=7 " A_OTHER A_LIST},
    {"edits that other programs also made are written after a signal", "close",
     "hold; open A a.name w trunc; write A 'new'; & flush A; held; open B a.count w trunc;"
     "write B '9'; & flush B; open C a.other w trunc; write C '10'; & flush C; interrupt; go;"
     "wait; wait; wait =EINTR; release A; release B; release C; fsync",
     "a.name:string=new a.count:u32=9 a.other:u32=10 " A_LIST},

    /* ---- the log ---- */
    {"each kind of edit of a key is logged", NULL,
     "put a.name 'newer'; fsync; logged 'a.name: changed; '; put a.list '[4]'; fsync;"
     "logged 'a.list: changed; '; put a.new:u16 '5'; fsync; logged 'a.new: new; '; rm a.new; fsync;"
     "logged 'a.new: removed; '; mv a.count a.amount; fsync;"
     "logged 'a.count: renamed to a.amount; '; type a.amount u64; fsync;"
     "logged 'a.amount: changed; '; quiet; put a.amount 'x' =EINVAL; logged 'a.amount: refused: '",
     "a.name:string=newer a.amount:u64=7 " A_OTHER "a.list:array[i32]=4 "},
    {"edits that are written together are logged as one each", "sync",
     "mv a.count a.amount; put a.amount '9'; put a.new '5'; rm a.new; fsync;"
     "logged 'a.count: renamed to a.amount; '; quiet",
     A_NAME "a.amount:u32=9 " A_OTHER A_LIST},
    {"each kind of edit of a tensor is logged", "tensors",
     "put /c/raw WXyz; fsync; logged 'tensors/c: changed; '; mkdir /n; put /n/type I8;"
     "put /n/shape 3; put /n/raw 123; fsync; logged 'tensors/n: new; '; rmdir /a; fsync;"
     "logged 'tensors/a: removed; '; mv /n /d; fsync; logged 'tensors/n: renamed to d; ';"
     "put /b/shape '6\n'; fsync; logged 'tensors/b: changed; '; quiet; put /c/raw abc =EINVAL;"
     "logged 'tensors/c: refused: it has 3 of 4 bytes'; put /b/shape '5\n' =EINVAL;"
     "logged 'tensors/b: refused: the shape has 5 elements, the tensor has 6'",
     "b:F32:6=1,2,3,4,5,6 c:I8:4=WXyz z:I8:20000=.{20000} d:I8:3=123 "},
};

SCRIPTS_MAIN("live_queue", scripts)

/* SPDX-License-Identifier: MIT */
/* Accepted edits that are dropped because a write failed, although their names are already in use
 * again. See script.h for scripts. */
#include "script.h"

static const struct script scripts[] = {
    /* ---- a name that a later edit stores ---- */
    {"an edit under the new name of a key is lost if the rename fails", "old sync",
     "mv a.count a.amount; hold; & fsync; held; put a.amount 12; go EIO; wait =EIO;"
     "text a.count '7\n'; gone a.amount; fsync; list a.name a.count a.other a.list",
     UNCHANGED},
    {"an edit of a new key that was a helper is lost if its creation fails", "old sync",
     "put .c 12; mv .c a.new; hold; & fsync; held; put a.new 13; go EIO; wait =EIO; text .c 12;"
     "gone a.new; fsync",
     UNCHANGED},
    {"two renames made during a write that fails are lost", "old sync",
     "put a.name 2; hold; & fsync; held; mv a.count a.list; mv a.list b.new; go EIO; wait =EIO;"
     "text a.name 'one\n'; gone b.new; fsync; list a.name a.count a.other a.list",
     UNCHANGED},

    /* ---- a name that has since been removed or parked ---- */
    {"a key created and removed again during a failing rename stays removed", "old sync",
     "mv a.count a.amount; hold; & fsync; held; put a.count 12; rm a.count; go EIO; wait =EIO;"
     "rm a.count =ENOENT; gone a.count a.amount; files 4; fsync; files 4",
     A_NAME A_OTHER A_LIST},
    {"a key created and renamed to a backup during a failing rename stays a backup", "old sync",
     "mv a.count a.amount; hold; & fsync; held; put a.count 12; mv a.count a.count~; go EIO;"
     "wait =EIO; gone a.count; text a.count~ '12\n'; files 5; mv a.count~ a.count; fsync;"
     "list a.name a.count a.other a.list",
     A_NAME "a.count:u32=12 " A_OTHER A_LIST},
    {"a key replaced and removed during a failing write stays removed", "old sync",
     "put a.name 2; hold; & fsync; held; mv a.other a.count; rm a.count; go EIO; wait =EIO;"
     "gone a.count; text a.other '8\n'; text a.name 'one\n'; files 4; fsync",
     A_NAME A_OTHER A_LIST},

    /* ---- a file with two possible names ---- */
    {"a removed name can be used again after its file went back to the old name", "old sync",
     "mv a.count a.amount; hold; & fsync; held; rm a.amount; go EIO; wait =EIO; text a.count '7\n';"
     "put a.amount 5; fsync; rm a.amount; fail EIO; fsync =EIO; fail; text a.amount '5\n';"
     "text a.count '7\n'; fsync",
     UNCHANGED "a.amount:u32=5 "},
    {"an open file whose name another key took in a failing write can still be written", "old sync",
     "open B a.name rw append; write B x; mv a.count a.name; fail EIO; fsync =EIO; fail;"
     "text a.count '7\n'; close B; text a.name 'one\nx\n'; fsync",
     "a.name:string=one,x " A_COUNT A_OTHER A_LIST},
    {"a reader of a renamed key reads its own text after the renames fail", "old sync",
     "put a.name 24; open D a.count r; mv a.count a.other; mv a.other a.name; put a.other 63;"
     "fail EIO; fsync =EIO; fail; text a.name 'one\n'; text a.count '7\n'; text a.other '8\n';"
     "read D '7\n'; close D; fsync",
     UNCHANGED},

    /* ---- the bytes of a helper ---- */
    {"an editor's backup keeps a value whose write fails", "sync",
     "put .c 12; mv .c a.name; hold; & fsync; held; mv a.name a.name~; go EIO; wait =EIO;"
     "text a.name~ '12\n'; mv a.name~ a.name; fsync",
     "a.name:string=12 " A_COUNT A_OTHER A_LIST},
    {"an editor's backup keeps a value that came after the failing write began", "old sync",
     "put a.other 3; hold; & fsync; held; put .c 12; mv .c a.name; mv a.name a.name~; go EIO;"
     "wait =EIO; text a.name~ '12\n'; mv a.name~ a.name; fsync",
     "a.name:string=12 " A_COUNT A_OTHER A_LIST},
    {"a helper that became a key, a backup and the key again keeps its bytes", "old sync",
     "put .c 12; mv .c a.name; mv a.name a.name~; mv a.name~ a.name; fail EIO; fsync =EIO; fail;"
     "text .c '12\n'; text a.name 'one\n'; mv .c a.name; fsync",
     "a.name:string=12 " A_COUNT A_OTHER A_LIST},
    {"a program that reads a helper can go on after the helper's rename fails", "old sync",
     "put .c 12; open R .c r; mv .c a.name; open W a.name rw; write W 5; fail EIO; fsync =EIO;"
     "fail; read R 12; text .c 12; close W; read R 12; close R; text .c 12; fsync",
     "a.name:string=52 " A_COUNT A_OTHER A_LIST},
    {"a helper renamed over a key whose equal value is pending comes back if the write fails",
     "old close",
     "put .c 12; hold; open A a.name w trunc; write A 12; & flush A; held; & mv .c a.name; go EIO;"
     "wait =EIO; wait =EIO; text .c 12; text a.name 'one\n'; flush A =EIO; write A 3; flush A;"
     "close A; rm .c",
     "a.name:string=123 " A_COUNT A_OTHER A_LIST},
    {"a helper renamed over an equal value is gone if only a later edit fails", "old sync",
     "put a.name 12; hold; & fsync; held; put .c 12; mv .c a.name; put a.count 9; go; wait;"
     "fail EIO; fsync =EIO; fail; gone .c; text a.name '12\n'; text a.count '7\n'; fsync",
     "a.name:string=12 " A_COUNT A_OTHER A_LIST},

    /* ---- bytes written to a file whose name another file has taken ---- */
    {"a close waits for the rename that took its name, and fails with it", "old close",
     "put .c 12; open A a.name rw; hold; & mv .c a.name; held; write A x; & flush A; go EIO;"
     "wait =EIO; wait =EIO; text .c 12; flush A; text a.name 'xne\n'; close A; rm .c",
     "a.name:string=xne " A_COUNT A_OTHER A_LIST},
    {"a close waits for the rename that took its name, and its text is dropped", "close",
     "put .c 12; open A a.name rw; hold; & mv .c a.name; held; write A x; & flush A; go;"
     "wait; wait; text a.name '12\n'; close A",
     "a.name:string=12 " A_COUNT A_OTHER A_LIST},
    {"a file whose name was taken reports an error for every write", "old sync",
     "open A a.name rw; tnote A; put .c 12; mv .c a.name; size A 4; tnode C r; read C 'one\n';"
     "close C; open B a.name rw; fail EIO; fsync =EIO; fail;"
     "write A x; flush A =EIO; fsync A =EIO; write A y; fsync A =EIO; close A =EIO;"
     "text a.name 'one\n'; text .c 12; close B; rm .c",
     UNCHANGED},
};

SCRIPTS_MAIN("live_given_up", scripts)

/* SPDX-License-Identifier: MIT */
/* Undos through the tree: restored keys, names, and when an undo is refused or interrupted. Edits
 * in a script join one state, except after an undo. See script.h for scripts. */
#include "script.h"

static const struct script scripts[] = {
    {"an undo reverts the last edits; a second undo reverts the first", "history auto close sync",
     "put a.name 'two'; put a.count '9'; fsync; undo; text a.name 'one\n'; text a.count '7\n';"
     "file " UNCHANGED
     "; said 'back to state 1; taken back: changed a.name'; undo; text a.name 'two\n';"
     "text a.count '9\n'; said 'back to state 2'",
     "a.name:string=two a.count:u32=9 " A_OTHER A_LIST},
    {"an undo restores keys that were removed, created, renamed or given a type",
     "history auto close sync",
     "rm a.name; put b.new '5'; mv a.count a.amount; type a.other u64; fsync; list a.amount "
     "a.other a.list b.new; undo; list a.name a.count a.other a.list; typed a.other u32; typed "
     "a.count u32; gone a.amount; gone b.new; put a.count '10'; fsync; typed a.count u32",
     A_NAME "a.count:u32=10 " A_OTHER A_LIST},
    {"restored keys keep their places when they are edited", "history close",
     "put b.one '1'; rm a.name; rm a.count; fsync; reopen; undo;"
     "list a.name a.count a.other a.list; put a.name 'two'; list a.name a.count a.other a.list;"
     "reopen; put a.name 'three'; list a.name a.count a.other a.list",
     "a.name:string=three " A_COUNT A_OTHER A_LIST},
    {"an open file keeps its text; the name shows the restored value", "history close",
     "put a.name 'two'; open A a.name r; undo; text a.name 'one\n'; read A 'two\n'; close A;"
     "time noted a.count; undo; time same a.count; text a.name 'two\n'",
     "a.name:string=two " A_COUNT A_OTHER A_LIST},
    {"what is appended after an undo follows the restored text", "history close",
     "open A a.name w append; write A x; flush A; text a.name 'one\nx\n'; undo; write A y; close A",
     "a.name:string=one,y " A_COUNT A_OTHER A_LIST},
    {"an undo that changes a key removes its user.gguf.error", "history close",
     "put a.name 'two'; put a.count 'x' =EINVAL; rm a.other; fsync; refused a.count; undo;"
     "refused a.count; undo; put a.count '9'; put a.count 'x' =EINVAL;"
     "refused a.count; undo; good a.count; time noted a.count; undo; time moved a.count",
     "a.name:string=two a.count:u32=9 " A_LIST},
    {"an undo to the current state changes nothing", "history close",
     "put a.name 'two'; undo; said 'back to state 1'; undo 1; said 'are already those of state 1';"
     "file " UNCHANGED "; put a.name 'three'; undo 2; said 'back to state 2'",
     "a.name:string=two " A_COUNT A_OTHER A_LIST},
    {"a restored key has its type, and no other", "history close",
     "rm a.count; fsync; undo; gone a.count:u8; text a.count '7\n'"},
    {"an undo without an earlier state, or to an unknown one, is refused",
     "history auto close sync",
     "undo =ENOENT; put a.name 'two'; fsync; undo 7 =ENOENT; said '7'; text a.name 'two\n'",
     "a.name:string=two " A_COUNT A_OTHER A_LIST},
    {"an undo without a history is refused", NULL, "undo =EOPNOTSUPP; said 'no history is kept'"},
    {"the states can be listed and cleared", "history close",
     "states; put a.name 'two'; states 'a.name'; clear; states; undo =ENOENT; put a.name 'three';"
     "states 'a.name'; undo; text a.name 'two\n'",
     "a.name:string=two " A_COUNT A_OTHER A_LIST},
    {"an undo that only moves keys does not change them", "history close",
     "rm a.name; reopen; put a.name 'one'; list a.count a.other a.list a.name;"
     "put a.count x =EINVAL; time noted a.count; undo 1; said 'back to state 1';"
     "list a.name a.count a.other a.list; time same a.count; refused a.count"},
    {"a restored key has the type that it had then", "history close",
     "type a.count u64; later 11; rm a.count; fsync; undo 1; typed a.count u32; put a.count 9; "
     "typed a.count u32",
     A_NAME "a.count:u32=9 " A_OTHER A_LIST},
    {"a draft whose accepted part was undone is dropped when it is refused", "history close",
     "open A general.file_type w creat; write A 5; flush A; open B a.count rw; write B 9; flush B;"
     "undo; write A x; flush A =EINVAL; write B x; flush B =EINVAL; close A =EINVAL;"
     "close B =EINVAL; text a.count '7\n'; gone general.file_type"},
    {"a draft that is refused leaves what an undo has restored since", "history close",
     "open A general.file_type w creat; write A 5; flush A; open B a.count rw; write B 9; flush B;"
     "undo; undo; write A 'x\n'; flush A =EINVAL; write B x; flush B =EINVAL; close A =EINVAL;"
     "close B =EINVAL; text a.count '9\n'; text general.file_type '5\n'",
     A_NAME "a.count:u32=9 " A_OTHER A_LIST "general.file_type:u32=5 "},
    {"a draft that is refused does not revert an undo to an earlier state", "history close",
     "put a.count '8'; reopen; open A a.count w trunc; write A '9\n'; flush A; undo 1;"
     "text a.count '7\n'; write A 'junk\n'; close A =EINVAL; text a.count '7\n'"},
    {"a file renamed after an undo has removed its key leaves its new key as it is",
     "history close",
     "put a.name 'two'; open A a.new creat w; write A 'x\n'; flush A; undo; mv a.new a.count;"
     "text a.count '7\n'; write A 'junk\n'; close A =EINVAL; text a.count '7\n'"},
    {"a refused undo keeps user.gguf.error and the times", "history close",
     "put a.count '8'; put a.count 'junk' =EINVAL; full; later 2; put a.other '9' =ENOSPC;"
     "time noted a.count; undo =ENOSPC; full no; later 2; refused a.count; time same a.count",
     A_NAME "a.count:u32=8 " A_OTHER A_LIST},
    {"an undo takes removals back that have no room", "history tensors close",
     "rm a.count; rmdir /c; full; fsync =ENOSPC; undo; said 'taken back'; list / 'a b c z';"
     "full no; text a.count '7\n'; fsync; owes"},
    {"an undo first writes what is pending", "history",
     "put a.name 'two'; fsync; undo; text a.name 'one\n'; put a.count '9'; rm a.other; undo;"
     "list a.name a.count a.other a.list; text a.count '7\n'"},
    {"an undo that cannot be written changes nothing, and is done when it can", "history close",
     "put a.name 'two'; fail EIO; undo =EIO; said 'Input/output error'; text a.name 'two\n'; fail;"
     "undo; text a.name 'one\n'"},
    {"a signal ends the wait for an undo, which continues", "history close",
     "put a.name 'two'; put b.new '5'; hold; & undo; held; text a.name 'two\n'; interrupt;"
     "wait =EINTR; go; fsync; said 'back to state 1'; text a.name 'one\n'; gone b.new"},
    {"a key that was removed and written returns to its place", "history close",
     "rm a.name; fsync; undo; list a.name a.count a.other a.list; rm a.list; fsync; put b.new '5';"
     "undo; list a.name a.count a.other a.list"},
};

SCRIPTS_MAIN("live_undo", scripts)

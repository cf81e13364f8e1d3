/* SPDX-License-Identifier: MIT */
/* Drafts in metadata/: text that the write refuses, and text that only the close judges. See script.h
 * for scripts. */
#include "script.h"

static const struct script scripts[] = {
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

SCRIPTS_MAIN("live drafts", scripts)

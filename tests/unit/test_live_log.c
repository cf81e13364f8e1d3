/* SPDX-License-Identifier: MIT */
/* The lines that edits of metadata/ write to the log. For scripts see script.h. */
#include "script.h"

static const struct script scripts[] = {
    {"a value", NULL, "put a.name 'newer'; fsync; logged 'a.name: string, 3 -> 5 bytes; '; quiet",
     "a.name:string=newer " A_COUNT A_OTHER A_LIST},
    {"an array", NULL, "put a.list '[4]'; fsync; logged 'a.list: array[i32], '; quiet",
     A_NAME A_COUNT A_OTHER "a.list:array[i32]=4 "},
    {"a new key", NULL, "put a.new:u16 '5'; fsync; logged 'a.new: new, u16, 2 bytes; '; quiet",
     UNCHANGED "a.new:u16=5 "},
    {"a removed key", NULL, "rm a.count; fsync; logged 'a.count: removed; '; quiet",
     A_NAME A_OTHER A_LIST},
    {"a renamed key", NULL,
     "mv a.count a.amount; fsync; logged 'a.count: renamed to a.amount; '; quiet",
     A_NAME "a.amount:u32=7 " A_OTHER A_LIST},
    {"a key renamed and changed at once", "sync",
     "mv a.count a.amount; put a.amount '9'; fsync;"
     "logged 'a.count: renamed to a.amount; a.amount: u32, 4 -> 4 bytes; '; quiet",
     A_NAME "a.amount:u32=9 " A_OTHER A_LIST},
    {"a key changed in type", NULL,
     "type a.count u64; fsync; logged 'a.count: u64, 4 -> 8 bytes; '; quiet",
     A_NAME "a.count:u64=7 " A_OTHER A_LIST},
    {"a key that was never on the disk", "sync",
     "put a.new '5'; rm a.new; put a.name 'new'; fsync;"
     "logged 'a.name: string, 3 -> 3 bytes; '; quiet",
     "a.name:string=new " A_COUNT A_OTHER A_LIST},
    {"a refused text", NULL, "put a.count 'x' =EINVAL; logged 'a.count: refused: '", UNCHANGED},
    {"an edit that failed", "sync",
     "put a.name 'new'; fail EIO; fsync =EIO; fail; logged 'a.name: string, 3 -> 3 bytes: not "
     "written: '",
     UNCHANGED},
};

SCRIPTS_MAIN("live log", scripts)

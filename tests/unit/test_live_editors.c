/* SPDX-License-Identifier: MIT */
/* The calls that programs make to save a file: of those that tests/mount/editors.py does not run, and
 * what it does not look at. The key is not the last one, so a change in its position would be
 * noticed. See script.h for scripts. */
#include "script.h"

#define SAVED A_NAME "a.count:u32=12 " A_OTHER A_LIST

static const struct script scripts[] = {
    /* ---- vim ---- */
    {"vim moves the key aside for a probe and a backup, and writes it again", NULL,
     "open P 4913 w creat excl; close P; rm 4913; gone 4913; mv a.count a.count~; gone a.count;"
     "text a.count~ '7\n'; open A a.count w creat trunc; write A '12\n'; fsync A; close A; text "
     "a.count '12\n'; rm a.count~; fsync; list a.name a.count a.other a.list; typed a.count u32",
     SAVED},
    {"vim: a refused text is put back by vim itself", NULL,
     "mv a.count a.count~; open A a.count w creat trunc; write A 'x\n' =EINVAL; close A =EINVAL;"
     "text a.count '7\n'; mv a.count~ a.count; text a.count '7\n'; fsync;"
     "list a.name a.count a.other a.list; refused a.count"},
    {"vim replaces an earlier backup", NULL,
     "put a.count~ 'old'; mv a.count a.count~; put a.count '12'; text a.count~ '7\n'; mv a.count "
     "a.count~; put a.count '13'; text a.count~ '12\n'; mv a.count a.count~; put a.count '12'",
     SAVED},
    /* ---- emacs, nano, ed ---- */
    {"emacs creates a lock file and an auto-save file, and renames the key to a backup", NULL,
     "open L .#-emacsaB3dE6 rw creat excl; write L user@host.1; close L; mvnew .#-emacsaB3dE6 "
     ".#a.count;"
     "put #a.count# '1'; mv a.count a.count~;"
     "open A a.count w creat trunc; write A '12\n'; fsync A; close A; rm #a.count#;"
     "rm .#a.count; fsync; list a.name a.count a.other a.list a.count~; text a.count~ '7\n'",
     SAVED},
    {"emacs saves twice, and the backup remains the first text", NULL,
     "mv a.count a.count~; put a.count '11'; put a.count '12'; text a.count~ '7\n'; fsync", SAVED},
    /* ---- programs that rename a new file over the old one ---- */
    {"rsync -X sets the type of the hidden file", NULL,
     "open T .a.count.Ab12Cd rw creat excl; write T '12\n'; close T; type .a.count.Ab12Cd u32;"
     "mv .a.count.Ab12Cd a.count; put .a.new.Ab12Cd '5\n'; type .a.new.Ab12Cd u64;"
     "mv .a.new.Ab12Cd a.new; typed a.new u64; fsync",
     SAVED "a.new:u64=5 "},
    {"rsync -b renames the key to a backup first", NULL,
     "put .a.count.Ab12Cd '12\n'; mv a.count a.count~; mv .a.count.Ab12Cd a.count;"
     "text a.count~ '7\n'; fsync",
     SAVED},
    {"gedit renames .goutputstream over the key after an fsync", NULL,
     "open T .goutputstream-A1B2C3 rw creat excl; write T '12\n'; fsync T;"
     "mv .goutputstream-A1B2C3 a.count; close T; text a.count '12\n'; fsync",
     SAVED},
    {"gedit with backups renames the key to a backup", NULL,
     "open T .goutputstream-A1B2C3 rw creat excl; write T '12\n'; fsync T; close T;"
     "mv a.count a.count~; mv .goutputstream-A1B2C3 a.count; text a.count~ '7\n'; fsync",
     SAVED},
    {"kate renames a file with a six-letter suffix over the key", NULL,
     "open T a.count.AbCdEf rw mkstemp; write T '12\n'; fsync T; close T;"
     "mv a.count.AbCdEf a.count; fsync; list a.name a.count a.other a.list; quiet",
     SAVED},
    {"kate's text is judged as the key's type only", NULL,
     "open T a.name.AbCdEf rw mkstemp; write T '1.0'; write T '0\n'; fsync T; close T;"
     "typed a.name.AbCdEf string; mv a.name.AbCdEf a.name; text a.name '1.00\n';"
     "open T a.list.AbCdEf rw mkstemp; write T 'x'; close T; mv a.list.AbCdEf a.list =EINVAL;"
     "refused a.list; text a.list.AbCdEf 'x\n'; rm a.list.AbCdEf; open T a.count.AbCdEf rw mkstemp;"
     "write T '[1,  2]'; close T; rm a.count.AbCdEf; fsync; list a.name a.count a.other a.list",
     "a.name:string=1.00 " A_COUNT A_OTHER A_LIST},
    {"BusyBox's sed -i renames a file with six more letters over the key", NULL,
     "open T a.nameAbCdEf rw mkstemp; write T '[1,  2]\n'; close T; mv a.nameAbCdEf a.name;"
     "text a.name '[1,  2]\n'; open T a.nameAbCdEf rw mkstemp; write T '007'; close T;"
     "type a.nameAbCdEf u64; put a.nameAbCdEf '8'; mv a.nameAbCdEf a.name; text a.name '8\n'",
     "a.name:string=8 " A_COUNT A_OTHER A_LIST},
    /* ---- programs that move the old file away and write a new one ---- */
    {"helix moves the key aside and removes that backup after the save", NULL,
     "mv a.count a.countAb1Cd2.bck; open A a.count w creat trunc; write A '12\n'; fsync A;"
     "close A; rm a.countAb1Cd2.bck; fsync; list a.name a.count a.other a.list",
     SAVED},
    {"helix puts the key back after a refused text", NULL,
     "mv a.count a.countAb1Cd2.bck; open A a.count w creat trunc; write A 'x\n' =EINVAL;"
     "close A =EINVAL; mv a.countAb1Cd2.bck a.count; text a.count '7\n'; fsync;"
     "list a.name a.count a.other a.list"},
    {"perl -i.orig renames the key to a backup and goes on reading it", NULL,
     "open R a.count r; mv a.count a.count.orig; open A a.count w creat trunc; read R '7\n';"
     "write A '12\n'; close R; close A; text a.count.orig '7\n'; fsync",
     SAVED},
    /* ---- programs that remove the old file and make a new one ---- */
    {"keys that cannot be removed are refused before anything changes", NULL,
     "rm general.architecture =EPERM; mv general.architecture a.x =EPERM;"
     "text general.architecture 'test\n'; mv general.architecture general.architecture~;"
     "rm general.architecture~; text general.architecture 'test\n'; fsync"},
};

SCRIPTS_MAIN("live_editors", scripts)

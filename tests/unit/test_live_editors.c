/* SPDX-License-Identifier: MIT */
/* The calls that programs make to save a file, with a valid and with a refused text. The key is not
 * the last one, so a change in its position would be noticed. See script.h for scripts. */
#include "script.h"

#define SAVED A_NAME "a.count:u32=12 " A_OTHER A_LIST

static const struct script scripts[] = {
    /* ---- vim ---- */
    {"vim moves the key aside for a probe and a backup, and writes it again", NULL,
     "open P 4913 w creat excl; close P; rm 4913; gone 4913; mv a.count a.count~; gone a.count;"
     "text a.count~ '7\n'; open A a.count w creat trunc; write A '12\n'; fsync A; close A;"
     "text a.count '12\n'; rm a.count~; fsync; list a.name a.count a.other a.list;"
     "typed a.count u32",
     SAVED},
    {"vim: a refused text is put back by vim itself", NULL,
     "mv a.count a.count~; open A a.count w creat trunc; write A 'x\n' =EINVAL; close A =EINVAL;"
     "text a.count '7\n'; mv a.count~ a.count; text a.count '7\n'; fsync;"
     "list a.name a.count a.other a.list; refused a.count",
     UNCHANGED},
    {"vim: a refused text leaves the backup", NULL,
     "mv a.count a.count~; open A a.count w creat trunc; write A 'x\n' =EINVAL; close A =EINVAL;"
     "text a.count '7\n'; text a.count~ '7\n'; fsync",
     UNCHANGED},
    {"vim replaces an earlier backup", NULL,
     "put a.count~ 'old'; mv a.count a.count~; put a.count '12'; text a.count~ '7\n';"
     "mv a.count a.count~; put a.count '13'; text a.count~ '12\n'; mv a.count a.count~;"
     "put a.count '12'",
     SAVED},
    {"vim with backupcopy=yes makes a copy, then writes in place", NULL,
     "open P 4913 w creat excl; close P; rm 4913; open B a.count~ w creat excl; write B '7\n';"
     "close B; open A a.count w trunc; write A '12\n'; fsync A; close A; rm a.count~; fsync",
     SAVED},
    {"vim creates a swap file beside the key", NULL,
     "open S .a.count.swp rw creat excl; write S 'swap'; open A a.count w trunc; write A '12';"
     "close A; write S 'more' 100; close S; rm .a.count.swp; fsync;"
     "list a.name a.count a.other a.list",
     SAVED},
    {"vim creates a new key", NULL,
     "open P 4913 w creat excl; close P; rm 4913; open A a.new w creat; write A '5\n'; fsync A;"
     "close A; fsync",
     UNCHANGED "a.new:u32=5 "},

    /* ---- emacs, nano, ed ---- */
    {"emacs creates a lock file and an auto-save file, and renames the key to a backup", NULL,
     "link .#a.count user@host.1; put #a.count# '1'; mv a.count a.count~;"
     "open A a.count w creat trunc; write A '12\n'; fsync A; close A; rm #a.count#;"
     "rm .#a.count; fsync; list a.name a.count a.other a.list a.count~; text a.count~ '7\n'",
     SAVED},
    {"emacs saves twice, and the backup remains the first text", NULL,
     "mv a.count a.count~; put a.count '11'; put a.count '12'; text a.count~ '7\n'; fsync", SAVED},
    {"emacs: a text is refused", NULL,
     "link .#a.count user@host.1; mv a.count a.count~; open A a.count w creat trunc;"
     "write A 'x\n' =EINVAL; close A =EINVAL; rm .#a.count; text a.count '7\n'; fsync",
     UNCHANGED},
    {"nano creates a lock file, then writes in place", NULL,
     "open L .a.count.swp w creat excl; write L 'lock'; close L; open A a.count w creat trunc;"
     "write A '12\n'; close A; rm .a.count.swp; fsync",
     SAVED},
    {"nano -B makes a backup by copying", NULL,
     "open B a.count~ w creat trunc; write B '7\n'; close B; open A a.count w creat trunc;"
     "write A '12\n'; close A; text a.count~ '7\n'; fsync",
     SAVED},
    {"ed writes in place, byte by byte", NULL,
     "open A a.count w trunc; write A '1'; write A '2'; write A '\n'; close A; fsync", SAVED},

    /* ---- programs that rename a new file over the old one ---- */
    {"sed -i renames a temporary file over the key", NULL,
     "open T sedA1b2C3 rw mkstemp; write T '12\n'; close T; mv sedA1b2C3 a.count;"
     "gone sedA1b2C3; text a.count '12\n'; typed a.count u32; fsync;"
     "list a.name a.count a.other a.list",
     SAVED},
    {"sed -i: the rename of a refused text fails, and the temporary file remains", NULL,
     "open T sedA1b2C3 rw mkstemp; write T 'x\n'; close T; mv sedA1b2C3 a.count =EINVAL; text "
     "sedA1b2C3 'x\n';"
     "text a.count '7\n'; refused a.count; rm sedA1b2C3; fsync",
     UNCHANGED},
    {"sed -i.bak renames the key to a backup first", NULL,
     "open T sedA1b2C3 rw mkstemp; write T '12\n'; close T; mv a.count a.count.bak; mv sedA1b2C3 "
     "a.count;"
     "text a.count.bak '7\n'; text a.count '12\n'; typed a.count u32; fsync",
     SAVED},
    {"sed -i.bak: the key comes back after a refused text", NULL,
     "open T sedA1b2C3 rw mkstemp; write T 'x\n'; close T; mv a.count a.count.bak; mv sedA1b2C3 "
     "a.count =EINVAL;"
     "text a.count '7\n'; rm sedA1b2C3; fsync; text a.count.bak '7\n'",
     UNCHANGED},
    {"rsync renames a hidden file over the key", NULL,
     "open T .a.count.Ab12Cd rw creat excl; write T '12\n'; close T; mv .a.count.Ab12Cd a.count;"
     "fsync; list a.name a.count a.other a.list",
     SAVED},
    {"rsync -X sets the type of the hidden file", NULL,
     "open T .a.count.Ab12Cd rw creat excl; write T '12\n'; close T; type .a.count.Ab12Cd u32;"
     "mv .a.count.Ab12Cd a.count; put .a.new.Ab12Cd '5\n'; type .a.new.Ab12Cd u64;"
     "mv .a.new.Ab12Cd a.new; typed a.new u64; fsync",
     SAVED "a.new:u64=5 "},
    {"rsync -b renames the key to a backup first", NULL,
     "put .a.count.Ab12Cd '12\n'; mv a.count a.count~; mv .a.count.Ab12Cd a.count;"
     "text a.count~ '7\n'; fsync",
     SAVED},
    {"rsync --inplace writes, then truncates", NULL,
     "open A a.name rw; write A 'on'; trunc A 2; close A; open B a.count w; write B '12\n';"
     "trunc B 3; close B; fsync",
     "a.name:string=on a.count:u32=12 " A_OTHER A_LIST},
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
    {"python replaces the key with os.replace() of a .tmp", NULL,
     "open T a.count.tmp w creat trunc; write T '12\n'; fsync T; close T;"
     "mv a.count.tmp a.count; fsync; list a.name a.count a.other a.list",
     SAVED},
    {"python removes its .tmp after a refused os.replace()", NULL,
     "put a.count.tmp 'x'; mv a.count.tmp a.count =EINVAL; rm a.count.tmp; text a.count '7\n';"
     "fsync",
     UNCHANGED},
    {"a new key is created by renaming a .new", NULL,
     "put .a.new.new '5'; mv .a.new.new a.new; typed a.new u32; fsync", UNCHANGED "a.new:u32=5 "},

    /* ---- programs that move the old file away and write a new one ---- */
    {"helix moves the key aside and removes that backup after the save", NULL,
     "mv a.count a.countAb1Cd2.bck; open A a.count w creat trunc; write A '12\n'; fsync A;"
     "close A; rm a.countAb1Cd2.bck; fsync; list a.name a.count a.other a.list",
     SAVED},
    {"helix puts the key back after a refused text", NULL,
     "mv a.count a.countAb1Cd2.bck; open A a.count w creat trunc; write A 'x\n' =EINVAL;"
     "close A =EINVAL; mv a.countAb1Cd2.bck a.count; text a.count '7\n'; fsync;"
     "list a.name a.count a.other a.list",
     UNCHANGED},
    {"perl -i.orig renames the key to a backup and goes on reading it", NULL,
     "open R a.count r; mv a.count a.count.orig; open A a.count w creat trunc; read R '7\n';"
     "write A '12\n'; close R; close A; text a.count.orig '7\n'; fsync",
     SAVED},
    {"cp --backup renames the key to a backup and creates it again", NULL,
     "mv a.count a.count~; open A a.count w creat excl; write A '12\n'; close A; fsync", SAVED},

    /* ---- programs that remove the old file and make a new one ---- */
    {"install removes the key and creates it again, at the same place", NULL,
     "rm a.count; gone a.count; open A a.count w creat excl; write A '12\n'; close A;"
     "typed a.count u32; fsync; list a.name a.count a.other a.list",
     SAVED},
    {"cp --remove-destination: the old value comes back after a refused text", NULL,
     "rm a.count; open A a.count w creat excl; write A 'x\n' =EINVAL; close A =EINVAL;"
     "text a.count '7\n'; refused a.count; fsync",
     UNCHANGED},
    {"perl -i opens the key, removes it and creates it again", NULL,
     "open R a.count r; rm a.count; open A a.count w creat excl; read R '7\n'; write A '12\n';"
     "close R; close A; fsync",
     SAVED},
    {"mv from another file system creates a key", NULL,
     "rm a.count; open A a.count w creat excl; write A '12\n'; close A; fsync", SAVED},
    {"keys that cannot be removed are refused before anything changes", NULL,
     "rm general.architecture =EPERM; mv general.architecture a.x =EPERM;"
     "text general.architecture 'test\n'; mv general.architecture general.architecture~;"
     "rm general.architecture~; text general.architecture 'test\n'; fsync",
     UNCHANGED},
    {"tar -x removes the key, creates it, sets its type and writes it", NULL,
     "rm a.count; mknod a.count; type a.count u32; open A a.count w; write A '12\n'; close A;"
     "fsync",
     SAVED},
    {"cp -a writes the key and sets its type before the close", NULL,
     "open A a.count w trunc; write A '12\n'; type a.count u32; close A;"
     "open B a.new w creat excl; write B '5\n'; type a.new u8; close B; fsync",
     SAVED "a.new:u8=5 "},
};

SCRIPTS_MAIN("live_editors", scripts)

/* SPDX-License-Identifier: MIT */
/*
 * Scripts that edit a model: operations of programs on metadata/, and their expected results. All
 * operations go through tree/tree.h, like the kernel's calls.
 *
 *     static const struct script scripts[] = {
 *         {"vim: the key steps aside, and comes back", NULL,
 *          "mv a.name a.name~; put a.name 'new'; rm a.name~; text a.name 'new\n'",
 *          "a.name:string=new " A_COUNT A_OTHER A_LIST},
 *     };
 *     SCRIPTS_MAIN("live", scripts)
 *
 * A script is a list of operations, separated by ';'. An operation is a word and its arguments; one
 * with spaces is quoted in '...'. Its last word may be =ERRNO: it must fail with that (otherwise it
 * must succeed). An operation whose first word is & is started without waiting (flush, fsync,
 * trunc, mv).
 *
 * The model has the keys general.architecture, which is never listed below, and
 *     a.name   string        one
 *     a.count  u32           7
 *     a.other  u32           8
 *     a.list   array[i32]    1 2 3
 *
 * Files of metadata/ (H: a handle, a letter):
 *     open H NAME WORD...    r, w, rw; trunc, append, creat, excl
 *     write H TEXT           where the handle stands; write H TEXT OFFSET: there
 *     read H TEXT            all that it reads is TEXT
 *     size H N               fstat
 *     trunc H N              ftruncate
 *     allocate H OFFSET N [keep]          fallocate
 *     flush H; release H     a close by one of several owners; the end of the last one
 *     close H                both
 *     fsync H; fsync         of a file; of the directory
 *     put NAME TEXT          printf TEXT > NAME, as a shell does it; add NAME TEXT: >>
 *     truncate NAME N; rm NAME; mv FROM TO; mvnew FROM TO (RENAME_NOREPLACE); link NAME TARGET
 *     mknod NAME             what tar makes before it opens it; its handle ends at the next mknod,
 *                            fsync of the directory, or finish
 *     type NAME TYPE         set user.gguf.type
 *     forgive NAME           remove user.gguf.error; forgive NAME ATTRIBUTE
 * What is there:
 *     list NAME...           exactly these, in this order
 *     files N                as many, general.architecture among them
 *     gone NAME...           none of these can be opened
 *     text NAME TEXT; stat NAME SIZE; typed NAME TYPE
 *     attr NAME ATTRIBUTE TEXT; attrs NAME 'ATTRIBUTE ...'
 *     refused NAME; good NAME         it has user.gguf.error, or not
 *     time noted NAME; time same NAME; time moved NAME      st_mtime, and as it was noted
 *     shown KEY:TYPE=TEXT...          the keys of model.gguf; newlines in a text are commas
 *     file KEY:TYPE=TEXT...           the keys of the file on the disk
 *     readlink NAME TARGET; unsaved 'LINE;...'      what the end of the mount would report
 * The history, in scripts that keep one:
 *     undo; undo N           all keys as before the last edits; as in state N
 *     clear; states TEXT     the states are forgotten; their list has TEXT (none: it is empty)
 *     said TEXT              the line about the last undo has TEXT
 * Waiting and faults:
 *     wait                   for the oldest & operation; =ERRNO is how that ends
 *     interrupt              a signal to the program that waits for the newest & operation;
 *                            interrupt first: for the oldest
 *     hold; held; go         copies of the model stop at their beginning; wait for one that has;
 *                            on. go ERRNO: those that stopped fail
 *     full; full no          the disk says that it has no room; that it has
 *     fail ERRNO; fail       copies of the model fail; no longer
 *     later N                so many seconds have passed; behind N: the clock is set back by as
 *                            many, so that `later` need not be waited for
 *     converts N             this many seconds pass while a tensor is converted
 *     hasty; still           one more at each look at the clock; it stands still except for `later`
 *     alter; restore         another program touches the model; it is as it was again
 *     logged TEXT; quiet     the log has TEXT since the last `logged`; it has no warning
 *     fill N; empty N        put n.0 ... n.N-1; and look at them and remove them
 *     many NAME TIMES BYTES  put texts of so many bytes, each another
 *     back NAME OTHER TIMES  mv NAME OTHER; mv OTHER NAME
 *     heap KIB               no more memory is in use than at the beginning and this
 *     helpers N                       bytes that helpers hold, also those of keys that are not
 *                                     written yet
 *     edits changed; edits same       the model's file is edited, and was changed by others, or not
 *     hurry                  what is pending is written now; no edit comes after it
 *     finish; reopen         the end of the mount (as at the end of each script); and another one
 *
 * Of tensors, in scripts with `tensors` (the model has a, c and z of bytes, and b of floats):
 *     topen H PATH WORD...   as open, of PATH below tensors/; the handle's operations are those
 *                            above
 *     tnote H; tnode H WORD...       the node of H is noted; opened, without a name
 *     tmoved PATH            its node is another than the noted one
 *     tput PATH TEXT; tadd PATH TEXT; tfloats PATH 'F...'     printf > PATH; >>; little-endian
 *                                                             floats
 *     tpoke H OFFSET 'F...'  floats, there; tnpy H SHAPE 'F...'  a whole .npy
 *     tdots H N STEP         an X at each STEP, N times; tdotted PATH N STEP: there, and else dots
 *     ttruncate PATH N; trm PATH; trmdir NAME; tmkdir NAME; tmv FROM TO; tmvnew FROM TO
 *     tlist DIR 'NAME...' exactly these; DIR may be . (tensors/ itself)
 *     ttext PATH TEXT; tvalues PATH 'F...' (at its end); tstat PATH SIZE; tgone PATH
 *     terror NAME TEXT       its user.gguf.error has TEXT; tforgive NAME
 *     tfile NAME:TYPE:SHAPE=VALUES...    the tensors of the file on the disk, or of both
 *
 * After each fsync of the directory that succeeds the file holds what model.gguf shows. After the
 * script the file has the keys that `saved` says and the tensors, and nothing lies beside it.
 */
#ifndef TESTS_LIB_SCRIPT_H
#define TESTS_LIB_SCRIPT_H

#include <stddef.h>

struct script {
    const char *name; /* the promise that it tests */
    /*
     * Words, or NULL. auto, close, sync: run only in these commit modes (without any: in each);
     * split: the model has two shards, and with tensors the second has `other`, 9001 dashes;
     * history: states are kept; tensors: tensors can be edited; inplace: edits are in place; large,
     * with tensors: the model is over 64 MiB.
     */
    const char *how;
    const char *ops;
    const char *saved; /* expected keys, as for `file`, or tensors, as for `tfile` */
};

#define A_NAME "a.name:string=one "
#define A_COUNT "a.count:u32=7 "
#define A_OTHER "a.other:u32=8 "
#define A_LIST "a.list:array[i32]=1,2,3 "
#define UNCHANGED A_NAME A_COUNT A_OTHER A_LIST

/* Run a test for each script. */
int scripts_run(const char *suite, const struct script *s, size_t n);

#define SCRIPTS_MAIN(suite, scripts)                                                \
    int main(void)                                                                  \
    {                                                                               \
        return scripts_run(suite, scripts, sizeof(scripts) / sizeof((scripts)[0])); \
    }

#endif

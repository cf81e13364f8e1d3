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
 * A script is a list of operations, separated by ';'. An operation is a word and its arguments; an
 * argument with spaces is quoted in '...'. If the last word is =ERRNO, the operation must fail with
 * that error, otherwise it must succeed. An operation whose first word is & is started without
 * waiting (flush, fsync, trunc, truncate, type, mv).
 *
 * The model has the keys general.architecture, which is never listed below, and
 *     a.name   string        one
 *     a.count  u32           7
 *     a.other  u32           8
 *     a.list   array[i32]    1 2 3
 *
 * Files of metadata/ (H: a handle, a letter):
 *     open H NAME WORD...    r, w, rw; trunc, append, creat, excl, mkstemp (exclusively, mode 0600)
 *     write H TEXT           at the handle's offset; write H TEXT OFFSET: at that offset
 *     read H TEXT            reading up to the end gives TEXT
 *     size H N               fstat
 *     trunc H N              ftruncate
 *     allocate H OFFSET N [keep]          fallocate
 *     flush H; release H     a close by one of several owners; by the last one
 *     close H                both
 *     fsync H; fsync         the file; the directory
 *     put NAME TEXT          printf TEXT > NAME, as a shell does; add NAME TEXT: >>
 *     truncate NAME N; rm NAME; mv FROM TO; mvnew FROM TO (RENAME_NOREPLACE); link NAME TARGET
 *     mknod NAME             tar calls this before it opens a file; the handle is released at the
 *                            next mknod, fsync of the directory, or finish
 *     type NAME TYPE         set user.gguf.type
 *     forgive NAME           remove user.gguf.error; forgive NAME ATTRIBUTE
 * Inspections:
 *     list NAME...           exactly these, in this order
 *     files N                the number of files, including general.architecture
 *     gone NAME...           none of these can be opened
 *     text NAME TEXT; stat NAME SIZE; typed NAME TYPE
 *     attr NAME ATTRIBUTE TEXT; attrs NAME 'ATTRIBUTE ...'
 *     refused NAME; good NAME         it has user.gguf.error, or not
 *     time noted NAME; time same NAME; time moved NAME      note st_mtime, and compare it
 *     shown KEY:TYPE=TEXT...          the keys of model.gguf; newlines in a text are commas
 *     file KEY:TYPE=TEXT...           the keys of the file on the disk
 *     readlink NAME TARGET; unsaved 'LINE;...'      what the end of the mount would report
 *     owes NAME...           it names exactly these
 * The history, in scripts that keep one:
 *     undo; undo N           restore all keys as before the last edits; as in state N
 *     clear; states TEXT     forget the states; their list contains TEXT (none: it is empty)
 *     said TEXT              the line about the last undo contains TEXT
 * Waiting and faults:
 *     wait                   for the oldest & operation; =ERRNO is its result
 *     interrupt              signal the program that waits for the newest & operation;
 *                            interrupt first: for the oldest
 *     hold; held; go         copies of the model stop at their beginning; wait until one has;
 *                            let them continue. go ERRNO: make those that stopped fail
 *     full; full no          the disk reports that it is full; that it has room again
 *     fail ERRNO; fail       copies of the model fail; no longer
 *     later N                N seconds pass; behind N: the clock runs N seconds late, so timed
 *                            waits wake at once and end as soon as `later` moves it
 *     converts N             this many seconds pass while a tensor is being converted
 *     hasty; still           each reading advances the clock by 1; only `later` moves it
 *     alter; restore         another program touches the model; its time is restored
 *     logged TEXT; quiet     the log contains TEXT since the last `logged`; it has no warning
 *     fill N; empty N        put n.0 ... n.N-1; check and remove them
 *     many NAME TIMES BYTES  put TIMES different texts of BYTES bytes
 *     back NAME OTHER TIMES  mv NAME OTHER; mv OTHER NAME
 *     heap KIB               at most this much more memory is in use than at the beginning
 *     helpers N                       bytes that helpers hold, including those of keys that are
 *                                     not written yet
 *     edits changed; edits same       the model is edited; another program changed it, or not
 *     hurry                  pending edits are written now, and no more are made; hurry starved:
 *                            there is no memory for that
 *     finish; reopen         end the mount (as at the end of each script); mount again
 *
 * For tensors, in scripts with `tensors` (the model has a, c and z of bytes, and b of floats):
 *     topen H PATH WORD...   as open, for PATH below tensors/; the handle's operations are those
 *                            above
 *     tnote H; tnode H WORD...       note the node of H; open it without a name
 *     tmoved PATH            its node differs from the noted one
 *     tput PATH TEXT; tadd PATH TEXT; tfloats PATH 'F...'     printf > PATH; >>; little-endian
 *                                                             floats
 *     tpoke H OFFSET 'F...'  floats at OFFSET; tnpy H SHAPE 'F...'  a whole .npy
 *     tdots H N STEP         N X's, STEP apart; tdotted PATH N STEP: X's there, dots elsewhere
 *     ttruncate PATH N; trm PATH; trmdir NAME; tmkdir NAME; tmv FROM TO; tmvnew FROM TO
 *     tlist DIR 'NAME...' exactly these; DIR may be . (tensors/ itself)
 *     ttext PATH TEXT; tvalues PATH 'F...' (at its end); tstat PATH SIZE; tgone PATH
 *     terror NAME TEXT       its user.gguf.error contains TEXT; tforgive NAME
 *     tfile NAME:TYPE:SHAPE=VALUES...    the tensors of the file on the disk, or of both
 *
 * After each successful fsync of the directory, the file holds what model.gguf shows. After the
 * script, the file has the keys or tensors in `saved`, and there is no other file beside it.
 */
#ifndef TESTS_LIB_SCRIPT_H
#define TESTS_LIB_SCRIPT_H

#include <stddef.h>

struct script {
    const char *name; /* the expected behaviour */
    /*
     * Words, or NULL. auto, close, sync: run only in these commit
     * modes (default: all); split: the model has two shards, and with tensors the second has
     * `other`, 9001 dashes; history: states are kept; tensors: tensors can be edited; inplace:
     * edits are in place; large: the model is over 64 MiB; deep: it has A_DEEP, too.
     */
    const char *how;
    const char *ops;
    const char *saved; /* expected keys, as for `file`, or tensors, as for `tfile` */
};

#define A_NAME "a.name:string=one "
#define A_COUNT "a.count:u32=7 "
#define A_OTHER "a.other:u32=8 "
#define A_LIST "a.list:array[i32]=1,2,3 "
#define A_DEEP "a.deep:array[array]=[1, 2],[3] "
#define UNCHANGED A_NAME A_COUNT A_OTHER A_LIST

/* Run a test for each script. */
int scripts_run(const char *suite, const struct script *s, size_t n);

#define SCRIPTS_MAIN(suite, scripts)                                                \
    int main(void)                                                                  \
    {                                                                               \
        return scripts_run(suite, scripts, sizeof(scripts) / sizeof((scripts)[0])); \
    }

#endif

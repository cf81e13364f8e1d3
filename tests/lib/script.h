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
 * and, with `tensors`, the tensors a, c and z of bytes, and b of floats. A path is a name in
 * metadata/ or, if it begins with a slash, a path below tensors/ (/ is tensors/ itself).
 *
 * Files (H: a handle, a letter):
 *     open H PATH WORD...    r, w, rw; trunc, append, creat, excl, mkstemp (exclusively, mode 0600)
 *     note H; node H WORD...      note the node of H; open it without a name
 *     pages H dropped        the kernel dropped its pages as H was opened; or kept
 *     killed H               a signal ended the program before it heard of the open
 *     write H TEXT           at the handle's offset; write H TEXT OFFSET: at that offset
 *     poke H OFFSET 'F...'   little-endian floats
 *     npy H SHAPE 'F...' [fortran]        a whole .npy, in C order or in Fortran order
 *     dots H N STEP          N X's, STEP apart
 *     read H TEXT            reading up to the end gives TEXT; early H TEXT: the same for a draft, by
 *                            a call that began before what the disk lacks was accepted
 *     size H N               fstat
 *     trunc H N              ftruncate
 *     allocate H OFFSET N [keep]          fallocate
 *     flush H; release H     a close by one of several owners; by the last one
 *     close H                both
 *     fsync H; fsync         the file; the directory
 *     put PATH TEXT          printf TEXT > PATH, as a shell does; add PATH TEXT: >>
 *     floats PATH 'F...'     the same with floats
 *     truncate PATH N; rm PATH; mv FROM TO; mvnew FROM TO (RENAME_NOREPLACE)
 *     mkdir PATH; rmdir PATH
 *     mknod NAME             tar --xattrs calls this before it opens a file
 *     type NAME TYPE         set user.gguf.type
 *     forgive PATH           remove user.gguf.error; forgive PATH ATTRIBUTE
 * Inspections:
 *     list NAME...           metadata/ has exactly these, in this order; list DIR 'NAME...'
 *     gone PATH...           none of these can be opened
 *     text PATH TEXT; stat PATH SIZE; typed NAME TYPE
 *     values PATH 'F...'     the floats at its end; dotted PATH N STEP: X's there, dots elsewhere
 *     attr PATH ATTRIBUTE TEXT; attrs PATH 'ATTRIBUTE ...'
 *     refused PATH [TEXT]; good PATH      it has user.gguf.error (that contains TEXT), or not
 *     time noted PATH; time same PATH; time moved PATH      note st_mtime, and compare it
 *     shown KEY:TYPE=TEXT...          the keys of model.gguf; newlines in a text are commas
 *     file KEY:TYPE=TEXT...           the keys of the file on the disk
 *     tfile NAME:TYPE:SHAPE=VALUES...    the tensors of the file on the disk, or of both
 *     unsaved 'LINE;...'     what the end of the mount would report
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
 *     full; full no          the disk is full, and says so; it has room again
 *     fail ERRNO; fail       copies of the model, and fsync of it or of drafts, fail; no longer
 *     torn                   a write to the model itself fails in its middle, until `fail`
 *     later N                N seconds pass; behind N: the clock runs N seconds late, so timed
 *                            waits wake at once and end as soon as `later` moves it
 *     due                    what is due has been asked for and, unless copies are held, is done
 *     still                  only `later` moves the clock
 *     alter; restore         another program touches the model; its time is restored
 *     logged TEXT; quiet     the log has TEXT since the last `logged` (!TEXT: not); it has no warning
 *     fill N; empty N        put n.0 ... n.N-1; check and remove them
 *     edits changed; edits same       the model is edited; another program changed it, or not
 *     hurry                  a signal ends the daemon: what is pending is written, and no more is made
 *     finish; reopen         end the mount (as at the end of each script); mount again
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
     * edits are in place, choose: where they can be; large: the model is over 64 MiB; deep: it has
     * A_DEEP, too.
     */
    const char *how;
    const char *ops;
    const char
        *saved; /* expected keys, as for `file`, or tensors, as for `tfile`; NULL: unchanged */
    const char
        *each; /* if not NULL: words, separated by '|', that take the place of each @ in turn */
};
#pragma GCC diagnostic ignored "-Wmissing-field-initializers" /* of the last two */

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

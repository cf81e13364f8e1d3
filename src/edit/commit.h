/* SPDX-License-Identifier: MIT */
/*
 * Carries out a plan so that after a kill or a power failure at any moment the model is either the
 * complete old file or the complete new one.
 *
 *     r = edit_commit(&f, &plan, &options, &hooks, &result, &e);
 *     if (result.old_fd >= 0) { give readers f.fd; close(result.old_fd); }
 *
 * Strategies, in the order in which EDIT_AUTO tries them:
 *  reflink  a new file beside the model, with the data cloned, replaces the model. Requires a file
 *           system that clones, a plan in which most old data moves by whole blocks, and free space
 *           for the rest and for new data.
 *  inplace  the header and bytes of tensors are overwritten while a redo journal holds their new
 *           content. Requires all other data to stay where it is (tensors may be added at the end),
 *           a regular layout, padding of zeros, and at most 256 GiB of new bytes
 *           (JOURNAL_MAX_ROWS). With EDIT_AUTO the file must also be over 64 MiB, and at most 1 GiB
 *           and at most a quarter of it may change.
 *  copy     like reflink, but with the data copied. Requires free space.
 * If the options name a strategy that does not apply, the result is -EOPNOTSUPP with the reason.
 *
 * Invariants:
 *  C1. At every moment the path names a whole file (temp.h) or, for inplace, a file that the
 *      journal makes whole (journal.h).
 *  C2. The model is written in place only while the journal holds the new bytes. Readers see its
 *      bytes change.
 *  C3. 0 is returned only when the new state is durable: the file is synced, then its directory.
 *  C4. On failure the model is the old one, bit for bit, f is unchanged (for inplace its mtime may
 *      differ), and no file of ours is left. There are three exceptions:
 *      - The new file could not be taken back. For this the medium must fail twice, or once, while
 *        syncing the directory, if the file system has no exchange. Readers continue with f.fd
 *        unchanged, and edits fail with -ESTALE until the model is reopened.
 *      - For inplace, the journal is durable, but writing the model failed twice after some of it
 *        was written (-EIO with `unfinished`). The edit counts as done. The next commit, which is
 *        planned on top of it, finishes it first, as do the next mount and edit_recover().
 *      - For inplace, the journal could not be removed, nor its head wiped (journal_cancel()).
 *        Edits fail with -ESTALE, and the message says that the next mount may make this edit.
 *  C5. A file is replaced only if it is the one that was opened (same inode, size and mtime), and a
 *      plan is carried out only for a file of its size; otherwise -ESTALE.
 *  C6. The new file is locked before it gets the name.
 *
 * Threads: only one thread at a time may commit to a file. Readers of the old descriptor are not
 * disturbed.
 */
#ifndef EDIT_COMMIT_H
#define EDIT_COMMIT_H

#include "edit/file.h"
#include "edit/plan.h"

/* The committing thread calls these. Any of them may be NULL. */
struct edit_hooks {
    void (*progress)(uint64_t done, uint64_t total, void *arg); /* counts bytes of tensor data */
    /* just before the edit counts as done (journal complete, or new file in place); may wait */
    void (*ready)(void *arg);
    void *arg;
};

struct edit_result {
    enum edit_strategy strategy; /* the strategy used; EDIT_AUTO: nothing had to be done */
    int old_fd;      /* f's previous descriptor, now the caller's; -1: f keeps its file */
    bool unfinished; /* the edit failed but counts as done: C4 */
};

/* What is known of the disk before an edit. */
struct edit_disk {
    bool known;          /* everything except `clone` was determined */
    bool linked, backup; /* the model has other hard links; a backup must still be made */
    enum edit_clone clone;
    uint64_t free, used; /* bytes free for new files; bytes that the model occupies */
};
/*
 * Determine the state of the disk, and whether the model can be edited at all. The first time,
 * probe with a file beside the model whether the file system clones. Sets *ret on success only.
 * Returns 0, -EMLINK (other hard links without break_hardlinks), -ESTALE, -EISDIR (a directory has
 * the backup's name) or -errno.
 */
int edit_look(struct edit_file *f, const struct edit_options *o, struct edit_disk *ret,
              struct err *e);

/*
 * Determine from sizes only how a change will be written, and whether there is room for it. Needs
 * no plan, and takes time independent of the number of keys and tensors. Returns 0 or -ENOSPC.
 */
int edit_estimate(const struct edit_change *c, const struct edit_options *o,
                  const struct edit_disk *d, enum edit_strategy *ret, struct err *e);

/*
 * These functions probe what an edit needs from the file system when a model is opened, so that an
 * edit that could never be saved is not begun. The least intrusive comes first. They leave nothing
 * behind, and only edit_try_new() creates anything.
 *
 * edit_try_attributes  the model's extended attributes can be listed and read (f may be open in any
 *                      mode)
 * edit_try_handle      the handle for writing can also read
 * edit_try_new         a new file can get the model's owner, group, mode and attributes, and a
 *                      lock; not needed for EDIT_INPLACE
 *
 * They return 0, or -errno with a message. edit_try_attributes() and edit_try_new() ignore errors
 * that may be temporary (no space, no memory).
 */
int edit_try_attributes(const struct edit_file *f, struct err *e);
int edit_try_handle(const struct edit_file *f, struct err *e);
int edit_try_new(const struct edit_file *f, struct err *e);

/*
 * Write to dst the name of the backup that is made before the first edit is written. Returns 0 or
 * -ENAMETOOLONG.
 */
int edit_backup_name(char dst[NAME_MAX + 1], const struct edit_file *f,
                     const struct edit_options *o, struct err *e);
/*
 * Check that there is room for a new file of this size beside the model. what: a description of the
 * file for the message.
 */
int edit_room_for(const struct edit_file *f, uint64_t needed, const char *what, struct err *e);

/*
 * Carry out the plan. Returns 0, -EOPNOTSUPP, -EMLINK, -ESTALE, -ENOSPC, -EPERM (owner, mode or
 * attributes cannot be reproduced), -EBUSY (they have just changed), -EINTR, -EIO or -EDQUOT.
 */
int edit_commit(struct edit_file *f, const struct edit_plan *p, const struct edit_options *o,
                const struct edit_hooks *h, struct edit_result *ret, struct err *e);

/* Return "reflink", "inplace", "copy" or "auto". */
const char *edit_strategy_name(enum edit_strategy s);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * Carries out a plan so that after a kill or a power cut at any moment the model is the old or the
 * new file, complete.
 *
 *     r = edit_commit(&f, &plan, &options, &hooks, &result, &e);
 *     if (result.old_fd >= 0) { give readers f.fd; close(result.old_fd); }
 *
 * Strategies, in the order in which EDIT_AUTO tries them:
 *  reflink  a new file beside the model, the data cloned, replaces the model. Requires a file system that clones, most
 *           old data moving by whole blocks, and free space for the rest and for what is new.
 *  inplace  the header, and bytes of tensors, are overwritten under a redo journal that holds them. Requires all other
 *           data to stay where it is (tensors may be added at the end), a regular layout, padding that is zero, at most
 *           256 GiB of new bytes (JOURNAL_MAX_ROWS); in EDIT_AUTO a file over 64 MiB, and no more changed bytes than
 *           1 GiB and a quarter of it.
 *  copy     as reflink, with the data copied. Requires free space.
 * If the options name a strategy that does not apply: -EOPNOTSUPP, with the reason.
 *
 * Invariants:
 *  C1. The path names a whole file at every moment (temp.h), or for inplace a file that the journal makes whole
 *      (journal.h).
 *  C2. The model is written in place only while the journal holds the new bytes. Readers see them change.
 *  C3. 0 is returned only when the new state is durable: file synced, then directory synced.
 *  C4. On failure the model is the old one, bit for bit, f is as before (for inplace its mtime may differ) and no file
 *      of ours is left. Three exceptions:
 *      - The new file could not be taken back, for which a medium must fail twice (or once, at the sync of the
 *        directory, if the file system has no exchange). Readers continue with f.fd unchanged, and edits fail with
 *        -ESTALE until the model is reopened.
 *      - inplace: the journal is durable, but writing the model failed twice, and not at its first byte: -EIO with
 *        `unfinished`. The edit counts as done: the next commit, which is planned on top of it, finishes it first, as
 *        do the next mount and edit_recover().
 *      - inplace: the journal could neither be removed nor its head wiped (journal_cancel()). Edits fail with -ESTALE,
 *        and the line says that the next mount may make this edit.
 *  C5. A file that is not the one that was opened (inode, size, mtime) is not replaced: -ESTALE. A plan for a file of
 *      another size is not carried out either.
 *  C6. The new file is locked before it gets the name.
 *
 * Threads: one commit of a file at a time; readers of the old descriptor are not disturbed.
 */
#ifndef EDIT_COMMIT_H
#define EDIT_COMMIT_H

#include "edit/file.h"
#include "edit/plan.h"

/* Any may be NULL. Called from the committing thread. */
struct edit_hooks {
    void (*progress)(uint64_t done, uint64_t total, void *arg); /* bytes of tensor data */
    /* just before the edit is done: its journal is complete, or its new file replaces the model; it may wait */
    void (*ready)(void *arg);
    void *arg;
};

struct edit_result {
    enum edit_strategy strategy; /* the one used; EDIT_AUTO: nothing had to be done */
    int old_fd;      /* f's previous descriptor, now the caller's; -1: f has the same file */
    bool unfinished; /* it failed, but counts as done: C4 */
};

/* The disk before an edit. */
struct edit_disk {
    bool known;          /* everything except `clone` was determined */
    bool linked, backup; /* the model has other hard links; a backup must still be made */
    enum edit_clone clone;
    uint64_t free, used; /* bytes: free for new files; taken by the model */
};
/*
 * Determine it, and whether the model can be edited at all; once, probe with a file beside the model whether the file
 * system clones. ret is set on success only. 0; -EMLINK (other hard links, and not break_hardlinks), -ESTALE, -EISDIR
 * (in place of the backup), -errno.
 */
int edit_look(struct edit_file *f, const struct edit_options *o, struct edit_disk *ret,
              struct err *e);

/*
 * Determine how a change will be written, and whether there is room for it, from sizes only:
 * without a plan, in time independent of the number of keys and tensors. Returns 0 or -ENOSPC.
 */
int edit_estimate(const struct edit_change *c, const struct edit_options *o,
                  const struct edit_disk *d, enum edit_strategy *ret, struct err *e);

/*
 * What an edit needs from the file system, probed when a model is opened, so that an edit that could never be saved is
 * not begun; the least intrusive first. Nothing is left behind, and only edit_try_new() creates anything.
 *
 * edit_try_attributes  the model's extended attributes can be listed and read (f: open in any mode)
 * edit_try_handle      the handle for writing can also read
 * edit_try_new         a new file gets the model's owner, group, mode and attributes, and a lock. Not for EDIT_INPLACE
 *
 * 0; or -errno with a line. edit_try_attributes() and edit_try_new() ignore errors that may be temporary (no space, no
 * memory).
 */
int edit_try_attributes(const struct edit_file *f, struct err *e);
int edit_try_handle(const struct edit_file *f, struct err *e);
int edit_try_new(const struct edit_file *f, struct err *e);

/* Write the name of the backup, which is made before the first edit is written. Returns 0 or
 * -ENAMETOOLONG. */
int edit_backup_name(char dst[NAME_MAX + 1], const struct edit_file *f,
                     const struct edit_options *o, struct err *e);
/* Check that there is room for a new file of this size beside the model. what: its description, for
 * the message. */
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

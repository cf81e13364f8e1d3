/* SPDX-License-Identifier: MIT */
/*
 * A plan carried out so that after a kill or a power cut at any moment the model is the old or the
 * new file, whole.
 *
 *     r = edit_commit(&f, &plan, &options, &hooks, &result, &e);
 *     if (result.old_fd >= 0) { give readers f.fd; close(result.old_fd); }
 *
 * Strategies, in the order in which EDIT_AUTO tries them:
 *  reflink  a new file beside the model, the data cloned; takes the model's place. Requires most
 *           old data to move by whole blocks, a file system that clones, and free space for what
 *           does not move so and for what is new.
 *  inplace  the header, and bytes of tensors, are overwritten under a redo journal that holds them.
 *           Requires all other data to stay where it is (tensors may be added at the end), a regular
 *           layout, padding that is zero; in EDIT_AUTO a file over 64 MiB, no more changed bytes than
 *           1 GiB and a quarter of it. Never more than 256 GiB (JOURNAL_MAX_ROWS).
 *  copy     as reflink, with the data copied. Requires free space.
 * If the options name a strategy that does not apply: -EOPNOTSUPP, with the reason.
 *
 * Invariants:
 *  C1. The path names a whole file at every moment (temp.h), or for inplace a file that the journal
 *      makes whole (journal.h).
 *  C2. The model is written in place only while the journal holds the new bytes. Readers see them change.
 *  C3. 0 is returned only when the new state is durable: file synced, then folder synced.
 *  C4. On failure the model is the old one, bit for bit, f is as before (for inplace its mtime may
 *      differ) and no file of ours is left. Three exceptions:
 *      - The new file could not be taken back, for which a medium must fail twice (or once, at the sync of
 *        the folder, if the file system has no exchange). Readers go on with f.fd as it is, and edits fail
 *        with -ESTALE until the model is opened anew.
 *      - inplace: the journal is durable, and to write the model failed twice, and not at its first byte: -EIO
 *        with `unfinished`. The edit is done: the next commit, which is planned on it, finishes it first, as do
 *        the next mount and edit_recover().
 *      - inplace: the journal could not be removed, nor its head wiped (journal_cancel()). Edits fail with -ESTALE,
 *        and the line says that the next mount may make this one.
 *  C5. A file that is not the one that was opened (inode, size, mtime) is not replaced: -ESTALE.
 *      Nor is a plan carried out that was made for a file of another size.
 *  C6. The new file has the lock before it has the name.
 *
 * Threads: one commit of a file at a time; readers of the old descriptor are not disturbed.
 */
#ifndef EDIT_COMMIT_H
#define EDIT_COMMIT_H

#include "edit/file.h"
#include "edit/plan.h"

/* Any may be NULL. Called from the thread that commits. */
struct edit_hooks {
    void (*progress)(uint64_t done, uint64_t total, void *arg); /* bytes of tensor data */
    void (*ready)(void *arg); /* the edit is about to be done: before its journal, or its new file
                                 takes the model's place. It may wait */
    void *arg;
};

struct edit_result {
    enum edit_strategy strategy; /* by which it was done; EDIT_AUTO: nothing had to be done */
    int old_fd;                  /* the descriptor that f had before, the caller's; -1: the same, of
                                    which the plan changes bytes, and makes it longer */
    bool unfinished;             /* it failed, and is done nevertheless: C4 */
};

/*
 * Before there is an edit: what the disk says now, and whether the model could be edited at all. Asks once, with
 * a file beside the model, whether the file system clones. ret is set on success only.
 * 0; -EMLINK (other hard links, and not break_hardlinks), -ESTALE, -EISDIR (what is to be the backup), -errno.
 */
struct edit_disk {
    bool known;          /* the rest but `clone` was asked for */
    bool linked, backup; /* the model has other hard links; a backup is still to be made */
    enum edit_clone clone;
    uint64_t free, used; /* bytes: for new files; that the model takes */
};
int edit_look(struct edit_file *f, const struct edit_options *o, struct edit_disk *ret,
              struct err *e);

/*
 * How a change will be written, and whether there is room for it, as far as sizes show: without a plan, in time
 * that does not depend on how many keys and tensors there are. 0, -ENOSPC.
 */
int edit_estimate(const struct edit_change *c, const struct edit_options *o,
                  const struct edit_disk *d, enum edit_strategy *ret, struct err *e);

/*
 * What an edit needs of the file system, tried when a model is opened, so that one which could
 * never be saved is not begun. In this order, the least that a store could mind first; nothing is
 * left behind, and up to edit_try_new() nothing is made.
 *
 * edit_try_attributes  the model's extended attributes can be listed and read (f: open in any way)
 * edit_try_handle      the handle that may write can be read through
 * edit_try_new         a new file gets the model's owner, group, mode and attributes, and a lock;
 *                      tried with a file without a name, where the file system has that. Not for
 *                      EDIT_INPLACE.
 *
 * 0; or -errno with a line. Of some errors (no space, no memory) it is not certain that they last: edit_try_attributes()
 * and edit_try_new() return 0 then.
 */
int edit_try_attributes(const struct edit_file *f, struct err *e);
int edit_try_handle(const struct edit_file *f, struct err *e);
int edit_try_new(const struct edit_file *f, struct err *e);

/* The name of a backup: the model as it was before the first edit, made before anything of that is written. 0,
 * -ENAMETOOLONG. */
int edit_backup_name(char dst[NAME_MAX + 1], const struct edit_file *f,
                     const struct edit_options *o, struct err *e);
/* Whether a new file of so many bytes has room beside the model. what: what it is, for the line. */
int edit_room_for(const struct edit_file *f, uint64_t needed, const char *what, struct err *e);

/* 0; -EOPNOTSUPP, -EMLINK, -ESTALE, -ENOSPC, -EPERM (owner, mode, attributes cannot be reproduced), -EBUSY (they changed just now), -EINTR,
 * -EIO, -EDQUOT. */
int edit_commit(struct edit_file *f, const struct edit_plan *p, const struct edit_options *o,
                const struct edit_hooks *h, struct edit_result *ret, struct err *e);

/* "reflink", "inplace", "copy", "auto". */
const char *edit_strategy_name(enum edit_strategy s);

#endif

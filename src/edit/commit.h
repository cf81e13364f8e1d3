/* SPDX-License-Identifier: MIT */
/*
 * Carries out a plan so that after a kill or a power failure at any moment the model is either the
 * complete old file or the complete new one.
 *
 *     r = edit_commit(&f, &plan, &options, &hooks, &result, &e);
 *     if (result.old_fd >= 0) { give readers f.fd; close(result.old_fd); }
 *
 * Ways of writing, between which edit_plan_way() chooses:
 *  copy     a new file beside the model replaces it. The kernel clones whole blocks of the tensor
 *           data where it can (copy_file_range), and copies the rest; holes stay holes.
 *  inplace  the header and bytes of tensors are overwritten while a redo journal holds their new
 *           content. Requires all other data to stay where it is (tensors may be added at the end)
 *           and a regular layout.
 *
 * Invariants:
 *  C1. At every moment the path names a whole file (T1 to T5 in commit.c) or, for inplace, a file
 *      that the journal makes whole (journal.h).
 *  C2. The model is written in place only while the journal holds the new bytes. Readers see its
 *      bytes change.
 *  C3. 0 is returned only when the new state is durable: the file is synced, then its directory.
 *  C4. On failure the model is the old one, bit for bit, f is unchanged (for inplace its mtime may
 *      differ), and none of our files is left. There are three exceptions:
 *      - The new file could not be taken back. This takes two failures of the medium, or just a
 *        failed sync of the directory if the file system has no exchange. Readers keep f.fd, and
 *        edits fail with -ESTALE until the model is reopened.
 *      - For inplace, the journal is durable, but writing the model failed twice, and some of it
 *        was written, or the journal could not be removed, nor its head wiped (-EIO with
 *        `unfinished`). The edit counts as done. The next commit, whose plan builds on this edit,
 *        finishes it first, as do the next mount and edit_recover().
 *      - The same, but the edit was given up before the model was written, or the journal's name is
 *        gone, but its directory could not be synced (journal_cancel()). The message says that the
 *        next mount may apply this edit. The next commit removes the journal first, or fails.
 *      After a successful edit, the journal may remain as well (journal_end()).
 *  C5. A file is replaced only if it is the one that was opened (same inode, size and mtime), and a
 *      plan is carried out only for a file of the size that it was made for; otherwise -ESTALE.
 *  C6. The new file is locked before it gets the model's name.
 *
 * Threads: only one thread at a time may commit to a file. Readers of the old descriptor are not
 * disturbed.
 */
#ifndef EDIT_COMMIT_H
#define EDIT_COMMIT_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "base/err.h"
#include "base/sys.h"
#include "edit/plan.h"

/* ---- the model's file ---- */

/*
 * The file that an edit changes, with its directory and name, an open handle that holds the
 * writer's lock, and its identity as of parsing.
 *
 *     r = edit_file_open(&f, &sys_libc, dir, "model.gguf", true, &e);
 *     r = edit_recover(&f, &found, &e);            before parsing; see journal.h
 *     ... gguf_parse(f.fd), edits ...
 *     edit_file_close(&f);
 *
 * All path operations go through `dir`, so the directory may be renamed, or covered by a mount. The
 * lock (flock) ensures that only one process writes. It is taken on the open model file, and a
 * replacement is locked before it gets the model's name. A struct edit_file belongs to the writer.
 * Readers keep their own descriptors.
 */

/* Identity of the opened file. */
struct edit_id {
    uint64_t dev, ino, size;
    struct timespec mtime;
};

struct edit_file {
    const struct sys *sys;
    int dir;                 /* directory handle, not owned; not O_PATH, because it is synced */
    int fd;                  /* owned: the model's handle */
    char name[NAME_MAX + 1]; /* the model's name in the directory; not a symbolic link */
    struct edit_id id;       /* as opened, or after the last edit */
    enum edit_clone clone;   /* whether the file system can clone ranges; probed once */
    bool locked;             /* the file is open for writing and locked */
    bool backed;             /* the backup has been made */
    /* The journal holds an edit that could not be written to the model (C4). */
    bool unfinished;
    /* An edit was taken back, but the directory could not be synced, or the new file stayed (C4): the next
     * commit begins with that, and fails as long as it is so. */
    bool unsynced;
};

/*
 * Open the file. With `write`, open it for writing and lock it. Returns 0, -EWOULDBLOCK (another
 * process is writing it), -EACCES, -EROFS, -ENOENT, -ELOOP (a symbolic link), -EINVAL (not a
 * regular file), -ENAMETOOLONG or -ESTALE (it was replaced repeatedly).
 */
int edit_file_open(struct edit_file *f, const struct sys *sys, int dir, const char *name,
                   bool write, struct err *e);
void edit_file_close(struct edit_file *f);

/*
 * Return 0 if the path still names the opened file, unchanged; otherwise -ESTALE. With an
 * unfinished edit, size and mtime may have changed.
 */
int edit_file_fresh(const struct edit_file *f, struct err *e);
/* Take the current state of f->fd as the file's identity. */
int edit_file_note(struct edit_file *f, struct err *e);

int edit_file_stat(const struct edit_file *f, struct stat *ret, struct err *e);
struct edit_id edit_id_of(const struct stat *st);
bool edit_id_equal(const struct edit_id *a, const struct edit_id *b);

/*
 * Write the name of one of our files beside the model: ".NAME.ggufs-SUFFIX". If NAME is too long
 * for that, it is shortened and made unique by a hash of the whole name.
 */
#define EDIT_JOURNAL_SUFFIX "journal"
#define EDIT_TEMP_SUFFIX 6 /* number of letters and digits */
void edit_side_name(char dst[NAME_MAX + 1], const char *name, const char *suffix);

/* Return true for a regular file owned by this process's user, the model's owner or root. */
bool edit_is_owned(const struct stat *st, const struct stat *model);
/*
 * Return true if edit_is_owned() does and the file has no other hard links. Only such a journal is
 * opened, applied or removed, or keeps the model from being read.
 */
bool edit_is_ours(const struct stat *st, const struct stat *model);

/*
 * Open an unnamed file beside the model, or a named one whose name is removed immediately. Returns
 * the descriptor or -errno.
 */
int edit_unnamed(const struct edit_file *f, struct err *e);

/* ---- the commit ---- */

/* Called by the committing thread; may be NULL. */
struct edit_hooks {
    void (*progress)(uint64_t done, uint64_t total, void *arg); /* counts bytes of tensor data */
    void *arg;
};

struct edit_result {
    enum edit_strategy strategy; /* the strategy used; EDIT_AUTO: nothing had to be done */
    int old_fd;      /* f's previous descriptor, now the caller's; -1: f keeps its file */
    bool unfinished; /* the edit failed but counts as done: C4 */
};

/*
 * Determine the state of the disk, and whether the model can be edited at all. Sets *ret on success
 * only. Returns 0, -EMLINK (the model has other hard links), -ESTALE, -EISDIR (a directory has the
 * backup's name) or -errno.
 */
int edit_look(const struct edit_file *f, const struct edit_options *o, struct edit_disk *ret,
              struct err *e);

/*
 * When a model is opened for writing, probe what an edit needs, so that no edit is begun that could
 * never be saved: the handle can also read and, if `new`, a new file can get the model's owner,
 * group, mode and attributes, and a lock. Leaves nothing behind. Returns 0, also after errors that
 * may be temporary (no space, no memory), or -errno.
 */
int edit_try(const struct edit_file *f, bool new, struct err *e);

/*
 * Write to dst the name of the backup that is made before the first edit is written. Returns 0 or
 * -ENAMETOOLONG.
 */
int edit_backup_name(char dst[NAME_MAX + 1], const struct edit_file *f,
                     const struct edit_options *o, struct err *e);
/*
 * Check that there is room for a new file of this size beside the model. what: describes the file
 * in the message.
 */
int edit_room_for(const struct edit_file *f, uint64_t needed, const char *what, struct err *e);

/* Check that no byte of the plan's drafts, all of which have been read, was lost before; or, with
 * `sync`, bring them to the disk, so that none is lost before the plan's edit is written. Returns 0 or
 * -errno. */
int edit_check_drafts(const struct edit_file *f, const struct edit_plan *p, bool sync,
                      struct err *e);
/* Look at the disk, and choose how the plan is written. The first call probes, with a file beside the
 * model, whether the file system can clone. Returns as edit_look() and edit_plan_way(). */
int edit_way(struct edit_file *f, const struct edit_plan *p, const struct edit_options *o,
             enum edit_strategy *ret, uint64_t *copies, struct err *e);
/* Finish what the last edit left undone on the disk, if anything: C4. Returns as edit_commit(). */
int edit_settle(struct edit_file *f, struct err *e);
/*
 * Carry out the plan. Returns 0, -EOPNOTSUPP, -EMLINK, -ESTALE, -ENOSPC, -EPERM (owner, mode or
 * attributes cannot be reproduced), -EBUSY (they keep changing), -EINTR, -EIO or -EDQUOT.
 */
int edit_commit(struct edit_file *f, const struct edit_plan *p, const struct edit_options *o,
                const struct edit_hooks *h, struct edit_result *ret, struct err *e);
#endif

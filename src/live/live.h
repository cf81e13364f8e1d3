/* SPDX-License-Identifier: MIT */
/*
 * Edits a model. Handles the files in metadata/ while they can be written, keeps the accepted edits
 * that are not on disk yet, and writes them.
 *
 *     r = live_open(&newest, &file, &options, &l, &e);
 *     r = live_start(l, history, &e);  before the first edit, and after a fork
 *     ... any of the other calls, from any threads ...
 *     r = live_finish(l);              writes pending edits
 *     live_close(l);
 *
 * The kernel knows a file by its number. docs/editing.md explains what a name means, when an edit
 * is accepted, and when it is durable.
 *
 * Functions return 0, or -errno as the system call of the same name would, and leave outputs
 * unchanged on failure. A function that takes a `struct live_wait` may return LIVE_PARKED; another
 * thread later calls its done() exactly once.
 *
 * Threads: any. No lock is held while the disk is accessed, or while text is measured or rendered for
 * a reader. For an edit, a key's old text may be rendered with the lock held.
 */
#ifndef LIVE_LIVE_H
#define LIVE_LIVE_H

#include "base/err.h"
#include "edit/commit.h"
#include "edit/history.h"
#include "edit/plan.h"
#include "live/files.h"
#include "live/writer.h"
#include "model/imatrix.h"
#include "model/snapshot.h"

struct live;

enum live_commit { LIVE_COMMIT_AUTO, LIVE_COMMIT_CLOSE, LIVE_COMMIT_SYNC };

struct live_options {
    enum live_commit commit;
    struct edit_options edit;
    bool tensors;                  /* tensors can also be edited (tensors.h) */
    const struct imatrix *imatrix; /* weights for encoding values; not owned; may be NULL */
    struct logger log;             /* any thread may call it */
};

/*
 * Edit the model whose newest state is `n`, which must also be the state on disk; `file` is its
 * file, or the first file of a split model. Both must outlive *ret, and other code must not change
 * them. Initially, key i has number i. Before live_start() the model can only be read. Returns 0 or
 * -ENOMEM.
 */
int live_open(struct newest *n, struct edit_file *file, const struct live_options *o,
              struct live **ret);
/* Add the writer to the pool; call this before the first edit. history: not owned; NULL to keep no
 * history. */
int live_start(struct live *l, struct history *history, struct err *e);
/* Start writing pending edits. To close several models, call this for each of them before the first
 * live_finish(). No edit may follow. */
void live_hurry(struct live *l);
/* Write pending edits, and stop the writer. Returns 0, or the error that caused the loss of an edit
 * (already logged). */
int live_finish(struct live *l);
/* Drop the drafts that no flush, fsync or release has judged. Call this before releasing files that
 * programs may still have open. */
void live_abandon(struct live *l);
/* Add a note (see below) for each edit that did not reach the file. Call this after
 * live_finish(). */
void live_unsaved(struct live *l, struct buf *notes);
/*
 * Adopt the notes from an earlier instance for the same model, as if those edits had been made
 * here. Call this before the first edit. Notes that do not apply here stay in `notes`. Returns 0 or
 * -ENOMEM.
 */
int live_recall(struct live *l, struct buf *notes);
void live_close(struct live *l); /* may be NULL */

/* ---- what did not reach the file ---- */

/*
 * A note is a path in the model (without "metadata/") and a reason, stored as consecutive
 * NUL-terminated strings. Notes can outlive the open model (live_recall()).
 *
 *     for (struct note n = {0}; unsaved_next(&notes, &n);) ... n.path, n.why ...
 */

/* Prefix of a tensor's path. */
#define UNSAVED_TENSOR "tensors/"

struct note {
    const char *path, *why;
    size_t next; /* offset of the next note */
};

void unsaved_add(struct buf *notes, const char *folder, const char *name, const char *why);
/* Get the next note. Returns false at the end. */
bool unsaved_next(const struct buf *notes, struct note *n);
/* Write a line "PATH: WHY" for each note. */
void unsaved_lines(const struct buf *notes, struct buf *out);

/* ---- the newest state ---- */

/*
 * Make a snapshot of the accepted edits, unless one exists. whole: the snapshot is for a reader of
 * the whole model, and lacks removed keys and tensors even if their removal has not been written.
 * *ret: a view of the newest snapshot, which the caller frees; ret may be NULL.
 */
int live_freshen(struct live *l, bool whole, struct view *ret);

/* The count of pending edits stops at this number, to keep queries cheap. */
#define LIVE_COUNT_MOST 101

struct live_counts {
    size_t pending; /* number of edits that have not been written */
    size_t refused; /* number of files whose last write was refused */
    /* Another program has changed a file of the model; detecting this accesses the disk. */
    bool changed;
};
struct live_counts live_count(struct live *l);
/* Add a note for each file whose last write was refused. */
void live_refused(struct live *l, struct buf *notes);
/* Does nothing: in this core, edits that could not be written are refused. */
void live_trouble(struct live *l, struct buf *notes);
/* Return the number of accepted edits that are not written yet. Does not access the disk. */
size_t live_accepted(struct live *l);

/* True if only notes would be lost by dropping the state while no file is open. helpers: helpers,
 * and NumPy headers without values, may be lost too. */
bool live_idle(struct live *l, bool helpers);

/* The next numbers to be assigned; they only increase. */
struct live_given {
    uint32_t snapshots, keys;
};
struct live_given live_given(struct live *l);

/* True if no write is in progress, and this is the file that `l` edits. */
bool live_edits(struct live *l, dev_t dev, ino_t ino);

/* ---- the history ---- */

/*
 * Restore all keys to a state from the history; number 0 means the state before the last edits.
 * This is one edit, written immediately in any commit mode. Returns 0 if the keys are already in
 * that state, -EBUSY (edits have not been written: try again after live_fsync() of the directory),
 * -EOPNOTSUPP (no history is kept), or an error from history_pick(), edit_restore() or
 * edit_plan_make(). live_undo_said() reports the result.
 */
int live_undo(struct live *l, uint64_t number, struct live_wait *w);
/* Write a line about the last live_undo(), if any. Returns 0 or -ENOMEM. */
int live_undo_said(struct live *l, struct buf *out);

/* ---- facts ---- */

/* Facts about a file; an empty text means that a fact does not apply. Free them with
 * live_facts_free(). */
struct live_facts {
    struct buf key, type, error;
    bool helper; /* the file lives in memory and is not a link */
};
int live_facts(struct live *l, uint32_t number, struct live_facts *ret);
void live_facts_free(struct live_facts *f);
/* Set a file's type, given by name. Returns -EINVAL if there is no such type or if the value does
 * not fit it. */
int live_retype(struct live *l, uint32_t number, const void *type, size_t n, struct live_wait *w);
/* Forget why the file's last write was refused. */
int live_forgive(struct live *l, uint32_t number);

#endif

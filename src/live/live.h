/* SPDX-License-Identifier: MIT */
/*
 * What is being edited: the files of metadata/ while a model can be written, what is accepted and
 * not on the disk yet, and the thread that writes it.
 *
 *     r = live_open(&newest, &file, &options, &l, &e);
 *     r = live_start(l, history, &e);  before the first edit; in the process that edits: after a fork
 *     ... any of the other calls, from any threads ...
 *     r = live_finish(l);              what is pending is written
 *     live_close(l);
 *
 * The kernel knows a file by its number. What a name means, when an edit is accepted and when it is durable:
 * docs/editing.md.
 *
 * Functions return 0 or -errno with the meaning it has for the system call of the same name, and leave outputs
 * untouched on failure. Where there is a wait, the result may be LIVE_PARKED: then done() is called later, once, by
 * another thread.
 *
 * Threads: any. No lock is held while a text is rendered or measured, or the disk is accessed.
 */
#ifndef LIVE_LIVE_H
#define LIVE_LIVE_H

#include "base/err.h"
#include "edit/file.h"
#include "edit/history_job.h"
#include "edit/plan.h"
#include "live/files.h"
#include "live/waits.h"
#include "model/imatrix.h"
#include "model/snapshot.h"

struct live;

enum live_commit { LIVE_COMMIT_AUTO, LIVE_COMMIT_CLOSE, LIVE_COMMIT_SYNC };

struct live_options {
    enum live_commit commit;
    struct edit_options edit;
    bool tensors;                  /* tensors can be edited too: tensors.h */
    const struct imatrix *imatrix; /* weights for encoding values; not owned, or NULL */
    struct logger log;             /* called by any thread */
};

/*
 * Edit the model whose newest state is `n`, which must also be what is on disk; `file` is its file, for a split model
 * the first. Both must outlive it and may not be changed by other code. Initially key i has number i. Before
 * live_start() it can only be looked at and read. 0, -ENOMEM.
 */
int live_open(struct newest *n, struct edit_file *file, const struct live_options *o,
              struct live **ret);
/* The writer joins the pool: call this before the first edit. history: not owned; NULL: none is kept. */
int live_start(struct live *l, struct history_job *history, struct err *e);
/* Start writing what is pending; for live_finish() of many models. No edit may follow. */
void live_hurry(struct live *l);
/* Write what is pending, and end the thread. 0, or why an edit was lost (it was logged). */
int live_finish(struct live *l);
/*
 * Before releasing files that programs may still have open: drafts that no flush, fsync or release has judged are
 * dropped.
 */
void live_abandon(struct live *l);
/*
 * After live_finish(): a note (see below) for each edit that did not reach the file, and for each file that is
 * dropped because it is not a key.
 */
void live_unsaved(struct live *l, struct buf *notes);
/*
 * Before the first edit: takes the notes of an earlier instance for the same model, as if those edits had been made
 * here. Notes that have no place here stay in `notes`. 0, -ENOMEM.
 */
int live_recall(struct live *l, struct buf *notes);
void live_close(struct live *l); /* may be NULL */

/* ---- what did not reach the file ---- */

/*
 * Notes: a path in the model (without "metadata/") and the reason, as consecutive NUL-terminated texts. So they can
 * outlive the open model (live_recall()).
 *
 *     for (struct note n = {0}; unsaved_next(&notes, &n);) ... n.path, n.why ...
 */

/* Precedes the path of a tensor. */
#define UNSAVED_TENSOR "tensors/"

struct note {
    const char *path, *why;
    size_t next; /* where the next one is */
};

void unsaved_add(struct buf *notes, const char *folder, const char *name, const char *why);
/* False: there are no more. */
bool unsaved_next(const struct buf *notes, struct note *n);
/* A line for each: "PATH: WHY". */
void unsaved_lines(const struct buf *notes, struct buf *out);

/* ---- the newest state ---- */

/*
 * Make a snapshot of the accepted edits, unless there is one. whole: for a whole-model view, which shows nothing that
 * was removed, even if that is still to be written. *ret: that view, to be freed; NULL: not wanted.
 */
int live_freshen(struct live *l, bool whole, struct view *ret);

/* Pending edits are counted up to this number, so that looking stays cheap. */
#define LIVE_COUNT_MOST 101

struct live_counts {
    size_t pending; /* edits not yet written */
    size_t refused; /* files whose last write was refused */
    bool changed; /* another program changed a file of the model. Finding out accesses the disk. */
};
struct live_counts live_count(struct live *l);
/* A note for each file whose last write was refused. */
void live_refused(struct live *l, struct buf *notes);
/* How many of them are accepted. Does not access the disk. */
size_t live_accepted(struct live *l);

/* True if dropping it would lose nothing but notes, and helpers if these may be lost. No file is open. */
bool live_idle(struct live *l, bool helpers);

/* How many numbers were given out: all later ones are at least these. */
struct live_given {
    uint32_t snapshots, keys;
};
struct live_given live_given(struct live *l);

/* True if it has nothing to write, and this is a file that it edits. */
bool live_edits(struct live *l, dev_t dev, ino_t ino);

/* ---- the history ---- */

/*
 * Restore all keys to a state of the history; number 0: before its last edits. One edit, written at once in any mode.
 * 0: they are in that state already; -EBUSY (edits are not written yet: try again after live_fsync() of the
 * directory), -EOPNOTSUPP (no history is kept), or as for history_pick(), edit_restore() and edit_plan_make().
 * live_undo_said() reports what was done, or why not.
 */
int live_undo(struct live *l, uint64_t number, struct live_wait *w);
/* A line about the last live_undo(); empty if there was none. 0, -ENOMEM. */
int live_undo_said(struct live *l, struct buf *out);
/* The states as text (history_text()). 0, -EOPNOTSUPP, -errno. */
int live_history(struct live *l, struct buf *out, struct err *e);
/* Forget all states. 0, -EOPNOTSUPP, -errno. */
int live_history_clear(struct live *l);

/* ---- facts ---- */

/* What is known about a file; an empty text means that it does not apply. Free with live_facts_free(). */
struct live_facts {
    struct buf key, type, error;
    bool helper; /* it lives in memory, and is not a link */
};
int live_facts(struct live *l, uint32_t number, struct live_facts *ret);
void live_facts_free(struct live_facts *f);
/* Give a file the type with this name. -EINVAL: there is no such type, or the value does not fit it. */
int live_retype(struct live *l, uint32_t number, const void *type, size_t n, struct live_wait *w);
/* Forget why its last write was refused. */
int live_forgive(struct live *l, uint32_t number);

#endif

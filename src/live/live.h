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
 * A file has a number, which the kernel knows it by. What a name means, when an edit is accepted
 * and when it is durable: docs/editing.md.
 *
 * Functions return 0 or -errno with the meaning that the system call of the same name has, and
 * leave outputs untouched on failure. Where there is a wait, the result may be LIVE_PARKED: then
 * done() is called later, once, by another thread.
 *
 * Threads: any. No lock is held while a text is rendered or measured, or the disk is asked.
 */
#ifndef LIVE_LIVE_H
#define LIVE_LIVE_H

#include "base/logger.h"
#include "edit/file.h"
#include "edit/history_job.h"
#include "edit/plan.h"
#include "live/files.h"
#include "live/waits.h"
#include "model/imatrix.h"
#include "model/newest.h"

struct live;

enum live_commit { LIVE_COMMIT_AUTO, LIVE_COMMIT_CLOSE, LIVE_COMMIT_SYNC };

struct live_options {
    enum live_commit commit;
    struct edit_options edit;
    bool tensors;                  /* tensors can be edited too: tensors.h */
    const struct imatrix *imatrix; /* how values are weighed that are encoded; not owned, or NULL */
    struct logger log;             /* called by any thread */
};

/*
 * Edit the model that `n` has as its newest state, and as what is on the disk; `file` is its file, of a
 * split model the first. Both must outlive it, and nobody else changes them. Key i has number i to begin
 * with. Until live_start() it can be looked at and read. 0, -ENOMEM.
 */
int live_open(struct newest *n, struct edit_file *file, const struct live_options *o,
              struct live **ret);
/* The writer joins the pool: before the first edit. history: not owned; NULL: none is kept. */
int live_start(struct live *l, struct history_job *history, struct err *e);
/* Begin to write what is pending; for live_finish() of many models. No edit comes after that. */
void live_hurry(struct live *l);
/* Write what is pending, end the thread. 0, or why an edit was lost (it was logged). */
int live_finish(struct live *l);
/* Before files are released that programs may still have open: drafts that no flush, fsync or
 * release has judged are dropped. */
void live_abandon(struct live *l);
/* After live_finish(): a note (unsaved.h) for each edit that is not in the file, and for each file that
 * is dropped because it is not a key. */
void live_unsaved(struct live *l, struct buf *notes);
/* Before the first edit: the notes of an earlier one of the same model, which are as if these edits had been
 * made here. What has no place here stays in `notes`. 0, -ENOMEM. */
int live_recall(struct live *l, struct buf *notes);
void live_close(struct live *l); /* may be NULL */

/* ---- the newest state ---- */

/* Make a snapshot of the accepted edits, unless one exists. whole: for a view of the whole, which shows nothing
 * that was removed and is still to be written. *ret: that view, which is to be freed; NULL: it is not asked for. */
int live_freshen(struct live *l, bool whole, struct view *ret);

/* Pending edits are counted up to this, so that a look does not cost more the more there are. */
#define LIVE_COUNT_MOST 101

struct live_counts {
    size_t pending; /* edits that are not written */
    size_t refused; /* files whose last write was refused */
    bool changed;   /* another program changed a file of the model. The disk is asked. */
};
struct live_counts live_count(struct live *l);
/* A note (unsaved.h) for each file whose last write was refused. */
void live_refused(struct live *l, struct buf *notes);
/* Those of them that are accepted. The disk is not asked. */
size_t live_accepted(struct live *l);

/* True if nothing would be lost without it but notes, and helpers if these may be. No file is open. */
bool live_idle(struct live *l, bool helpers);

/* How many numbers were given: all that are used later are at least these. */
struct live_given {
    uint32_t snapshots, keys;
};
struct live_given live_given(struct live *l);

/* True if it has nothing to write, and this is a file that it edits. */
bool live_edits(struct live *l, dev_t dev, ino_t ino);

/* ---- the history ---- */

/*
 * Make all keys what they were in a state of the history; number 0: before its last edits. One
 * edit, written at once in any mode. 0: they are that already; -EBUSY (edits are not written yet:
 * after live_fsync() of the folder, again), -EOPNOTSUPP (no history is kept), as of history_pick(),
 * edit_restore() and edit_plan_make(). What was done, or why not, is live_undo_said().
 */
int live_undo(struct live *l, uint64_t number, struct live_wait *w);
/* A line about the last live_undo(); nothing if there was none. 0, -ENOMEM. */
int live_undo_said(struct live *l, struct buf *out);
/* The states as text (history_text()). 0, -EOPNOTSUPP, -errno. */
int live_history(struct live *l, struct buf *out, struct err *e);
/* Forget them. 0, -EOPNOTSUPP, -errno. */
int live_history_clear(struct live *l);

/* ---- facts ---- */

/* What is known of a file; a text that is empty does not apply. Free with live_facts_free(). */
struct live_facts {
    struct buf key, type, error;
    bool helper; /* it lives in memory, and is not a link */
};
int live_facts(struct live *l, uint32_t number, struct live_facts *ret);
void live_facts_free(struct live_facts *f);
/* Give a file the type that is called so. -EINVAL: there is no such type, or its value does not
 * fit. */
int live_retype(struct live *l, uint32_t number, const void *type, size_t n, struct live_wait *w);
/* Forget why its last write was refused. */
int live_forgive(struct live *l, uint32_t number);

#endif

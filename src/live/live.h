/* SPDX-License-Identifier: MIT */
/*
 * Edits a model, one edit at a time. Serves the files in metadata/, keeps accepted edits that are
 * not on disk yet, and writes them.
 *
 *     r = live_open(&newest, &file, &options, &l);
 *     r = live_start(l, history, &e);  before the first edit, and after a fork
 *     ... any of the other calls, from any threads ...
 *     r = live_finish(l);              writes pending edits
 *     live_close(l);
 *
 * A flush, fsync, rename, setxattr or truncate(2) that edits is a request (queue.h). A worker takes
 * one request after another: it judges the edit, plans the new file, and writes it or keeps it
 * pending. Calls that need no edit are answered at once, and readers never wait.
 *
 * Functions return 0, or -errno as the system call of the same name would, and leave outputs
 * unchanged on failure. A function that takes a `struct live_wait` may return LIVE_PARKED; then
 * done() is called exactly once, by any thread, perhaps before the function returns.
 *
 * Threads: any. No lock is held while the disk is accessed, or while text is measured, rendered or
 * parsed.
 */
#ifndef LIVE_LIVE_H
#define LIVE_LIVE_H

#include <time.h>

#include "base/err.h"
#include "edit/commit.h"
#include "edit/history.h"
#include "edit/plan.h"
#include "model/imatrix.h"
#include "model/snapshot.h"
#include "live/meta.h"
#include "live/names.h"
#include "live/value.h"
#include "text/name.h"

struct live;

enum live_commit { LIVE_COMMIT_AUTO, LIVE_COMMIT_CLOSE, LIVE_COMMIT_SYNC };

struct live_options {
    enum live_commit commit;
    struct edit_options edit;
    bool tensors;                  /* edit tensors, too */
    const struct imatrix *imatrix; /* for values that are encoded; not owned; may be NULL */
    struct logger log;             /* any thread may call it */
};

/* A request that waits. */
struct live_wait {
    void (*done)(struct live_wait *w, int result); /* 0 or -errno */
    const void *request;                           /* identifies the request for live_interrupt() */
    bool (*stopped)(struct live_wait *w); /* true if a signal ended the wait; may be NULL */
};
#define LIVE_PARKED 1

/* ---- beginning and end ---- */

/*
 * Edit the model whose newest state is `n`, which must also be the state on disk; `file` is its
 * file, or the first file of a split model. Both must outlive *ret, and other code must not change
 * them. Key i of that state has number i. Before live_start() the model can only be read. Returns 0
 * or -ENOMEM.
 */
int live_open(struct newest *n, struct edit_file *file, const struct live_options *o,
              struct live **ret);
/* history: not owned; NULL to keep no history. Returns 0 or -errno. */
int live_start(struct live *l, struct history *history, struct err *e);
/* Start writing pending edits. To close several models, call this for each of them before the first
 * live_finish(). Later edits are refused with -EROFS. */
void live_hurry(struct live *l);
/* Write pending edits, and answer all requests. Returns 0, or the error that kept edits from being
 * written; those are named in the log. */
int live_finish(struct live *l);
/* From now on, the release of a file judges nothing. Call this before releasing files that programs
 * may still have open. */
void live_abandon(struct live *l);
void live_close(struct live *l); /* may be NULL */

/* Answer a waiting request with -EINTR. If its edit has not begun, it does not happen. */
void live_interrupt(struct live *l, const void *request);

/* ---- what did not reach the file ---- */

/* Add a line for each file whose last write was refused, and for each pending edit if the last attempt
 * to write them failed; lost: after live_finish(), for everything that was not written. A line has
 * `before`, a path in the model, ": ", and the reason. */
void live_notes(struct live *l, bool lost, const char *before, struct buf *out);

/* ---- the newest state ---- */

/*
 * Bring the newest view up to date with removals that have not been written. *ret: a view of it,
 * which the caller frees; ret may be NULL. Returns 0 or -errno.
 */
int live_freshen(struct live *l, struct view *ret);

struct live_counts {
    size_t pending; /* number of edits that have not been written */
    size_t refused; /* number of files whose last write was refused */
    /* Another program has changed a file of the model; detecting this accesses the disk. */
    bool changed;
};
struct live_counts live_count(struct live *l);
/* True if the model's file, as opened or after the last edit, is this one, and no edit is being written. */
bool live_is_file(struct live *l, const struct stat *st);
/* True if dropping the state while no file is open loses nothing but helpers. */
bool live_idle(struct live *l);

/* ---- undo ---- */

/*
 * Restore all keys to a state from the history; number 0 means the state before the last edits.
 * This is one edit, written immediately in any commit mode, with all pending edits before it.
 * live_undo_said() reports the result.
 */
int live_undo(struct live *l, uint64_t number, struct live_wait *w);
/* Write a line about the last live_undo(), if any. Returns 0 or -ENOMEM. */
int live_undo_said(struct live *l, struct buf *out);

#endif

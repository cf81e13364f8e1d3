/* SPDX-License-Identifier: MIT */
/*
 * Keeps the history of a model while it is edited. This is a job of the pool, so that a slow or
 * hanging state directory delays no edit by more than HISTORY_WAIT.
 *
 *     r = history_job_make("/real/path/m.gguf", HISTORY_KEEP, &sys_libc, &log, &j);
 *     history_job_begin(j, before, after, 0);     before edit_commit()
 *     history_job_wait(j);                        before the edit takes effect: edit_hooks.ready
 *     history_job_end(j, landed);                 after edit_commit()
 *     history_job_close(j);
 *
 * A failure here does not stop an edit. It is logged, but not again until the next success. The job
 * takes turns only while it has work.
 *
 * Threads: the committing thread calls history_job_begin(), _wait() and _end(); any thread may call
 * history_job_look().
 */
#ifndef EDIT_HISTORY_JOB_H
#define EDIT_HISTORY_JOB_H

#include "base/err.h"
#include "edit/history.h"
#include "model/snapshot.h"

#define HISTORY_WAIT 1    /* longest wait of an edit, in seconds */
#define HISTORY_SETTLE 10 /* longest wait of a request for the states, in seconds */

struct history_job;

/* Make a job. `sys`, and the objects that `log` refers to, must outlive it. Returns 0 or
 * -ENOMEM. */
int history_job_make(const char *model, unsigned keep, const struct sys *sys,
                     const struct logger *log, struct history_job **ret);

/*
 * Announce an edit that changes the file's content from `before` to `after`, taking references to
 * both. restored: for an undo, the state that it restores, else 0. Waits while the job is still
 * keeping the changes of an earlier edit that was not written.
 */
void history_job_begin(struct history_job *j, struct snapshot *before, struct snapshot *after,
                       uint64_t restored);
/* Wait at most HISTORY_WAIT until the changes are kept or keeping them has failed. */
void history_job_wait(struct history_job *j);
/* Report the outcome of the edit, without waiting. */
void history_job_end(struct history_job *j, bool landed);

/*
 * Open the job's history for reading. Waits at most HISTORY_SETTLE for changes that are being kept.
 * Always call history_close(). Returns 0, or -errno with the reason why there is no history.
 */
int history_job_look(struct history_job *j, struct history *ret, struct err *e);

/* Wait at most HISTORY_WAIT for changes that are being kept, and free the job. j may be NULL. */
void history_job_close(struct history_job *j);

#endif

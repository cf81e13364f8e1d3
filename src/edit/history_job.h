/* SPDX-License-Identifier: MIT */
/*
 * Keeps the history of a model while it is edited, as a job of the pool, so that a slow or hanging
 * state directory delays no edit by more than HISTORY_WAIT.
 *
 *     r = history_job_make("/real/path/m.gguf", HISTORY_KEEP, &sys_libc, &log, &j);
 *     history_job_begin(j, before, after, 0);     before edit_commit()
 *     history_job_wait(j);                        before the edit is done: edit_hooks.ready
 *     history_job_end(j, landed);                 after it
 *     history_job_close(j);
 *
 * A failure here does not stop an edit: it is logged, once until the next success. The job takes
 * turns only while it has work.
 *
 * Threads: history_job_begin(), _wait() and _end() from the committing thread; history_job_look()
 * from any.
 */
#ifndef EDIT_HISTORY_JOB_H
#define EDIT_HISTORY_JOB_H

#include "base/err.h"
#include "edit/history.h"
#include "model/snapshot.h"

#define HISTORY_WAIT 1    /* seconds that an edit waits at most */
#define HISTORY_SETTLE 10 /* seconds that a request for the states waits at most */

struct history_job;

/* Make a job. `sys`, and the objects that `log` refers to, must outlive it. Returns 0 or
 * -ENOMEM. */
int history_job_make(const char *model, unsigned keep, const struct sys *sys,
                     const struct logger *log, struct history_job **ret);

/*
 * Announce an edit that changes the file's content from `before` to `after`; takes references to
 * both. restored: the state that an undo restores, else 0. Waits if the job still keeps changes of
 * an earlier edit that was not written.
 */
void history_job_begin(struct history_job *j, struct snapshot *before, struct snapshot *after,
                       uint64_t restored);
/* Wait until the changes are kept, or could not be kept, at most HISTORY_WAIT. */
void history_job_wait(struct history_job *j);
/* Report the outcome of the edit. Does not wait. */
void history_job_end(struct history_job *j, bool landed);

/*
 * Get the same history for reading. Waits for changes that are being kept, at most HISTORY_SETTLE.
 * Always call history_close(). Returns 0, or -errno with the reason why there is no history.
 */
int history_job_look(struct history_job *j, struct history *ret, struct err *e);

/* Wait for changes that are being kept, at most HISTORY_WAIT, and free the job. j may be NULL. */
void history_job_close(struct history_job *j);

#endif

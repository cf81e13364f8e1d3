/* SPDX-License-Identifier: MIT */
/*
 * Keeps the history of a model while it is edited: a recorder (recorder.h) with a thread of its
 * own, so that a state folder that is slow, or hangs, delays no edit by more than KEEPER_WAIT.
 *
 *     r = keeper_open("/real/path/m.gguf", HISTORY_KEEP, &sys_libc, &log, &k);
 *     keeper_begin(k, before, 0);              before the plan is made
 *     keeper_plan(k, before, after, 0);        before edit_commit()
 *     keeper_wait(k);                          before the edit is done: edit_hooks.ready
 *     keeper_end(k, landed);                   after it
 *     keeper_close(k);
 *
 * All work is the thread's: to find out what the keys are, to write them from the memory of the
 * snapshot, and, KEEPER_LATER, to write what became of the edit, to sync the state that it joined and to
 * drop old ones, so that many edits in a row cost that once.
 *
 * Nothing that goes wrong here stops an edit: it is logged, once until it goes well again. The
 * thread is made with an edit, so keeper_open() may come before a fork, and ends when all of it is written.
 *
 * Threads: keeper_begin(), _drop(), _plan(), _wait() and _end() from the one that commits;
 * keeper_history() from any.
 */
#ifndef EDIT_KEEPER_H
#define EDIT_KEEPER_H

#include "base/logger.h"
#include "edit/history.h"
#include "model/snapshot.h"

#define KEEPER_WAIT 1    /* seconds: an edit */
#define KEEPER_LATER 1   /* seconds after which what became of an edit is written */
#define KEEPER_SETTLE 10 /* a request for the states */

struct keeper;

/* `sys`, and what `log` refers to, must outlive it. 0, -ENOMEM. */
int keeper_open(const char *model, unsigned keep, const struct sys *sys, const struct logger *log,
                struct keeper **ret);

/*
 * An edit is about to be planned: what the file holds is `before`, to which the keeper takes a
 * reference. restored: the state that an undo goes back to; else 0. Its state is written meanwhile, if
 * it needs one. Then, without delay, keeper_plan() or keeper_drop() must follow: other models' histories
 * wait for it. Waits for nothing.
 */
void keeper_begin(struct keeper *k, struct snapshot *before, uint64_t restored);
/* The edit is not to be written. */
void keeper_drop(struct keeper *k);
/*
 * An edit is about to be written that makes what the file holds in `before` that of `after`; the
 * keeper takes references. The state is kept while the edit is prepared. It may have begun.
 */
void keeper_plan(struct keeper *k, struct snapshot *before, struct snapshot *after,
                 uint64_t restored);
/* Returns when the state is kept, or could not be, or after KEEPER_WAIT. */
void keeper_wait(struct keeper *k);
/* What became of the edit. Waits for nothing. */
void keeper_end(struct keeper *k, bool landed);

/*
 * The same history, for reading; waits for what is being kept, at most KEEPER_SETTLE. history_close()
 * it in any case. 0, -errno: no history, and why.
 */
int keeper_history(struct keeper *k, struct history *ret, struct err *e);

/* Waits for what is being kept, at most KEEPER_WAIT. NULL: nothing is done. */
void keeper_close(struct keeper *k);

#endif

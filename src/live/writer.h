/* SPDX-License-Identifier: MIT */
/*
 * Turns of the pool (base/pool.h) that change model files, and the requests that wait for it. Each turn is one batch;
 * few models are written at a time. While a turn takes longer than a second, a copy or a disk that does not answer, it
 * does not count: edits of a model wait for no copy of another one.
 *
 * Threads: functions are called with the lock of `struct live`, unless they say otherwise.
 */
#ifndef LIVE_WRITER_H
#define LIVE_WRITER_H

#include "live/batch.h"

/* Whether the model could be edited at this moment; asked before there is an edit, since shells do
 * not look at what close(2) returns. Without the lock: it asks the disk. */
void writer_ready(struct live *l, struct err *e);
/* What identifies the file, to ask the disk about it without the lock. False while an edit is being
 * written; ret->fd is not set. */
bool writer_file(const struct live *l, struct edit_file *ret);

/* Something was accepted: wait until it is durable, or not, by the commit mode. w NULL: no request waits. 0, LIVE_PARKED. */
int writer_accepted(struct live *l, struct live_wait *w);
/* The same for what was accepted of a file up to an edit, maybe a while ago (waits.h). Also -errno: it is lost. */
int writer_flush(struct live *l, const struct promise *p, uint64_t edit, struct live_wait *w);
/* The same, until it is durable in any mode. */
int writer_sync(struct live *l, const struct promise *p, uint64_t edit, struct live_wait *w);
/* Wait until all that was accepted is durable. 0: it is already; -errno: an earlier failure. */
int writer_sync_all(struct live *l, struct live_wait *w);
/* The same, once handles of new tensors are released that were closed, or MAKING_RELEASE is over. */
int writer_sync_released(struct live *l, struct live_wait *w);
/* Have it written in so many seconds, at the latest WRITER_LATEST after the first edit. */
void writer_later(struct live *l, unsigned seconds);
/* For a removal or a mere truncation: most often a value follows. */
#define WRITER_SOON 1
#define WRITER_LATEST 10

/*
 * A conversion of a tensor begins, or ends: more follow often, and are to be one rewrite. What no request waits for
 * is written LATER seconds after the end of the last one.
 */
void writer_converts(struct live *l, bool begin);

/* A failure that was not reported yet. */
int writer_take_failure(struct live *l);
/* True if something is to be written. */
bool writer_has_work(const struct live *l);

/* Its turns begin. 0, -errno. Without the lock. */
int writer_start(struct live *l);

#endif

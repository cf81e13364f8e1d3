/* SPDX-License-Identifier: MIT */
/*
 * Changes model files in turns of the pool (base/pool.h), and serves the requests that wait for the
 * changes. Each turn writes one batch; only a few models are written at a time. A turn that has
 * taken longer than a second, because of a copy or a dead disk, is not counted, so edits to one
 * model do not wait for another model to be copied.
 *
 * Threads: call functions with the lock of `struct live` held, unless they say otherwise.
 */
#ifndef LIVE_WRITER_H
#define LIVE_WRITER_H

#include "live/batch.h"

/* Check that the model could be edited now. This is done before there is an edit, because shells
 * ignore the result of close(2). Call without the lock, because it accesses the disk. */
void writer_ready(struct live *l, struct err *e);
/* Get the identity of the file, so that the disk can be queried about it without the lock; ret->fd
 * is not set. Returns false while an edit is being written. */
bool writer_file(const struct live *l, struct edit_file *ret);

/* Note an accepted edit, and wait until it is durable if the commit mode requires it. w is NULL if
 * no request waits. Returns 0 or LIVE_PARKED. */
int writer_accepted(struct live *l, struct live_wait *w);
/* Wait like writer_accepted() for the edits to a file up to this one, which may have been accepted
 * a while ago (waits.h). Returns the same results, or -errno if the edit is lost. */
int writer_flush(struct live *l, const struct promise *p, uint64_t edit, struct live_wait *w);
/* Wait like writer_flush(), but in any mode until the edit is durable. */
int writer_sync(struct live *l, const struct promise *p, uint64_t edit, struct live_wait *w);
/* Wait until all accepted edits are durable. Returns LIVE_PARKED, 0 if they already are durable, or
 * -errno for an earlier failure. */
int writer_sync_all(struct live *l, struct live_wait *w);
/* Wait like writer_sync_all(), but first until closed handles of new tensors are released or
 * NEW_RELEASE has passed. */
int writer_sync_released(struct live *l, struct live_wait *w);
/* Schedule a write in this many seconds, but no later than WRITER_LATEST after the first edit. */
void writer_later(struct live *l, unsigned seconds);
/* Delay for a removal or truncation alone, which a value usually follows. */
#define WRITER_SOON 1
#define WRITER_LATEST 10

/*
 * Note that a conversion of a tensor begins or ends. Often more conversions follow, and all should
 * become one rewrite, so edits that no request waits for are written LATER seconds after the last
 * conversion has ended.
 */
void writer_converts(struct live *l, bool begin);

/* Return a failure that has not been reported yet; later calls do not return it again. */
int writer_take_failure(struct live *l);
/* True if an edit is waiting to be written. */
bool writer_has_work(const struct live *l);

/* Start the writer's turns. Returns 0 or -errno. Call without the lock. */
int writer_start(struct live *l);

#endif

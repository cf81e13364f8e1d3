/* SPDX-License-Identifier: MIT */
/*
 * Changes model files, in turns of the pool (base/pool.h), and serves the requests that wait for
 * them. Each turn writes one batch; few models are written at a time. A turn that has taken longer
 * than a second, because of a copy or a dead disk, does not count, so edits of one model do not
 * wait for a copy of another.
 *
 * Threads: functions are called with the lock of `struct live`, unless they say otherwise.
 */
#ifndef LIVE_WRITER_H
#define LIVE_WRITER_H

#include "live/batch.h"

/*
 * Check that the model could be edited at this moment, before there is an edit, because shells
 * ignore the result of close(2). Without the lock: it accesses the disk.
 */
void writer_ready(struct live *l, struct err *e);
/*
 * Get the identity of the file, to query the disk about it without the lock. Returns false while an
 * edit is being written; ret->fd is not set.
 */
bool writer_file(const struct live *l, struct edit_file *ret);

/*
 * Note an accepted edit: wait until it is durable, or not, depending on the commit mode. w NULL: no
 * request waits. Returns 0 or LIVE_PARKED.
 */
int writer_accepted(struct live *l, struct live_wait *w);
/* Wait like writer_accepted() for edits of a file up to this one, perhaps accepted a while ago
 * (waits.h). Also returns -errno if the edit is lost. */
int writer_flush(struct live *l, const struct promise *p, uint64_t edit, struct live_wait *w);
/* Wait like writer_flush(), until the edit is durable in any mode. */
int writer_sync(struct live *l, const struct promise *p, uint64_t edit, struct live_wait *w);
/* Wait until all accepted edits are durable. Returns 0 if they already are, or -errno for an
 * earlier failure. */
int writer_sync_all(struct live *l, struct live_wait *w);
/* Wait like writer_sync_all(), after closed handles of new tensors are released, or NEW_RELEASE
 * is over. */
int writer_sync_released(struct live *l, struct live_wait *w);
/* Schedule a write in this many seconds, at most WRITER_LATEST after the first edit. */
void writer_later(struct live *l, unsigned seconds);
/* For a removal or a truncation alone: usually a value follows. */
#define WRITER_SOON 1
#define WRITER_LATEST 10

/*
 * Note that a conversion of a tensor begins or ends: often more follow, and should become one
 * rewrite. Edits that no request waits for are written LATER seconds after the last conversion
 * ends.
 */
void writer_converts(struct live *l, bool begin);

/* Return a failure that was not reported yet, once. */
int writer_take_failure(struct live *l);
/* True if an edit is waiting to be written. */
bool writer_has_work(const struct live *l);

/* Start the writer's turns. Returns 0 or -errno. Without the lock. */
int writer_start(struct live *l);

#endif

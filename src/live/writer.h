/* SPDX-License-Identifier: MIT */
/*
 * Turns of the pool (base/pool.h) that change model files, and the requests that wait for them. Each turn is one
 * batch; few models are written at a time. Once a turn has taken longer than a second, because of a copy or a dead
 * disk, it does not count: edits of one model do not wait for a copy of another.
 *
 * Threads: functions are called with the lock of `struct live`, unless they say otherwise.
 */
#ifndef LIVE_WRITER_H
#define LIVE_WRITER_H

#include "live/batch.h"

/*
 * Whether the model could be edited at this moment; checked before there is an edit, since shells ignore the result
 * of close(2). Without the lock: it accesses the disk.
 */
void writer_ready(struct live *l, struct err *e);
/*
 * The identity of the file, to query the disk about it without the lock. False while an edit is being written;
 * ret->fd is not set.
 */
bool writer_file(const struct live *l, struct edit_file *ret);

/*
 * Something was accepted: wait until it is durable, or not, depending on the commit mode. w NULL: no request waits.
 * 0, LIVE_PARKED.
 */
int writer_accepted(struct live *l, struct live_wait *w);
/* The same for what was accepted from a file up to an edit, perhaps a while ago (waits.h). Also -errno: it is lost. */
int writer_flush(struct live *l, const struct promise *p, uint64_t edit, struct live_wait *w);
/* The same, until it is durable in any mode. */
int writer_sync(struct live *l, const struct promise *p, uint64_t edit, struct live_wait *w);
/* Wait until everything accepted is durable. 0: it already is; -errno: an earlier failure. */
int writer_sync_all(struct live *l, struct live_wait *w);
/* The same, once closed handles of new tensors are released, or MAKING_RELEASE is over. */
int writer_sync_released(struct live *l, struct live_wait *w);
/* Have it written in this many seconds, at the latest WRITER_LATEST after the first edit. */
void writer_later(struct live *l, unsigned seconds);
/* For a removal or a mere truncation: usually a value follows. */
#define WRITER_SOON 1
#define WRITER_LATEST 10

/*
 * A conversion of a tensor begins, or ends: more often follow, and should become one rewrite. Edits that no request
 * waits for are written LATER seconds after the last one ends.
 */
void writer_converts(struct live *l, bool begin);

/* A failure that was not reported yet. */
int writer_take_failure(struct live *l);
/* True if an edit is waiting to be written. */
bool writer_has_work(const struct live *l);

/* Start its turns. 0, -errno. Without the lock. */
int writer_start(struct live *l);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * Requests that a draft of a view is judged for: closes, fsyncs, lines of texts, helpers renamed over it, and
 * the end of each handle. Those of one draft are carried out one after the other, in the order in which they
 * came. One that is quick, of a draft that is idle, is carried out by the thread that brings it; all others by
 * threads of the crew, which may take as long as a judgement takes: they are in live.asks until then.
 *
 * Threads: functions are called without the lock of `struct live`, unless they say otherwise.
 */
#ifndef LIVE_ASKS_H
#define LIVE_ASKS_H

#include "live/view.h"

/*
 * Have `ask` called for a handle, which stays until then. ask: 0, -errno, LIVE_PARKED (it has passed w on).
 * stopped: a signal has ended the wait before it was begun; what it was to do is not done. w without done(): nobody
 * waits, and `ask` may free it. Returns what `ask` did, or LIVE_PARKED.
 */
int view_ask(struct live *l, struct live_view *h,
             int (*ask)(struct live *l, struct live_wait *w, bool stopped), struct live_wait *w);
/* Another request of this draft and this kind waits. With the lock. */
bool asks_more(const struct live *l, const struct view_draft *d,
               int (*ask)(struct live *l, struct live_wait *w, bool stopped));
/* Wait until none is left. */
void asks_finish(struct live *l);

#endif

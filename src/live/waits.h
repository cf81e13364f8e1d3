/* SPDX-License-Identifier: MIT */
/*
 * Requests that wait: one list, in the order in which they came. A request waits to be judged, which a view's draft
 * is for one after the other (closes, fsyncs, lines of texts, helpers renamed over it, and the end of each handle);
 * for handles to be released; or until its batch is durable. The thread that takes an entry out under the lock answers it,
 * once, with what became of its edit: no thread that serves requests sleeps for another request.
 *
 * What is quick to judge, of a draft that is idle, is judged by the thread that brings it; all else by threads of the
 * crew, which may take as long as that takes. An entry that is being judged stays in the list, so that a signal
 * can end the judgement.
 *
 * Threads: functions are called with the lock of `struct live`, unless they say otherwise.
 */
#ifndef LIVE_WAITS_H
#define LIVE_WAITS_H

#include "live/live.h"

struct view_draft;

struct waits {
    struct live_wait *first, **end; /* not owned */
    struct crew_job watch; /* looks for signals to the programs, while there are entries: ... */
    bool watched;          /* ... which it does */
    unsigned judged;       /* drafts that are being served */
    struct cond rest;      /* all rest */
};

void waits_init(struct waits *s);
void waits_free(struct waits *s);
/* The job that looks for signals joins the crew: before the first entry. 0, -errno. And leaves it. Without the lock. */
int waits_start(struct live *l);
void waits_stop(struct live *l);
/* Wait until no draft is being served any more. Without the lock. */
void waits_rest(struct live *l);

/*
 * Have `ask` called for a handle, which stays until then. ask: 0, -errno, LIVE_PARKED (it has passed w on).
 * stopped: a signal has ended the wait before it was begun; what it was to do is not done. w without done(): nobody
 * waits, and `ask` may free it. Returns what `ask` did, or LIVE_PARKED. Without the lock.
 */
int waits_judge(struct live *l, struct live_view *h,
                int (*ask)(struct live *l, struct live_wait *w, bool stopped), struct live_wait *w);
/* Another request of this draft and this kind is to be judged. */
bool waits_judged_by(const struct live *l, const struct view_draft *d,
                     int (*ask)(struct live *l, struct live_wait *w, bool stopped));

/* Of an entry: it waits for all edits. */
#define WAITS_ALL UINT64_MAX

/* Until the batch of this number is durable. LIVE_PARKED; -EINTR: a signal has ended its judgement too late. */
int waits_batch(struct live *l, struct live_wait *w, uint64_t batch);
/* Until waits_released(), which is due at `until`. As waits_batch(). */
int waits_release(struct live *l, struct live_wait *w, const struct timespec *until);
/* When those go on that wait for handles; NULL: no entry does. */
const struct timespec *waits_released_at(const struct live *l);
/* They do: they wait for this batch. */
void waits_released(struct live *l, uint64_t batch);
/* A request waits for this batch. */
bool waits_for(const struct live *l, uint64_t batch);
/*
 * Batches up to this number are durable, or r: all edits after live.settled are lost, which those that wait for all
 * of them get too; a loss that no request gets is reported later. Returns the entries, for waits_tell().
 */
struct live_wait *waits_end(struct live *l, uint64_t batch, int r);
/* Answer them. Without the lock: done() replies to the kernel. */
void waits_tell(struct live_wait *list);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * Requests that wait: one list, in order of arrival. A request waits for a judgement, which a view's draft gives to
 * one request after another (closes, fsyncs, lines of texts, helpers renamed over it, and the end of each handle);
 * for handles to be released; or until its batch is durable. The thread that takes an entry out under the lock
 * answers it, once, with the outcome of its edit: no thread that serves requests sleeps for another request.
 *
 * If a draft is idle and judging is quick, the thread that brings the request judges it; otherwise threads of the
 * pool do, however long it takes. An entry stays in the list while it is judged, so that a signal can end the
 * judgement.
 *
 * Threads: functions are called with the lock of `struct live`, unless they say otherwise.
 */
#ifndef LIVE_WAITS_H
#define LIVE_WAITS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/pool.h"
#include "base/lock.h"

struct live;
struct live_view;
struct draft;

/* The event that a request waits for: a judgement, the release of handles, or the durability of its
 * batch. */
enum live_needs { LIVE_JUDGED, LIVE_RELEASED, LIVE_DURABLE };

/* A waiting request. All members are zero except the first three. */
struct live_wait {
    void (*done)(struct live_wait *w, int result); /* 0 or -errno */
    const void *request;                           /* identifies the request for live_interrupt() */
    bool (*stopped)(struct live_wait *w); /* true if a signal has ended it; NULL: no signal can */
    /* Private to waits.c: an entry in the list. */
    struct live_wait *next;
    enum live_needs needs;
    int result;             /* set when the entry is taken out */
    uint64_t batch, edit;   /* DURABLE: the numbers of the batch and of the edit; or WAITS_ALL */
    struct timespec until;  /* RELEASED: latest time (CLOCK_MONOTONIC) */
    struct live_view *view; /* JUDGED: the handle whose draft is judged, and the reason; ... */
    int (*ask)(struct live *l, struct live_wait *w, bool stopped);
    bool begun;         /* ... the judgement has begun, ... */
    atomic_bool cancel; /* ... and must end */
};
#define LIVE_PARKED 1

/*
 * Stop the program that waits with `request`: the request is answered with -EINTR. Accepted edits stay accepted, and
 * are written; a conversion that is still being judged ends without an edit.
 */
void live_interrupt(struct live *l, const void *request);

/* ---- for this layer ---- */

struct waits {
    struct live_wait *first, **end; /* not owned */
    struct pool_job watch;          /* looks for signals to the waiting programs */
    bool watched;                   /* `watch` is at work */
    unsigned judged;                /* number of drafts being served */
    struct cond rest;               /* signalled when no draft is being served */
};

void waits_init(struct waits *s);
void waits_free(struct waits *s);
/* Join the pool with the job that looks for signals, before the first entry. Returns 0 or -errno.
 * waits_stop() leaves the pool. Without the lock. */
int waits_start(struct live *l);
void waits_stop(struct live *l);
/* Wait until no draft is being served any more. Without the lock. */
void waits_rest(struct live *l);

/*
 * Have `ask` called for a handle, which stays until then. ask: returns 0, -errno, or LIVE_PARKED
 * (it has passed w on). stopped: a signal has ended the wait before the work began, so the work is
 * not done. If w has no done(), no thread waits, and `ask` may free it. Returns the result of
 * `ask`, or LIVE_PARKED. Without the lock.
 */
int waits_judge(struct live *l, struct live_view *h,
                int (*ask)(struct live *l, struct live_wait *w, bool stopped), struct live_wait *w);
/* True if another request of this draft and kind still has to be judged. */
bool waits_judged_by(const struct live *l, const struct draft *d,
                     int (*ask)(struct live *l, struct live_wait *w, bool stopped));

/* Stands for all edits in an entry's batch. */
#define WAITS_ALL UINT64_MAX

/* Wait until the batch with this number is durable. Returns LIVE_PARKED, or -EINTR if a signal has
 * ended its judgement too late. */
int waits_batch(struct live *l, struct live_wait *w, uint64_t batch);
/* Wait until waits_released(), which is due at `until`. Returns the same results as
 * waits_batch(). */
int waits_release(struct live *l, struct live_wait *w, const struct timespec *until);
/* Return the time at which entries that wait for handles continue, or NULL if there are none. */
const struct timespec *waits_released_at(const struct live *l);
/* Let these entries continue, waiting for this batch. */
void waits_released(struct live *l, uint64_t batch);
/* True if a request waits for this batch. */
bool waits_for(const struct live *l, uint64_t batch);
/*
 * End the wait for batches up to this number, which are durable, or failed with r. Requests that
 * wait for all edits also get r; if no request gets it, it is reported later. lost: all edits after
 * live.settled are lost as well. Returns the entries, for waits_tell().
 */
struct live_wait *waits_end(struct live *l, uint64_t batch, int r, bool lost);
/* Answer the entries. Without the lock: done() replies to the kernel. */
void waits_tell(struct live_wait *list);

/* ---- promises ---- */

/*
 * Every accepted edit has a number, from a counter in `struct live`. Each open file remembers the
 * last edit that accepted its program's writes: requests wait for this edit, and every later flush
 * and fsync reports its loss, until the content is rewritten.
 */
struct promise {
    uint64_t edit; /* the last accepted edit; 0: no edit */
    uint64_t from; /* edits from this number on were lost, ... */
    int lost;      /* ... for this reason; 0: not lost */
};

/* Record that the content was rewritten by this edit, or was already accepted by it. */
static inline void promise_make(struct promise *p, uint64_t edit)
{
    p->lost = 0;
    if (edit > p->edit)
        p->edit = edit;
}

/* Record that all edits after this number are lost. */
static inline void promise_break(struct promise *p, uint64_t after, int why)
{
    if (p->edit <= after)
        return;
    p->from = after + 1;
    p->lost = why;
}

/* Return the result for a program whose last edit was this one: 0, or the reason for its loss. */
static inline int promise_kept(const struct promise *p, uint64_t edit)
{
    return edit && edit >= p->from ? p->lost : 0;
}

#endif

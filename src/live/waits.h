/* SPDX-License-Identifier: MIT */
/*
 * Keeps waiting requests in one list, in order of arrival. A request waits for a judgement, for
 * handles to be released, or until its batch is durable. A view's draft is judged for one request
 * after another: closes, fsyncs, lines of texts, helpers renamed over it, and the release of each
 * handle. The thread that removes an entry under the lock answers it, once, with the outcome of its
 * edit, so no thread that serves requests sleeps for another request.
 *
 * If a draft is idle and judging it is quick, the thread that brings the request does so; otherwise
 * a thread of the pool does, however long it takes. An entry stays in the list during its
 * judgement, so that a signal can end that.
 *
 * Threads: call functions with the lock of `struct live` held, unless they say otherwise.
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

/* What a request waits for: a judgement, the release of handles, or the durability of its batch. */
enum live_needs { LIVE_JUDGED, LIVE_RELEASED, LIVE_DURABLE };

/* A waiting request. Initially, all members except the first three are zero. */
struct live_wait {
    void (*done)(struct live_wait *w, int result); /* 0 or -errno */
    const void *request;                           /* identifies it for live_interrupt() */
    bool (*stopped)(struct live_wait *w);          /* true if a signal has ended it; may be NULL */
    /* Private to waits.c: an entry in the list. */
    struct live_wait *next;
    enum live_needs needs;
    int result;             /* set when the entry is removed */
    uint64_t batch, edit;   /* DURABLE: the numbers of the batch and of the edit, or WAITS_ALL */
    struct timespec until;  /* RELEASED: when to stop waiting (CLOCK_MONOTONIC) */
    struct live_view *view; /* JUDGED: the handle whose draft `ask` judges */
    int (*ask)(struct live *l, struct live_wait *w, bool stopped);
    bool begun;         /* JUDGED: the judgement has begun */
    atomic_bool cancel; /* JUDGED: the judgement must be stopped */
};
#define LIVE_PARKED 1

/* Interrupt a waiting request, which is answered with -EINTR. Accepted edits stay accepted and are
 * written; a conversion that is still being judged ends without an edit. */
void live_interrupt(struct live *l, const void *request);

/* ---- for this layer ---- */

struct waits {
    struct live_wait *first, **end; /* not owned */
    struct pool_job watch;          /* checks for signals to the waiting programs */
    bool watched;                   /* `watch` is running */
    unsigned judged;                /* number of drafts being served */
    struct cond rest;               /* signalled when no draft is being served */
};

void waits_init(struct waits *s);
void waits_free(struct waits *s);
/* Add the job that checks for signals to the pool, before the first entry. Returns 0 or -errno.
 * waits_stop() removes it from the pool. Call both without the lock. */
int waits_start(struct live *l);
void waits_stop(struct live *l);
/* Wait until no draft is being served any more. Call without the lock. */
void waits_rest(struct live *l);

/*
 * Have `ask` called for a handle, which must exist until then. `ask` returns 0, -errno, or
 * LIVE_PARKED if it has passed w on; stopped: a signal has ended the wait before the work began, so
 * `ask` must not do it. If w has no done(), no thread waits, and `ask` may free w. Returns the
 * result of `ask`, or LIVE_PARKED. Call without the lock.
 */
int waits_judge(struct live *l, struct live_view *h,
                int (*ask)(struct live *l, struct live_wait *w, bool stopped), struct live_wait *w);
/* True if another request of the same kind for this draft still has to be judged. */
bool waits_judged_by(const struct live *l, const struct draft *d,
                     int (*ask)(struct live *l, struct live_wait *w, bool stopped));

/* As the edit of an entry: all edits in its batch. */
#define WAITS_ALL UINT64_MAX

/* Wait until the batch with this number is durable. Returns LIVE_PARKED, or -EINTR if a signal came
 * too late to end the judgement. */
int waits_batch(struct live *l, struct live_wait *w, uint64_t batch);
/* Wait for waits_released(), which must be called by `until`. Returns the same results as
 * waits_batch(). */
int waits_release(struct live *l, struct live_wait *w, const struct timespec *until);
/* Return the time at which entries that wait for handles must continue, or NULL if there are no
 * such entries. */
const struct timespec *waits_released_at(const struct live *l);
/* Let those entries continue by waiting for this batch. */
void waits_released(struct live *l, uint64_t batch);
/* True if a request waits for this batch. */
bool waits_for(const struct live *l, uint64_t batch);
/*
 * End the wait for batches up to this number, which are durable or failed with r. Requests that
 * wait for all edits also get r; if no request gets it, it is reported later. lost: all edits after
 * live.settled are lost as well. Returns the entries to be passed to waits_tell().
 */
struct live_wait *waits_end(struct live *l, uint64_t batch, int r, bool lost);
/* Answer the entries. Call without the lock, because done() replies to the kernel. */
void waits_tell(struct live_wait *list);

/* ---- promises ---- */

/*
 * Every accepted edit has a number, from a counter in `struct live`. Each open file remembers the
 * last edit that accepted its program's writes. Requests wait for this edit; if it is lost, every
 * later flush and fsync reports that until the content is rewritten.
 */
struct promise {
    uint64_t edit; /* the last accepted edit; 0 if there is none */
    uint64_t from; /* edits from this number on were lost */
    int lost;      /* the reason for the loss; 0 if not lost */
};

/* Record that this edit has rewritten the content or had already accepted it. */
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

/* Return the result for a program whose last edit was this one: 0, or the error with which it was
 * lost. */
static inline int promise_kept(const struct promise *p, uint64_t edit)
{
    return edit && edit >= p->from ? p->lost : 0;
}

#endif

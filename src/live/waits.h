/* SPDX-License-Identifier: MIT */
/*
 * Requests that wait: one list, in the order in which they came. A request waits to be judged, which a view's draft
 * is for one after the other (closes, fsyncs, lines of texts, helpers renamed over it, and the end of each handle);
 * for handles to be released; or until its batch is durable. The thread that takes an entry out under the lock answers it,
 * once, with what became of its edit: no thread that serves requests sleeps for another request.
 *
 * What is quick to judge, of a draft that is idle, is judged by the thread that brings it; all else by threads of the
 * pool, which may take as long as that takes. An entry that is being judged stays in the list, so that a signal
 * can end the judgement.
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

/* What a request waits for: to be judged, for handles to be released, until its batch is durable. */
enum live_needs { LIVE_JUDGED, LIVE_RELEASED, LIVE_DURABLE };

/* A request that waits. Zero but for the first three. */
struct live_wait {
    void (*done)(struct live_wait *w, int result); /* 0 or -errno */
    const void *request;                           /* for live_interrupt() */
    bool (*stopped)(struct live_wait *w);          /* a signal ends it; NULL: none can */
    /* Of this module: an entry of waits.h. */
    struct live_wait *next;
    enum live_needs needs;
    int result;             /* once it is taken out */
    uint64_t batch, edit;   /* DURABLE: the numbers of the batch, and of the edit; or WAITS_ALL */
    struct timespec until;  /* RELEASED: no longer than this: CLOCK_MONOTONIC */
    struct live_view *view; /* JUDGED: by which a draft is judged, and for what; ... */
    int (*ask)(struct live *l, struct live_wait *w, bool stopped);
    bool begun;         /* ... it is being judged now, ... */
    atomic_bool cancel; /* ... which is to end */
};
#define LIVE_PARKED 1

/*
 * The program that waits with `request` is to stop: the request is answered with -EINTR. What was accepted stays
 * so, and is written; a conversion that is still being judged is ended and makes no edit.
 */
void live_interrupt(struct live *l, const void *request);

/* ---- of this layer ---- */

struct waits {
    struct live_wait *first, **end; /* not owned */
    struct pool_job watch; /* looks for signals to the programs, while there are entries: ... */
    bool watched;          /* ... which it does */
    unsigned judged;       /* drafts that are being served */
    struct cond rest;      /* all rest */
};

void waits_init(struct waits *s);
void waits_free(struct waits *s);
/* The job that looks for signals joins the pool: before the first entry. 0, -errno. And leaves it. Without the lock. */
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
bool waits_judged_by(const struct live *l, const struct draft *d,
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
 * Batches up to this number are durable, or r, which those that wait for all edits get too; one that no request gets is
 * reported later. lost: with them, all edits after live.settled are lost. Returns the entries, for waits_tell().
 */
struct live_wait *waits_end(struct live *l, uint64_t batch, int r, bool lost);
/* Answer them. Without the lock: done() replies to the kernel. */
void waits_tell(struct live_wait *list);

/* ---- promises ---- */

/*
 * Every accepted edit has a number, from a counter of `struct live`. What programs have open remembers
 * that of the last edit by which what they wrote was accepted: a request waits for this edit, and a loss
 * is reported by every later flush and fsync, until it is written anew.
 */
struct promise {
    uint64_t edit; /* accepted last; 0: none was */
    uint64_t from; /* of its edits, those from this number on were lost, ... */
    int lost;      /* ... and why; 0: they were not */
};

/* It has been written anew: by this edit, or one with this number has that already. */
static inline void promise_make(struct promise *p, uint64_t edit)
{
    p->lost = 0;
    if (edit > p->edit)
        p->edit = edit;
}

/* All edits after this number are lost. */
static inline void promise_break(struct promise *p, uint64_t after, int why)
{
    if (p->edit <= after)
        return;
    p->from = after + 1;
    p->lost = why;
}

/* The result for a program whose last edit was this one: 0, or why it is lost. */
static inline int promise_kept(const struct promise *p, uint64_t edit)
{
    return edit && edit >= p->from ? p->lost : 0;
}

#endif

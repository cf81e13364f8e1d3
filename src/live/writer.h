/* SPDX-License-Identifier: MIT */
/*
 * Changes model files in turns of the pool (base/pool.h), and answers waiting requests. Each turn
 * writes one batch; only a few models are written at a time. A turn that takes longer than a
 * second, because of a copy or a dead disk, no longer counts towards that limit, so edits to one
 * model do not wait for another model to be copied.
 *
 * Waiting requests are in one list, in order of arrival. A request waits for a judgement, for
 * handles to be released, or for its batch to be durable. A view's draft is judged for one request
 * after another: closes, fsyncs, lines of texts, helpers renamed over it, and the release of each
 * handle. The thread that removes an entry under the lock answers it, once, with the outcome of its
 * edit, so no thread that serves requests blocks on another request.
 *
 * If a draft is idle and quick to judge, the thread that delivers the request judges it; otherwise
 * a thread of the pool does, however long it takes. An entry stays in the list during its
 * judgement, so that a signal can end the judgement.
 *
 * Threads: call functions with the lock of `struct live` held, unless they say otherwise.
 */
#ifndef LIVE_WRITER_H
#define LIVE_WRITER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/lock.h"
#include "base/pool.h"

struct edit_file;
struct live;
struct live_view;
struct draft;

/* What a request waits for: a judgement, the release of handles, or the durability of its batch. */
enum live_needs { LIVE_JUDGED, LIVE_RELEASED, LIVE_DURABLE };

/* A waiting request. Initially, all members except the first three are zero. */
struct live_wait {
    void (*done)(struct live_wait *w, int result); /* 0 or -errno */
    const void *request;                           /* identifies the request for live_interrupt() */
    bool (*stopped)(struct live_wait *w); /* true if a signal ended the wait; may be NULL */
    /* Private to this layer: an entry in the list of waiting requests. */
    struct live_wait *next;
    enum live_needs needs;
    int result;               /* set when the entry is removed */
    uint64_t batch, edit;     /* DURABLE: the numbers of the batch and of the edit, or WAITS_ALL */
    struct timespec until;    /* RELEASED: when to stop waiting (CLOCK_MONOTONIC) */
    const struct file *moves; /* DURABLE: the file that this rename moves, or NULL */
    struct live_view *view;   /* JUDGED: the handle whose draft `ask` judges */
    int (*ask)(struct live *l, struct live_wait *w, bool stopped);
    bool begun;         /* JUDGED: the judgement has started */
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
    unsigned judged;                /* number of drafts being served */
    struct cond rest;               /* signalled when no draft is being served */
};

/* When the writer's thread runs, and when its next run is due. */
struct writer {
    struct pool_job job;
    bool started, stop;
    bool unmapped;       /* readers use a mapping that is older than the last edit */
    unsigned converting; /* conversions in progress; edits with a `due` time also wait for them */
    /* The error with which edits were lost, if no request has received it; or 0. Reported once. */
    int failed;
    /* The last write failed, and the path names the new file or that of another program, so that
     * no edit can be written. */
    bool astray;
    bool unrecorded; /* the last edit could not be recorded in the history, which was logged */
    /* CLOCK_MONOTONIC: the time of the first edit that waits for `due`, and the time at which to
     * write edits that no request waits for. tv_sec is 0 if no edit waits. */
    struct timespec first, due;
};

/*
 * Every accepted edit has a number, from a counter in `struct live`. Each open file remembers the
 * last edit that contains its program's writes. Requests wait for this edit; if it is lost, every
 * later flush and fsync reports the loss until the content is rewritten.
 */
struct promise {
    uint64_t edit; /* the last accepted edit; 0 if there is none */
    uint64_t from; /* edits from this number on were lost */
    int lost;      /* the reason for the loss; 0 if not lost */
};

/* In live_wait.edit: all edits in the batch. */
#define WAITS_ALL UINT64_MAX

/* Record that later writes share the fate of this edit. An earlier loss is not forgotten, because
 * the edit has not rewritten the content. */
static inline void promise_share(struct promise *p, uint64_t edit)
{
    if (edit > p->edit)
        p->edit = edit;
}

/* Record that this edit rewrote the content, or that it had already accepted the same content. */
static inline void promise_make(struct promise *p, uint64_t edit)
{
    p->lost = 0;
    promise_share(p, edit);
}

/* Record that all edits after this number are lost. */
static inline void promise_break(struct promise *p, uint64_t after, int why)
{
    if (p->edit <= after)
        return;
    if (!p->lost)
        p->from = after + 1;
    p->lost = why;
}

/* Return the result for a program whose last edit was this one: 0, or the error with which it was
 * lost. */
static inline int promise_kept(const struct promise *p, uint64_t edit)
{
    return edit && edit >= p->from ? p->lost : 0;
}

/* ---- waits ---- */

/* Wait until no draft is being served. Call without the lock. */
void waits_rest(struct live *l);

/*
 * Queue a judgement of a handle's draft, which `ask` carries out in this call or in another thread;
 * the handle must exist until then. If `stopped` is set, a signal ended the wait before the work
 * began, and `ask` must not do the work. `ask` returns 0, -errno, or LIVE_PARKED if it has passed w
 * on. If w has no done(), no thread waits, and `ask` may free w. Returns the result of `ask`, or
 * LIVE_PARKED. Call without the lock.
 */
int waits_judge(struct live *l, struct live_view *h,
                int (*ask)(struct live *l, struct live_wait *w, bool stopped), struct live_wait *w);
/* True if another request of the same kind for this draft still has to be judged. */
bool waits_judged_by(struct live *l, const struct draft *d,
                     int (*ask)(struct live *l, struct live_wait *w, bool stopped));

/* Return the time at which entries that wait for handles must continue, or NULL if there are no
 * such entries. */
const struct timespec *waits_released_at(const struct live *l);

/* ---- writes ---- */

/*
 * Check whether the model can be edited now, and set *e to the reason if not. Call before an edit,
 * because shells ignore the result of close(2), and without the lock; it accesses the disk.
 */
void writer_ready(struct live *l, struct err *e);
/* Get the identity of the file, so that the disk can be queried about it without the lock; ret->fd
 * is not set. Returns false while an edit is being written. */
bool writer_file(const struct live *l, struct edit_file *ret);

/* Note an accepted edit, and wait until it is durable if the commit mode requires it. w is NULL if
 * no request waits. Returns 0 or LIVE_PARKED. */
int writer_accepted(struct live *l, struct live_wait *w);
/* Wait like writer_accepted() for the edits to a file up to this one, which may have been accepted
 * a while ago (see struct promise). Returns the same results, or -errno if the edit is lost. */
int writer_flush(struct live *l, const struct promise *p, uint64_t edit, struct live_wait *w);
/* Wait like writer_flush(), but until the edit is durable, whatever the mode. */
int writer_sync(struct live *l, const struct promise *p, uint64_t edit, struct live_wait *w);
/* Wait until all accepted edits are durable. Returns LIVE_PARKED, 0 if they already are durable, or
 * -errno for an earlier failure. */
int writer_sync_all(struct live *l, struct live_wait *w);
/* Wait like writer_sync_all(), but first wait for closed handles of new tensors to be released, or
 * for NEW_RELEASE to pass. */
int writer_sync_released(struct live *l, struct live_wait *w);
/* Report that the pending edits cannot be shown, for the reason r. Unless memory ran out, they
 * cannot be written either, so the writer drops and reports them now, in every commit mode. */
void writer_cannot_show(struct live *l, int r);
/* Schedule a write in this many seconds, but no later than WRITER_LATEST after the first edit. */
void writer_later(struct live *l, unsigned seconds);
/* Delay in seconds after a lone removal or truncation, which is usually followed by a value. */
#define WRITER_SOON 1
#define WRITER_LATEST 10

/*
 * Record that a conversion of a tensor begins or ends. Often more conversions follow, and all
 * should become one rewrite, so edits that no request waits for are written shortly after the last
 * conversion has ended.
 */
void writer_converts(struct live *l, bool begin);

/* Return a failure that has not been reported yet; later calls do not return it again. */
int writer_take_failure(struct live *l);
/* True if an edit is waiting to be written. */
bool writer_has_work(const struct live *l);

/* Add the writer, and the job that checks for signals, to the pool. Returns 0 or -errno. Call
 * without the lock. */
int writer_start(struct live *l);

#endif

/* SPDX-License-Identifier: MIT */
/* The queue of edits, its worker, and its timers (queue.h). */
#include "live/queue.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>

#include "base/bytes.h"
#include "live/meta.h"
#include "live/objects.h"
#include "live/tensors.h"
#include "live/overlay.h"

/* Interval between two checks for signals to waiting programs, in milliseconds. */
#define WATCH_MS 200

/* ---- requests ---- */

struct request *request_new(struct live *l, struct file *f)
{
    struct request *q = calloc(1, sizeof(*q));
    assert(lock_held(&l->lock));
    if (!q)
        return NULL;
    q->when = WHEN_MODE;
    q->file = f;
    if (f)
        f->pins++;
    return q;
}

void request_free(struct live *l, struct request *q)
{
    if (q->file) {
        q->file->pins--;
        file_settle(l, q->file);
    }
    if (q->from) {
        q->from->pins--;
        name_reap(l, q->from);
    }
    if (q->to) {
        q->to->pins--;
        name_reap(l, q->to);
    }
    if (q->object)
        object_request_end(l, q);
    buf_free(&q->text);
    free(q);
}

/* ---- the worker ---- */

/* Serve a request, and answer it. Drops and retakes the lock. */
static void serve_request(struct live *l, struct request *q)
{
    struct err e = {0};
    const size_t mark = edit_mark(&l->pending);
    atomic_store(&l->queue.cancel, false);
    int r = q->apply ? q->apply(l, q, &e) : 0;
    const bool equal = r == 0;
    if (r < 0)
        edit_undo(&l->pending, mark);
    q->changed = r > 0;
    /* What is due waits on if an edit that ran before was collected with it. */
    const bool writes = q->when == WHEN_DUE ? !l->queue.due.tv_sec : q->when == WHEN_NOW;
    const bool settles = l->unsettled && l->opt.commit != LIVE_COMMIT_SYNC;
    if (r > 0 || (equal && (writes || settles)))
        r = overlay_accept(l, mark, q->when, &q->done, &e);
    q->done |= equal;
    r = q->end ? q->end(l, q, r, &e) : r < 0 ? r : q->failed;
    struct live_wait *w = q->wait;
    q->wait = NULL; /* too late for a signal: overlay_freshen() drops the lock */
    (void)overlay_freshen(l, &e);
    l->queue.running = NULL;
    TAILQ_REMOVE(&l->queue.waiting, q, in_queue);
    request_free(l, q);
    lock_drop(&l->lock);
    if (w)
        w->done(w, r);
    overlay_retire(l); /* freeing the old file takes a while */
    logs_rest(&l->logs);
    lock_take(&l->lock);
}

static bool work(struct pool_job *j, struct timespec *again)
{
    struct live *l = (struct live *)((char *)j - offsetof(struct live, queue.worker));
    struct queue *s = &l->queue;
    struct request *q;
    (void)again;
    lock_take(&l->lock);
    while ((q = TAILQ_FIRST(&s->waiting))) {
        s->running = q;
        serve_request(l, q);
    }
    s->working = false;
    cond_broadcast(&s->rest);
    lock_drop(&l->lock);
    return false;
}

int queue_add(struct live *l, struct request *q, struct live_wait *w)
{
    struct queue *s = &l->queue;
    int r = buf_error(&q->text) ? -ENOMEM : l->stop && (w || !s->working) ? -EROFS : 0;
    assert(lock_held(&l->lock));
    if (r == 0 && !s->working)
        r = pool_do(&s->worker, work);
    if (r < 0) {
        request_free(l, q);
        return r;
    }
    s->working = true;
    q->wait = w;
    TAILQ_INSERT_TAIL(&s->waiting, q, in_queue);
    if (!w)
        return 0;
    if (w->stopped) {
        const struct timespec first = when_after(WATCH_MS);
        pool_call_at(&s->watch, &first);
    }
    return LIVE_PARKED;
}

int queue_sync(struct live *l, bool all, struct live_wait *w)
{
    if (!l->queue.working && !overlay_is_pending(l) && !(all && !TAILQ_EMPTY(&l->tensors.fresh)))
        return 0;
    struct request *q = request_new(l, NULL);
    if (!q)
        return -ENOMEM;
    q->when = WHEN_NOW;
    q->apply = all ? tensors_add : NULL;
    return queue_add(l, q, w);
}

/* ---- signals ---- */

/* Return the request for which somebody waits: under this identity or, if that is NULL, although a
 * signal has ended the wait. */
static struct request *find_wait(const struct queue *s, const void *request)
{
    struct request *q;
    TAILQ_FOREACH (q, &s->waiting, in_queue) {
        struct live_wait *w = q->wait;
        if (w && (request ? w->request == request : w->stopped && w->stopped(w)))
            break;
    }
    return q;
}

/* End a wait, and drop the request if it has not begun. Drops and retakes the lock. */
static void end_wait(struct live *l, struct request *q)
{
    struct queue *s = &l->queue;
    struct live_wait *w = q->wait;
    q->wait = NULL;
    if (q == s->running) {
        atomic_store(&s->cancel, true);
    } else {
        TAILQ_REMOVE(&s->waiting, q, in_queue);
        request_free(l, q);
    }
    lock_drop(&l->lock);
    w->done(w, -EINTR);
    lock_take(&l->lock);
}

void queue_interrupt(struct live *l, const void *request)
{
    LOCKED(&l->lock);
    struct request *q = find_wait(&l->queue, request);
    if (q)
        end_wait(l, q);
}

/* The kernel reports only the first signal to a waiting program, so look for others. */
static bool watch_waits(struct pool_job *j, struct timespec *again)
{
    struct live *l = (struct live *)((char *)j - offsetof(struct live, queue.watch));
    struct queue *s = &l->queue;
    struct request *q;
    LOCKED(&l->lock);
    while ((q = find_wait(s, NULL)))
        end_wait(l, q);
    *again = when_after(WATCH_MS);
    return s->working;
}

/* ---- timers ---- */

static bool tick(struct pool_job *j, struct timespec *again)
{
    struct live *l = (struct live *)((char *)j - offsetof(struct live, queue.tick));
    struct queue *s = &l->queue;
    LOCKED(&l->lock);
    const struct timespec *next = NULL;
    const bool adds = l->tensors.due.tv_sec && when_past(&l->tensors.due, 0);
    const bool writes = s->due.tv_sec && when_past(&s->due, 0);
    if (adds || writes) {
        struct request *q = request_new(l, NULL);
        if (q && adds)
            q->apply = tensors_add;
        if (q && writes)
            q->when = WHEN_DUE;
        const bool asked = q && queue_add(l, q, NULL) == 0;
        const struct timespec later = asked ? (struct timespec){0} : when_after(1000);
        l->tensors.due = adds ? later : l->tensors.due;
        s->due = writes ? later : s->due;
    }
    if (l->tensors.due.tv_sec)
        next = &l->tensors.due;
    if (s->due.tv_sec && (!next || when_before(&s->due, next)))
        next = &s->due;
    if (next)
        *again = *next;
    return next;
}

void queue_later(struct live *l, bool removes)
{
    struct queue *s = &l->queue;
    const bool joins = s->due.tv_sec && !s->removes; /* what was collected */
    const unsigned seconds = !removes || joins                       ? QUEUE_EDITS
                             : l->tensors.n_gone > l->tensors.n_kept ? QUEUE_TENSORS
                                                                     : QUEUE_REMOVALS;
    const int why = l->trouble.code; /* a collected edit has found room for all */
    assert(lock_held(&l->lock));
    if (l->opt.commit == LIVE_COMMIT_SYNC ||
        (why && (removes || (why != -ENOSPC && why != -EDQUOT))))
        return;
    s->removes = removes && !joins;
    struct timespec due = when_after(seconds * 1000);
    if (!s->first_at.tv_sec)
        s->first_at = when_now();
    const struct timespec latest = when_later(&s->first_at, QUEUE_LATEST * 1000);
    if (s->first_at.tv_sec && when_before(&latest, &due))
        due = latest;
    s->due = due;
    pool_call_at(&s->tick, &due);
}

void queue_spared(struct live *l)
{
    if (!overlay_removals(l))
        l->unremoved = (struct err){0};
    if (overlay_is_pending(l))
        return;
    l->queue.due.tv_sec = l->queue.first_at.tv_sec = 0;
    l->trouble = (struct err){0};
}

int queue_start(struct live *l)
{
    int r = pool_join(&l->queue.tick, tick);
    if (r == 0 && (r = pool_join(&l->queue.watch, watch_waits)) < 0)
        pool_leave(&l->queue.tick);
    return r;
}

void queue_stop(struct live *l)
{
    lock_take(&l->lock);
    while (l->queue.working)
        (void)lock_wait(&l->lock, &l->queue.rest, NULL);
    lock_drop(&l->lock);
    pool_leave(&l->queue.tick);
    pool_leave(&l->queue.watch);
}

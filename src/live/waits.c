/* SPDX-License-Identifier: MIT */
/* Keeps waiting requests (waits.h). */
#include "live/waits.h"

#include <errno.h>
#include <stddef.h>

#include "base/bytes.h"
#include "base/lock.h"
#include "base/when.h"
#include "live/tensors.h"
#include "live/tensor_judge.h"
#include "live/views.h"
#include "live/writer.h"

/* Interval between two checks for signals to waiting programs, in milliseconds. */
#define WATCH_MS 200
/* A judgement of at most this many values of a tensor is a single unit of work. */
#define FEW TENSOR_STRETCH

/* ---- the list ---- */

static struct live_wait *take_out(struct waits *s, struct live_wait **at)
{
    struct live_wait *w = *at;
    *at = w->next;
    if (!w->next)
        s->end = at;
    w->next = NULL;
    return w;
}

static void leave(struct waits *s, const struct live_wait *w)
{
    struct live_wait **at = &s->first;
    while (*at != w)
        at = &(*at)->next;
    take_out(s, at)->begun = false;
}

/* Add an entry, and watch its program for signals. */
static void add(struct live *l, struct live_wait *w, enum live_needs needs)
{
    struct waits *s = &l->waits;
    assert(lock_held(&l->lock));
    w->needs = needs;
    w->next = NULL;
    *s->end = w;
    s->end = &w->next;
    if (s->watched || !w->stopped || !l->writer.started)
        return;
    const struct timespec first = when_after(WATCH_MS);
    s->watched = true;
    pool_call_at(&s->watch, &first);
}

/* Let an entry begin to wait or, after a judgement, continue to wait. */
static int park(struct live *l, struct live_wait *w, enum live_needs needs)
{
    if (!w->begun)
        add(l, w, needs);
    else if (atomic_load(&w->cancel))
        return -EINTR;
    w->begun = false;
    w->needs = needs;
    return LIVE_PARKED;
}

void waits_tell(struct live_wait *list)
{
    for (struct live_wait *w = list; w; w = list) {
        list = w->next;
        w->done(w, w->result);
    }
}

/* ---- signals ---- */

static bool is_of(struct live_wait *w, const void *request)
{
    return w->request == request;
}

static bool is_stopped(struct live_wait *w, const void *arg)
{
    (void)arg;
    return w->stopped && w->stopped(w);
}

/* Stop the entries that `pick` selects. If one is being judged, its judgement ends, and the judging
 * thread answers it; the others are removed and returned. */
static struct live_wait *stop(struct waits *s, bool (*pick)(struct live_wait *, const void *),
                              const void *arg)
{
    struct live_wait *out = NULL, **end = &out, **at = &s->first;
    while (*at) {
        bool picked = pick(*at, arg);
        if (picked && (*at)->begun)
            atomic_store(&(*at)->cancel, true);
        if (picked && !(*at)->begun)
            end = &(*end = take_out(s, at))->next;
        else
            at = &(*at)->next;
    }
    return out;
}

static void answer_stopped(struct live *l, struct live_wait *list)
{
    for (struct live_wait *w = list; w; w = list) {
        list = w->next;
        w->done(w, w->needs == LIVE_JUDGED ? w->ask(l, w, true) : -EINTR);
    }
}

void live_interrupt(struct live *l, const void *request)
{
    lock_take(&l->lock);
    struct live_wait *stopped = stop(&l->waits, is_of, request);
    lock_drop(&l->lock);
    answer_stopped(l, stopped);
}

#define LIVE_OF(j) ((struct live *)((char *)(j)-offsetof(struct live, waits.watch)))

/* Check for further signals, because the kernel reports only the first one to a waiting program. */
static bool watch(struct pool_job *j, struct timespec *again)
{
    struct live *l = LIVE_OF(j);
    lock_take(&l->lock);
    struct live_wait *stopped = stop(&l->waits, is_stopped, NULL);
    const bool more = l->waits.watched = l->waits.first;
    lock_drop(&l->lock);
    answer_stopped(l, stopped);
    *again = when_after(WATCH_MS);
    return more;
}

/* ---- until a batch is durable ---- */

int waits_batch(struct live *l, struct live_wait *w, uint64_t batch)
{
    w->batch = batch;
    return park(l, w, LIVE_DURABLE);
}

int waits_release(struct live *l, struct live_wait *w, const struct timespec *until)
{
    w->until = *until;
    return park(l, w, LIVE_RELEASED);
}

const struct timespec *waits_released_at(const struct live *l)
{
    const struct live_wait *w = l->waits.first;
    assert(lock_held(&l->lock));
    while (w && w->needs != LIVE_RELEASED)
        w = w->next;
    return w ? &w->until : NULL;
}

void waits_released(struct live *l, uint64_t batch)
{
    assert(lock_held(&l->lock));
    for (struct live_wait *w = l->waits.first; w; w = w->next)
        if (w->needs == LIVE_RELEASED) {
            w->needs = LIVE_DURABLE;
            w->batch = batch;
        }
}

bool waits_for(const struct live *l, uint64_t batch)
{
    const struct live_wait *w = l->waits.first;
    assert(lock_held(&l->lock));
    while (w && (w->needs != LIVE_DURABLE || w->batch != batch))
        w = w->next;
    return w;
}

struct live_wait *waits_end(struct live *l, uint64_t batch, int r, bool lost)
{
    struct waits *s = &l->waits;
    struct live_wait *out = NULL, **end = &out, **at = &s->first;
    bool all = false;
    assert(lock_held(&l->lock));
    if (r < 0 && lost && batch_break(l, r))
        l->writer.failed = r;
    while (*at)
        if ((*at)->needs == LIVE_DURABLE && (*at)->batch <= batch) {
            all |= (*at)->edit == WAITS_ALL;
            (*at)->result = r;
            end = &(*end = take_out(s, at))->next;
        } else {
            at = &(*at)->next;
        }
    if (r < 0 && !lost && !out)
        l->writer.failed = r;
    const int earlier = all ? writer_take_failure(l) : 0;
    for (struct live_wait *w = out; w && r == 0; w = w->next)
        if (w->edit == WAITS_ALL)
            w->result = earlier;
    return out;
}

/* ---- requests to be judged ---- */

static bool is_to_judge(const struct live_wait *w, const struct draft *d)
{
    return w->needs == LIVE_JUDGED && !w->begun && w->view->d == d;
}

/* Return the first entry that waits for a draft. Call with the lock held. */
static struct live_wait **first_of(struct live *l, const struct draft *d)
{
    struct live_wait **at = &l->waits.first;
    while (*at && !is_to_judge(*at, d))
        at = &(*at)->next;
    return at;
}

bool waits_judged_by(const struct live *l, const struct draft *d,
                     int (*ask)(struct live *l, struct live_wait *w, bool stopped))
{
    const struct live_wait *w = l->waits.first;
    assert(lock_held(&l->lock));
    while (w && !(is_to_judge(w, d) && w->ask == ask))
        w = w->next;
    return w;
}

/* True if the entry has something to judge. Call with the lock held. */
static bool is_due(const struct draft *d, const struct live_wait *w)
{
    const enum draft_state state = d->state;
    if (d->made || (draft_is_helper(d) && !w->done)) /* short texts, or the release of a helper */
        return false;
    if (d->why.code || (state == DRAFT_REFUSED && !w->done)) /* a release does not judge again */
        return false;
    return draft_is_due(state);
}

/* True if there is little or nothing to judge. Call with the lock held. */
static bool is_quick(const struct live_view *h, const struct live_wait *w)
{
    const struct draft *d = h->d;
    return !is_due(d, w) ||
           (!draft_is_helper(d) && d->n_elem <= FEW && d->size <= FEW * sizeof(double));
}

/* Note that no entry waits for a draft any more. If nothing else needs it, returns it for
 * view_drafts_end(). Call with the lock held. */
static struct draft *rest(struct live *l, struct draft *d)
{
    d->asked = false;
    d->users--;
    struct draft *dead = view_reap(l, d, NULL);
    if (dead)
        new_tensor_reap(l, dead->object);
    return dead;
}

static bool turn(struct pool_job *j, struct timespec *again);

/* Begin the judgement of an entry. If no thread waits for the entry, it is removed, because its
 * `ask` may free it. Call with the lock held. */
static void begin(struct waits *s, struct live_wait **at)
{
    struct live_wait *w = *at;
    w->begun = w->done != NULL;
    if (!w->done)
        (void)take_out(s, at);
}

/* Note that a draft is idle again and all requests that waited for it are answered. The end of the
 * mount waits for this. */
static void end_serving(struct live *l)
{
    lock_take(&l->lock);
    if (--l->waits.judged == 0)
        cond_broadcast(&l->waits.rest);
    lock_drop(&l->lock);
}

/* Leave a draft to the pool, which has a thread as long as the live state has jobs in it. Returns
 * false if this failed. Call with the lock held. */
static bool send(const struct live *l, struct draft *d)
{
    return l->writer.started && pool_do_beside(&d->job, turn) == 0;
}

/*
 * Take the next entry that waits for a draft. If there is no entry to judge here, returns NULL, and
 * sets *rests if end_serving() must still be called. over: the entry that was just judged and must
 * be answered, or NULL. here: leave slow entries to the pool.
 */
static struct live_wait *take_next(struct live *l, struct draft *d, struct live_wait *over,
                                   bool here, bool *rests)
{
    lock_take(&l->lock);
    if (over)
        leave(&l->waits, over);
    struct live_wait **at = first_of(l, d), *w = *at;
    const bool sent = w && here && !is_quick(w->view, w) && send(l, d);
    struct draft *dead = w ? NULL : rest(l, d);
    if (w && !sent)
        begin(&l->waits, at);
    lock_drop(&l->lock);
    view_drafts_end(dead);
    *rests = !w;
    return sent ? NULL : w;
}

/* Serve an entry that has begun and all entries waiting behind it. The last one is answered once
 * the draft is idle again, so that the program's next call is served at once. */
static void serve(struct live *l, struct draft *d, struct live_wait *w, bool here, bool rests)
{
    while (w) {
        void (*done)(struct live_wait *, int) = w->done;
        const int r = w->ask(l, w, false);
        const bool over = done && r != LIVE_PARKED;
        struct live_wait *next = take_next(l, d, over ? w : NULL, here, &rests);
        if (over)
            done(w, r);
        w = next;
    }
    if (rests)
        end_serving(l);
}

#define DRAFT_OF(j) ((struct draft *)((char *)(j)-offsetof(struct draft, job)))

static bool turn(struct pool_job *j, struct timespec *again)
{
    struct draft *d = DRAFT_OF(j);
    struct live *l = d->live;
    struct err unready; /* a later write reports it */
    (void)again;
    writer_ready(l, &unready);
    bool rests;
    struct live_wait *w = take_next(l, d, NULL, false, &rests);
    serve(l, d, w, false, rests);
    return false;
}

int waits_judge(struct live *l, struct live_view *h,
                int (*ask)(struct live *l, struct live_wait *w, bool stopped), struct live_wait *w)
{
    struct draft *d = h->d;
    lock_take(&l->lock);
    const bool begins = !d->asked, here = begins && (is_quick(h, w) || !send(l, d));
    w->view = h;
    w->ask = ask;
    w->begun = here && w->done != NULL;
    atomic_store(&w->cancel, false);
    if (begins) {
        d->asked = true;
        d->users++;
        l->waits.judged++;
    }
    if (!here || w->done)
        add(l, w, LIVE_JUDGED);
    lock_drop(&l->lock);
    if (!here)
        return LIVE_PARKED;
    const bool waits = w->done != NULL;
    int r = ask(l, w, false);
    const bool over = waits && r != LIVE_PARKED;
    bool rests;
    struct live_wait *next = take_next(l, d, over ? w : NULL, true, &rests);
    if (next && over) { /* it does not wait for the entries behind it */
        w->done(w, r);
        r = LIVE_PARKED;
    }
    serve(l, d, next, true, rests);
    return r;
}

/* ---- beginning and end ---- */

void waits_init(struct waits *s)
{
    *s = (struct waits){.end = &s->first};
    cond_init(&s->rest);
}

void waits_free(struct waits *s)
{
    assert(!s->first);
    cond_destroy(&s->rest);
}

int waits_start(struct live *l)
{
    return pool_join(&l->waits.watch, watch);
}

void waits_stop(struct live *l)
{
    pool_leave(&l->waits.watch);
}

void waits_rest(struct live *l)
{
    LOCKED(&l->lock);
    while (l->waits.judged)
        (void)lock_wait(&l->lock, &l->waits.rest, NULL);
}

/* SPDX-License-Identifier: MIT */
/* Requests that judge drafts of views: see asks.h. */
#include "live/asks.h"

#include <stddef.h>

#include "base/bytes.h"
#include "base/lock.h"
#include "live/tensor_batch.h"
#include "live/tensor_encode.h"

/* Of a tensor of this many values the judgement is one unit of work. */
#define FEW TENSOR_STRETCH

/* The first that waits for a draft. With the lock. */
static struct live_wait **first_of(struct live *l, const struct view_draft *d)
{
    struct live_wait **at = &l->asks;
    while (*at && (*at)->view->d != d)
        at = &(*at)->next;
    return at;
}

bool asks_more(const struct live *l, const struct view_draft *d,
               int (*ask)(struct live *l, struct live_wait *w, bool stopped))
{
    const struct live_wait *w = l->asks;
    assert(lock_held(&l->lock));
    while (w && (w->view->d != d || w->ask != ask))
        w = w->next;
    return w;
}

/* Whether something is to be judged. With the lock. */
static bool is_due(const struct view_draft *d, const struct live_wait *w)
{
    const enum view_state state = view_state(d);
    if (d->making)
        return false;                                       /* its texts are short */
    if (d->why.code || (state == VIEW_REFUSED && !w->done)) /* a release does not judge it again */
        return false;
    return view_is_due(state);
}

/* Nothing, or little, is to be judged, and copied. With the lock. */
static bool is_quick(const struct live_view *h, const struct live_wait *w)
{
    const struct view_draft *d = h->d, *helper = h->from ? h->from->d : NULL;
    const uint64_t size = max_u64(view_draft_size(d), helper ? view_draft_size(helper) : 0);
    if (!helper && !is_due(d, w))
        return true;
    return d->n_elem <= FEW && size <= FEW * sizeof(double);
}

/* Nothing waits for a draft any more. Returns it if nothing needs it: for view_draft_end(). With the lock. */
static struct view_draft *rest(struct live *l, struct view_draft *d)
{
    d->asked = false;
    d->users--;
    struct view_draft *dead = view_draft_reap(l, d);
    if (dead && dead->folder->making)
        making_reap(l, dead->folder->making);
    return dead;
}

/* A draft rests. */
static void leave(struct live *l, struct view_draft *dead)
{
    if (dead)
        view_draft_end(dead);
    lock_take(&l->lock);
    if (--l->judged == 0)
        cond_broadcast(&l->made);
    lock_drop(&l->lock);
}

static bool turn(struct crew_job *j, struct timespec *again);

/* How it ends that a draft is served. */
struct end {
    bool sent;               /* what is left is done by a turn of the crew */
    struct view_draft *dead; /* else it rests; as of rest() */
};

/* What waits for a draft next; NULL: the end. here: what is not quick is left to the crew, which has a thread as long
 * as the live state has jobs of it. */
static struct live_wait *take_next(struct live *l, struct view_draft *d, bool here, struct end *end)
{
    lock_take(&l->lock);
    struct live_wait **at = first_of(l, d), *w = *at;
    end->sent = w && here && !is_quick(w->view, w);
    if (end->sent)
        (void)crew_do_beside(l->crew, &d->job, turn);
    else if (w)
        *at = w->next;
    else
        end->dead = rest(l, d);
    lock_drop(&l->lock);
    return end->sent ? NULL : w;
}

/* All that waits for a draft. The last one is answered when the draft rests: what its program does then is done at
 * once. */
static void serve(struct live *l, struct view_draft *d, bool here)
{
    struct end end = {0};
    for (struct live_wait *w = take_next(l, d, here, &end), *next; w; w = next) {
        int (*ask)(struct live *, struct live_wait *, bool) = w->ask;
        void (*done)(struct live_wait *, int) = w->done;
        w->ask = NULL;
        int r = ask(l, w, false);
        next = take_next(l, d, here, &end);
        if (done && r != LIVE_PARKED)
            done(w, r);
    }
    if (!end.sent)
        leave(l, end.dead);
}

#define DRAFT_OF(j) ((struct view_draft *)((char *)(j)-offsetof(struct view_draft, job)))

static bool turn(struct crew_job *j, struct timespec *again)
{
    struct view_draft *d = DRAFT_OF(j);
    struct err unready; /* the write says so */
    (void)again;
    writer_ready(d->live, &unready);
    serve(d->live, d, false);
    return false;
}

static void put(struct live *l, struct live_wait *w)
{
    struct live_wait **at = &l->asks;
    while (*at)
        at = &(*at)->next;
    *at = w;
    w->next = NULL;
    waits_look(l, w);
}

int view_ask(struct live *l, struct live_view *h,
             int (*ask)(struct live *l, struct live_wait *w, bool stopped), struct live_wait *w)
{
    struct view_draft *d = h->d;
    lock_take(&l->lock);
    w->view = h;
    const bool begins = !d->asked, here = begins && (is_quick(h, w) || !l->started);
    if (begins) {
        d->asked = true;
        d->users++;
        l->judged++;
    }
    if (!here) {
        w->ask = ask;
        put(l, w);
    }
    if (begins && !here)
        (void)crew_do_beside(l->crew, &d->job, turn);
    lock_drop(&l->lock);
    if (!here)
        return LIVE_PARKED;
    int r = ask(l, w, false);
    serve(l, d, true);
    return r;
}

void asks_finish(struct live *l)
{
    lock_take(&l->lock);
    while (l->judged)
        (void)lock_wait(&l->lock, &l->made, NULL);
    lock_drop(&l->lock);
}

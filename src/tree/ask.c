/* SPDX-License-Identifier: MIT */
/*
 * Requests that wait for the writer's thread: for the disk's answer whether an edit can be written,
 * and for its being durable. Questions to the disk are asked by that thread, without a lock, so that
 * a disk that hangs holds up only the requests that need it. See internal.h, tree.h.
 */
#include "tree/internal.h"

#include <errno.h>
#include <string.h>

#include "tree/waits.h"

/* Seconds without another edit after which what no request waits for is written. */
#define LATER 2
/* A model of at most this many bytes is written at once, whatever the strategy. */
#define SMALL_MODEL ((uint64_t)64 << 20)

void tree_interrupt(struct tree *t, const void *who)
{
    struct tree_wait *w = NULL;
    struct writer *wr = &t->writer;
    (void)pthread_mutex_lock(&t->lock);
    if (wr->flight_owner && wr->flight_owner->who == who)
        atomic_store(&wr->cancel, true); /* answered when the copy has stopped */
    else if (!(w = waits_take(&wr->flight_waits, who)) && !(w = waits_take(&wr->asked, who)) &&
             !(w = waits_take(&wr->next.asking, who)))
        w = waits_take(&wr->next.waits, who);
    if (w && w == wr->next.owner)
        pending_drop(t);
    (void)pthread_mutex_unlock(&t->lock);
    if (w)
        w->done(w, -EINTR);
}

static bool is_before(const struct timespec *a, const struct timespec *b)
{
    return a->tv_sec < b->tv_sec || (a->tv_sec == b->tv_sec && a->tv_nsec < b->tv_nsec);
}

void writer_later(struct tree *t, unsigned seconds)
{
    struct writer *w = &t->writer;
    if (t->opt.commit == TREE_COMMIT_SYNC)
        return;
    (void)clock_gettime(CLOCK_MONOTONIC, &w->due);
    if (!w->due_set)
        w->first = w->due;
    struct timespec latest = w->first;
    latest.tv_sec += WRITER_LATEST;
    w->due.tv_sec += (time_t)seconds;
    if (is_before(&latest, &w->due))
        w->due = latest;
    w->due_set = true;
    (void)pthread_cond_signal(&w->wake);
}

bool writer_is_small(const struct tree *t)
{
    uint64_t size = t->writer.next.change.base->file_size;
    return size <= SMALL_MODEL && t->writer.next.change.bytes <= SMALL_MODEL - size;
}

static int park(struct tree *t, struct tree_wait **list, struct tree_wait *w, bool own)
{
    if (own && t->writer.next.edits == 1)
        t->writer.next.owner = w;
    waits_push(list, w);
    (void)pthread_cond_signal(&t->writer.wake);
    return TREE_PARKED;
}

/* A failure that was not reported yet. */
int writer_take_failure(struct tree *t)
{
    int r = t->writer.failed;
    t->writer.failed = 0;
    return r;
}

bool writer_has_work(const struct tree *t)
{
    return t->writer.next.change.n > 0 || t->keys.removed;
}

int writer_sync(struct tree *t, struct tree_wait *w, bool own)
{
    if (writer_has_work(t))
        return park(t, &t->writer.next.waits, w, own);
    if (t->writer.flight) {
        waits_push(&t->writer.flight_waits, w);
        return TREE_PARKED;
    }
    return writer_take_failure(t);
}

/* What the writer's thread may change while nothing is written (edit_file.clone) is left out. */
bool writer_file(const struct tree *t, struct edit_file *ret)
{
    if (t->writer.flight)
        return false;
    *ret = (struct edit_file){.sys = t->file.sys, .dir = t->file.dir, .fd = -1, .id = t->file.id};
    (void)strcpy(ret->name, t->file.name);
    return true;
}

/* The file may be replaced while it is asked about: its descriptor is kept open. A write that is
 * under way finds out by itself. */
void writer_ready(struct tree *t, struct err *e)
{
    struct edit_file f;
    *e = (struct err){0};
    if (!t->writable)
        return;
    (void)pthread_mutex_lock(&t->lock);
    bool idle = writer_file(t, &f);
    struct store *s = store_ref(t->now.store);
    (void)pthread_mutex_unlock(&t->lock);
    f.fd = s->file[0]->fd;
    if (idle)
        (void)edit_possible(&f, &t->edit, e);
    store_unref(s);
}

/*
 * In mode auto an edit is waited for if that does not take long. What is not waited for must be
 * possible, so the disk is asked before the request is answered; but not while the thread writes an
 * edit that is not waited for either, or frees the file that was replaced: that takes as long as it
 * takes, and the disk was asked just before.
 */
int writer_accepted(struct tree *t, struct tree_wait *w)
{
    struct pending *p = &t->writer.next;
    enum tree_commit mode = t->opt.commit;
    if (!w) {
        writer_later(t, WRITER_SOON);
        return 0;
    }
    if (mode == TREE_COMMIT_CLOSE || (mode == TREE_COMMIT_AUTO && writer_is_small(t)))
        return park(t, &p->waits, w, true);
    bool busy = t->writer.flight && (t->writer.flight_slow || mode == TREE_COMMIT_SYNC);
    if (busy || t->writer.freeing) {
        pending_keep(t, edit_mark(&p->change), p->n_fresh, t->keys.n_moved);
        writer_later(t, LATER);
        return 0;
    }
    return park(t, &p->asking, w, true);
}

/* ---- the question ---- */

/* Whether what was answered for this batch before still holds, but for the room. */
static bool is_known(const struct tree *t)
{
    const struct pending *p = &t->writer.next;
    const struct gguf *g = p->change.base;
    uint64_t infos = g->head_len - g->info_off;
    if (!p->asked || p->how == EDIT_AUTO)
        return false;
    return p->how != EDIT_INPLACE || p->change.bytes + infos + EDIT_HEAD_FIXED <= g->data_off;
}

/* Ask without the lock. The plan is out of reach of others meanwhile. */
static int ask_all(struct tree *t, enum edit_strategy *how, struct err *e)
{
    struct pending *p = &t->writer.next;
    int r = tree_freshen_locked(t, e);
    if (r < 0)
        return r;
    struct gen *gen = gen_ref(t->now.gen); /* whose head is the plan's */
    struct edit_plan plan = p->plan;
    uint64_t planned = p->planned, batch = p->batch;
    p->plan = EDIT_PLAN_INIT;
    p->planned = 0;
    (void)pthread_mutex_unlock(&t->lock);
    r = edit_prepare(&t->file, &plan, &t->edit, how, e);
    (void)pthread_mutex_lock(&t->lock);
    if (p->batch == batch && p->planned == 0) {
        p->plan = plan;
        p->planned = planned;
    } else {
        edit_plan_free(&plan);
    }
    gen_unref(gen);
    return r;
}

static int ask_room(struct tree *t, struct err *e)
{
    const struct pending *p = &t->writer.next;
    uint64_t head = p->change.bytes + p->change.base->head_len + EDIT_HEAD_SLACK;
    enum edit_strategy how = p->how;
    (void)pthread_mutex_unlock(&t->lock);
    int r = edit_room(&t->file, &t->edit, how == EDIT_COPY ? head : 0, e);
    (void)pthread_mutex_lock(&t->lock);
    return r;
}

/*
 * The answer is no. It is also the answer to edits that were not asked for yet: they are taken back
 * too. An fsync that waits may be of one of them, so it must not succeed.
 */
static void refuse(struct tree *t, int r, const struct err *e)
{
    struct tree_wait *asked = t->writer.asked, *later = t->writer.next.asking;
    if (t->writer.next.waits)
        t->writer.failed = r;
    t->writer.asked = t->writer.next.asking = NULL;
    pending_take_back(t, e);
    (void)pthread_mutex_unlock(&t->lock);
    waits_answer(asked, r);
    waits_answer(later, r);
    (void)pthread_mutex_lock(&t->lock);
}

/* The answer is yes: what does not take long is written at once, and waited for. */
static void allow(struct tree *t)
{
    struct tree_wait *asked = t->writer.asked;
    bool at_once = t->opt.commit == TREE_COMMIT_AUTO && edit_is_quick(t->writer.next.how);
    t->writer.asked = NULL;
    if (at_once) {
        waits_join(&t->writer.next.waits, asked);
        return;
    }
    writer_later(t, LATER);
    if (t->writer.next.owner && waits_has(asked, t->writer.next.owner))
        t->writer.next.owner = NULL;
    (void)pthread_mutex_unlock(&t->lock);
    waits_answer(asked, 0);
    (void)pthread_mutex_lock(&t->lock);
}

void writer_ask(struct tree *t)
{
    struct pending *p = &t->writer.next;
    struct err e = {0};
    enum edit_strategy how = p->how;
    uint64_t batch = p->batch;
    size_t ops = edit_mark(&p->change), fresh = p->n_fresh, moved = t->keys.n_moved;
    t->writer.asked = p->asking;
    p->asking = NULL;
    if (p->change.n == 0) { /* it was taken back */
        allow(t);
        return;
    }
    int r = is_known(t) ? ask_room(t, &e) : ask_all(t, &how, &e);
    if (p->batch != batch) { /* interrupted: the edits are gone */
        waits_join(&p->asking, t->writer.asked);
        t->writer.asked = NULL;
        return;
    }
    if (r < 0) {
        refuse(t, r, &e);
        return;
    }
    pending_keep(t, ops, fresh, moved);
    p->asked = true;
    p->how = how;
    allow(t);
}

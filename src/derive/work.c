/* SPDX-License-Identifier: MIT */
/*
 * Computes results on demand: see work.h.
 *
 * A wish (struct want) advances over its tensors: it starts jobs ahead, passes tensors whose
 * results are kept, and is answered when it has passed the last one.
 *
 * Unless noted otherwise, call the static functions that take a struct work with its lock held.
 */
#include "derive/work.h"

#include <errno.h>
#include <stdlib.h>

#include "base/lock.h"
#include "base/pool.h"
#include "derive/task.h"

/* ---- results ---- */

void result_unref(struct result *r)
{
    if (!r || atomic_fetch_sub(&r->refs, 1) != 1)
        return;
    buf_free(&r->bytes);
    free(r);
}

static bool is_large(const struct result *r)
{
    return r->what == DERIVED_STATS || r->what == DERIVED_PICTURE;
}

struct result *kept_find(const struct kept *k, struct tensor_id of, enum derived what)
{
    struct link *l = table_first(&k->all, hash_number(of.number));
    for (; l; l = table_next(l)) {
        struct result *r = (struct result *)l;
        if (r->of.number == of.number && r->of.version == of.version && r->what == what)
            return r;
    }
    return NULL;
}

static void kept_drop(struct kept *k, struct result *r)
{
    k->bytes -= is_large(r) ? r->bytes.len : 0;
    table_remove(&k->all, &r->link);
    result_unref(r);
}

struct result *kept_use(struct kept *k, struct tensor_id of, enum derived what)
{
    struct result *r = kept_find(k, of, what);
    if (!r)
        return NULL;
    r->used = ++k->uses;
    atomic_fetch_add(&r->refs, 1);
    return r;
}

/* Return the text or picture that was used least recently. */
static struct result *oldest(const struct kept *k)
{
    struct result *ret = NULL;
    for (struct link *l = NULL; (l = table_each(&k->all, l)) != NULL;) {
        struct result *r = (struct result *)l;
        if (is_large(r) && (!ret || r->used < ret->used))
            ret = r;
    }
    return ret;
}

int kept_put(struct kept *k, struct tensor_id of, enum derived what, struct buf *bytes)
{
    struct result *old = kept_find(k, of, what), *r = calloc(1, sizeof(*r));
    if (!r || table_add(&k->all, &r->link, hash_number(of.number)) < 0) {
        free(r);
        return -ENOMEM;
    }
    if (old)
        kept_drop(k, old);
    atomic_init(&r->refs, 1);
    r->of = of;
    r->what = what;
    r->bytes = *bytes;
    *bytes = BUF_INIT;
    r->used = ++k->uses;
    k->bytes += is_large(r) ? r->bytes.len : 0;
    for (struct result *x; k->bytes > KEPT_BYTES && (x = oldest(k)) != r;)
        kept_drop(k, x);
    return 0;
}

void kept_forget_others(struct kept *k, struct tensor_id of,
                        bool (*needed)(void *arg, struct tensor_id other), void *arg)
{
    struct link *next;
    for (struct link *l = table_first(&k->all, hash_number(of.number)); l; l = next) {
        struct result *r = (struct result *)l;
        next = table_next(l);
        if (r->of.number == of.number && r->of.version != of.version && !needed(arg, r->of))
            kept_drop(k, r);
    }
}

void kept_free(struct kept *k)
{
    for (struct link *l; (l = table_each(&k->all, NULL)) != NULL;)
        kept_drop(k, (struct result *)l);
    table_free(&k->all);
    *k = KEPT_NONE;
}

/* ---- wishes and jobs ---- */

struct want {
    struct want *next;
    struct view view; /* references */
    enum derived what;
    uint32_t ready; /* results of all tensors before this one are kept, or not needed */
    uint32_t start; /* jobs for all tensors before this one have been started */
    uint32_t last;
    int err;
    /* done() is being called; until it returns, the results that were waited for are kept */
    bool answered;
    struct work_waiter waiter;
};

struct work_job {
    struct pool_job job; /* must come first */
    struct work_job *next;
    struct work *work;
    struct tensor_id of;
    struct task task;
};

struct work {
    struct lock lock;
    atomic_bool rests;  /* no job and no thread is left; set by pool_tell() */
    atomic_bool ending; /* set with the lock held */
    /* Protected by the lock: */
    struct kept kept;
    struct want *wants;    /* a list; the first wish is served next */
    struct work_job *jobs; /* jobs with results that are not kept yet */
    unsigned running;      /* number of jobs that have not ended */
    unsigned threads;      /* `running`, plus the threads that check whether other jobs can begin */
};

struct work *work_new(void)
{
    struct work *w = calloc(1, sizeof(*w));
    if (!w)
        return NULL;
    lock_init(&w->lock);
    atomic_init(&w->rests, true);
    return w;
}

/* Return the id under which results of tensor i are kept. */
static struct tensor_id id_of(const struct view *v, uint32_t i)
{
    return ids_of(v->snap->ids, i);
}

/* Return the index that a tensor in this state has in a view, or IDS_NONE if the view does not show
 * it. */
static uint32_t place_in_view(const struct view *v, struct tensor_id of)
{
    return ids_find_version(v->snap->ids, v->snap->gguf->n_tensors, of.version);
}

/* Return a copy of the view with its own references, for reading tensors. */
static struct view same_view(const struct view *v)
{
    return (struct view){snapshot_ref(v->snap), store_ref(v->store), NULL};
}

bool work_applies(const struct snapshot *g, const struct gguf_tensor *t, enum derived what)
{
    return what == DERIVED_SHA256 || quant_has_values(gguf_type(t), g->gguf->fmt.big);
}

static void want_free(struct want *want)
{
    view_free(&want->view);
    free(want);
}

static void job_free(struct work_job *j)
{
    buf_free(&j->task.bytes);
    view_free(&j->task.view);
    free(j);
}

/* Return true if this wish needs nothing more for the tensor. */
static bool is_settled(const struct work *w, const struct want *want, uint32_t i)
{
    const struct snapshot *g = want->view.snap;
    return !work_applies(g, &g->gguf->tensor[i], want->what) ||
           kept_find(&w->kept, id_of(&want->view, i), want->what);
}

static bool is_computed(const struct work *w, const struct want *want, uint32_t i)
{
    struct tensor_id of = id_of(&want->view, i);
    const struct work_job *j = w->jobs;
    while (j &&
           (j->task.what != want->what || j->of.number != of.number || j->of.version != of.version))
        j = j->next;
    return j;
}

/* Return true if the wish can be answered. */
static bool is_ready(const struct work *w, struct want *want)
{
    while (want->ready < want->last && is_settled(w, want, want->ready))
        want->ready++;
    /* If a result was dropped before the wish passed its tensor, it must be computed again. */
    bool all = want->ready == want->last;
    if (want->start < want->ready || (!all && !is_computed(w, want, want->ready)))
        want->start = want->ready;
    return want->err || all;
}

static void push_want(struct work *w, struct want *want)
{
    struct want **at = &w->wants;
    while (*at)
        at = &(*at)->next;
    want->next = NULL;
    *at = want;
}

static void pull_want(struct work *w, const struct want *want)
{
    struct want **at = &w->wants;
    while (*at != want)
        at = &(*at)->next;
    *at = want->next;
}

static bool run_job(struct pool_job *job, struct timespec *again);

static int start_job(struct work *w, const struct want *want, uint32_t i)
{
    struct work_job *j = calloc(1, sizeof(*j));
    if (!j)
        return -ENOMEM;
    j->work = w;
    j->of = id_of(&want->view, i);
    j->task = (struct task){.view = same_view(&want->view), .tensor = i, .what = want->what};
    j->task.stop = &w->ending;
    const struct result *known = kept_find(&w->kept, j->of, DERIVED_MOMENTS);
    if (known) {
        j->task.moments = *(const struct moments *)(const void *)known->bytes.data;
        j->task.measured = true;
    }
    int r = pool_do(&j->job, run_job);
    if (r < 0) {
        job_free(j);
        return r;
    }
    j->next = w->jobs;
    w->jobs = j;
    w->running++;
    w->threads++;
    atomic_store(&w->rests, false);
    return 0;
}

/* Start a job for the wish if one is left to start and a processor is free. Returns false if no job
 * was started. */
static bool start_one(struct work *w, struct want *want)
{
    for (; !is_ready(w, want) && want->start < want->last; want->start++) {
        const uint32_t i = want->start;
        if (is_settled(w, want, i) || is_computed(w, want, i))
            continue;
        if (w->running >= pool_processors())
            return false;
        want->err = start_job(w, want, i);
        want->start += !want->err;
        return !want->err;
    }
    return false;
}

/* Start jobs, taking wishes in turn. */
static void start_jobs(struct work *w)
{
    unsigned failed = 0, n = 0;
    for (const struct want *want = w->wants; want; want = want->next)
        n++;
    while (failed < n) {
        struct want *want = w->wants;
        w->wants = want->next;
        push_want(w, want);
        failed = start_one(w, want) ? 0 : failed + 1;
    }
}

static bool is_needed(void *work, struct tensor_id of)
{
    const struct want *want = ((const struct work *)work)->wants;
    while (want && place_in_view(&want->view, of) == IDS_NONE)
        want = want->next;
    return want;
}

/* Keep a computed result; if r is an error, make the wishes that wait for the result fail. */
static void keep_result(struct work *w, struct work_job *j, int r)
{
    struct task *t = &j->task;
    struct work_job **at = &w->jobs;
    while (*at != j)
        at = &(*at)->next;
    *at = j->next;
    if (r == 0 && t->what == DERIVED_STATS) {
        CLEANUP(buf_free) struct buf moments = BUF_INIT;
        buf_add(&moments, &t->moments, sizeof(t->moments));
        r = buf_error(&moments) ? -ENOMEM : kept_put(&w->kept, j->of, DERIVED_MOMENTS, &moments);
    }
    if (r == 0)
        r = kept_put(&w->kept, j->of, t->what, &t->bytes);
    if (r == 0)
        kept_forget_others(&w->kept, j->of, is_needed, w);
    for (struct want *want = w->wants; want && r < 0; want = want->next) {
        uint32_t i = want->what == t->what ? place_in_view(&want->view, j->of) : IDS_NONE;
        if (i != IDS_NONE && i >= want->ready && i < want->last)
            want->err = r;
    }
}

/* Answer a wish that is ready; the lock is released during its done(). Returns false if no wish is
 * ready. */
static bool answer_one(struct work *w)
{
    struct want *want = w->wants;
    while (want && (want->answered || !is_ready(w, want)))
        want = want->next;
    if (!want)
        return false;
    want->answered = true;
    lock_drop(&w->lock);
    want->waiter.done(want->waiter.arg, want->err);
    lock_take(&w->lock);
    pull_want(w, want);
    lock_drop(&w->lock);
    want_free(want);
    lock_take(&w->lock);
    return true;
}

static bool run_job(struct pool_job *job, struct timespec *again)
{
    struct work_job *j = (struct work_job *)job;
    struct work *w = j->work;
    (void)again;
    int r = task_run(&j->task);
    lock_take(&w->lock);
    keep_result(w, j, r);
    lock_drop(&w->lock);
    job_free(j);
    lock_take(&w->lock);
    while (answer_one(w)) /* done() may be slow: the job is still counted */
        ;
    w->running--;
    do
        start_jobs(w);
    while (answer_one(w)); /* answer wishes whose jobs could not be started */
    if (--w->threads == 0)
        pool_tell(&w->rests);
    lock_drop(&w->lock);
    return false;
}

/* ---- wishes ---- */

/* Do what work_want() does, with the lock held. */
static int want_now(struct work *w, struct want *want)
{
    const struct work_waiter *waiter = &want->waiter;
    if (atomic_load(&w->ending))
        return -EINTR;
    if (is_ready(w, want))
        return 0;
    if (waiter->stopped && waiter->stopped(waiter->arg))
        return -EINTR;
    while (start_one(w, want))
        ;
    if (want->err)
        return want->err;
    push_want(w, want);
    return WORK_PARKED;
}

int work_want(struct work *w, const struct view *v, enum derived what, uint32_t first,
              uint32_t last, const struct work_waiter *waiter)
{
    struct want *want = calloc(1, sizeof(*want));
    if (!want)
        return -ENOMEM;
    *want = (struct want){.view = same_view(v),
                          .what = what,
                          .ready = first,
                          .start = first,
                          .last = last,
                          .waiter = *waiter};
    lock_take(&w->lock);
    int r = want_now(w, want);
    lock_drop(&w->lock);
    if (r != WORK_PARKED)
        want_free(want);
    return r;
}

bool work_interrupt(struct work *w, const void *request)
{
    lock_take(&w->lock);
    struct want *want = w->wants;
    while (want && (want->answered || (request && want->waiter.request != request)))
        want = want->next;
    if (want)
        pull_want(w, want);
    lock_drop(&w->lock);
    if (!want)
        return false;
    view_free(&want->view);
    want->waiter.done(want->waiter.arg, -EINTR);
    free(want);
    return true;
}

void work_stop(struct work *w)
{
    lock_take(&w->lock);
    atomic_store(&w->ending, true);
    lock_drop(&w->lock);
    while (work_interrupt(w, NULL))
        ;
    (void)pool_wait(&w->rests, NULL);
    lock_take(&w->lock); /* wait until the last thread has released the lock */
    lock_drop(&w->lock);
}

void work_free(struct work *w)
{
    if (!w)
        return;
    work_stop(w);
    kept_free(&w->kept);
    lock_destroy(&w->lock);
    free(w);
}

struct result *work_result(struct work *w, const struct view *v, uint32_t i, enum derived what)
{
    LOCKED(&w->lock);
    return kept_use(&w->kept, id_of(v, i), what);
}

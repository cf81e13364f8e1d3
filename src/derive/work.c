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

void result_unref(struct result *r)
{
    if (!REF_DROP(r))
        return;
    buf_free(&r->bytes);
    free(r);
}

/* ---- wishes and jobs ---- */

struct want {
    struct want *next;
    struct view view; /* references */
    enum derived what;
    uint32_t ready; /* results of all tensors before this one are kept, or not needed */
    uint32_t last;
    int err;
    struct work_waiter waiter;
};

struct work_job {
    struct pool_job job; /* must come first */
    struct work *work;
    struct result *result; /* not ready; in the table of kept results */
    struct task task;
};

struct work {
    struct lock lock;
    atomic_bool rests;  /* no job and no thread is left; set by pool_tell() */
    atomic_bool ending; /* set with the lock held */
    /* Protected by the lock: */
    struct table kept; /* references to results, by version; also to those being computed */
    size_t bytes;      /* total size of the kept texts and pictures */
    uint64_t uses;
    struct want *wants; /* the latest first */
    unsigned running;   /* number of jobs that have not ended */
    unsigned threads;   /* `running`, plus the threads that answer wishes */
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

/* ---- kept results ---- */

static bool is_large(const struct result *r)
{
    return r->what == DERIVED_STATS || r->what == DERIVED_PICTURE;
}

/* Return the version under which results of tensor i are kept. */
static uint32_t version_of(const struct view *v, uint32_t i)
{
    return ids_of(v->snap->ids, i).version;
}

/* Return the result, which may not be ready, or NULL. */
static struct result *kept_find(const struct work *w, uint32_t version, enum derived what)
{
    struct link *l = table_first(&w->kept, hash_number(version));
    for (; l; l = table_next(l)) {
        struct result *r = (struct result *)l;
        if (r->version == version && r->what == what)
            return r;
    }
    return NULL;
}

static void kept_drop(struct work *w, struct result *r)
{
    w->bytes -= is_large(r) ? r->bytes.len : 0;
    table_remove(&w->kept, &r->link);
    result_unref(r);
}

/* Return the text or picture that was used least recently. */
static struct result *oldest(const struct work *w)
{
    struct result *ret = NULL;
    for (struct link *l = NULL; (l = table_each(&w->kept, l)) != NULL;) {
        struct result *r = (struct result *)l;
        if (is_large(r) && r->ready && (!ret || r->used < ret->used))
            ret = r;
    }
    return ret;
}

/* Add a result that is not ready. Returns NULL if out of memory. */
static struct result *kept_new(struct work *w, uint32_t version, enum derived what)
{
    struct result *r = calloc(1, sizeof(*r));
    if (!r || table_add(&w->kept, &r->link, hash_number(version)) < 0) {
        free(r);
        return NULL;
    }
    atomic_init(&r->refs, 1);
    r->version = version;
    r->what = what;
    return r;
}

/* The result is *bytes, whose ownership it takes. */
static void kept_ready(struct work *w, struct result *r, struct buf *bytes)
{
    r->bytes = *bytes;
    *bytes = BUF_INIT;
    r->ready = true;
    r->used = ++w->uses;
    w->bytes += is_large(r) ? r->bytes.len : 0;
    for (struct result *x; w->bytes > KEPT_BYTES && (x = oldest(w)) != r;)
        kept_drop(w, x);
}

/* ---- wishes ---- */

/* Return a copy of the view with its own references, for reading tensors. */
static struct view same_view(const struct view *v)
{
    return (struct view){REF(v->snap), REF(v->store), NULL};
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
    const uint32_t version = version_of(&want->view, i);
    const struct result *known = kept_find(w, version, DERIVED_MOMENTS);
    struct result *result = j ? kept_new(w, version, want->what) : NULL;
    if (!result) {
        free(j);
        return -ENOMEM;
    }
    j->work = w;
    j->result = result;
    j->task = (struct task){.view = same_view(&want->view), .tensor = i, .what = want->what};
    j->task.stop = &w->ending;
    if (known && known->ready) {
        j->task.moments = *(const struct moments *)(const void *)known->bytes.data;
        j->task.measured = true;
    }
    int r = pool_do(&j->job, run_job);
    if (r < 0) {
        kept_drop(w, result);
        job_free(j);
        return r;
    }
    w->running++;
    w->threads++;
    atomic_store(&w->rests, false);
    return 0;
}

/* Start jobs for what the wish lacks, as far as processors are free. Returns true if the wish can be
 * answered. */
static bool advance_want(struct work *w, struct want *want)
{
    bool all = true;
    for (uint32_t i = want->ready; i < want->last && !want->err; i++) {
        const struct snapshot *g = want->view.snap;
        const struct result *r = kept_find(w, version_of(&want->view, i), want->what);
        if (r ? r->ready : !work_applies(g, &g->gguf->tensor[i], want->what)) {
            want->ready += all;
            continue;
        }
        all = false;
        if (r)
            continue;
        if (w->running >= pool_processors())
            break;
        want->err = start_job(w, want, i);
    }
    return want->err || all;
}

/* Keep the job's result; if r is an error, make the wishes that wait for the result fail. */
static void keep_result(struct work *w, struct work_job *j, int r)
{
    struct task *t = &j->task;
    const uint32_t version = j->result->version;
    if (r == 0)
        kept_ready(w, j->result, &t->bytes);
    else
        kept_drop(w, j->result);
    if (r == 0 && t->what == DERIVED_STATS && !kept_find(w, version, DERIVED_MOMENTS)) {
        CLEANUP(buf_free) struct buf moments = BUF_INIT;
        buf_add(&moments, &t->moments, sizeof(t->moments));
        struct result *also = buf_error(&moments) ? NULL : kept_new(w, version, DERIVED_MOMENTS);
        if (also)
            kept_ready(w, also, &moments);
    }
    for (struct want *want = w->wants; want && r < 0; want = want->next) {
        const struct snapshot *g = want->view.snap;
        const uint32_t i = ids_find_version(g->ids, g->gguf->n_tensors, version);
        if (want->what == t->what && i != IDS_NONE && i >= want->ready && i < want->last)
            want->err = r;
    }
}

/* Advance the wishes, the latest first, up to one that is ready. Answer it; the lock is released
 * during its done(). Returns false if none is ready. */
static bool answer_one(struct work *w)
{
    struct want *want = w->wants;
    while (want && !advance_want(w, want))
        want = want->next;
    if (!want)
        return false;
    pull_want(w, want);
    lock_drop(&w->lock);
    want->waiter.done(want->waiter.arg, want->err);
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
    w->running--;
    while (answer_one(w))
        ;
    if (--w->threads == 0)
        pool_tell(&w->rests);
    lock_drop(&w->lock);
    return false;
}

/* Do what work_want() does, with the lock held. */
static int want_now(struct work *w, struct want *want)
{
    const struct work_waiter *waiter = &want->waiter;
    if (atomic_load(&w->ending))
        return -EINTR;
    if (waiter->stopped && waiter->stopped(waiter->arg))
        return -EINTR;
    if (advance_want(w, want))
        return want->err;
    want->next = w->wants;
    w->wants = want;
    return WORK_PARKED;
}

int work_want(struct work *w, const struct view *v, enum derived what, uint32_t first,
              uint32_t last, const struct work_waiter *waiter)
{
    struct want *want = calloc(1, sizeof(*want));
    if (!want)
        return -ENOMEM;
    *want = (struct want){
        .view = same_view(v), .what = what, .ready = first, .last = last, .waiter = *waiter};
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
    while (want && request && want->waiter.request != request)
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
    for (struct link *l; (l = table_each(&w->kept, NULL)) != NULL;)
        kept_drop(w, (struct result *)l);
    table_free(&w->kept);
    lock_destroy(&w->lock);
    free(w);
}

struct result *work_result(struct work *w, const struct view *v, uint32_t i, enum derived what)
{
    LOCKED(&w->lock);
    struct result *r = kept_find(w, version_of(v, i), what);
    if (!r || !r->ready)
        return NULL;
    r->used = ++w->uses;
    return REF(r);
}

/* SPDX-License-Identifier: MIT */
/* Tasks of what is wanted, and the threads that take their units: see work_run.h. */
#include "derive/work_run.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "base/thread.h"
#include "base/when.h"
#include "base/lock.h"

/* Tasks beyond one for each thread, of all wishes together: pictures hold 4 MiB each. */
enum { TASKS_MORE = 16 };

/*
 * Seconds that a task is kept when nobody wants it any more. A program that gets a signal each second, for a
 * line of progress, reads again at once and goes on where it was. A task keeps the model open, even if its
 * file was removed: so it is not kept for long.
 */
enum { ASIDE_SECONDS = 3 };
/* Tasks that are aside, at most: for their memory. */
enum { ASIDE_MOST = 16 };

/* Bytes of a tensor that goes before the others: done in a blink. */
#define SMALL ((uint64_t)16 << 20)

struct kept_key work_key(const struct view *v, uint32_t i)
{
    struct tensor_id id = ids_of(v->snap->ids, i);
    return (struct kept_key){id.number, id.version};
}

struct view work_same_view(const struct view *v)
{
    return (struct view){snapshot_ref(v->snap), store_ref(v->store), NULL};
}

/* ---- wishes and tasks ---- */

/* True if the tensor has a result. */
static bool applies(const struct want *want, uint32_t i)
{
    const struct snapshot *g = want->view.snap;
    return work_applies(g, &g->gguf->tensor[i], want->what);
}

/* True if the tensor needs nothing more for this wish. */
static bool settled(const struct work *w, const struct want *want, uint32_t i)
{
    return !applies(want, i) || kept_has(&w->kept, work_key(&want->view, i), want->what);
}

static struct task *find_task(const struct work *w, const struct want *want, uint32_t i)
{
    struct kept_key key = work_key(&want->view, i);
    struct task *t = w->tasks;
    while (t && (t->what != want->what || t->key.id != key.id || t->key.version != key.version))
        t = t->next;
    return t;
}

bool work_is_ready(struct work *w, struct want *want)
{
    for (; want->ready < want->last && settled(w, want, want->ready); want->ready++)
        if (applies(want, want->ready))
            kept_hold(&w->kept, work_key(&want->view, want->ready));
    /* A result that was there may have been dropped before it could be held. */
    bool all = want->ready == want->last;
    if (want->start < want->ready || (!all && !find_task(w, want, want->ready)))
        want->start = want->ready;
    return want->err || all;
}

void work_let_go(struct work *w, struct want *want)
{
    for (uint32_t i = want->first; i < want->ready; i++)
        if (applies(want, i))
            kept_let_go(&w->kept, work_key(&want->view, i));
    want->first = want->ready;
}

static bool wants_task(const struct want *want, const struct task *t)
{
    if (want->what != t->what)
        return false;
    for (uint32_t i = want->ready; i < want->last; i++) {
        struct kept_key key = work_key(&want->view, i);
        if (key.id == t->key.id && key.version == t->key.version)
            return true;
    }
    return false;
}

void work_push_want(struct want **list, struct want *want)
{
    while (*list)
        list = &(*list)->next;
    want->next = NULL;
    *list = want;
}

static void push_task(struct work *w, struct task *t)
{
    struct task **at = &w->tasks;
    while (*at)
        at = &(*at)->next;
    t->next = NULL;
    *at = t;
}

static void pull_task(struct work *w, const struct task *t)
{
    struct task **at = &w->tasks;
    while (*at != t)
        at = &(*at)->next;
    *at = t->next;
}

static int add_task(struct work *w, const struct want *want, uint32_t i)
{
    struct moments known;
    struct task *t = calloc(1, sizeof(*t));
    if (!t)
        return -ENOMEM;
    t->view = work_same_view(&want->view);
    t->tensor = i;
    t->key = work_key(&want->view, i);
    t->what = want->what;
    t->small = want->view.snap->gguf->tensor[i].nbytes <= SMALL;
    int r = task_begin(t, kept_moments(&w->kept, t->key, &known) ? &known : NULL);
    if (r < 0) {
        task_free(t);
        return r;
    }
    push_task(w, t);
    w->n_tasks++;
    return 0;
}

/* Start a task of the wish, if there is one to be started. */
static bool start_one(struct work *w, struct want *want)
{
    for (; want->start < want->last && !want->err; want->start++) {
        if (settled(w, want, want->start) || find_task(w, want, want->start))
            continue;
        want->err = add_task(w, want, want->start);
        if (want->err)
            return false;
        want->start++;
        return true;
    }
    return false;
}

/* Start tasks, each wish in its turn, while there are too few for the threads. */
static void start_tasks(struct work *w)
{
    unsigned most = w->threads_most + TASKS_MORE, failed = 0, n = 0;
    for (const struct want *want = w->wants; want; want = want->next)
        n++;
    /* A wish has the threads' number of tasks, fewer if there are many wishes. */
    while (w->wants && w->n_tasks < most && w->n_tasks < n * w->threads_most && failed < n) {
        struct want *want = w->wants;
        w->wants = want->next;
        work_push_want(&w->wants, want);
        failed = start_one(w, want) ? 0 : failed + 1;
    }
}

/* ---- tasks that nobody wants ---- */

static bool is_wanted(const struct work *w, const struct task *t)
{
    const struct want *want = w->wants;
    while (want && !wants_task(want, t))
        want = want->next;
    return want;
}

/* A task that is aside counts again. */
static void resume(struct work *w, struct task *t)
{
    w->n_aside -= t->aside;
    w->n_tasks += t->aside;
    t->aside = false;
}

static void give_up(struct work *w, struct task *t)
{
    resume(w, t);
    t->given_up = true;
}

void work_put_aside(struct work *w)
{
    struct timespec until = when_now();
    until.tv_sec += ASIDE_SECONDS;
    for (struct task *t = w->tasks; t; t = t->next) {
        if (t->aside || t->given_up || is_wanted(w, t))
            continue;
        t->aside = true;
        t->until = until;
        w->n_aside++;
        w->n_tasks--;
    }
    /* The first are those that have waited longest. */
    for (struct task *t = w->tasks; t && w->n_aside > ASIDE_MOST; t = t->next)
        if (t->aside)
            give_up(w, t);
}

void work_take_up(struct work *w, const struct want *want)
{
    for (struct task *t = w->tasks; t && w->n_aside > 0; t = t->next)
        if (t->aside && wants_task(want, t))
            resume(w, t);
}

void work_give_up(struct work *w)
{
    for (struct task *t = w->tasks; t; t = t->next)
        give_up(w, t);
}

static bool is_before(const struct timespec *a, const struct timespec *b)
{
    return a->tv_sec != b->tv_sec ? a->tv_sec < b->tv_sec : a->tv_nsec < b->tv_nsec;
}

/* Give up the tasks that have been aside for long enough. */
static void give_up_due(struct work *w)
{
    struct timespec now;
    if (w->n_aside == 0)
        return;
    now = when_now();
    for (struct task *t = w->tasks; t; t = t->next)
        if (t->aside && !is_before(&now, &t->until))
            give_up(w, t);
}

/*
 * Wait until there may be something to do. Gives the lock up meanwhile. False: nothing is aside, or another
 * thread waits for it.
 */
static bool linger(struct work *w)
{
    struct timespec until = {0};
    if (w->n_aside == 0 || w->lingering > 0)
        return false;
    for (const struct task *t = w->tasks; t; t = t->next)
        if (t->aside && (until.tv_sec == 0 || is_before(&t->until, &until)))
            until = t->until;
    w->lingering++;
    (void)lock_wait(&w->lock, &w->more, &until);
    w->lingering--;
    return true;
}

/* ---- what is given out ---- */

/* A task with something to do: the first of a small tensor, else the first. NULL: nothing to do. */
static struct task *find_next(const struct work *w)
{
    struct task *large = NULL;
    for (struct task *t = w->tasks; t; t = t->next) {
        if (!task_has_unit(t) && !task_may_close(t))
            continue;
        if (t->small || task_may_close(t))
            return t;
        large = large ? large : t;
    }
    return large;
}

/* The next task to work at, moved behind the others. */
static struct task *next_task(struct work *w)
{
    start_tasks(w);
    give_up_due(w);
    struct task *t = find_next(w);
    if (t) {
        pull_task(w, t);
        push_task(w, t);
    }
    return t;
}

static bool has_more(struct work *w)
{
    start_tasks(w);
    return find_next(w);
}

/* Take all wishes that are ready off the list. */
static struct want *take_ready(struct work *w)
{
    struct want *ready = NULL, **at = &w->wants;
    while (*at) {
        struct want *want = *at;
        if (work_is_ready(w, want)) {
            *at = want->next;
            work_push_want(&ready, want);
        } else {
            at = &want->next;
        }
    }
    return ready;
}

/* A task has ended: kept, failed, or given up. */
static void end_task(struct work *w, struct task *t)
{
    resume(w, t);
    pull_task(w, t);
    w->n_tasks--;
    w->computed++;
    if (!t->err && !t->given_up)
        t->err = task_keep(t, &w->kept);
    for (struct want *want = w->wants; want && t->err; want = want->next)
        if (wants_task(want, t))
            want->err = t->err;
}

void work_answer(struct want *list)
{
    while (list) {
        struct want *want = list;
        list = want->next;
        view_free(&want->view);
        want->waiter.done(want->waiter.arg, want->err);
        free(want);
    }
}

/* Answer wishes that are off the list. What they waited for is kept meanwhile: done() reads it. Gives the
 * lock up meanwhile. */
static void answer(struct work *w, struct want *list)
{
    lock_drop(&w->lock);
    for (const struct want *want = list; want; want = want->next)
        want->waiter.done(want->waiter.arg, want->err);
    lock_take(&w->lock);
    for (struct want *want = list; want; want = want->next)
        work_let_go(w, want);
    lock_drop(&w->lock);
    while (list) {
        struct want *want = list;
        list = want->next;
        view_free(&want->view);
        free(want);
    }
    lock_take(&w->lock);
}

/* Close a phase of the task. Gives the lock up meanwhile. */
static void close_phase(struct work *w, struct task *t)
{
    bool again = false;
    t->closing = true;
    if (!t->err && !t->given_up) {
        lock_drop(&w->lock);
        int r = task_phase(t);
        lock_take(&w->lock);
        t->err = r < 0 ? r : 0;
        again = r > 0;
    }
    t->closing = false;
    if (again) {
        t->given = t->ended = 0;
        return;
    }
    end_task(w, t);
    answer(w, take_ready(w));
    lock_drop(&w->lock);
    task_free(t);
    lock_take(&w->lock);
}

/* ---- threads ---- */

/*
 * Threads of the process beyond the first of each work: in a folder of models each model has a work. Each work
 * changes this under its own lock, when it has one thread already.
 */
static atomic_uint threads_more;

static bool take_more(const struct work *w)
{
    unsigned n = atomic_load(&threads_more);
    while (n < w->threads_most)
        if (atomic_compare_exchange_weak(&threads_more, &n, n + 1))
            return true;
    return false;
}

static void end_thread(struct work *w)
{
    if (--w->threads > 0)
        atomic_fetch_sub(&threads_more, 1);
    else
        cond_signal(&w->idle);
}

static void run_unit(struct work *w, struct task *t, float room[TASK_ROOM])
{
    uint64_t unit = t->given++;
    if (w->lingering > 0 && has_more(w))
        cond_signal(&w->more);
    else if (w->threads < w->threads_most && has_more(w))
        (void)work_start_thread(w);
    lock_drop(&w->lock);
    int r = task_unit(t, unit, room);
    lock_take(&w->lock);
    t->ended++;
    t->err = t->err ? t->err : r;
}

/* Answer the wishes that cannot be started. Gives the lock up meanwhile. False: no such wishes. */
static bool answer_failed(struct work *w)
{
    struct want *failed = take_ready(w);
    if (!failed)
        return false;
    answer(w, failed);
    return true;
}

static void *thread(void *arg)
{
    struct work *w = arg;
    float room[TASK_ROOM];
    struct task *t;
    lock_take(&w->lock);
    do {
        while ((t = next_task(w)))
            if (task_may_close(t))
                close_phase(w, t);
            else
                run_unit(w, t, room);
    } while (answer_failed(w) || linger(w));
    end_thread(w);
    lock_drop(&w->lock);
    return NULL;
}

int work_start_thread(struct work *w)
{
    if (w->threads > 0 && !take_more(w))
        return 0;
    int r = thread_start(NULL, thread, w);
    w->threads++;
    if (r < 0)
        end_thread(w);
    return r;
}

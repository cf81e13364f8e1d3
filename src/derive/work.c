/* SPDX-License-Identifier: MIT */
/*
 * Computing what is wanted: see work.h.
 *
 * A wish (struct want) goes over its tensors: it starts tasks ahead, about as many as there are threads, and
 * is answered when it has passed the last tensor whose result is kept. Threads take units of the tasks in turn.
 * A task that has not begun is dropped when no wish needs it any more.
 *
 * But where it says otherwise, the caller of a static function has the lock.
 */
#include "derive/work.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/lock.h"
#include "base/thread.h"
#include "derive/task.h"

/* Threads of a machine with more processors are limited by its memory, not by them. */
enum { THREADS_MOST = 64 };

/* Tasks beyond one for each thread: of small tensors, and of wishes for one tensor. Pictures hold 4 MiB each. */
enum { TASKS_MORE = 16 };

/* Bytes of a tensor that goes before the others: done in a blink. */
#define SMALL ((uint64_t)16 << 20)

struct want {
    struct want *next;
    struct want *also; /* that is answered at the same time */
    struct view view;  /* references */
    enum derived what;
    uint32_t first; /* of the tensors */
    uint32_t ready; /* all tensors before are kept, or left out */
    uint32_t start; /* all tensors before have been started */
    uint32_t last;
    int err;
    bool answered; /* done() is called: until it returns, what was waited for stays kept */
    struct work_waiter waiter;
};

struct work {
    struct lock lock;
    struct cond idle; /* no thread is left */
    /* Protected by the lock: */
    struct kept kept;
    struct want *wants; /* the one whose turn it is first */
    struct task *tasks; /* the same */
    unsigned n_tasks, threads, threads_most;
    bool ending;
};

struct work *work_new(void)
{
    struct work *w = calloc(1, sizeof(*w));
    if (!w)
        return NULL;
    lock_init(&w->lock);
    cond_init(&w->idle);
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    w->threads_most = n < 1 ? 1 : n > THREADS_MOST ? THREADS_MOST : (unsigned)n;
    return w;
}

/* What is kept of tensor i is kept under this. */
static struct kept_key key_of(const struct view *v, uint32_t i)
{
    struct tensor_id id = ids_of(v->snap->ids, i);
    return (struct kept_key){id.number, id.version};
}

/* The place of a state of a tensor in a view, IDS_NONE if it does not show that. */
static uint32_t place_of(const struct view *v, struct kept_key key)
{
    return ids_find_version(v->snap->ids, v->snap->gguf->n_tensors, key.version);
}

/* References to what tensors are read from. */
static struct view same_view(const struct view *v)
{
    return (struct view){snapshot_ref(v->snap), store_ref(v->store), NULL};
}

bool work_applies(const struct snapshot *g, const struct gguf_tensor *t, enum derived what)
{
    return what == DERIVED_SHA256 || quant_has_values(gguf_type(t), g->gguf->fmt.big);
}

/* ---- wishes and tasks ---- */

/* True if the tensor needs nothing more for this wish. */
static bool settled(const struct work *w, const struct want *want, uint32_t i)
{
    const struct snapshot *g = want->view.snap;
    return !work_applies(g, &g->gguf->tensor[i], want->what) ||
           kept_has(&w->kept, key_of(&want->view, i), want->what);
}

static struct task *find_task(const struct work *w, const struct want *want, uint32_t i)
{
    struct kept_key key = key_of(&want->view, i);
    struct task *t = w->tasks;
    while (t && (t->what != want->what || t->key.id != key.id || t->key.version != key.version))
        t = t->next;
    return t;
}

/* True: the wish is to be answered. */
static bool is_ready(const struct work *w, struct want *want)
{
    while (want->ready < want->last && settled(w, want, want->ready))
        want->ready++;
    /* A result that was there may have been dropped before it was passed. */
    bool all = want->ready == want->last;
    if (want->start < want->ready || (!all && !find_task(w, want, want->ready)))
        want->start = want->ready;
    return want->err || all;
}

static bool wants_task(const struct want *want, const struct task *t)
{
    uint32_t i = want->what == t->what ? place_of(&want->view, t->key) : IDS_NONE;
    return i != IDS_NONE && i >= want->ready && i < want->last;
}

static bool is_wanted(const struct work *w, const struct task *t)
{
    const struct want *want = w->wants;
    while (want && !wants_task(want, t))
        want = want->next;
    return want;
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
    t->view = same_view(&want->view);
    t->tensor = i;
    t->key = key_of(&want->view, i);
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

/* Start a task of the wish, if there is one to be started, and room for it. */
static bool start_one(struct work *w, struct want *want)
{
    for (; want->start < want->last && !want->err; want->start++) {
        const uint32_t i = want->start;
        if (settled(w, want, i) || find_task(w, want, i))
            continue;
        bool first =
            want->last - want->first == 1 || want->view.snap->gguf->tensor[i].nbytes <= SMALL;
        if (w->n_tasks >= w->threads_most + (first ? TASKS_MORE : 0))
            return false;
        want->err = add_task(w, want, i);
        want->start += !want->err;
        return !want->err;
    }
    return false;
}

/* Start tasks, each wish in its turn. */
static void start_tasks(struct work *w)
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

static bool is_needed(void *work, struct kept_key key)
{
    const struct want *want = ((const struct work *)work)->wants;
    while (want && place_of(&want->view, key) == IDS_NONE)
        want = want->next;
    return want;
}

/* A task has ended: its result is kept, or it failed. Gives the lock up meanwhile. */
static void end_task(struct work *w, struct task *t)
{
    pull_task(w, t);
    w->n_tasks--;
    if (!t->err)
        t->err = task_keep(t, &w->kept);
    if (!t->err)
        kept_forget_others(&w->kept, t->key, is_needed, w);
    for (struct want *want = w->wants; want && t->err; want = want->next)
        if (wants_task(want, t))
            want->err = t->err;
    lock_drop(&w->lock);
    task_free(t);
    lock_take(&w->lock);
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

/* The next task to work at, moved behind the others. May give the lock up. */
static struct task *next_task(struct work *w)
{
    struct task *t;
    start_tasks(w);
    while ((t = find_next(w)) != NULL && !t->begun && !t->err && !is_wanted(w, t)) {
        t->err = -EINTR;
        end_task(w, t);
        start_tasks(w);
    }
    if (t) {
        t->begun = true;
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

/* Answer the wishes that are ready. Gives the lock up meanwhile. False: no wish is ready. */
static bool answer(struct work *w)
{
    struct want *list = NULL, **end = &list, *next;
    for (struct want *want = w->wants; want; want = want->next)
        if (!want->answered && is_ready(w, want)) {
            want->answered = true;
            *end = want;
            end = &want->also;
        }
    if (!list)
        return false;
    lock_drop(&w->lock);
    for (const struct want *want = list; want; want = want->also)
        want->waiter.done(want->waiter.arg, want->err);
    lock_take(&w->lock);
    for (struct want *want = list; want; want = want->also)
        pull_want(w, want);
    lock_drop(&w->lock);
    for (struct want *want = list; want; want = next) {
        next = want->also;
        view_free(&want->view);
        free(want);
    }
    lock_take(&w->lock);
    return true;
}

/* Close a phase of the task. Gives the lock up meanwhile. */
static void close_phase(struct work *w, struct task *t)
{
    bool again = false;
    t->closing = true;
    if (!t->err) {
        lock_drop(&w->lock);
        int r = task_phase(t);
        lock_take(&w->lock);
        t->err = t->err ? t->err : r < 0 ? r : 0;
        again = r > 0 && !t->err;
    }
    t->closing = false;
    if (again) {
        t->given = t->ended = 0;
        return;
    }
    end_task(w, t);
    (void)answer(w);
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

static void *thread(void *arg);

/* Start one thread more, unless the process has enough and this work has one. It ends when there is nothing
 * to do. 0, -errno. */
static int start_thread(struct work *w)
{
    if (w->threads >= w->threads_most || (w->threads > 0 && !take_more(w)))
        return 0;
    w->threads++;
    int r = thread_start(NULL, thread, w);
    if (r < 0)
        end_thread(w);
    return r;
}

static void run_unit(struct work *w, struct task *t, float room[TASK_ROOM])
{
    uint64_t unit = t->given++;
    if (has_more(w))
        (void)start_thread(w);
    lock_drop(&w->lock);
    int r = task_unit(t, unit, room);
    lock_take(&w->lock);
    t->ended++;
    t->err = t->err ? t->err : r;
}

static void *thread(void *arg)
{
    struct work *w = arg;
    float room[TASK_ROOM];
    struct task *t;
    lock_take(&w->lock);
    do {
        while ((t = next_task(w)) != NULL)
            if (task_may_close(t))
                close_phase(w, t);
            else
                run_unit(w, t, room);
    } while (answer(w)); /* those that cannot be started */
    end_thread(w);
    lock_drop(&w->lock);
    return NULL;
}

/* ---- what is wanted ---- */

/* As work_want(). */
static int want_now(struct work *w, struct want *want)
{
    const struct work_waiter *waiter = &want->waiter;
    if (w->ending)
        return -EINTR;
    if (is_ready(w, want))
        return 0;
    if (waiter->stopped && waiter->stopped(waiter->arg))
        return -EINTR;
    push_want(w, want);
    if (start_thread(w) == 0 || w->threads > 0)
        return WORK_PARKED;
    pull_want(w, want);
    return -ENOMEM;
}

int work_want(struct work *w, const struct view *v, enum derived what, uint32_t first,
              uint32_t last, const struct work_waiter *waiter)
{
    struct want *want = calloc(1, sizeof(*want));
    if (!want)
        return -ENOMEM;
    *want = (struct want){.view = same_view(v),
                          .what = what,
                          .first = first,
                          .ready = first,
                          .start = first,
                          .last = last,
                          .waiter = *waiter};
    lock_take(&w->lock);
    int r = want_now(w, want);
    lock_drop(&w->lock);
    if (r == WORK_PARKED)
        return r;
    view_free(&want->view);
    free(want);
    return r;
}

/* Take a wish off that is not being answered, and answer it with -EINTR. Without the lock. False: it has no wish.
 * request NULL: any. */
static bool give_up(struct work *w, const void *request)
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

bool work_interrupt(struct work *w, const void *request)
{
    return give_up(w, request);
}

void work_stop(struct work *w)
{
    lock_take(&w->lock);
    w->ending = true;
    for (struct task *t = w->tasks; t; t = t->next)
        t->err = -EINTR;
    lock_drop(&w->lock);
    while (give_up(w, NULL))
        ;
    lock_take(&w->lock);
    while (w->threads > 0)
        (void)lock_wait(&w->lock, &w->idle, NULL);
    lock_drop(&w->lock);
}

void work_free(struct work *w)
{
    if (!w)
        return;
    work_stop(w);
    kept_free(&w->kept);
    cond_destroy(&w->idle);
    lock_destroy(&w->lock);
    free(w);
}

/* ---- what is kept ---- */

bool work_sha256(struct work *w, const struct view *v, uint32_t i, uint8_t dst[DIGEST_BYTES])
{
    LOCKED(&w->lock);
    return kept_sha256(&w->kept, key_of(v, i), dst);
}

bool work_moments(struct work *w, const struct view *v, uint32_t i, struct moments *dst)
{
    LOCKED(&w->lock);
    return kept_moments(&w->kept, key_of(v, i), dst);
}

struct blob *work_blob(struct work *w, const struct view *v, uint32_t i, enum derived what)
{
    LOCKED(&w->lock);
    return kept_blob(&w->kept, key_of(v, i), what);
}

/* SPDX-License-Identifier: MIT */
/*
 * Runs the turns of jobs, and the units of work: see pool.h.
 *
 * A thread is started when a job is due and no thread is idle, and ends when two others are idle.
 */
#include "base/pool.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/lock.h"

enum {
    IDLE_MOST = 2, /* one waits for turns that are due later, one for those before */
    PROCESSORS_MOST = 64,
    LINE = 64, /* size of a cache line in bytes */
};

static struct {
    struct lock lock;
    struct cond wake;              /* wakes idle threads */
    struct cond done;              /* a turn or a thread has ended */
    struct pool_job *first, *last; /* waiting jobs, ordered by due time */
    unsigned threads, busy, jobs;  /* threads, those that run a turn, and jobs that have joined */
} pool = {.lock = LOCK_INIT, .wake = COND_INIT, .done = COND_INIT};

/* ---- waiting jobs: under the lock, like all static state ---- */

static void put_in_turn(struct pool_job *j, const struct timespec *at)
{
    struct pool_job *prev = pool.last;
    if (pool.first && when_before(at, &pool.first->at))
        prev = NULL;
    while (prev && when_before(at, &prev->at))
        prev = prev->prev;
    j->at = *at;
    j->state = POOL_WAITS;
    j->prev = prev;
    j->next = prev ? prev->next : pool.first;
    *(prev ? &prev->next : &pool.first) = j;
    *(j->next ? &j->next->prev : &pool.last) = j;
}

static void unqueue(struct pool_job *j)
{
    *(j->prev ? &j->prev->next : &pool.first) = j->next;
    *(j->next ? &j->next->prev : &pool.last) = j->prev;
    j->state = POOL_RESTS;
}

static bool job_is_due(const struct pool_job *j, const struct timespec *now)
{
    return j->state == POOL_WAITS && !when_before(now, &j->at);
}

/* ---- threads ---- */

static int start_thread(void);

/* Find a thread for work that is due now or later. If none can be found, a thread that is running a
 * turn does the work afterwards. */
static void see_to_it(void)
{
    if (pool.threads > pool.busy)
        cond_signal(&pool.wake);
    else
        (void)start_thread();
}

static void take_turn(struct pool_job *j)
{
    struct timespec again = {0};
    const bool loose = j->loose;
    unqueue(j);
    j->state = POOL_BUSY;
    j->again = false;
    pool.busy++;
    if (pool.first)
        see_to_it();
    lock_drop(&pool.lock);
    const bool more = j->turn(j, &again);
    const struct timespec end = when_now();
    lock_take(&pool.lock);
    pool.busy--;
    if (!loose) {
        j->state = POOL_RESTS;
        if (more || j->again)
            put_in_turn(j, j->again || again.tv_sec == 0 ? &end : &again);
    }
    cond_broadcast(&pool.done);
}

static void *pool_thread(void *arg)
{
    (void)arg;
    thread_name("pool");
    lock_take(&pool.lock);
    for (;;) {
        const struct timespec now = when_now(), *until = pool.first ? &pool.first->at : NULL;
        if (until && job_is_due(pool.first, &now)) {
            take_turn(pool.first);
            continue;
        }
        if (pool.threads - pool.busy > IDLE_MOST || (!pool.first && pool.jobs == 0))
            break;
        const struct timespec at = until ? *until : now;
        (void)lock_wait(&pool.lock, &pool.wake, until ? &at : NULL);
    }
    pool.threads--;
    cond_signal(&pool.wake); /* the signal may have been meant for another waiter */
    cond_broadcast(&pool.done);
    lock_drop(&pool.lock);
    return NULL;
}

static int start_thread(void)
{
    int r = thread_start(NULL, pool_thread, NULL);
    pool.threads += r == 0;
    return r;
}

/* ---- the calls ---- */

int pool_join(struct pool_job *j, bool (*turn)(struct pool_job *j, struct timespec *again))
{
    *j = (struct pool_job){.turn = turn};
    LOCKED(&pool.lock);
    int r = pool.threads ? 0 : start_thread();
    pool.jobs += r == 0;
    return r;
}

void pool_call_at(struct pool_job *j, const struct timespec *when)
{
    LOCKED(&pool.lock);
    j->again = true;
    if (j->state == POOL_WAITS && when_before(when, &j->at))
        unqueue(j);
    if (j->state == POOL_RESTS)
        put_in_turn(j, when);
    see_to_it(); /* in every case, let a thread look at the queue */
}

void pool_leave(struct pool_job *j)
{
    static const struct timespec first;
    LOCKED(&pool.lock);
    for (struct timespec now; now = when_now(), j->state == POOL_BUSY || job_is_due(j, &now);) {
        if (j->state == POOL_WAITS) {
            unqueue(j);
            put_in_turn(j, &first);
        }
        see_to_it();
        (void)lock_wait(&pool.lock, &pool.done, NULL);
    }
    if (j->state == POOL_WAITS)
        unqueue(j);
    if (--pool.jobs == 0)
        cond_broadcast(&pool.wake);
    while (pool.jobs == 0 && pool.threads > pool.busy)
        (void)lock_wait(&pool.lock, &pool.done, NULL);
}

int pool_do(struct pool_job *j, bool (*turn)(struct pool_job *j, struct timespec *again))
{
    *j = (struct pool_job){.turn = turn, .loose = true};
    LOCKED(&pool.lock);
    int r = pool.threads ? 0 : start_thread();
    if (r == 0) {
        put_in_turn(j, &(struct timespec){0});
        see_to_it();
    }
    return r;
}

bool pool_wait(const atomic_bool *told, const struct timespec *until)
{
    if (atomic_load(told))
        return true;
    LOCKED(&pool.lock);
    while (!atomic_load(told) && lock_wait(&pool.lock, &pool.done, until))
        ;
    return atomic_load(told);
}

void pool_tell(atomic_bool *told)
{
    LOCKED(&pool.lock);
    atomic_store(told, true);
    cond_broadcast(&pool.done);
}

unsigned pool_processors(void)
{
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n < 1 ? 1 : n > PROCESSORS_MOST ? PROCESSORS_MOST : (unsigned)n;
}

/* ---- units ---- */

/* Protected by the pool's lock, except for `next`. */
struct shared {
    struct units *u;
    const struct units_watch *watch;
    _Atomic(uint64_t) next; /* the first unit that has not been taken */
    uint64_t done;
    uint64_t reported; /* units done at the last call of progress() */
    uint64_t failed;   /* if err: the first unit that failed */
    int err;
    bool over; /* the caller takes no more units */
    struct helper {
        struct pool_job job; /* must come first */
        struct shared *s;
    } helper[PROCESSORS_MOST];
    unsigned helpers;
};

/* Number of helpers in the process, always less than the number of processors. */
static unsigned helping;

struct lock *units_lock(void)
{
    return &pool.lock;
}

static void units_fail(struct shared *s, uint64_t unit, int err)
{
    if (s->err && s->failed <= unit)
        return;
    s->err = err;
    s->failed = unit;
}

static bool help(struct pool_job *j, struct timespec *again);

/* If a thread cannot be started, the work continues without it. */
static void call_helper(struct shared *s)
{
    const unsigned most = pool_processors() - 1;
    LOCKED(&pool.lock);
    if (s->over || s->err || s->helpers == most || helping >= most)
        return;
    helping++;
    struct helper *h = &s->helper[s->helpers++];
    *h = (struct helper){.job = {.turn = help}, .s = s};
    put_in_turn(&h->job, &(struct timespec){0});
    see_to_it();
}

/* Take a unit that has work to do. Returns false if there are no more. */
static bool take_unit(struct shared *s, uint64_t *unit)
{
    const struct units *u = s->u;
    uint64_t from = atomic_load(&s->next);
    do
        *unit = from < u->n && u->next ? u->next(u->arg, from) : from;
    while (*unit < u->n && !atomic_compare_exchange_strong(&s->next, &from, *unit + 1));
    if (*unit + 1 < u->n)
        call_helper(s);
    return *unit < u->n;
}

/* Return true unless a unit has failed or the work is cancelled. */
static bool goes_on(struct shared *s)
{
    LOCKED(&pool.lock);
    if (s->watch && s->watch->cancel && atomic_load(s->watch->cancel))
        units_fail(s, 0, -EINTR);
    return !s->err;
}

static void do_units(struct shared *s, bool first)
{
    uint64_t unit, done;
    void *room = aligned_alloc(LINE, (s->u->room / LINE + 1) * LINE);
    while (room && goes_on(s) && take_unit(s, &unit)) {
        int r = s->u->unit(s->u->arg, unit, room);
        lock_take(&pool.lock);
        done = ++s->done;
        if (r < 0)
            units_fail(s, unit, r);
        lock_drop(&pool.lock);
        if (first && s->watch && s->watch->progress)
            s->watch->progress(s->watch->arg, s->reported = done, s->u->n);
    }
    LOCKED(&pool.lock);
    if (!room && first)
        units_fail(s, 0, -ENOMEM);
    s->over |= first;
    free(room);
}

static bool help(struct pool_job *j, struct timespec *again)
{
    (void)again;
    do_units(((struct helper *)j)->s, false);
    LOCKED(&pool.lock);
    helping--;
    return false;
}

/* Release a helper that has not begun, because it is no longer needed. */
static void dismiss(struct pool_job *j)
{
    LOCKED(&pool.lock);
    if (j->state == POOL_WAITS) {
        unqueue(j);
        helping--;
    }
    while (j->state != POOL_RESTS)
        (void)lock_wait(&pool.lock, &pool.done, NULL);
}

int units_run(struct units *u, const struct units_watch *watch)
{
    struct shared s = {.u = u, .watch = watch};
    do_units(&s, true);
    for (unsigned i = 0; i < s.helpers; i++) /* no units are left */
        dismiss(&s.helper[i].job);
    if (!s.err && watch && watch->progress && s.reported < u->n)
        watch->progress(watch->arg, u->n, u->n);
    return s.err;
}

/* SPDX-License-Identifier: MIT */
/* The scheduler: see scheduler.h. */
#include "scheduler.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "hooks.h"

enum {
    TASKS = 256,
    TICK = 20000,      /* maximum number of nanoseconds that pass at a point */
    ENDLESS = 3000000, /* maximum number of points in a run */
    DATE = 1700000000, /* the starting time in seconds */
};

enum state { RUNS, LOCKS, WAITS, JOINS, SLEEPS, DONE };

struct task {
    sem_t go;
    pthread_t real;
    enum state state;
    const void *on; /* the condition or the joined task that it waits for */
    int *lock;      /* the lock that it waits for */
    bool woken;
    uint64_t until; /* UINT64_MAX: forever */
    unsigned rank;  /* in runs with ranks, the thread with the highest one runs */
    void *(*run)(void *arg);
    void *arg;
};

static struct task task[TASKS];
static unsigned n_tasks, n_done;
static _Thread_local struct task *self;
static uint64_t state_now, clock_ns, steps, trace;
static uint32_t one_in; /* threads are switched at one in this many points */
static bool ranked;
static uint64_t change_at[4]; /* points at which a rank changes */
bool sched_trace;
void (*sched_failed)(const char *line);

/* ---- chance ---- */

static uint64_t next(void)
{
    uint64_t z = state_now += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

uint32_t sched_draw(uint32_t n)
{
    return (uint32_t)((next() >> 32) * n >> 32);
}

bool sched_lot(uint32_t n)
{
    return sched_draw(n) == 0;
}

static void mix(uint64_t v)
{
    trace = (trace ^ v) * UINT64_C(0x9FB21C651E98DF25);
    trace ^= trace >> 29;
}

static void mix_text(const char *s)
{
    while (*s)
        mix((unsigned char)*s++);
}

/* ---- facts ---- */

uint64_t sched_steps(void)
{
    return steps;
}

uint64_t sched_hash(void)
{
    return trace;
}

uint64_t sched_now(void)
{
    return clock_ns;
}

void sched_note(const char *fmt, ...)
{
    char line[256];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(line, sizeof(line), fmt, ap);
    va_end(ap);
    mix_text(line);
    if (sched_trace)
        (void)fprintf(stderr, "%7llu %10.6f [%d] %s\n", (unsigned long long)steps,
                      (double)clock_ns / 1e9, self ? (int)(self - task) : -1, line);
}

void sched_fail(const char *fmt, ...)
{
    char line[1200];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(line, sizeof(line), fmt, ap);
    va_end(ap);
    sched_failed(line);
    abort();
}

/* ---- scheduling ---- */

static bool ready(const struct task *t)
{
    bool due = t->until <= clock_ns;
    switch (t->state) {
    case RUNS:
        return true;
    case LOCKS:
        return *t->lock == 0;
    case WAITS:
        return (t->woken || due) && *t->lock == 0;
    case JOINS:
        return ((const struct task *)t->on)->state == DONE;
    case SLEEPS:
        return due;
    case DONE:
        break;
    }
    return false;
}

/* Ends the wait of a task that was given the token. */
static void resume(struct task *t)
{
    if (t->state == LOCKS || t->state == WAITS)
        *t->lock = 1 + (int)(t - task);
    if (t->state == RUNS)
        return;
    t->state = RUNS;
    t->until = UINT64_MAX;
}

/* Advances time to the end of the first timed wait or, with `any`, of a random one. Returns false
 * if no thread is in a timed wait. */
static bool jump(bool any)
{
    uint64_t when = UINT64_MAX;
    unsigned many = 0;
    for (unsigned i = 0; i < n_tasks; i++) {
        struct task *t = &task[i];
        if (t->state == DONE || t->state == RUNS || t->until == UINT64_MAX || t->until <= clock_ns)
            continue;
        if (any ? sched_lot(++many) : t->until < when)
            when = t->until;
    }
    if (when == UINT64_MAX)
        return false;
    clock_ns = when;
    return true;
}

static struct task *chosen(void)
{
    struct task *best = NULL;
    unsigned many = 0;
    for (unsigned i = 0; i < n_tasks; i++) {
        struct task *t = &task[i];
        if (t->state == DONE || !ready(t))
            continue;
        if (ranked ? !best || t->rank > best->rank : sched_lot(++many))
            best = t;
    }
    return best;
}

static void give(struct task *to)
{
    struct task *me = self;
    if (to == me)
        return;
    (void)sem_post(&to->go);
    while (me->state != DONE && sem_wait(&me->go) < 0)
        ;
}

static void switch_to_another(void)
{
    struct task *to = chosen();
    while (!to) {
        if (!jump(false) && n_done < n_tasks)
            sched_fail("all threads wait, for ever"); /* in gdb: thread apply all backtrace */
        to = chosen();
    }
    resume(to);
    give(to);
}

static void count(const char *what, uint64_t arg)
{
    steps++;
    mix((uint64_t)(self - task) << 32 | arg);
    mix((uint64_t)(unsigned char)what[0] << 8 | (unsigned char)what[1]);
    if (sched_trace)
        sched_note("%s %llu", what, (unsigned long long)arg);
    if (steps > ENDLESS)
        sched_fail("it does not end: %u threads, after %d points", n_tasks - n_done, ENDLESS);
    clock_ns += sched_draw(TICK);
}

void sched_point(const char *what, uint64_t arg)
{
    if (!self)
        return;
    count(what, arg);
    if (sched_lot(3000))
        (void)jump(true);
    for (unsigned i = 0; ranked && i < 4; i++)
        if (steps == change_at[i])
            self->rank = i;
    if (ranked || sched_lot(one_in))
        switch_to_another();
}

static void block(enum state state, const void *on, int *lock, uint64_t until)
{
    self->on = on;
    self->lock = lock;
    self->until = until;
    self->woken = false;
    self->state = state;
    switch_to_another();
}

void sched_pass(uint64_t ms)
{
    block(SLEEPS, NULL, NULL, clock_ns + ms * 1000000);
}

/* ---- beginning and end ---- */

void sched_begin(uint64_t seed)
{
    static const uint32_t rates[] = {2, 3, 5, 10, 20, 50, 100, 200};
    memset(task, 0, sizeof(task));
    state_now = seed;
    trace = seed;
    clock_ns = steps = 0;
    n_done = 0;
    n_tasks = 1;
    one_in = rates[sched_draw(8)];
    ranked = sched_lot(3);
    for (unsigned i = 0; i < 4; i++)
        change_at[i] = sched_draw(i < 2 ? 600 : 6000);
    self = &task[0];
    self->rank = 4 + sched_draw(1000);
    self->until = UINT64_MAX;
    (void)sem_init(&self->go, 0, 0);
}

/* ---- called by base ---- */

static uint64_t of(const struct timespec *t)
{
    return (uint64_t)t->tv_sec * 1000000000 + (uint64_t)t->tv_nsec;
}

static struct timespec to(uint64_t ns)
{
    return (struct timespec){(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
}

int __wrap_clock_gettime(clockid_t clock, struct timespec *ret)
{
    if (!self)
        return __real_clock_gettime(clock, ret);
    /* never zero, which the program takes to mean "no time" */
    *ret = to(clock_ns);
    ret->tv_sec += clock == CLOCK_REALTIME ? DATE : 1000;
    return 0;
}

int __wrap_nanosleep(const struct timespec *t, struct timespec *left)
{
    if (!self)
        return __real_nanosleep(t, left);
    count("sleep", 0);
    block(SLEEPS, NULL, NULL, clock_ns + of(t));
    return 0;
}

ssize_t __wrap_getrandom(void *dst, size_t n, unsigned flags)
{
    if (!self)
        return __real_getrandom(dst, n, flags);
    for (size_t i = 0; i < n; i++)
        ((uint8_t *)dst)[i] = (uint8_t)next();
    return (ssize_t)n;
}

/* As in glibc, the first word of a mutex identifies the holder, and is 0 if the mutex is free. */
int __wrap_pthread_mutex_lock(pthread_mutex_t *m)
{
    int *lock = (int *)m;
    if (!self)
        return __real_pthread_mutex_lock(m);
    sched_point("lock", 0);
    if (*lock)
        block(LOCKS, NULL, lock, UINT64_MAX);
    *lock = 1 + (int)(self - task);
    return 0;
}

int __wrap_pthread_mutex_unlock(pthread_mutex_t *m)
{
    if (!self)
        return __real_pthread_mutex_unlock(m);
    *(int *)m = 0;
    sched_point("unlock", 0);
    return 0;
}

static int wait_until(pthread_cond_t *c, pthread_mutex_t *m, uint64_t until)
{
    count("wait", until == UINT64_MAX);
    *(int *)m = 0;
    if (sched_lot(60)) { /* spurious wakeup */
        block(LOCKS, NULL, (int *)m, UINT64_MAX);
        return 0;
    }
    block(WAITS, c, (int *)m, until);
    return self->woken ? 0 : 110; /* ETIMEDOUT */
}

int __wrap_pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *m)
{
    return self ? wait_until(c, m, UINT64_MAX) : __real_pthread_cond_wait(c, m);
}

int __wrap_pthread_cond_clockwait(pthread_cond_t *c, pthread_mutex_t *m, clockid_t clock,
                                  const struct timespec *t)
{
    uint64_t at = of(t), zero = (uint64_t)1000 * 1000000000;
    return self ? wait_until(c, m, at > zero ? at - zero : 0)
                : __real_pthread_cond_clockwait(c, m, clock, t);
}

static void wake(const pthread_cond_t *c, bool all)
{
    struct task *one = NULL;
    unsigned many = 0;
    for (unsigned i = 0; i < n_tasks; i++) {
        struct task *t = &task[i];
        if (t->state != WAITS || t->on != c || t->woken)
            continue;
        if (all)
            t->woken = true;
        else if (sched_lot(++many))
            one = t;
    }
    if (one)
        one->woken = true;
}

int __wrap_pthread_cond_signal(pthread_cond_t *c)
{
    if (!self)
        return __real_pthread_cond_signal(c);
    wake(c, false);
    return 0;
}

int __wrap_pthread_cond_broadcast(pthread_cond_t *c)
{
    if (!self)
        return __real_pthread_cond_broadcast(c);
    wake(c, true);
    return 0;
}

static void *run(void *arg)
{
    struct task *t = arg;
    while (sem_wait(&t->go) < 0)
        ;
    self = t;
    void *ret = t->run(t->arg);
    count("end", 0);
    t->state = DONE;
    n_done++;
    switch_to_another();
    return ret;
}

int __wrap_pthread_create(pthread_t *id, const pthread_attr_t *attr, void *(*fn)(void *), void *arg)
{
    if (!self)
        return __real_pthread_create(id, attr, fn, arg);
    if (n_tasks == TASKS)
        sched_fail("%d threads were started", TASKS);
    struct task *t = &task[n_tasks];
    *t = (struct task){.run = fn, .arg = arg, .rank = 4 + sched_draw(1000), .until = UINT64_MAX};
    (void)sem_init(&t->go, 0, 0);
    int r = __real_pthread_create(&t->real, attr, run, t);
    if (r != 0)
        return r;
    n_tasks++;
    *id = t->real;
    sched_point("start", n_tasks - 1);
    return 0;
}

int __wrap_pthread_join(pthread_t id, void **ret)
{
    if (!self)
        return __real_pthread_join(id, ret);
    struct task *t = NULL;
    for (unsigned i = 1; i < n_tasks; i++)
        if (pthread_equal(task[i].real, id)) /* the newest with this id, because ids are reused */
            t = &task[i];
    count("join", 0);
    if (t && t->state != DONE)
        block(JOINS, t, NULL, UINT64_MAX);
    return __real_pthread_join(id, ret);
}

int __wrap_pthread_once(pthread_once_t *once, void (*fn)(void))
{
    if (!self)
        return __real_pthread_once(once, fn);
    while (*once == 1)
        sched_pass(1);
    if (*once == 0) {
        *once = 1;
        fn();
        *once = 2;
    }
    return 0;
}

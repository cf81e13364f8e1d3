/* SPDX-License-Identifier: MIT */
/* Work by all processors: see units.h. */
#include "base/units.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

/* Threads of a machine with more processors are limited by its memory, not by them. */
enum { THREADS_MOST = 64 };

struct shared {
    const struct units *c;
    const struct units_watch *watch;
    pthread_mutex_t lock;
    /* Protected by the lock: */
    uint64_t next, done;
    uint64_t reported; /* units that were done at the last call of progress() */
    uint64_t failed;   /* the first unit that failed, if err */
    int err;
    pthread_t thread[THREADS_MOST];
    unsigned threads, most;
};

/* Under the lock. */
static uint64_t next_unit(const struct shared *s, uint64_t unit)
{
    const struct units *c = s->c;
    if (unit >= c->n)
        return c->n;
    return c->next ? c->next(c->arg, unit) : unit;
}

static void fail(struct shared *s, uint64_t unit, int err)
{
    if (s->err && s->failed <= unit)
        return;
    s->err = err;
    s->failed = unit;
}

static void start_thread(struct shared *s);

/* Take a unit. False: there are no more, or one has failed. */
static bool take(struct shared *s, uint64_t *unit)
{
    if (s->watch && s->watch->cancel && atomic_load(s->watch->cancel))
        fail(s, 0, -EINTR);
    if (s->err)
        return false;
    *unit = next_unit(s, s->next);
    if (*unit >= s->c->n)
        return false;
    s->next = next_unit(s, *unit + 1);
    if (s->next < s->c->n && s->threads < s->most)
        start_thread(s);
    return true;
}

static void work(struct shared *s, bool first)
{
    uint64_t unit;
    void *room = malloc(s->c->room ? s->c->room : 1);
    (void)pthread_mutex_lock(&s->lock);
    if (!room && first)
        fail(s, 0, -ENOMEM);
    while (room && take(s, &unit)) {
        (void)pthread_mutex_unlock(&s->lock);
        int r = s->c->unit(s->c->arg, unit, room);
        (void)pthread_mutex_lock(&s->lock);
        s->done++;
        if (r < 0)
            fail(s, unit, r);
        uint64_t done = s->done;
        if (!first || !s->watch || !s->watch->progress)
            continue;
        s->reported = done;
        (void)pthread_mutex_unlock(&s->lock);
        s->watch->progress(s->watch->arg, done, s->c->n);
        (void)pthread_mutex_lock(&s->lock);
    }
    (void)pthread_mutex_unlock(&s->lock);
    free(room);
}

static void *thread(void *arg)
{
    work(arg, false);
    return NULL;
}

/* Under the lock. One that cannot be started is done without. */
static void start_thread(struct shared *s)
{
    sigset_t all, old;
    /* Signals are for the main thread, but for that of a page that is gone (map.h). */
    (void)sigfillset(&all);
    (void)sigdelset(&all, SIGBUS);
    (void)pthread_sigmask(SIG_SETMASK, &all, &old);
    if (pthread_create(&s->thread[s->threads], NULL, thread, s) == 0)
        s->threads++;
    else
        s->most = s->threads;
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
}

int units_run(const struct units *c, const struct units_watch *watch)
{
    struct shared s = {.c = c, .watch = watch};
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    s.most = n < 1 ? 0 : n > THREADS_MOST ? THREADS_MOST - 1 : (unsigned)n - 1;
    (void)pthread_mutex_init(&s.lock, NULL);
    work(&s, true);
    /* Every unit is taken: more threads would find nothing to do. */
    (void)pthread_mutex_lock(&s.lock);
    unsigned threads = s.threads;
    s.most = threads;
    (void)pthread_mutex_unlock(&s.lock);
    for (unsigned i = 0; i < threads; i++)
        (void)pthread_join(s.thread[i], NULL);
    (void)pthread_mutex_destroy(&s.lock);
    if (!s.err && watch && watch->progress && s.reported < c->n)
        watch->progress(watch->arg, c->n, c->n);
    return s.err;
}

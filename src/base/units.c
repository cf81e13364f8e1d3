/* SPDX-License-Identifier: MIT */
/* Work by all processors: see units.h. */
#include "base/units.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/thread.h"
#include "base/lock.h"

/* Threads of a machine with more processors are limited by its memory, not by them. */
enum { THREADS_MOST = 64 };

enum { LINE = 64 }; /* bytes of a line of the processor's cache */

struct shared {
    const struct units *c;
    const struct units_watch *watch;
    struct lock lock;
    /* Protected by the lock: */
    uint64_t next, done;
    uint64_t reported; /* units that were done at the last call of progress() */
    uint64_t failed;   /* the first unit that failed, if err */
    int err;
    struct thread thread[THREADS_MOST];
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
    void *room = aligned_alloc(LINE, (s->c->room / LINE + 1) * LINE);
    lock_take(&s->lock);
    if (!room && first)
        fail(s, 0, -ENOMEM);
    while (room && take(s, &unit)) {
        lock_drop(&s->lock);
        int r = s->c->unit(s->c->arg, unit, room);
        lock_take(&s->lock);
        s->done++;
        if (r < 0)
            fail(s, unit, r);
        uint64_t done = s->done;
        if (!first || !s->watch || !s->watch->progress)
            continue;
        s->reported = done;
        lock_drop(&s->lock);
        s->watch->progress(s->watch->arg, done, s->c->n);
        lock_take(&s->lock);
    }
    lock_drop(&s->lock);
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
    if (thread_start(&s->thread[s->threads], thread, s) == 0)
        s->threads++;
    else
        s->most = s->threads;
}

int units_run(const struct units *c, const struct units_watch *watch)
{
    struct shared s = {.c = c, .watch = watch};
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    s.most = n < 1 ? 0 : n > THREADS_MOST ? THREADS_MOST - 1 : (unsigned)n - 1;
    lock_init(&s.lock);
    work(&s, true);
    /* Every unit is taken: more threads would find nothing to do. */
    lock_take(&s.lock);
    unsigned threads = s.threads;
    s.most = threads;
    lock_drop(&s.lock);
    for (unsigned i = 0; i < threads; i++)
        thread_join(&s.thread[i]);
    lock_destroy(&s.lock);
    if (!s.err && watch && watch->progress && s.reported < c->n)
        watch->progress(watch->arg, c->n, c->n);
    return s.err;
}

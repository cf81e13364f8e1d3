/* SPDX-License-Identifier: MIT */
/*
 * The threads of the process that serve no request: jobs in turns, and units of one piece of work.
 *
 *     r = pool_join(&x->job, turn);        the first job starts a thread: after a fork
 *     pool_call(&x->job);                  a turn, queued after others
 *     pool_call_at(&x->job, &when);        a turn at that time, if none is sooner
 *     pool_leave(&x->job);
 *
 * Few turns run at a time. One that takes longer than `pool_patience` milliseconds, or waits for another job, no
 * longer counts: a turn that hangs holds up no other job. Turns of one job never overlap. Calls during a turn lead to
 * one more turn. Turns run in the order of their times; pool_call() means now.
 *
 *     struct units u = {.n = n, .unit = fn, .arg = arg, .room = bytes};
 *     r = units_run(&u, &watch);
 *
 * The calling thread takes part. Others help while more than one unit is left and a processor is free, and have
 * finished when it returns. Units are given out in order.
 *
 * Threads: any. A turn runs without the pool's lock, and a job may be called with locks held that its turn takes.
 * While any job has joined, a thread waits for calls; without jobs all threads end.
 */
#ifndef BASE_POOL_H
#define BASE_POOL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/lock.h"

extern unsigned pool_patience; /* 1000; tests change it */

/* Embedded in the object it works for. Its members belong to the pool. */
struct pool_job {
    /* Return true if another turn is needed, at *again (CLOCK_MONOTONIC); *again is zero (at once) on entry. */
    bool (*turn)(struct pool_job *j, struct timespec *again);
    enum { POOL_RESTS, POOL_WAITS, POOL_BUSY } state;
    bool again; /* it was called during its turn */
    bool loose, beside;
    struct timespec at;           /* WAITS: when its turn is due */
    struct pool_job *prev, *next; /* the queue of waiting jobs, ordered by `at` */
};

/* 0, or -errno if no thread could be started and none is running. */
int pool_join(struct pool_job *j, bool (*turn)(struct pool_job *j, struct timespec *again));
void pool_call(struct pool_job *j);
void pool_call_at(struct pool_job *j, const struct timespec *when);
/* Wait for turns that are due, which go ahead of those of other jobs. The job has no turns after that. */
void pool_leave(struct pool_job *j);
/*
 * Run one turn of a job that has not joined. The pool does not touch the job once its turn has begun, so the turn may
 * free it. 0, or -errno if no thread could be started and none is running.
 */
int pool_do(struct pool_job *j, bool (*turn)(struct pool_job *j, struct timespec *again));
/* The same for a turn that takes long: it does not wait for turns of other jobs, nor they for it. */
int pool_do_beside(struct pool_job *j, bool (*turn)(struct pool_job *j, struct timespec *again));
/* Wait until another thread calls pool_tell() on this flag. That thread does not touch it afterwards. */
void pool_wait(const atomic_bool *told);
void pool_tell(atomic_bool *told);
/* The number of processors, and so of threads that compute: at most 64, to limit memory on larger machines. */
unsigned pool_processors(void);

/* ---- units ---- */

/* How long work is watched and cancelled; all zero: neither. */
struct units_watch {
    const atomic_bool *cancel; /* true: end early */
    /*
     * `done` of `all` units are finished. Called by the thread that called units_run() after each unit of its own,
     * and once at the end with all of them.
     */
    void (*progress)(void *arg, uint64_t done, uint64_t all);
    void *arg;
};

struct units {
    uint64_t n;
    /* 0 or an error. `room` is `room` bytes of memory for this thread, aligned to 64. */
    int (*unit)(void *arg, uint64_t unit, void *room);
    /* The first unit from `unit` on that has something to do; NULL: all have. Called under the lock. */
    uint64_t (*next)(void *arg, uint64_t unit);
    void *arg;
    size_t room;
    struct lock lock; /* while they run: for what units share, too */
};

/*
 * 0; -EINTR (cancelled), -ENOMEM; or the error of the first unit that failed, in the order of units: all units before
 * it were done. watch may be NULL.
 */
int units_run(struct units *u, const struct units_watch *watch);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * The threads of the process that serve no request: jobs in turns, and units of one piece of work.
 *
 *     r = pool_join(&x->job, turn);        the first job starts a thread: after a fork
 *     pool_call(&x->job);                  a turn, behind those of others
 *     pool_call_at(&x->job, &when);        a turn at that time, if none is sooner
 *     pool_leave(&x->job);
 *
 * Few turns go on at a time. One that takes longer than `pool_patience` milliseconds, or waits for another job, counts
 * no more: a turn that hangs holds up no other job. Turns of one job never overlap. Calls during a turn
 * lead to one more turn. Turns follow in the order of their times: that of a call is now.
 *
 *     struct units u = {.n = n, .unit = fn, .arg = arg, .room = bytes};
 *     r = units_run(&u, &watch);
 *
 * The calling thread takes part. Others help while there is more than one unit left and a processor for
 * them, and have ended when it returns. Units are given out in order.
 *
 * Threads: any. A job is called without a lock of the pool, and may be called while locks are held that its
 * turn takes. There is a thread that waits while any job has joined; without jobs all end.
 */
#ifndef BASE_POOL_H
#define BASE_POOL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/lock.h"

extern unsigned pool_patience; /* 1000; tests change it */

/* Part of what it is done for. Its members are the pool's. */
struct pool_job {
    /* True: it needs another turn at *again (CLOCK_MONOTONIC), which is zero (at once) before. */
    bool (*turn)(struct pool_job *j, struct timespec *again);
    enum { POOL_RESTS, POOL_WAITS, POOL_BUSY } state;
    bool again; /* it was called during its turn */
    bool loose, beside;
    struct timespec at;           /* WAITS: when its turn is due */
    struct pool_job *prev, *next; /* of those that wait, by that time */
};

/* 0; -errno: no thread could be started, and none runs. */
int pool_join(struct pool_job *j, bool (*turn)(struct pool_job *j, struct timespec *again));
void pool_call(struct pool_job *j);
void pool_call_at(struct pool_job *j, const struct timespec *when);
/* Wait for turns that are due, which come before those of others. After that it has no more. */
void pool_leave(struct pool_job *j);
/*
 * One turn, of a job that does not join. The pool does not touch it after its turn has begun, so that
 * the turn may free it. 0; -errno: no thread could be started, and none runs.
 */
int pool_do(struct pool_job *j, bool (*turn)(struct pool_job *j, struct timespec *again));
/* The same of a turn that takes long: it waits for no other job's turn, and none for it. */
int pool_do_beside(struct pool_job *j, bool (*turn)(struct pool_job *j, struct timespec *again));
/* Wait until pool_tell() was called of this by another thread, which does not touch it after that. */
void pool_wait(const atomic_bool *told);
void pool_tell(atomic_bool *told);
/* Processors, and so threads that compute: at most 64, as memory limits those of a machine with more. */
unsigned pool_processors(void);

/* ---- units ---- */

/* How long work is watched and stopped; all zero: not at all. */
struct units_watch {
    const atomic_bool *cancel; /* true: end early */
    /* `done` of `all` units are; called after each of its units by the thread that called units_run(), and
     * with all of them at the end. */
    void (*progress)(void *arg, uint64_t done, uint64_t all);
    void *arg;
};

struct units {
    uint64_t n;
    /* 0 or an error. `room` is memory of the thread, of `room` bytes, aligned to 64. */
    int (*unit)(void *arg, uint64_t unit, void *room);
    /* The first unit from `unit` on that has something to do; NULL: each has. Called under the lock. */
    uint64_t (*next)(void *arg, uint64_t unit);
    void *arg;
    size_t room;
    struct lock lock; /* while they run: for what units share, too */
};

/*
 * 0; -EINTR (cancelled), -ENOMEM; or the error of the first unit that failed, in the order of units:
 * all before it have been done. watch may be NULL.
 */
int units_run(struct units *u, const struct units_watch *watch);

#endif

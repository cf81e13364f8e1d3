/* SPDX-License-Identifier: MIT */
/*
 * Runs the turns of jobs, and the units of a piece of work, on threads that do not serve requests.
 *
 *     r = pool_join(&x->job, turn);        after any fork, since the first job starts a thread
 *     pool_call_at(&x->job, &when);        a turn at that time, unless one is due sooner
 *     pool_leave(&x->job);
 *
 * Turns run in order of their due times, each on a thread of its own: a turn that hangs delays no
 * other one. Turns of one job never overlap. Calls during a turn lead to one more turn.
 *
 *     struct units u = {.n = n, .unit = fn, .arg = arg, .room = bytes};
 *     r = units_run(&u, &watch);
 *
 * The calling thread takes part. Other threads help while more than one unit is left and a
 * processor is free; all have finished when units_run() returns. Units are given out in order.
 *
 * Any thread may call these functions, even while it holds locks that the job's turn takes, because
 * a turn runs without the pool's lock. While any job has joined, a thread waits for calls; without
 * jobs all threads end.
 */
#ifndef BASE_POOL_H
#define BASE_POOL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/lock.h"

/* Embedded in the object that the job works for. Its members belong to the pool. */
struct pool_job {
    /* Returns true if another turn is needed, at the time *again (CLOCK_MONOTONIC); on entry *again
     * is zero, which means immediately. */
    bool (*turn)(struct pool_job *j, struct timespec *again);
    enum { POOL_RESTS, POOL_WAITS, POOL_BUSY } state;
    bool again;                   /* the job was called during its turn */
    bool loose;                   /* from pool_do() */
    struct timespec at;           /* WAITS: time at which its turn is due */
    struct pool_job *prev, *next; /* the queue of waiting jobs, ordered by `at` */
};

/* Join the pool. Returns 0, or -errno if no thread could be started and none is running. */
int pool_join(struct pool_job *j, bool (*turn)(struct pool_job *j, struct timespec *again));
void pool_call_at(struct pool_job *j, const struct timespec *when);
/* Leave the pool, after the job's due turns have run, ahead of those of other jobs. Afterwards the
 * job has no more turns. */
void pool_leave(struct pool_job *j);
/* Run one turn of a job that has not joined, ahead of the others. The pool does not touch the job
 * after its turn has begun, so the turn may free it. Returns 0, or -errno if no thread could be
 * started and none is running. */
int pool_do(struct pool_job *j, bool (*turn)(struct pool_job *j, struct timespec *again));
/* Wait until another thread calls pool_tell() on this flag, or until the time `until` (NULL:
 * without limit). That thread does not touch the flag afterwards. Returns false on timeout. */
bool pool_wait(const atomic_bool *told, const struct timespec *until);
void pool_tell(atomic_bool *told);
/* Return the number of processors, which is also the number of threads that compute. It is at most
 * 64, to limit memory on larger machines. */
unsigned pool_processors(void);

/* ---- units ---- */

/* How to watch and cancel work. If all members are zero, it is neither watched nor cancelled. */
struct units_watch {
    const atomic_bool *cancel; /* true: end early */
    /* Reports that `done` of `all` units are finished. The thread that called units_run() calls
     * this after each of its own units, and once at the end with done == all. */
    void (*progress)(void *arg, uint64_t done, uint64_t all);
    void *arg;
};

struct units {
    uint64_t n;
    /* Runs a unit. Returns 0 or an error. The argument `room` is this thread's memory: as many
     * bytes as the member `room` says, aligned to 64. */
    int (*unit)(void *arg, uint64_t unit, void *room);
    /* Returns the first unit >= `unit` that has work to do. NULL: all units have work. */
    uint64_t (*next)(void *arg, uint64_t unit);
    void *arg;
    size_t room;
};

/* Return the lock that protects data shared by running units. It is the pool's own lock, so hold it
 * only for a moment. */
struct lock *units_lock(void);

/* Run all units. Returns 0, -EINTR (cancelled), -ENOMEM, or the error of the lowest-numbered unit
 * that failed; all units before it were completed. `watch` may be NULL. */
int units_run(struct units *u, const struct units_watch *watch);

#endif

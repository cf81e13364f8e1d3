/* SPDX-License-Identifier: MIT */
/*
 * A thread that serves any number of jobs in turns.
 *
 *     r = crew_make("writer", 1000, &crew);
 *     r = crew_join(crew, &x->job, turn);      the first job starts the thread: after a fork
 *     crew_call(crew, &x->job);                a turn, behind those of others
 *     crew_call_at(crew, &x->job, &when);      a turn at that time, if none is sooner
 *     crew_leave(crew, &x->job);
 *     crew_free(crew);
 *
 * If a turn takes longer than `patience` milliseconds and other jobs wait, another thread goes on
 * with them: a turn that hangs holds up no other job. So turns of two jobs may overlap; those of one
 * job never do. Calls during a turn lead to one more turn. Jobs whose times come during a turn follow in
 * the order of their times, behind those that were called.
 *
 * Threads: any. A job is called without a lock of the crew, and may be called while locks are held
 * that its turn takes.
 */
#ifndef BASE_CREW_H
#define BASE_CREW_H

#include <stdbool.h>
#include <stddef.h>
#include <time.h>

struct crew;

enum crew_state { CREW_RESTS, CREW_QUEUED, CREW_TIMED, CREW_BUSY };

/* Part of what it is done for. Its members are the crew's. */
struct crew_job {
    /* True: it needs another turn at *again (CLOCK_MONOTONIC), which is zero (at once) before. */
    bool (*turn)(struct crew_job *j, struct timespec *again);
    enum crew_state state;
    bool again; /* it was called during its turn */
    bool loose, beside;
    struct timespec at;
    size_t place;          /* among those that have a time */
    struct crew_job *next; /* of the queue */
};

/* `name` is that of the threads, at most 15 bytes, and is kept. 0, -ENOMEM. */
int crew_make(const char *name, unsigned patience, struct crew **ret);
/* 0; -ENOMEM, or -errno: no thread could be started, and none runs. */
int crew_join(struct crew *c, struct crew_job *j,
              bool (*turn)(struct crew_job *j, struct timespec *again));
void crew_call(struct crew *c, struct crew_job *j);
void crew_call_at(struct crew *c, struct crew_job *j, const struct timespec *when);
/* Wait for turns that it was called for, but not for one at a later time. After that it has no more. */
void crew_leave(struct crew *c, struct crew_job *j);
/*
 * One turn, of a job that does not join. The crew does not touch it after its turn has begun, so that
 * the turn may free it. 0; -errno: no thread could be started, and none runs.
 */
int crew_do(struct crew *c, struct crew_job *j,
            bool (*turn)(struct crew_job *j, struct timespec *again));
/* The same of a turn that takes long: it waits for no other job's turn, and none for it. */
int crew_do_beside(struct crew *c, struct crew_job *j,
                   bool (*turn)(struct crew_job *j, struct timespec *again));
/* Every job that joined has left. What crew_do() has begun is not waited for. May be NULL. */
void crew_free(struct crew *c);

#endif

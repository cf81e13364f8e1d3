/* SPDX-License-Identifier: MIT */
/*
 * Jobs in turns: see crew.h.
 *
 * Of the threads at most one is at a turn that began less than `patience` ago; a thread that finds a
 * job to do meanwhile waits until that turn has ended or has taken too long. Such a thread is started
 * when a job waits and no thread does, and ends when nothing is left to wait for.
 */
#include "base/crew.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/thread.h"
#include "base/lock.h"
#include "base/buf.h"
#include "base/when.h"

struct crew {
    const char *name;
    unsigned patience;
    struct lock lock;
    struct cond wake;              /* for threads that wait */
    struct cond done;              /* a turn or a thread has ended */
    struct crew_job *first, *last; /* those that wait for a turn */
    struct crew_job **timed;       /* owned; a heap by time, with room for all jobs */
    size_t n_timed, cap_timed, jobs;
    unsigned threads, busy; /* all; of them at a turn */
    uint64_t turns;         /* begun so far */
    uint64_t latest;        /* the one that began last, while it goes on; else 0 */
    struct timespec until;  /* and when it takes too long */
    bool stop;              /* threads end when nothing waits */
    bool freed;             /* by the last thread */
};

/* ---- jobs that have a time ---- */

static void put(struct crew *c, size_t i, struct crew_job *j)
{
    c->timed[i] = j;
    j->place = i;
}

/* The job may be sooner than those above it. */
static void lift(struct crew *c, struct crew_job *j)
{
    size_t i = j->place;
    for (size_t up; i && when_before(&j->at, &c->timed[up = (i - 1) / 2]->at); i = up)
        put(c, i, c->timed[up]);
    put(c, i, j);
}

/* The job may be later than those below it. */
static void sink(struct crew *c, struct crew_job *j)
{
    size_t i = j->place;
    for (size_t down; (down = 2 * i + 1) < c->n_timed; i = down) {
        if (down + 1 < c->n_timed && when_before(&c->timed[down + 1]->at, &c->timed[down]->at))
            down++;
        if (!when_before(&c->timed[down]->at, &j->at))
            break;
        put(c, i, c->timed[down]);
    }
    put(c, i, j);
}

static void time_add(struct crew *c, struct crew_job *j, const struct timespec *at)
{
    assert(c->n_timed < c->jobs);
    j->at = *at;
    j->state = CREW_TIMED;
    put(c, c->n_timed++, j);
    lift(c, j);
}

static void time_remove(struct crew *c, struct crew_job *j)
{
    struct crew_job *last = c->timed[--c->n_timed];
    j->state = CREW_RESTS;
    if (last == j)
        return;
    put(c, j->place, last);
    lift(c, last);
    sink(c, last);
}

/* ---- the queue ---- */

/* Those that run beside others are the first. */
static void enqueue(struct crew *c, struct crew_job *j)
{
    if (j->state == CREW_TIMED)
        time_remove(c, j);
    j->state = CREW_QUEUED;
    j->next = j->beside ? c->first : NULL;
    if (j->beside || !c->last)
        c->first = j;
    else
        c->last->next = j;
    if (!j->next)
        c->last = j;
}

static struct crew_job *dequeue(struct crew *c)
{
    struct crew_job *j = c->first;
    c->first = j->next;
    if (!c->first)
        c->last = NULL;
    return j;
}

/* ---- threads ---- */

static void crew_destroy(struct crew *c)
{
    lock_destroy(&c->lock);
    cond_destroy(&c->wake);
    cond_destroy(&c->done);
    free((void *)c->timed);
    free(c);
}

static int start_thread(struct crew *c);

/* Something is to be done, now or later. Without another thread it is done by one that is at a turn. */
static void see_to_it(struct crew *c)
{
    if (c->threads > c->busy)
        cond_signal(&c->wake);
    else
        (void)start_thread(c);
}

static struct timespec later(struct timespec t, unsigned ms)
{
    t.tv_sec += ms / 1000;
    t.tv_nsec += (long)(ms % 1000) * 1000000;
    if (t.tv_nsec >= 1000000000) {
        t.tv_sec++;
        t.tv_nsec -= 1000000000;
    }
    return t;
}

static void take_turn(struct crew *c, const struct timespec *now)
{
    struct timespec again = {0};
    struct crew_job *j = dequeue(c);
    uint64_t turn = ++c->turns;
    bool loose = j->loose;
    j->state = CREW_BUSY;
    j->again = false;
    if (!j->beside) {
        c->latest = turn;
        c->until = later(*now, c->patience);
    }
    c->busy++;
    if (c->first || c->n_timed)
        see_to_it(c);
    lock_drop(&c->lock);
    bool more = j->turn(j, &again);
    lock_take(&c->lock);
    c->busy--;
    if (c->latest == turn)
        c->latest = 0;
    if (loose)
        return;
    j->state = CREW_RESTS;
    if (j->again || (more && again.tv_sec == 0))
        enqueue(c, j);
    else if (more)
        time_add(c, j, &again);
    cond_broadcast(&c->done);
}

/* Wait for something to do. False: this thread is not needed any more. */
static bool wait_for_work(struct crew *c, bool held)
{
    const struct timespec *until = held ? &c->until : NULL;
    if (!c->first && !c->n_timed && (c->stop || c->threads - c->busy > 1))
        return false;
    if (!held && c->n_timed)
        until = &c->timed[0]->at;
    struct timespec at = until ? *until : (struct timespec){0};
    if (until)
        (void)lock_wait(&c->lock, &c->wake, &at);
    else
        (void)lock_wait(&c->lock, &c->wake, NULL);
    return true;
}

static void *work(void *arg)
{
    struct crew *c = arg;
    struct timespec now;
    bool more = true;
    thread_name(c->name);
    lock_take(&c->lock);
    while (more) {
        now = when_now();
        bool held = c->latest && when_before(&now, &c->until);
        /* Just before the next turn: all that are due by then, in the order of their times. */
        while (!held && c->n_timed && !when_before(&now, &c->timed[0]->at))
            enqueue(c, c->timed[0]);
        if (c->first && (!held || c->first->beside))
            take_turn(c, &now);
        else
            more = wait_for_work(c, held);
    }
    bool last = --c->threads == 0 && c->freed;
    cond_broadcast(&c->done);
    lock_drop(&c->lock);
    if (last)
        crew_destroy(c);
    return NULL;
}

static int start_thread(struct crew *c)
{
    int r = thread_start(NULL, work, c);
    c->threads += r == 0;
    return r;
}

/* ---- the calls ---- */

int crew_make(const char *name, unsigned patience, struct crew **ret)
{
    struct crew *c = calloc(1, sizeof(*c));
    if (!c)
        return -ENOMEM;
    c->name = name;
    c->patience = patience;
    lock_init(&c->lock);
    cond_init(&c->done);
    cond_init(&c->wake);
    *ret = c;
    return 0;
}

int crew_join(struct crew *c, struct crew_job *j,
              bool (*turn)(struct crew_job *j, struct timespec *again))
{
    *j = (struct crew_job){.turn = turn};
    lock_take(&c->lock);
    int r = array_grow(&c->timed, &c->cap_timed, c->jobs, sizeof(struct crew_job *));
    if (r == 0 && c->threads == 0)
        r = start_thread(c);
    c->jobs += r == 0;
    lock_drop(&c->lock);
    return r;
}

void crew_call(struct crew *c, struct crew_job *j)
{
    lock_take(&c->lock);
    j->again = true;
    if (j->state == CREW_RESTS || j->state == CREW_TIMED) {
        enqueue(c, j);
        see_to_it(c);
    }
    lock_drop(&c->lock);
}

void crew_call_at(struct crew *c, struct crew_job *j, const struct timespec *when)
{
    lock_take(&c->lock);
    j->again = true;
    if (j->state == CREW_RESTS) {
        time_add(c, j, when);
    } else if (j->state == CREW_TIMED && when_before(when, &j->at)) {
        j->at = *when;
        lift(c, j);
    }
    see_to_it(c); /* it looks at the clock in any case */
    lock_drop(&c->lock);
}

void crew_leave(struct crew *c, struct crew_job *j)
{
    lock_take(&c->lock);
    while (j->state == CREW_QUEUED || j->state == CREW_BUSY)
        (void)lock_wait(&c->lock, &c->done, NULL);
    if (j->state == CREW_TIMED)
        time_remove(c, j);
    c->jobs--;
    lock_drop(&c->lock);
}

static int do_once(struct crew *c, struct crew_job *j,
                   bool (*turn)(struct crew_job *j, struct timespec *again), bool beside)
{
    *j = (struct crew_job){.turn = turn, .loose = true, .beside = beside};
    lock_take(&c->lock);
    int r = c->threads ? 0 : start_thread(c);
    if (r == 0) {
        enqueue(c, j);
        see_to_it(c);
    }
    lock_drop(&c->lock);
    return r;
}

int crew_do(struct crew *c, struct crew_job *j,
            bool (*turn)(struct crew_job *j, struct timespec *again))
{
    return do_once(c, j, turn, false);
}

int crew_do_beside(struct crew *c, struct crew_job *j,
                   bool (*turn)(struct crew_job *j, struct timespec *again))
{
    return do_once(c, j, turn, true);
}

void crew_free(struct crew *c)
{
    if (!c)
        return;
    lock_take(&c->lock);
    c->stop = true;
    cond_broadcast(&c->wake);
    while (c->first || c->threads > c->busy)
        (void)lock_wait(&c->lock, &c->done, NULL);
    c->freed = c->threads > 0;
    bool now = !c->freed;
    lock_drop(&c->lock);
    if (now)
        crew_destroy(c);
}

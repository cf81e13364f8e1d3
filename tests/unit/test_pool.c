/* SPDX-License-Identifier: MIT */
/* base/pool: jobs take turns; each unit runs once; errors, progress. */
#include "cu_test.h"

#include <semaphore.h>
#include <stdbool.h>
#include <string.h>

#include "base/pool.h"

static void call_now(struct pool_job *j)
{
    const struct timespec now = when_now();
    pool_call_at(j, &now);
}

struct work {
    struct pool_job job;
    sem_t begun, hang;
    bool hangs; /* each turn waits for `hang` */
    bool far;   /* asks for another turn, an hour later */
    atomic_uint turns;
    atomic_uint now;  /* turns that run at this moment */
    atomic_uint most; /* ... at the most */
};

static struct timespec in_an_hour(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_sec += 3600;
    return t;
}

static bool turn(struct pool_job *j, struct timespec *again)
{
    struct work *w = (struct work *)j;
    const unsigned now = atomic_fetch_add(&w->now, 1) + 1;
    if (now > atomic_load(&w->most))
        atomic_store(&w->most, now);
    atomic_fetch_add(&w->turns, 1);
    (void)sem_post(&w->begun);
    if (w->hangs)
        (void)sem_wait(&w->hang);
    atomic_fetch_sub(&w->now, 1);
    *again = in_an_hour();
    return w->far;
}

static void join(struct work *w)
{
    *w = (struct work){.turns = 0};
    (void)sem_init(&w->begun, 0, 0);
    (void)sem_init(&w->hang, 0, 0);
    CU_ASSERT_EQUAL_FATAL(pool_join(&w->job, turn), 0);
}

static void leave(struct work *w)
{
    pool_leave(&w->job);
    (void)sem_destroy(&w->begun);
    (void)sem_destroy(&w->hang);
}

/* Calls during a turn lead to one more turn, which does not overlap it. */
TEST("turns of one job do not overlap")
{
    struct work w;
    join(&w);
    w.hangs = true;
    call_now(&w.job);
    (void)sem_wait(&w.begun);
    for (unsigned i = 0; i < 10; i++)
        call_now(&w.job);
    (void)sem_post(&w.hang);
    (void)sem_post(&w.hang);
    leave(&w);
    CU_ASSERT_EQUAL(w.turns, 2);
    CU_ASSERT_EQUAL(w.most, 1);
}

enum { WAITERS = 100 };

struct waiter {
    struct pool_job job;
    const atomic_bool *told;
    sem_t *begun;
};

static bool wait_for_it(struct pool_job *j, struct timespec *again)
{
    struct waiter *w = (struct waiter *)j;
    (void)again;
    (void)sem_post(w->begun);
    (void)pool_wait(w->told, NULL);
    return false;
}

TEST("turns that wait for other jobs block none")
{
    static struct waiter waiter[WAITERS];
    static atomic_bool told;
    struct work w;
    sem_t begun;
    (void)sem_init(&begun, 0, 0);
    for (unsigned i = 0; i < WAITERS; i++) {
        waiter[i] = (struct waiter){.told = &told, .begun = &begun};
        CU_ASSERT_EQUAL_FATAL(pool_join(&waiter[i].job, wait_for_it), 0);
        call_now(&waiter[i].job);
    }
    for (unsigned i = 0; i < WAITERS; i++)
        (void)sem_wait(&begun);
    join(&w);
    call_now(&w.job);
    (void)sem_wait(&w.begun);
    leave(&w);
    pool_tell(&told);
    for (unsigned i = 0; i < WAITERS; i++)
        pool_leave(&waiter[i].job);
    (void)sem_destroy(&begun);
}

/* ---- units ---- */

enum { MOST = 5000 };

struct units_job {
    atomic_uint times[MOST];
    atomic_uint done;
    uint64_t every; /* one unit in this many has work to do */
    uint64_t fails; /* units from this one on fail with -100 - unit; MOST: none fails */
    uint64_t progress;
};

static int unit(void *arg, uint64_t i, void *room)
{
    struct units_job *j = arg;
    memset(room, (int)i, 64);
    atomic_fetch_add(&j->times[i], 1);
    atomic_fetch_add(&j->done, 1);
    return i >= j->fails ? -100 - (int)i : 0;
}

static uint64_t next(void *arg, uint64_t i)
{
    const struct units_job *j = arg;
    return (i + j->every - 1) / j->every * j->every;
}

static void progress(void *arg, uint64_t done, uint64_t all)
{
    struct units_job *j = arg;
    CU_ASSERT_TRUE(done > j->progress && done <= all && all == MOST);
    j->progress = done;
}

static int run(struct units_job *j, uint64_t n, const struct units_watch *watch)
{
    struct units u = {.n = n, .unit = unit, .arg = j, .room = 64};
    u.next = j->every ? next : NULL;
    return units_run(&u, watch);
}

TEST("each unit runs once")
{
    struct units_job j = {.fails = MOST};
    struct units_watch w = {.progress = progress, .arg = &j};
    CU_ASSERT_EQUAL(run(&j, 0, &w), 0);
    CU_ASSERT_EQUAL(j.done, 0);
    CU_ASSERT_EQUAL(run(&j, MOST, &w), 0);
    for (size_t i = 0; i < MOST; i++)
        CU_ASSERT_EQUAL(j.times[i], 1);
    CU_ASSERT_EQUAL(j.progress, MOST); /* even if another thread ran the last one */
}

TEST("units without work are skipped")
{
    struct units_job j = {.fails = MOST, .every = 7};
    CU_ASSERT_EQUAL(run(&j, MOST, NULL), 0);
    for (size_t i = 0; i < MOST; i++)
        CU_ASSERT_EQUAL(j.times[i], i % 7 == 0);
}

/* The first unit that fails is reported; all units before it are done. */
TEST("the first error is reported")
{
    struct units_job j = {.fails = 1234};
    CU_ASSERT_EQUAL(run(&j, MOST, NULL), -100 - 1234);
    for (size_t i = 0; i <= 1234; i++)
        CU_ASSERT_EQUAL(j.times[i], 1);
    CU_ASSERT_TRUE(j.done < MOST);
}

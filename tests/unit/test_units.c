/* SPDX-License-Identifier: MIT */
/* base/units: each unit is done once, errors, cancelling, progress. */
#include "cu_main.h"

#include <errno.h>
#include <semaphore.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "base/units.h"

enum { MOST = 5000 };

struct job {
    atomic_uint times[MOST];
    atomic_uint done;
    uint64_t every;    /* only each so many has something to do */
    uint64_t fails;    /* units from here on fail with -100 - unit; or MOST */
    atomic_bool *stop; /* set by unit 100 */
    uint64_t progress;
};

static int unit(void *arg, uint64_t i, void *room)
{
    struct job *j = arg;
    memset(room, (int)i, 64);
    atomic_fetch_add(&j->times[i], 1);
    atomic_fetch_add(&j->done, 1);
    if (j->stop && i == 100)
        atomic_store(j->stop, true);
    return i >= j->fails ? -100 - (int)i : 0;
}

static uint64_t next(void *arg, uint64_t i)
{
    const struct job *j = arg;
    return (i + j->every - 1) / j->every * j->every;
}

static void progress(void *arg, uint64_t done, uint64_t all)
{
    struct job *j = arg;
    CU_ASSERT_TRUE(done > j->progress && done <= all && all == MOST);
    j->progress = done;
}

static int run(struct job *j, uint64_t n, const struct units_watch *watch)
{
    struct units u = {.n = n, .unit = unit, .arg = j, .room = 64};
    u.next = j->every ? next : NULL;
    return units_run(&u, watch);
}

static void test_all(void)
{
    struct job j = {.fails = MOST};
    struct units_watch w = {.progress = progress, .arg = &j};
    CU_ASSERT_EQUAL(run(&j, 0, &w), 0);
    CU_ASSERT_EQUAL(j.done, 0);
    CU_ASSERT_EQUAL(run(&j, MOST, &w), 0);
    for (size_t i = 0; i < MOST; i++)
        CU_ASSERT_EQUAL(j.times[i], 1);
    CU_ASSERT_EQUAL(j.progress, MOST); /* also if another thread did the last one */
}

static void test_some(void)
{
    struct job j = {.fails = MOST, .every = 7};
    CU_ASSERT_EQUAL(run(&j, MOST, NULL), 0);
    for (size_t i = 0; i < MOST; i++)
        CU_ASSERT_EQUAL(j.times[i], i % 7 == 0);
}

/* The first unit that fails is reported, and all before it are done. */
static void test_error(void)
{
    struct job j = {.fails = 1234};
    CU_ASSERT_EQUAL(run(&j, MOST, NULL), -100 - 1234);
    for (size_t i = 0; i <= 1234; i++)
        CU_ASSERT_EQUAL(j.times[i], 1);
    CU_ASSERT_TRUE(j.done < MOST);
}

static void test_cancel(void)
{
    atomic_bool stop = false;
    struct job j = {.fails = MOST, .stop = &stop};
    struct units_watch w = {.cancel = &stop};
    CU_ASSERT_EQUAL(run(&j, MOST, &w), -EINTR);
    CU_ASSERT_TRUE(j.done < MOST);
    CU_ASSERT_EQUAL(run(&j, MOST, &w), -EINTR);
}

/* Two units: the second one begins while the first one runs, and ends after that was reported. */
struct pair {
    sem_t begun, reported;
    uint64_t last;
};

static int half(void *arg, uint64_t i, void *room)
{
    struct pair *p = arg;
    (void)room;
    (void)(i ? sem_post(&p->begun) : sem_wait(&p->begun));
    return i ? sem_wait(&p->reported) : 0;
}

static void half_done(void *arg, uint64_t done, uint64_t all)
{
    struct pair *p = arg;
    CU_ASSERT_TRUE(done > p->last && done <= all && all == 2);
    p->last = done;
    (void)sem_post(&p->reported);
}

static void test_last(void)
{
    struct pair p = {.last = 0};
    const struct units u = {.n = 2, .unit = half, .arg = &p};
    const struct units_watch w = {.progress = half_done, .arg = &p};
    if (sysconf(_SC_NPROCESSORS_ONLN) < 2)
        return; /* no other thread is started */
    (void)sem_init(&p.begun, 0, 0);
    (void)sem_init(&p.reported, 0, 0);
    CU_ASSERT_EQUAL(units_run(&u, &w), 0);
    CU_ASSERT_EQUAL(p.last, 2);
    (void)sem_destroy(&p.begun);
    (void)sem_destroy(&p.reported);
}

static CU_TestInfo tests[] = {
    {"each unit once", test_all},
    {"units without anything to do are skipped", test_some},
    {"the first error", test_error},
    {"cancelled", test_cancel},
    {"another thread does the last unit", test_last},
    CU_TEST_INFO_NULL,
};

CU_MAIN("units", tests)

/* SPDX-License-Identifier: MIT */
/* base/pool: jobs take turns; each unit runs once; errors, cancelling, progress. */
#include "cu_main.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/map.h"
#include "base/pool.h"

#define JOBS 50
/* Milliseconds; longer than any test takes. */
#define NEVER 1000000

struct work {
    struct pool_job job;
    pthread_t by[3];
    unsigned turns, most; /* turns so far, and the number that the job needs */
    sem_t *begun, *hang;  /* the first turn posts `begun` and waits for `hang`; may be NULL */
    sem_t *over;          /* posted by each turn; may be NULL */
    struct timespec delay;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned order[JOBS * 3], n_order;
static struct work work[JOBS];

/* A job that occupies one of the two turns that can run at once, unless `pool_patience` is very
 * short. */
static struct plug {
    struct pool_job job;
    sem_t begun, end;
} plug;

static bool hold(struct pool_job *j, struct timespec *again)
{
    (void)j;
    (void)again;
    (void)sem_post(&plug.begun);
    (void)sem_wait(&plug.end);
    return false;
}

static bool turn(struct pool_job *j, struct timespec *again)
{
    struct work *w = (struct work *)j;
    (void)pthread_mutex_lock(&lock);
    w->by[w->turns++] = pthread_self();
    bool first = w->turns == 1, more = w->turns < w->most;
    if (w >= work && w < work + JOBS)
        order[n_order++] = (unsigned)(w - work);
    (void)pthread_mutex_unlock(&lock);
    if (first && w->begun)
        (void)sem_post(w->begun);
    if (first && w->hang)
        (void)sem_wait(w->hang);
    *again = w->delay;
    if (w->over)
        (void)sem_post(w->over);
    return more;
}

static void setup(unsigned patience)
{
    pool_patience = patience;
    for (unsigned i = 0; i < JOBS; i++) {
        work[i] = (struct work){.most = 1};
        CU_ASSERT_EQUAL_FATAL(pool_join(&work[i].job, turn), 0);
    }
    n_order = 0;
    (void)sem_init(&plug.begun, 0, 0);
    (void)sem_init(&plug.end, 0, 0);
    CU_ASSERT_EQUAL_FATAL(pool_join(&plug.job, hold), 0);
    pool_call(&plug.job);
    (void)sem_wait(&plug.begun);
}

static void teardown(void)
{
    for (unsigned i = 0; i < JOBS; i++)
        pool_leave(&work[i].job);
    (void)sem_post(&plug.end);
    pool_leave(&plug.job);
    (void)sem_destroy(&plug.begun);
    (void)sem_destroy(&plug.end);
}

/* One thread runs jobs in the order of the calls. A job's next turn comes after those of the other
 * jobs. */
static void test_one_thread(void)
{
    sem_t begun, hang, over;
    (void)sem_init(&begun, 0, 0);
    (void)sem_init(&hang, 0, 0);
    (void)sem_init(&over, 0, 0);
    setup(NEVER);
    work[0].begun = &begun;
    work[0].hang = &hang;
    for (unsigned i = 0; i < JOBS; i++) {
        work[i].most = 3;
        work[i].over = &over;
    }
    pool_call(&work[0].job);
    (void)sem_wait(&begun); /* by now, all other jobs are waiting */
    for (unsigned i = 1; i < JOBS; i++)
        pool_call(&work[i].job);
    (void)sem_post(&hang);
    for (unsigned i = 0; i < JOBS * 3; i++)
        (void)sem_wait(&over);
    teardown();
    CU_ASSERT_EQUAL_FATAL(n_order, JOBS * 3);
    for (unsigned i = 0; i < JOBS * 3; i++)
        CU_ASSERT_EQUAL(order[i], i % JOBS);
    for (unsigned i = 0; i < JOBS * 3; i++)
        CU_ASSERT_TRUE(pthread_equal(work[i % JOBS].by[i / JOBS], work[0].by[0]));
    (void)sem_destroy(&begun);
    (void)sem_destroy(&hang);
}

/* A job that hangs does not delay the other jobs. */
static void test_hangs(void)
{
    sem_t begun, hang;
    (void)sem_init(&begun, 0, 0);
    (void)sem_init(&hang, 0, 0);
    setup(1);
    for (unsigned i = 0; i < JOBS; i++) {
        work[i].begun = &begun;
        work[i].hang = i < JOBS - 1 ? &hang : NULL;
        pool_call(&work[i].job);
    }
    for (unsigned i = 0; i < JOBS; i++)
        (void)sem_wait(&begun);
    pool_leave(&work[JOBS - 1].job);
    CU_ASSERT_EQUAL(pool_join(&work[JOBS - 1].job, turn), 0);
    for (unsigned i = 0; i < JOBS - 1; i++)
        (void)sem_post(&hang);
    teardown();
    for (unsigned i = 0; i < JOBS; i++)
        CU_ASSERT_EQUAL(work[i].turns, 1);
    (void)sem_destroy(&begun);
    (void)sem_destroy(&hang);
}

static struct timespec in_ms(long ms)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_sec += ms / 1000;
    t.tv_nsec += ms % 1000 * 1000000;
    if (t.tv_nsec >= 1000000000) {
        t.tv_sec++;
        t.tv_nsec -= 1000000000;
    }
    return t;
}

/* The more turns hang, the sooner the next begins. */
static void test_many_hang(void)
{
    sem_t begun, hang;
    struct timespec at[JOBS];
    unsigned soon = 0; /* turns that began within pool_patience of the last turn but one */
    (void)sem_init(&begun, 0, 0);
    (void)sem_init(&hang, 0, 0);
    setup(100);
    for (unsigned i = 0; i < JOBS; i++) {
        work[i].begun = &begun;
        work[i].hang = &hang;
        pool_call(&work[i].job);
    }
    for (unsigned i = 0; i < JOBS; i++) {
        (void)sem_wait(&begun);
        at[i] = in_ms(0);
        const struct timespec due = i < 2 ? at[i] : when_later(&at[i - 2], pool_patience);
        soon += i >= 2 && when_before(&at[i], &due);
    }
    for (unsigned i = 0; i < JOBS; i++)
        (void)sem_post(&hang);
    teardown();
    CU_ASSERT_TRUE(soon > JOBS / 2);
    (void)sem_destroy(&begun);
    (void)sem_destroy(&hang);
}

/* Turns run in the order of their times, not of the calls, even if all become due during another
 * turn. If a job is called with two different times, the earlier one counts. */
static void test_times(void)
{
    sem_t begun, hang;
    struct work gate = {.most = 1, .begun = &begun, .hang = &hang};
    (void)sem_init(&begun, 0, 0);
    (void)sem_init(&hang, 0, 0);
    setup(NEVER);
    const struct timespec far = in_ms(NEVER), past = in_ms(0);
    CU_ASSERT_EQUAL_FATAL(pool_join(&gate.job, turn), 0);
    pool_call(&gate.job);
    (void)sem_wait(&begun);
    for (unsigned i = 0; i < JOBS; i++) {
        struct timespec at = {past.tv_sec, (7 * i) % JOBS}; /* each job has a different time */
        if (i % 3 == 0)
            pool_call_at(&work[i].job, &far);
        pool_call_at(&work[i].job, &at);
        if (i % 3 == 1)
            pool_call_at(&work[i].job, &far);
        work[i].begun = &begun;
        /* A waiting thread may read the clock between any two calls. The pause makes sure that one
         * does. */
        (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    (void)sem_post(&hang);
    for (unsigned i = 0; i < JOBS; i++)
        (void)sem_wait(&begun);
    CU_ASSERT_EQUAL_FATAL(n_order, JOBS);
    for (unsigned i = 0; i < JOBS; i++)
        CU_ASSERT_EQUAL((7 * order[i]) % JOBS, i);
    /* pool_leave() does not wait for turns due later. */
    for (unsigned i = 0; i < JOBS; i++)
        pool_call_at(&work[i].job, &far);
    pool_leave(&gate.job);
    teardown();
    (void)sem_destroy(&begun);
    (void)sem_destroy(&hang);
}

static void test_again_later(void)
{
    setup(NEVER);
    sem_t begun;
    (void)sem_init(&begun, 0, 0);
    work[0].most = 2;
    work[0].delay = in_ms(NEVER);
    work[0].begun = &begun;
    pool_call(&work[0].job);
    (void)sem_wait(&begun);
    pool_call(&work[0].job); /* earlier than the turn requested by the running turn */
    teardown();
    CU_ASSERT_EQUAL(work[0].turns, 2);
    (void)sem_destroy(&begun);
}

struct loose {
    struct pool_job job;
    sem_t *begun, *hang, *done;
};

static bool run_once(struct pool_job *j, struct timespec *again)
{
    struct loose *o = (struct loose *)j;
    sem_t *done = o->done;
    (void)again;
    (void)sem_post(o->begun);
    (void)sem_wait(o->hang);
    free(o);
    (void)sem_post(done);
    return false;
}

/* A job that no thread waits for frees itself. */
static void test_loose(void)
{
    sem_t begun, hang, done;
    struct loose *o = malloc(sizeof(*o));
    CU_ASSERT_PTR_NOT_NULL_FATAL(o);
    (void)sem_init(&begun, 0, 0);
    (void)sem_init(&hang, 0, 0);
    (void)sem_init(&done, 0, 0);
    *o = (struct loose){.begun = &begun, .hang = &hang, .done = &done};
    CU_ASSERT_EQUAL_FATAL(pool_do(&o->job, run_once), 0);
    (void)sem_wait(&begun);
    (void)sem_post(&hang);
    (void)sem_wait(&done);
    (void)sem_destroy(&begun);
    (void)sem_destroy(&hang);
    (void)sem_destroy(&done);
}

/* No job waits for a slow turn of another job. */
static void test_beside(void)
{
    sem_t begun, hang, done, other;
    struct loose *o = malloc(sizeof(*o));
    CU_ASSERT_PTR_NOT_NULL_FATAL(o);
    (void)sem_init(&begun, 0, 0);
    (void)sem_init(&hang, 0, 0);
    (void)sem_init(&done, 0, 0);
    (void)sem_init(&other, 0, 0);
    *o = (struct loose){.begun = &begun, .hang = &hang, .done = &done};
    setup(NEVER);
    CU_ASSERT_EQUAL_FATAL(pool_do_beside(&o->job, run_once), 0);
    (void)sem_wait(&begun);
    work[0].begun = &other;
    pool_call(&work[0].job);
    (void)sem_wait(&other);
    (void)sem_post(&hang);
    (void)sem_wait(&done);
    teardown();
    (void)sem_destroy(&begun);
    (void)sem_destroy(&hang);
    (void)sem_destroy(&done);
    (void)sem_destroy(&other);
}

/* A slow turn waits neither for running turns of other jobs nor for turns requested earlier. */
static void test_beside_one_that_is_left(void)
{
    sem_t begun, hang, done;
    struct loose *o = malloc(sizeof(*o));
    CU_ASSERT_PTR_NOT_NULL_FATAL(o);
    (void)sem_init(&begun, 0, 0);
    (void)sem_init(&hang, 0, 0);
    (void)sem_init(&done, 0, 0);
    *o = (struct loose){.begun = &begun, .hang = &hang, .done = &done};
    setup(NEVER);
    work[0].begun = &begun;
    work[0].hang = &hang;
    pool_call(&work[0].job);
    (void)sem_wait(&begun); /* with the plug, that makes two running turns */
    pool_call_at(&work[1].job, &(struct timespec){0});
    CU_ASSERT_EQUAL_FATAL(pool_do_beside(&o->job, run_once), 0);
    (void)sem_wait(&begun);
    (void)sem_post(&hang);
    (void)sem_post(&hang);
    (void)sem_wait(&done);
    teardown();
    (void)sem_destroy(&begun);
    (void)sem_destroy(&hang);
    (void)sem_destroy(&done);
}

static bool wait_for_first(struct pool_job *j, struct timespec *again)
{
    (void)j;
    (void)again;
    pool_call(&work[JOBS - 1].job);
    pool_leave(&work[JOBS - 1].job); /* before the turns of the other jobs */
    return false;
}

/* A turn that waits for another job blocks neither that job nor turns requested earlier. */
static void test_waits(void)
{
    struct pool_job waits;
    setup(NEVER);
    CU_ASSERT_EQUAL_FATAL(pool_join(&waits, wait_for_first), 0);
    pool_call(&waits);
    for (unsigned i = 0; i < JOBS - 1; i++)
        pool_call(&work[i].job);
    pool_leave(&waits);
    CU_ASSERT_EQUAL(pool_join(&work[JOBS - 1].job, turn), 0);
    teardown();
    CU_ASSERT_EQUAL(n_order, JOBS);
}

struct reading {
    struct pool_job job;
    struct map map;
    int result;
    sem_t done;
};

static bool read_gone(struct pool_job *j, struct timespec *again)
{
    struct reading *r = (struct reading *)j;
    uint8_t byte;
    (void)again;
    r->result = map_copy(&byte, r->map.data, 1);
    (void)sem_post(&r->done);
    return false;
}

/* If a turn reads a page beyond the end of a truncated file, it gets an error, and the process
 * survives. */
static void test_gone_page(void)
{
    struct reading r = {.result = 1};
    int fd = memfd_create("cut", MFD_CLOEXEC);
    (void)sem_init(&r.done, 0, 0);
    CU_ASSERT_EQUAL_FATAL(map_guard_init(), 0);
    CU_ASSERT_EQUAL_FATAL(ftruncate(fd, 1), 0);
    CU_ASSERT_EQUAL_FATAL(map_open(&r.map, fd, 1), 0);
    CU_ASSERT_EQUAL_FATAL(ftruncate(fd, 0), 0);
    CU_ASSERT_EQUAL_FATAL(pool_join(&r.job, read_gone), 0);
    pool_call(&r.job);
    (void)sem_wait(&r.done);
    CU_ASSERT_EQUAL(r.result, -EIO);
    pool_leave(&r.job);
    map_close(&r.map);
    (void)close(fd);
    (void)sem_destroy(&r.done);
}

/* ---- units ---- */

enum { MOST = 5000 };

struct units_job {
    atomic_uint times[MOST];
    atomic_uint done;
    uint64_t every;    /* one unit in this many has work to do */
    uint64_t fails;    /* units from this one on fail with -100 - unit; MOST: none fails */
    atomic_bool *stop; /* set by unit 100 */
    uint64_t progress;
};

static int unit(void *arg, uint64_t i, void *room)
{
    struct units_job *j = arg;
    memset(room, (int)i, 64);
    atomic_fetch_add(&j->times[i], 1);
    atomic_fetch_add(&j->done, 1);
    if (j->stop && i == 100)
        atomic_store(j->stop, true);
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

static void test_all(void)
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

static void test_some(void)
{
    struct units_job j = {.fails = MOST, .every = 7};
    CU_ASSERT_EQUAL(run(&j, MOST, NULL), 0);
    for (size_t i = 0; i < MOST; i++)
        CU_ASSERT_EQUAL(j.times[i], i % 7 == 0);
}

/* The first unit that fails is reported; all units before it are done. */
static void test_error(void)
{
    struct units_job j = {.fails = 1234};
    CU_ASSERT_EQUAL(run(&j, MOST, NULL), -100 - 1234);
    for (size_t i = 0; i <= 1234; i++)
        CU_ASSERT_EQUAL(j.times[i], 1);
    CU_ASSERT_TRUE(j.done < MOST);
}

static void test_cancel(void)
{
    atomic_bool stop = false;
    struct units_job j = {.fails = MOST, .stop = &stop};
    struct units_watch w = {.cancel = &stop};
    CU_ASSERT_EQUAL(run(&j, MOST, &w), -EINTR);
    CU_ASSERT_TRUE(j.done < MOST);
    CU_ASSERT_EQUAL(run(&j, MOST, &w), -EINTR);
}

/* Two units. The second begins while the first runs, and ends after the first has been reported. */
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
    struct units u = {.n = 2, .unit = half, .arg = &p};
    const struct units_watch w = {.progress = half_done, .arg = &p};
    if (sysconf(_SC_NPROCESSORS_ONLN) < 2)
        return; /* no second thread was started */
    (void)sem_init(&p.begun, 0, 0);
    (void)sem_init(&p.reported, 0, 0);
    CU_ASSERT_EQUAL(units_run(&u, &w), 0);
    CU_ASSERT_EQUAL(p.last, 2);
    (void)sem_destroy(&p.begun);
    (void)sem_destroy(&p.reported);
}

static CU_TestInfo tests[] = {
    {"one thread runs all jobs in turns", test_one_thread},
    {"turns that hang do not delay other jobs", test_hangs},
    {"many turns that hang hardly delay other jobs", test_many_hang},
    {"turns run in the order of their times", test_times},
    {"a turn that reads a truncated page gets an error", test_gone_page},
    {"a turn may request a later turn", test_again_later},
    {"a job without a waiter frees itself", test_loose},
    {"a job that runs beside others does not delay their turns", test_beside},
    {"a job that runs beside others is not delayed by their turns", test_beside_one_that_is_left},
    {"a turn that waits for another job blocks no others", test_waits},
    {"each unit runs once", test_all},
    {"units without work are skipped", test_some},
    {"the first error is reported", test_error},
    {"cancelled work ends early", test_cancel},
    {"another thread finishes the last unit", test_last},
    CU_TEST_INFO_NULL,
};

CU_MAIN("pool", tests)

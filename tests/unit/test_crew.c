/* SPDX-License-Identifier: MIT */
/* base/crew: one thread for all jobs; another one only while a turn takes too long. */
#include "cu_main.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/crew.h"
#include "base/map.h"

#define JOBS 50
/* More milliseconds than any test takes. */
#define NEVER 1000000

struct work {
    struct crew_job job;
    pthread_t by[3];
    unsigned turns, most; /* that it needs */
    sem_t *begun, *hang;  /* may be NULL: its first turn posts and waits */
    struct timespec delay;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned order[JOBS * 3], n_order;
static struct work work[JOBS];

static bool turn(struct crew_job *j, struct timespec *again)
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
    return more;
}

static struct crew *setup(unsigned patience)
{
    struct crew *c = NULL;
    CU_ASSERT_EQUAL_FATAL(crew_make("crew", patience, &c), 0);
    for (unsigned i = 0; i < JOBS; i++) {
        work[i] = (struct work){.most = 1};
        CU_ASSERT_EQUAL_FATAL(crew_join(c, &work[i].job, turn), 0);
    }
    n_order = 0;
    return c;
}

static void teardown(struct crew *c)
{
    for (unsigned i = 0; i < JOBS; i++)
        crew_leave(c, &work[i].job);
    crew_free(c);
}

/* Jobs have their turns in the order of the calls, by one thread, and the next after those of others. */
static void test_one_thread(void)
{
    sem_t begun, hang;
    (void)sem_init(&begun, 0, 0);
    (void)sem_init(&hang, 0, 0);
    struct crew *c = setup(NEVER);
    work[0].begun = &begun;
    work[0].hang = &hang;
    for (unsigned i = 0; i < JOBS; i++)
        work[i].most = 3;
    crew_call(c, &work[0].job);
    (void)sem_wait(&begun); /* all others wait meanwhile */
    for (unsigned i = 1; i < JOBS; i++)
        crew_call(c, &work[i].job);
    (void)sem_post(&hang);
    teardown(c);
    CU_ASSERT_EQUAL_FATAL(n_order, JOBS * 3);
    for (unsigned i = 0; i < JOBS * 3; i++)
        CU_ASSERT_EQUAL(order[i], i % JOBS);
    for (unsigned i = 0; i < JOBS * 3; i++)
        CU_ASSERT_TRUE(pthread_equal(work[i % JOBS].by[i / JOBS], work[0].by[0]));
    (void)sem_destroy(&begun);
    (void)sem_destroy(&hang);
}

/* A turn that hangs holds up no other job, nor do several. */
static void test_hangs(void)
{
    sem_t begun, hang;
    (void)sem_init(&begun, 0, 0);
    (void)sem_init(&hang, 0, 0);
    struct crew *c = setup(1);
    for (unsigned i = 0; i < JOBS; i++) {
        work[i].begun = &begun;
        work[i].hang = i < JOBS - 1 ? &hang : NULL;
        crew_call(c, &work[i].job);
    }
    for (unsigned i = 0; i < JOBS; i++)
        (void)sem_wait(&begun);
    crew_leave(c, &work[JOBS - 1].job);
    CU_ASSERT_EQUAL(crew_join(c, &work[JOBS - 1].job, turn), 0);
    for (unsigned i = 0; i < JOBS - 1; i++)
        (void)sem_post(&hang);
    teardown(c);
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

/* Turns come in the order of their times, whatever the order of the calls, also if all are due before a
 * turn ends; and not later than one that was asked for before. */
static void test_times(void)
{
    sem_t begun, hang;
    struct work gate = {.most = 1, .begun = &begun, .hang = &hang};
    (void)sem_init(&begun, 0, 0);
    (void)sem_init(&hang, 0, 0);
    struct crew *c = setup(NEVER);
    const struct timespec far = in_ms(NEVER), past = in_ms(0);
    CU_ASSERT_EQUAL_FATAL(crew_join(c, &gate.job, turn), 0);
    crew_call(c, &gate.job);
    (void)sem_wait(&begun);
    for (unsigned i = 0; i < JOBS; i++) {
        struct timespec at = {past.tv_sec, (7 * i) % JOBS}; /* each another one */
        if (i % 3 == 0)
            crew_call_at(c, &work[i].job, &far);
        crew_call_at(c, &work[i].job, &at);
        if (i % 3 == 1)
            crew_call_at(c, &work[i].job, &far);
        work[i].begun = &begun;
        /* A thread that waits may look at the clock between any two calls, with a pause it does. */
        (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    (void)sem_post(&hang);
    for (unsigned i = 0; i < JOBS; i++)
        (void)sem_wait(&begun);
    CU_ASSERT_EQUAL_FATAL(n_order, JOBS);
    for (unsigned i = 0; i < JOBS; i++)
        CU_ASSERT_EQUAL((7 * order[i]) % JOBS, i);
    for (unsigned i = 0; i < JOBS; i++) /* what comes later is not waited for */
        crew_call_at(c, &work[i].job, &far);
    crew_leave(c, &gate.job);
    teardown(c);
    (void)sem_destroy(&begun);
    (void)sem_destroy(&hang);
}

/* A turn may ask for one at a time. */
static void test_again_later(void)
{
    struct crew *c = setup(NEVER);
    sem_t begun;
    (void)sem_init(&begun, 0, 0);
    work[0].most = 2;
    work[0].delay = in_ms(NEVER);
    work[0].begun = &begun;
    crew_call(c, &work[0].job);
    (void)sem_wait(&begun);
    crew_call(c, &work[0].job); /* sooner than that */
    teardown(c);
    CU_ASSERT_EQUAL(work[0].turns, 2);
    (void)sem_destroy(&begun);
}

struct once {
    struct crew_job job;
    sem_t *begun, *hang, *done;
};

static bool once(struct crew_job *j, struct timespec *again)
{
    struct once *o = (struct once *)j;
    sem_t *done = o->done;
    (void)again;
    (void)sem_post(o->begun);
    (void)sem_wait(o->hang);
    free(o);
    (void)sem_post(done);
    return false;
}

/* A job that nobody waits for frees itself, even after its crew. */
static void test_loose(void)
{
    sem_t begun, hang, done;
    struct crew *c = NULL;
    struct once *o = malloc(sizeof(*o));
    CU_ASSERT_PTR_NOT_NULL_FATAL(o);
    (void)sem_init(&begun, 0, 0);
    (void)sem_init(&hang, 0, 0);
    (void)sem_init(&done, 0, 0);
    *o = (struct once){.begun = &begun, .hang = &hang, .done = &done};
    CU_ASSERT_EQUAL_FATAL(crew_make("crew", 1, &c), 0);
    CU_ASSERT_EQUAL_FATAL(crew_do(c, &o->job, once), 0);
    (void)sem_wait(&begun);
    crew_free(c);
    (void)sem_post(&hang);
    (void)sem_wait(&done);
    (void)sem_destroy(&begun);
    (void)sem_destroy(&hang);
    (void)sem_destroy(&done);
}

/* No other job waits for a turn that takes long. */
static void test_beside(void)
{
    sem_t begun, hang, done, other;
    struct once *o = malloc(sizeof(*o));
    CU_ASSERT_PTR_NOT_NULL_FATAL(o);
    (void)sem_init(&begun, 0, 0);
    (void)sem_init(&hang, 0, 0);
    (void)sem_init(&done, 0, 0);
    (void)sem_init(&other, 0, 0);
    *o = (struct once){.begun = &begun, .hang = &hang, .done = &done};
    struct crew *c = setup(NEVER);
    CU_ASSERT_EQUAL_FATAL(crew_do_beside(c, &o->job, once), 0);
    (void)sem_wait(&begun);
    work[0].begun = &other;
    crew_call(c, &work[0].job);
    (void)sem_wait(&other);
    (void)sem_post(&hang);
    (void)sem_wait(&done);
    teardown(c);
    (void)sem_destroy(&begun);
    (void)sem_destroy(&hang);
    (void)sem_destroy(&done);
    (void)sem_destroy(&other);
}

struct reading {
    struct crew_job job;
    struct map map;
    int result;
    sem_t done;
};

static bool read_gone(struct crew_job *j, struct timespec *again)
{
    struct reading *r = (struct reading *)j;
    uint8_t byte;
    (void)again;
    r->result = map_copy(&byte, r->map.data, 1);
    (void)sem_post(&r->done);
    return false;
}

/* A turn reads a page of a file that was cut: an error, not the end of the process. */
static void test_gone_page(void)
{
    struct crew *c = NULL;
    struct reading r = {.result = 1};
    int fd = memfd_create("cut", MFD_CLOEXEC);
    (void)sem_init(&r.done, 0, 0);
    CU_ASSERT_EQUAL_FATAL(map_guard_init(), 0);
    CU_ASSERT_EQUAL_FATAL(ftruncate(fd, 1), 0);
    CU_ASSERT_EQUAL_FATAL(map_open(&r.map, fd, 1), 0);
    CU_ASSERT_EQUAL_FATAL(ftruncate(fd, 0), 0);
    CU_ASSERT_EQUAL_FATAL(crew_make("crew", NEVER, &c), 0);
    CU_ASSERT_EQUAL_FATAL(crew_join(c, &r.job, read_gone), 0);
    crew_call(c, &r.job);
    (void)sem_wait(&r.done);
    CU_ASSERT_EQUAL(r.result, -EIO);
    crew_leave(c, &r.job);
    crew_free(c);
    map_close(&r.map);
    (void)close(fd);
    (void)sem_destroy(&r.done);
}

static CU_TestInfo tests[] = {
    {"one thread, in turns", test_one_thread},
    {"turns that hang", test_hangs},
    {"times", test_times},
    {"a page that is gone", test_gone_page},
    {"another turn later", test_again_later},
    {"a job that nobody waits for", test_loose},
    {"a turn that nothing waits for", test_beside},
    CU_TEST_INFO_NULL,
};

CU_MAIN("crew", tests)

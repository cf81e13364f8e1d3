/* SPDX-License-Identifier: MIT */
/* base/sys.h: data that another thread writes to the disk. */
#include <pthread.h>
#include <stdbool.h>

#include "base/sys.h"
#include "cu_main.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
/* Protected by the lock: */
static unsigned begun, released;
static bool held;
static int fd_seen;
static uint64_t off_seen, n_seen;

static int begin_sync(const struct sys *s, int fd, uint64_t off, uint64_t n)
{
    (void)s;
    (void)pthread_mutex_lock(&lock);
    begun++;
    fd_seen = fd;
    off_seen = off;
    n_seen = n;
    while (held)
        (void)pthread_cond_wait(&changed, &lock);
    (void)pthread_mutex_unlock(&lock);
    return 0;
}

static void release(void *owner)
{
    (void)pthread_mutex_lock(&lock);
    CU_ASSERT_PTR_EQUAL(owner, &lock);
    released++;
    (void)pthread_cond_broadcast(&changed);
    (void)pthread_mutex_unlock(&lock);
}

static void hold(bool on)
{
    (void)pthread_mutex_lock(&lock);
    held = on;
    begun = released = 0;
    (void)pthread_cond_broadcast(&changed);
    (void)pthread_mutex_unlock(&lock);
}

static unsigned releases(void)
{
    (void)pthread_mutex_lock(&lock);
    unsigned n = released;
    (void)pthread_mutex_unlock(&lock);
    return n;
}

static void wait_released(unsigned n)
{
    (void)pthread_mutex_lock(&lock);
    while (released < n)
        (void)pthread_cond_wait(&changed, &lock);
    (void)pthread_mutex_unlock(&lock);
}

/* While the disk hangs, no more writes begin, and callers do not wait. */
static void test_many(void)
{
    const struct sys s = {.begin_sync = begin_sync};
    hold(true);
    for (uint64_t i = 0; i < 8; i++)
        write_out(&s, 7, i, 1, &lock, release);
    CU_ASSERT_EQUAL(releases(), 0);
    write_out(&s, 7, 99, 1, &lock, release);
    CU_ASSERT_EQUAL(releases(), 1);
    (void)pthread_mutex_lock(&lock);
    held = false;
    (void)pthread_cond_broadcast(&changed);
    (void)pthread_mutex_unlock(&lock);
    wait_released(9);
    CU_ASSERT_EQUAL(begun, 8);
    CU_ASSERT_NOT_EQUAL(off_seen, 99);
}

static CU_TestInfo tests[] = {
    {"only a few writes wait while the disk hangs", test_many},
    CU_TEST_INFO_NULL,
};

CU_MAIN("write_out", tests)

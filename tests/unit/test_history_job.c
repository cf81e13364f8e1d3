/* SPDX-License-Identifier: MIT */
/* The job of edit/history.h: if the state directory hangs or is missing, edits continue, and the
 * problem is logged once. */
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/pool.h"
#include "base/lock.h"
#include "edit/history.h"
#include "edit/change.h"
#include "faultsys.h"
#include "history_dir.h"

static char logged[4096];

static void take_line(int priority, const char *line)
{
    size_t at = strlen(logged);
    (void)priority;
    (void)snprintf(logged + at, sizeof(logged) - at, "%s\n", line);
}

static const struct logger into = {.line = take_line};

/* Return how often the words occur in the log. */
static unsigned times(const char *words)
{
    unsigned n = 0;
    for (const char *at = strstr(logged, words); at; at = strstr(at + 1, words))
        n++;
    return n;
}

static void edit(struct history_job *k, struct gguf *before, struct gguf *after)
{
    history_job_begin(k, before, after, 0);
    history_job_wait(k);
    history_job_end(k, true);
}

static struct history_job *make(const struct sys *sys)
{
    struct history_job *k = NULL;
    CU_ASSERT_EQUAL_FATAL(history_job_make("/models/m.gguf", 20, sys, &into, &k), 0);
    return k;
}

static unsigned entries(const char *folder)
{
    unsigned n = 0;
    DIR *d = opendir(folder);
    while (readdir(d))
        n++;
    (void)closedir(d);
    return n;
}

/* Each sem_post() lets one attempt to lock the directory succeed. */
static sem_t answers;

static int lock_slowly(const struct sys *s, int fd, int how)
{
    (void)s;
    while (how != LOCK_UN && sem_wait(&answers) < 0)
        ;
    return sys_libc.flock(&sys_libc, fd, how);
}

/* Begin a job whose state directory hangs. */
static struct history_job *begin_hanging(struct home *x, struct faultsys *fs)
{
    char state[80];
    logged[0] = '\0';
    home_setup(x);
    (void)snprintf(state, sizeof(state), "%s/state", x->path);
    (void)setenv("XDG_STATE_HOME", state, 1);
    (void)sem_init(&answers, 0, 0);
    faultsys_init(fs, FAULT_NONE, 0, 0);
    fs->sys.flock = lock_slowly;
    return make(&fs->sys);
}

/* Load the states and return their number. *last: id of the keys after the last edit. */
static size_t states(struct history_job *k, uint64_t *last)
{
    struct history h;
    struct history_states f;
    CU_ASSERT_EQUAL(history_job_look(k, &h, NULL), 0);
    CU_ASSERT_EQUAL(history_load(&h, &f, NULL), 0);
    const size_t n = f.n;
    *last = n ? f.of[n - 1].rec.planned : 0;
    history_states_free(&f);
    history_close(&h);
    return n;
}

/* Repeat an edit until its state exists, however busy the machine is. Consecutive edits share a
 * state. */
static void edit_when_kept(struct history_job *k, struct gguf *before, struct gguf *after)
{
    uint64_t last;
    do {
        edit(k, before, after);
        CU_ASSERT_TRUE(states(k, &last) <= 1);
    } while (last != edit_keys_id(after));
}

/* The first edit waits for its state. As long as that state is missing, later edits do not wait. */
static void test_hangs(void)
{
    struct home x;
    struct faultsys fs;
    uint64_t last;
    struct history_job *k = begin_hanging(&x, &fs);
    struct gguf *one = keys_of("one"), *two = keys_of("two"), *three = keys_of("three");
    edit(k, one, two);
    CU_ASSERT_EQUAL(times("not kept: this takes over 1 s; the edit does not wait"), 1);
    edit(k, two, three);
    edit(k, three, two);
    CU_ASSERT_EQUAL(times("\n"), 1);
    CU_ASSERT_EQUAL(home_files(&x), 0);
    for (unsigned i = 0; i < 100; i++)
        (void)sem_post(&answers);
    while (states(k, &last) == 0)
        when_sleep(1);
    CU_ASSERT_EQUAL(last, edit_keys_id(two));
    edit_when_kept(k, two, three);
    CU_ASSERT_EQUAL(times("\n"), 1);
    history_job_close(k);
    gguf_free(one);
    gguf_free(two);
    gguf_free(three);
    (void)sem_destroy(&answers);
    home_teardown(&x);
}

/* The directory hangs while the model is closed. No call waits for long, and no state is lost. */
static void test_closed(void)
{
    struct home x;
    struct faultsys fs;
    unsigned threads = entries("/proc/self/task");
    struct history_job *k = begin_hanging(&x, &fs);
    struct gguf *one = keys_of("one"), *two = keys_of("two");
    edit(k, one, two);
    history_job_close(k);
    gguf_free(one);
    gguf_free(two);
    CU_ASSERT_EQUAL(home_files(&x), 0);
    for (unsigned i = 0; i < 100; i++)
        (void)sem_post(&answers);
    while (home_files(&x) == 0 || entries("/proc/self/task") > threads)
        when_sleep(1);
    /* Taking the pool's lock shows a sanitizer that the other thread has ended. */
    struct pool_job last;
    CU_ASSERT_EQUAL_FATAL(pool_join(&last, NULL), 0);
    pool_leave(&last);
    CU_ASSERT_EQUAL(home_files(&x), 1);
    (void)sem_destroy(&answers);
    home_teardown(&x);
}

/* If there is nowhere to keep histories, this is logged once, and only when an edit changes
 * keys. */
static void test_no_home(void)
{
    struct history_job *k = NULL;
    struct history h;
    struct err e = {0};
    bool root = geteuid() == 0;
    logged[0] = '\0';
    (void)unsetenv("XDG_STATE_HOME");
    (void)unsetenv("HOME");
    CU_ASSERT_TRUE_FATAL(!root || seteuid(65534) == 0); /* root always has a state directory */
    int r = history_job_make("/models/m.gguf", 20, &sys_libc, &into, &k);
    CU_ASSERT_TRUE_FATAL(!root || seteuid(0) == 0);
    CU_ASSERT_EQUAL_FATAL(r, 0);
    struct gguf *one = keys_of("one"), *same = keys_of("one"), *two = keys_of("two");
    edit(k, one, same);
    CU_ASSERT_EQUAL(times("\n"), 0);
    edit(k, one, two);
    edit(k, two, one);
    CU_ASSERT_EQUAL(times("\n"), 1);
    CU_ASSERT_EQUAL(times("not kept: neither XDG_STATE_HOME nor HOME is set"), 1);
    CU_ASSERT_EQUAL(history_job_look(k, &h, &e), -ENOENT);
    CU_ASSERT_STRING_EQUAL(e.msg, "neither XDG_STATE_HOME nor HOME is set");
    history_close(&h);
    history_job_close(k);
    gguf_free(one);
    gguf_free(same);
    gguf_free(two);
}

static bool no_threads;
int __real_pool_do_beside(struct pool_job *j,
                          bool (*turn)(struct pool_job *j, struct timespec *again));
int __wrap_pool_do_beside(struct pool_job *j,
                          bool (*turn)(struct pool_job *j, struct timespec *again));

int __wrap_pool_do_beside(struct pool_job *j,
                          bool (*turn)(struct pool_job *j, struct timespec *again))
{
    return no_threads ? -EAGAIN : __real_pool_do_beside(j, turn);
}

/* If no thread can be started, an edit is made without its state, and no call waits. */
static void test_no_threads(void)
{
    struct home x;
    struct history h;
    struct err e = {0};
    char state[80];
    home_setup(&x);
    (void)snprintf(state, sizeof(state), "%s/state", x.path);
    (void)setenv("XDG_STATE_HOME", state, 1);
    logged[0] = '\0';
    struct gguf *one = keys_of("one"), *two = keys_of("two");
    struct history_job *k = make(&sys_libc);
    no_threads = true;
    edit(k, one, two);
    CU_ASSERT_EQUAL(times("not kept: cannot start a thread: Resource temporarily"), 1);
    CU_ASSERT_EQUAL(history_job_look(k, &h, &e), -EAGAIN);
    CU_ASSERT_PTR_NOT_NULL(strstr(e.msg, "cannot start a thread"));
    CU_ASSERT_EQUAL(home_files(&x), 0);
    no_threads = false;
    edit_when_kept(k, two, one);
    no_threads = true; /* the end of the edit is not recorded either */
    history_job_close(k);
    no_threads = false;
    CU_ASSERT_EQUAL(times("\n"), 1);
    CU_ASSERT_EQUAL(home_files(&x), 1);
    gguf_free(one);
    gguf_free(two);
    home_teardown(&x);
}

static void *do_nothing(void *arg)
{
    return arg;
}

/* Once all states are written, the directory is closed and no thread is left. Later edits are
 * recorded as before. */
static void test_rests(void)
{
    struct home x;
    home_setup(&x);
    (void)setenv("XDG_STATE_HOME", x.path, 1);
    logged[0] = '\0';
    struct gguf *one = keys_of("one"), *two = keys_of("two");
    struct thread first; /* a sanitizer starts its background thread with the first thread */
    CU_ASSERT_EQUAL_FATAL(thread_start(&first, do_nothing, NULL), 0);
    thread_join(&first);
    unsigned files = entries("/proc/self/fd"), threads = entries("/proc/self/task");
    struct history_job *k = make(&sys_libc);
    for (unsigned i = 0; i < 3; i++) {
        edit_when_kept(k, i % 2 ? two : one, i % 2 ? one : two);
        while (entries("/proc/self/fd") > files || entries("/proc/self/task") > threads + 1)
            when_sleep(1);
    }
    edit(k, two, two); /* not recorded */
    while (entries("/proc/self/fd") > files)
        when_sleep(1);
    CU_ASSERT_EQUAL(times("\n"), 0);
    history_job_close(k);
    gguf_free(one);
    gguf_free(two);
    home_teardown(&x);
}

static CU_TestInfo tests[] = {
    {"no thread or open directory remains once all states are written", test_rests},
    {"only one edit waits for a state directory that hangs", test_hangs},
    {"a model is closed while its state directory hangs", test_closed},
    {"a missing state directory is logged once", test_no_home},
    {"without a thread, an edit is made but its state is not kept", test_no_threads},
    CU_TEST_INFO_NULL,
};

CU_MAIN("history_job", tests)

/* SPDX-License-Identifier: MIT */
/* Runs the unit tests: see cu_main.h. */
#include "cu_main.h"

#include <CUnit/Basic.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "soak.h"

/*
 * The thread sanitizer takes its options from this function. By default, each child of a fault test
 * that started threads would sleep for a second before exiting, and there are thousands of such
 * children.
 */
const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
    return "die_after_fork=0:atexit_sleep_ms=0";
}

static int files_before;

static void before_test(void)
{
    files_before = soak_files();
}

/* Check that the test left no file open, and closed none that it did not open. */
static void after_test(void)
{
    CU_ASSERT_EQUAL(soak_files(), files_before);
}

/* Return the number of threads in this process, including those of an emulator or a sanitizer. */
static nlink_t threads(void)
{
    struct stat st;
    return stat("/proc/self/task", &st) == 0 ? st.st_nlink : 0;
}

static nlink_t threads_before;

/* Defined only with the thread sanitizer, which starts a thread of its own once a test has started
 * one. A child forked while a test's thread is ending would wait forever for the sanitizer's
 * locks. */
void __tsan_init(void) __attribute__((weak));

pid_t cu_fork(void)
{
    while (threads() > threads_before + (__tsan_init ? 1 : 0))
        (void)sched_yield();
    return fork();
}

void cu_says(bool good, unsigned line, const char *text, const char *file, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    if (!good && putchar('\n') && vprintf(fmt, ap))
        (void)putchar('\n');
    va_end(ap);
    (void)CU_assertImplementation(good, line, text, file, "", CU_FALSE);
}

void free_it(void *p)
{
    free(*(void **)p);
}

/* Keep only the tests that GGUFS_ONLY selects. */
static void choose(CU_TestInfo *tests)
{
    const char *only = getenv("GGUFS_ONLY");
    CU_TestInfo *kept = tests;
    for (const CU_TestInfo *t = tests; t->pName; t++)
        if (!only || strstr(t->pName, only))
            *kept++ = *t;
    *kept = (CU_TestInfo)CU_TEST_INFO_NULL;
}

static int run(const char *suite, CU_TestInfo *tests)
{
    CU_SuiteInfo suites[] = {
        {.pName = suite, .pSetUpFunc = before_test, .pTearDownFunc = after_test, .pTests = tests},
        CU_SUITE_INFO_NULL};
    if (CU_initialize_registry() != CUE_SUCCESS || CU_register_suites(suites) != CUE_SUCCESS)
        return 1;
    threads_before = threads();
    CU_basic_set_mode(CU_BRM_VERBOSE);
    int ok = CU_basic_run_tests() == CUE_SUCCESS && CU_get_number_of_tests_run() > 0 &&
             CU_get_number_of_failures() == 0;
    soak_print();
    CU_cleanup_registry();
    return ok ? 0 : 1;
}

static int run_apart(const char *suite, CU_TestInfo *tests)
{
    int failed = !tests->pName;
    for (const CU_TestInfo *t = tests; t->pName; t++) {
        CU_TestInfo one[] = {*t, CU_TEST_INFO_NULL};
        int status = -1;
        pid_t child = fork();
        if (child == 0)
            exit(run(suite, one));
        failed |= child < 0 || waitpid(child, &status, 0) != child || status != 0;
    }
    return failed;
}

void cu_add(CU_TestInfo *tests, size_t size, const char *does, CU_TestFunc test)
{
    while (tests->pName) {
        tests++;
        if (--size < 2)
            abort();
    }
    *tests = (CU_TestInfo){does, test};
}

int cu_run(const char *suite, CU_TestInfo *tests)
{
    choose(tests);
    return getenv("GGUFS_APART") ? run_apart(suite, tests) : run(suite, tests);
}

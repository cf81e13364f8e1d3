/* SPDX-License-Identifier: MIT */
/*
 * The main() of a unit test program: a program per module, its tests in one table.
 *
 *     static void test_x(void) { CU_ASSERT_EQUAL(f(1), 2); }
 *     static CU_TestInfo tests[] = {{"x does y", test_x}, CU_TEST_INFO_NULL};
 *     CU_MAIN("module", tests)
 *
 * Tests are static, so one left out of the table is an unused function: a compiler error. A test
 * fails if more or fewer files are open after it than before. Environment variables:
 *
 *     GGUFS_ONLY=TEXT    run only tests whose names contain it
 *     GGUFS_APART=1      run each test in its own process: an emulator may keep memory of ended threads
 */
#ifndef TESTS_LIB_CU_MAIN_H
#define TESTS_LIB_CU_MAIN_H

#include <CUnit/CUnit.h>
#include <sys/types.h>

/* Run the table; 0 if all tests passed, else 1. */
int cu_run(const char *suite, CU_TestInfo *tests);

/*
 * fork() for a child that continues the test: with one thread a child may call anything, with more
 * only what a signal handler may. Waits until ending threads have ended; the caller must have asked
 * all of them to end.
 */
pid_t cu_fork(void);

#define CU_MAIN(suite, tests)        \
    int main(void)                   \
    {                                \
        return cu_run(suite, tests); \
    }

#endif

/* SPDX-License-Identifier: MIT */
/*
 * The main() of a unit test program. Each module has a program, with its tests in one table.
 *
 *     static void test_x(void) { CU_ASSERT_EQUAL(f(1), 2); }
 *     static CU_TestInfo tests[] = {{"x does y", test_x}, CU_TEST_INFO_NULL};
 *     CU_MAIN("module", tests)
 *
 * Tests are static, so a test missing from the table is an unused function, which is a compiler
 * error. A test fails if it changes the number of open files. Environment variables:
 *
 *     GGUFS_ONLY=TEXT    run only tests whose names contain TEXT
 *     GGUFS_APART=1      run each test in its own process, because an emulator may keep the memory
 *                        of ended threads
 */
#ifndef TESTS_LIB_CU_MAIN_H
#define TESTS_LIB_CU_MAIN_H

#include <CUnit/CUnit.h>
#include <sys/types.h>

/* Run the table. Returns 0 if all tests passed, else 1. */
int cu_run(const char *suite, CU_TestInfo *tests);

/* Call fork() and continue the test in the child. If the process has one thread, the child may call
 * any function; if it has more, only those allowed in a signal handler. The call first waits for
 * the test's threads to exit, so the caller must already have asked them to end. */
pid_t cu_fork(void);

#define CU_MAIN(suite, tests)        \
    int main(void)                   \
    {                                \
        return cu_run(suite, tests); \
    }

#endif

/* SPDX-License-Identifier: MIT */
/*
 * Runs the tests of a unit test program: see cu_test.h. Environment variables:
 *
 *     GGUFS_ONLY=TEXT    run only tests whose names contain TEXT
 *     GGUFS_APART=1      run each test in its own process, because an emulator may keep the memory
 *                        of ended threads
 */
#ifndef TESTS_LIB_CU_MAIN_H
#define TESTS_LIB_CU_MAIN_H

#include <CUnit/CUnit.h>
#include <stdbool.h>
#include <sys/types.h>

/* Append a test to a table of `size` rows, whose last one stays empty. */
void cu_add(CU_TestInfo *tests, size_t size, const char *does, CU_TestFunc test);

/* Run the table. Returns 0 if all tests passed, else 1. */
int cu_run(const char *suite, CU_TestInfo *tests);

/* Call fork() and continue the test in the child. If the process has one thread, the child may call
 * any function; if it has more, only those allowed in a signal handler. The call first waits for
 * the test's threads to exit, so the caller must already have asked them to end. */
pid_t cu_fork(void);

/* Assert that something holds; if it does not, print a line, as printf(3) does. */
#define CU_SAYS(good, ...) cu_says((good), __LINE__, #good, __FILE__, __VA_ARGS__)
void cu_says(bool good, unsigned line, const char *text, const char *file, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));

/* CLEANUP(free_it) char *p: frees it. */
void free_it(void *p);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * A unit test program: only its file includes this header, which has its main(). A test is
 *
 *     TEST("x does y")
 *     {
 *         CU_ASSERT_EQUAL(x(1), 2);
 *     }
 *
 * Tests run in their order in the file. A test fails if it changes the number of open files.
 */
#ifndef TESTS_LIB_CU_TEST_H
#define TESTS_LIB_CU_TEST_H

#include "cu_main.h"

static CU_TestInfo cu_tests[64];

#define TEST(does) TEST_AT(does, __LINE__)
#define TEST_AT(does, line) TEST_NUMBERED(does, line)
/* Constructors run in the order of their numbers, of which those up to 100 are reserved. */
#define TEST_NUMBERED(does, line)                                                    \
    static void test_##line(void);                                                   \
    __attribute__((constructor(1000 + line))) static void add_##line(void)           \
    {                                                                                \
        cu_add(cu_tests, sizeof(cu_tests) / sizeof(cu_tests[0]), does, test_##line); \
    }                                                                                \
    static void test_##line(void)

/* Defined before this header by a program with a main() of its own. */
#ifndef CU_OWN_MAIN
int main(void)
{
    return cu_run(__BASE_FILE__, cu_tests);
}
#endif

#endif

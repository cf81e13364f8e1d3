/* SPDX-License-Identifier: MIT */
/*
 * Makes edits to a tree, with each strategy, while a system call or an allocation fails, the
 * process is killed, or the power is cut. Afterwards, the file must be the complete old or new one,
 * the tree must show that file, and the next edit must work.
 *
 *     static const struct edit_kind kinds[] = {{"rename", rename_key}, ...};
 *     const struct edit_suite edit_suite = {kinds, COUNT(kinds), false, NULL};
 *     static CU_TestInfo tests[] = {{"...", test_fail}, ...};
 *
 * The model has the keys general.architecture, general.name (string), my.number and my.other (u32)
 * and my.list (array[i32]), and the tensors a (F32, 5 elements), b (I8, 20001) and c (F16, 2 by
 * 1024, zeros).
 */
#ifndef TESTS_LIB_EDIT_CASE_H
#define TESTS_LIB_EDIT_CASE_H

#include "tree/folder.h"
#include "tree/attr.h"

struct edit_kind {
    const char *name;
    /* returns 0 if the file contains the edit, or -errno if it contains no part of the edit */
    int (*run)(struct tree *t);
    bool waits; /* an edit that cannot be written stays shown, and the next sync writes it */
};

struct edit_suite {
    const struct edit_kind *kinds;
    size_t n;
    bool tensors;                /* tensors can be edited */
    int (*next)(struct tree *t); /* the edit made after each case; NULL: an edit to general.name */
};

/* Defined by the test program. */
extern const struct edit_suite edit_suite;

/* A test in which each system call fails. */
void test_fail(void);
/* Tests in which the process ends, or the power is cut, before each system call. */
void test_kill(void);
void test_power(void);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * Tests that can run for any length of time, and the figures that they report (scripts/soak).
 *
 * GGUFS_SOAK in the environment multiplies the usual size; without it, tests keep their usual size.
 * Figures are printed when the program's tests are done, one line "soak: N WHAT" each.
 *
 * Only the main thread may call these functions.
 */
#ifndef TESTS_LIB_SOAK_H
#define TESTS_LIB_SOAK_H

#include <stdint.h>

/* Return the size of a test whose usual size is `usual`. */
uint64_t soak_size(uint64_t usual);

/* Draw a number below n. The state must not be 0; equal states yield equal numbers. */
unsigned soak_draw(uint64_t *state, unsigned n);

/* Return the number of open files in this process. Counting itself opens one more. */
int soak_files(void);

/* Add n to the figure `what`, a string that must outlive the call. */
void soak_count(const char *what, uint64_t n);
void soak_print(void);

#endif

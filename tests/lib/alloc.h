/* SPDX-License-Identifier: MIT */
/*
 * Allocations that fail, and that are counted: malloc and its kin come here first, in a program
 * that is linked with -Wl,--wrap=malloc and so on (alloc_dep in meson.build). Those inside of
 * libraries do not.
 *
 * Threads: any may allocate; one arms.
 */
#ifndef TESTS_LIB_ALLOC_H
#define TESTS_LIB_ALLOC_H

#include <stdbool.h>
#include <stddef.h>

/* From now on call n, from 1, fails; with `rest` also all after it. 0: none does. */
void alloc_arm(unsigned n, bool rest);
/* No more failures. True if a call failed since alloc_arm(). */
bool alloc_disarm(void);

/* From now on what is freed, or not set, has no sense. */
void alloc_spoil(void);

/* Count from here. Since then: the most bytes that were allocated at once; those allocated and not
 * freed (less than 0: older ones were freed); the calls that asked for memory. */
void alloc_count(void);
size_t alloc_peak(void);
long long alloc_live(void);
unsigned alloc_calls(void);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * Allocations that fail, and that are counted: malloc and the like come here first, in a program
 * linked with -Wl,--wrap=malloc and so on (alloc_dep in meson.build). Allocations inside libraries
 * do not.
 *
 * Threads: any may allocate; one arms.
 */
#ifndef TESTS_LIB_ALLOC_H
#define TESTS_LIB_ALLOC_H

#include <stdbool.h>
#include <stddef.h>

/* From now on call n, counted from 1, fails; with `rest` also all later ones. 0: none fails. */
void alloc_arm(unsigned n, bool rest);
/* No more failures. True if a call has failed since alloc_arm(). */
bool alloc_disarm(void);

/* From now on memory that is freed, or not initialised, has meaningless content. */
void alloc_spoil(void);

/*
 * Count from here. Since then: the maximum of allocated bytes; those allocated and not freed
 * (negative: older ones were freed); the calls that requested memory.
 */
void alloc_count(void);
size_t alloc_peak(void);
long long alloc_live(void);
unsigned alloc_calls(void);

#endif

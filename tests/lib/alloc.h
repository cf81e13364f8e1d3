/* SPDX-License-Identifier: MIT */
/*
 * Makes allocations fail, and counts them. In a program linked with -Wl,--wrap=malloc and so on
 * (alloc_dep in meson.build), calls to malloc and the like go through these functions, except for
 * calls inside libraries.
 *
 * Any thread may allocate; only one may call alloc_arm().
 */
#ifndef TESTS_LIB_ALLOC_H
#define TESTS_LIB_ALLOC_H

#include <stdbool.h>
#include <stddef.h>

/* Make call n (from 1) fail and, if `rest` is set, also all later calls. If n is 0, no call
 * fails. */
void alloc_arm(unsigned n, bool rest);
/* Let allocations succeed again. Returns true if an allocation has failed since alloc_arm(). */
bool alloc_disarm(void);

/* Fill uninitialised and freed memory with meaningless bytes from now on. */
void alloc_spoil(void);

/* Start counting. The functions below then return the most bytes allocated at once, and the bytes
 * allocated minus those freed (negative if older memory was freed). */
void alloc_count(void);
size_t alloc_peak(void);
long long alloc_live(void);

#endif

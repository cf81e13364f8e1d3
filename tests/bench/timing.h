/* SPDX-License-Identifier: MIT */
/* Time, and the median of several measurements, for benchmarks of single functions. */
#ifndef TESTS_BENCH_TIMING_H
#define TESTS_BENCH_TIMING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Return the CPU time of this process in seconds. Other load affects CPU time less than elapsed
 * time. */
static inline double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int ascending(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* Sort v and return its median. */
static inline double median(double *v, size_t n)
{
    qsort(v, n, sizeof(*v), ascending);
    return v[n / 2];
}

/* True if this name, or no name at all, was given as an argument. */
static inline bool wanted(const char *name, int argc, char **argv)
{
    bool found = argc < 2;
    for (int i = 1; i < argc; i++)
        found |= strcmp(argv[i], name) == 0;
    return found;
}

#endif

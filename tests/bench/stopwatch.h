/* SPDX-License-Identifier: MIT */
/* Helpers for the programs that scripts/bench runs: a clock, random places, and an exit for
 * errors. */
#ifndef TESTS_BENCH_STOPWATCH_H
#define TESTS_BENCH_STOPWATCH_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* Print the failed call and errno, and exit. */
static inline _Noreturn void die(const char *what)
{
    perror(what);
    exit(1);
}

/* Return the number of seconds since a fixed moment. */
static inline double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Return a pseudo-random number, the same in every run. The state must not be 0. */
static inline uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

#endif

/* SPDX-License-Identifier: MIT */
/* For the programs run by scripts/bench: the clock, random places, exit after an error. */
#ifndef TESTS_BENCH_STOPWATCH_H
#define TESTS_BENCH_STOPWATCH_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* Prints what failed, and errno. */
static inline _Noreturn void die(const char *what)
{
    perror(what);
    exit(1);
}

/* Seconds since some fixed moment. */
static inline double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Pseudo-random, the same in every run; the state must not be 0. */
static inline uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

#endif

/* SPDX-License-Identifier: MIT */
/*
 * Runs one thread at a time, chosen at random: threads are real, but only the one with the token
 * runs. At each lock, wait, start and end of a thread and at each system call in the table
 * (disk.h), the token may pass to another thread. Time is virtual: it advances a little at each of
 * these points, and jumps when all threads wait.
 *
 * The program is linked with -Wl,--wrap for the pthread and clock functions that base calls
 * (meson.build). The seed determines everything.
 *
 *     sched_begin(seed);               the caller has the token
 *     ... thread_start(), lock_take(), lock_wait() ...
 */
#ifndef TESTS_SIM_SCHEDULER_H
#define TESTS_SIM_SCHEDULER_H

#include <stdbool.h>
#include <stdint.h>

void sched_begin(uint64_t seed);

/* Returns a number below n, drawn from the seed. */
uint32_t sched_draw(uint32_t n);
/* Returns true with a probability of 1 in n. */
bool sched_lot(uint32_t n);

/* Passes a point of the trace, at which another thread may continue. */
void sched_point(const char *what, uint64_t arg);
/* Adds a line to the trace and its hash. */
void sched_note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Lets `ms` milliseconds pass. */
void sched_pass(uint64_t ms);

uint64_t sched_steps(void); /* number of points so far */
uint64_t sched_hash(void);  /* hash of the trace */
/* Returns the nanoseconds since the beginning. */
uint64_t sched_now(void);

/* Reports a finding and ends the run. */
_Noreturn void sched_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
extern void (*sched_failed)(const char *line); /* called once with the finding; does not return */
extern bool sched_trace;                       /* print each point */

#endif

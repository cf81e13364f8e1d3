/* SPDX-License-Identifier: MIT */
/* Compares times of CLOCK_MONOTONIC with each other and with now. Code above base reads the clock
 * only through this header. Any thread may call these functions. */
#ifndef BASE_WHEN_H
#define BASE_WHEN_H

#include <stdbool.h>
#include <time.h>

static inline struct timespec when_now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return t;
}

static inline long long when_ms(void)
{
    const struct timespec t = when_now();
    return t.tv_sec * 1000LL + t.tv_nsec / 1000000;
}

/* Return the time of day. Use it only for display, as the clock may be set back. */
static inline struct timespec when_date(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_REALTIME, &t);
    return t;
}

static inline void when_sleep(unsigned ms)
{
    const struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    (void)nanosleep(&t, NULL);
}

static inline bool when_before(const struct timespec *a, const struct timespec *b)
{
    return a->tv_sec < b->tv_sec || (a->tv_sec == b->tv_sec && a->tv_nsec < b->tv_nsec);
}

/* Return the time this many milliseconds later. */
static inline struct timespec when_later(const struct timespec *t, unsigned ms)
{
    const long long ns = t->tv_nsec + ms % 1000 * 1000000LL;
    return (struct timespec){t->tv_sec + ms / 1000 + ns / 1000000000, (long)(ns % 1000000000)};
}

static inline struct timespec when_after(unsigned ms)
{
    const struct timespec now = when_now();
    return when_later(&now, ms);
}

/* Return true if the time was at least this many seconds ago. */
static inline bool when_past(const struct timespec *t, time_t seconds)
{
    struct timespec now = when_now();
    now.tv_sec -= seconds;
    return !when_before(&now, t);
}

#endif

/* SPDX-License-Identifier: MIT */
/*
 * Units of one piece of work, done by all processors.
 *
 *     struct units c = {.n = n, .unit = fn, .arg = arg, .room = bytes};
 *     r = units_run(&c, &watch);
 *
 * The calling thread takes part. Other threads are started while there is more than one unit left,
 * and have ended when it returns. Units are given out in order.
 *
 * Threads: units_run() may be called by any, also at the same time.
 */
#ifndef BASE_UNITS_H
#define BASE_UNITS_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/* How long work is watched and stopped; all zero: not at all. */
struct units_watch {
    const atomic_bool *cancel; /* true: end early */
    /* `done` of `all` units are; called after each of its units by the thread that called units_run(), and
     * with all of them at the end. */
    void (*progress)(void *arg, uint64_t done, uint64_t all);
    void *arg;
};

struct units {
    uint64_t n;
    /* 0 or an error. `room` is memory of the thread, of `room` bytes, aligned to 64. */
    int (*unit)(void *arg, uint64_t unit, void *room);
    /* The first unit from `unit` on that has something to do; NULL: each has. Called by one thread at
     * a time. */
    uint64_t (*next)(void *arg, uint64_t unit);
    void *arg;
    size_t room;
};

/*
 * 0; -EINTR (cancelled), -ENOMEM; or the error of the first unit that failed, in the order of units:
 * all before it have been done. watch may be NULL.
 */
int units_run(const struct units *c, const struct units_watch *watch);

#endif

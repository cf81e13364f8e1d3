/* SPDX-License-Identifier: MIT */
/*
 * Slow computations on tensors, run by the pool: hashes, moments, statistics, pictures.
 *
 *     w = work_new();
 *     r = work_want(w, &view, DERIVED_SHA256, first, last, &waiter);
 *     0: all of it is kept; WORK_PARKED: waiter.done(arg, result) is called later; or -errno
 *     x = work_result(w, &view, i, DERIVED_SHA256);   once it is kept
 *     work_interrupt(w, request);                     done(arg, -EINTR), if it still waits
 *     work_free(w);
 *
 * Nothing is computed before it is wanted, and nothing twice: wishes for the same result wait for one computation,
 * which is a job of the pool and runs to its end. As many run as there are processors, one for each other model at
 * work, plus some for single tensors and for small ones, so that a small wish does not wait for a large one. An
 * interrupted wish is only removed: what was begun is kept, so a program that reads again after a signal continues
 * where it was.
 *
 * Results are kept (kept.h). Failures are not: missing data, a cut file or lack of memory fails the wishes that wait,
 * and the next wish tries again.
 *
 * Threads: any. done() is called without a lock, by one of the threads or in work_interrupt().
 */
#ifndef DERIVE_WORK_H
#define DERIVE_WORK_H

#include "derive/kept.h"
#include "model/snapshot.h"

struct work;

#define WORK_PARKED 1

struct work *work_new(void); /* NULL: no memory */
/* Answer all waiting wishes, and any new ones, with -EINTR, and stop computing. */
void work_stop(struct work *w);
/* The same, and free what is kept. May be NULL. */
void work_free(struct work *w);

struct work_waiter {
    const void *request; /* for work_interrupt() */
    void (*done)(void *arg, int result);
    /*
     * True if the request was already signalled. Called under a lock before it waits, so no signal is missed that
     * arrives before work_interrupt() can find the request. May be NULL.
     */
    bool (*stopped)(void *arg);
    void *arg;
};

/*
 * Wish for tensors [first, last) of the view, without those that have no values where values are needed. Hashes and
 * moments that a waiter waited for stay kept until its done() returns, whatever others want meanwhile.
 */
int work_want(struct work *w, const struct view *v, enum derived what, uint32_t first,
              uint32_t last, const struct work_waiter *waiter);
/* True if `request` was waiting. */
bool work_interrupt(struct work *w, const void *request);

/* True if it can be computed for this tensor: everything but hashes needs values. */
bool work_applies(const struct snapshot *g, const struct gguf_tensor *t, enum derived what);

/* A reference to the kept result of tensor i. NULL: not kept (any more); wish for it. */
struct result *work_result(struct work *w, const struct view *v, uint32_t i, enum derived what);

#endif

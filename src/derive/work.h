/* SPDX-License-Identifier: MIT */
/*
 * Runs slow computations on tensors in the pool: hashes, moments, statistics, pictures.
 *
 *     w = work_new();
 *     r = work_want(w, &view, DERIVED_SHA256, first, last, &waiter);
 *     0: all of it is kept; WORK_PARKED: waiter.done(arg, result) is called later; or -errno
 *     x = work_result(w, &view, i, DERIVED_SHA256);   once it is kept
 *     work_interrupt(w, request);                     done(arg, -EINTR), if it still waits
 *     work_free(w);
 *
 * No result is computed before a wish for it, or twice: wishes for the same result wait for one
 * computation, which is a job of the pool and runs to its end. As many run as there are processors,
 * one for each other model at work, plus some for single tensors and for small ones, so that a
 * small wish does not wait for a large one. An interrupted wish is only removed: results that were
 * begun are kept, so a program that reads again after a signal continues where it was.
 *
 * Results are kept (kept.h). Failures are not kept: missing data, a truncated file or lack of
 * memory fails the waiting wishes, and the next wish tries again.
 *
 * Threads: any. done() is called without a lock, by one of the threads or in work_interrupt().
 */
#ifndef DERIVE_WORK_H
#define DERIVE_WORK_H

#include "derive/kept.h"
#include "model/snapshot.h"

struct work;

#define WORK_PARKED 1

struct work *work_new(void); /* Return NULL without memory. */
/* Answer all waiting wishes, and any new ones, with -EINTR, and stop computing. */
void work_stop(struct work *w);
/* Do the same, and free the kept results. w may be NULL. */
void work_free(struct work *w);

struct work_waiter {
    const void *request; /* identifies the wish for work_interrupt() */
    void (*done)(void *arg, int result);
    /*
     * True if the request was already signalled. Called under a lock before it waits, so that no
     * signal is missed that arrives before work_interrupt() can find the request. May be NULL.
     */
    bool (*stopped)(void *arg);
    void *arg;
};

/*
 * Wish for the results of tensors [first, last) of the view, except those without values where
 * values are needed. Hashes and moments that a waiter waited for stay kept until its done()
 * returns, whatever others wish meanwhile.
 */
int work_want(struct work *w, const struct view *v, enum derived what, uint32_t first,
              uint32_t last, const struct work_waiter *waiter);
/* True if `request` was waiting, and is not being answered; NULL: any. */
bool work_interrupt(struct work *w, const void *request);

/* True if the result exists for this tensor: all except hashes need values. */
bool work_applies(const struct snapshot *g, const struct gguf_tensor *t, enum derived what);

/* Return a reference to the kept result of tensor i. NULL: it is not kept (any more), so wish for
 * it. */
struct result *work_result(struct work *w, const struct view *v, uint32_t i, enum derived what);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * Computes hashes, moments, statistics and pictures of tensors, which is slow, in the pool.
 *
 *     w = work_new();
 *     r = work_want(w, &view, DERIVED_SHA256, first, last, &waiter);
 *     0: all of it is kept; WORK_PARKED: waiter.done(arg, result) is called later; or -errno
 *     x = work_result(w, &view, i, DERIVED_SHA256);   once it is kept
 *     work_interrupt(w, request);                     done(arg, -EINTR), if it still waits
 *     work_free(w);
 *
 * A result is computed only when there is a wish for it, and only once: wishes for the same result
 * wait for one computation, which is a job in the pool and runs to its end. As many jobs run as
 * there are processors, plus one for each other model at work, and some for single and for small
 * tensors, so that a small wish does not wait for a large one. An interrupted wish is only removed;
 * results that were begun are kept, so a program that reads again after a signal continues where it
 * was.
 *
 * Results are kept (kept.h), failures are not: missing data, a truncated file or lack of memory
 * makes the waiting wishes fail, and the next wish tries again.
 *
 * Any thread may call these functions. done() is called without a lock, by a thread of the pool or
 * in work_interrupt().
 */
#ifndef DERIVE_WORK_H
#define DERIVE_WORK_H

#include "derive/kept.h"
#include "model/snapshot.h"

struct work;

#define WORK_PARKED 1

struct work *work_new(void); /* Returns NULL without memory. */
/* Stop computing, and answer all waiting and new wishes with -EINTR. */
void work_stop(struct work *w);
/* Call work_stop(), then free everything, including the kept results. w may be NULL. */
void work_free(struct work *w);

struct work_waiter {
    const void *request; /* identifies the wish for work_interrupt() */
    void (*done)(void *arg, int result);
    /*
     * Returns true if the request was already signalled. Called with a lock held before the wish
     * waits, so that no signal is missed that arrives before work_interrupt() can find the request.
     * May be NULL.
     */
    bool (*stopped)(void *arg);
    void *arg;
};

/*
 * Wish for the results of tensors [first, last) in the view, except tensors without values if
 * values are needed. Hashes and moments that a waiter waited for stay kept until its done()
 * returns, whatever wishes arrive in the meantime.
 */
int work_want(struct work *w, const struct view *v, enum derived what, uint32_t first,
              uint32_t last, const struct work_waiter *waiter);
/* Answer a wish of `request` (NULL: of any request) with -EINTR. Returns true if such a wish was
 * waiting and not already being answered. */
bool work_interrupt(struct work *w, const void *request);

/* Returns true if the result exists for this tensor. All results except hashes need values. */
bool work_applies(const struct snapshot *g, const struct gguf_tensor *t, enum derived what);

/* Return a reference to the kept result of tensor i, or NULL if it is not kept (any more); then
 * wish for it. */
struct result *work_result(struct work *w, const struct view *v, uint32_t i, enum derived what);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * What takes long to compute of tensors, by the pool: hashes, moments, statistics, pictures.
 *
 *     w = work_new();
 *     r = work_want(w, &view, DERIVED_SHA256, first, last, &waiter);
 *     0: all of it is kept; WORK_PARKED: waiter.done(arg, result) is called later; or -errno
 *     x = work_result(w, &view, i, DERIVED_SHA256);   once it is kept
 *     work_interrupt(w, request);                     done(arg, -EINTR), if it still waits
 *     work_free(w);
 *
 * Nothing is computed before it is wanted, and nothing twice: several that want the same wait for
 * one computation, which is a job of the pool and runs to its end. As many run as there are processors, one for each
 * other model at work, and some more of wishes for one tensor, and of small tensors, so that a small wish does not
 * wait for a large one. A wish that is interrupted is only taken off: what was begun is kept, so that a program
 * that reads again after a signal goes on where it was.
 *
 * Results are kept (kept.h). A failure is not: missing data, a cut file or want of memory fails
 * those that wait, and is tried again when it is wanted again.
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
/* Answer all that waits with -EINTR and whatever is wanted from now on, and end what is computed. */
void work_stop(struct work *w);
/* The same, and free what is kept. May be NULL. */
void work_free(struct work *w);

struct work_waiter {
    const void *request; /* for work_interrupt() */
    void (*done)(void *arg, int result);
    /* True if a signal came to the request already. Called under a lock, before it waits: so none is
     * missed that comes before work_interrupt() can find it. May be NULL. */
    bool (*stopped)(void *arg);
    void *arg;
};

/*
 * Tensors [first, last) of the view, those that have no values left out where values are needed. Hashes and
 * moments that a waiter has waited for stay kept until its done() returns, whatever others want meanwhile.
 */
int work_want(struct work *w, const struct view *v, enum derived what, uint32_t first,
              uint32_t last, const struct work_waiter *waiter);
/* True if `request` waited for something. */
bool work_interrupt(struct work *w, const void *request);

/* True if it can be computed of this tensor: all but hashes need values. */
bool work_applies(const struct snapshot *g, const struct gguf_tensor *t, enum derived what);

/* A reference to what is kept of tensor i. NULL: nothing (any more): want it. */
struct result *work_result(struct work *w, const struct view *v, uint32_t i, enum derived what);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * Computes hashes, moments, statistics and pictures of tensors in the pool, because computing them
 * is slow.
 *
 *     w = work_new();
 *     r = work_want(w, &view, DERIVED_SHA256, first, last, &waiter);
 *     0: all results are kept; WORK_PARKED: waiter.done(arg, result) is called later; or -errno
 *     x = work_result(w, &view, i, DERIVED_SHA256);   once it is kept
 *     work_interrupt(w, request);                     done(arg, -EINTR), if the wish still waits
 *     work_free(w);
 *
 * A result is computed only when there is a wish for it, and only once: wishes for the same result
 * wait for one computation, which is a job in the pool and runs to completion. For each model, at
 * most as many jobs run as there are processors; the latest wish starts its jobs first, so one for a
 * single tensor does not wait for one for all. An interrupted wish is only removed; the jobs that it started run on, so a program that reads again after a signal
 * continues where it left off.
 *
 * Results are kept as long as the model is open: hashes and moments of all states of all tensors, and
 * the most recently used texts and pictures, up to KEPT_BYTES in all. Failures are not kept: missing
 * data, a truncated file or lack of memory makes the waiting wishes fail, and the next wish tries
 * again.
 *
 * Any thread may call these functions. Nothing is computed or read under the lock of struct work.
 * done() is called without that lock, by a thread of the pool or by work_interrupt().
 */
#ifndef DERIVE_WORK_H
#define DERIVE_WORK_H

#include "base/buf.h"
#include "base/hash.h"
#include "model/snapshot.h"

/* ---- results ---- */

/* Room for about twenty pictures. */
#define KEPT_BYTES ((size_t)64 << 20)

/* The kinds of results: a hash in lower-case hex with a newline; a struct moments; the text of
 * `stats`; the picture's file. */
enum derived { DERIVED_SHA256, DERIVED_MOMENTS, DERIVED_STATS, DERIVED_PICTURE };

struct result {
    struct link link; /* must come first */
    uint32_t version; /* of the tensor (model/snapshot.h) */
    enum derived what;
    atomic_uint refs;
    bool ready;    /* false: a job still computes it */
    uint64_t used; /* time of its last use, as a count of uses */
    struct buf bytes;
};

void result_unref(struct result *r); /* may be NULL */

/* ---- wishes ---- */

struct work;

#define WORK_PARKED 1

/* Returns NULL if out of memory. */
struct work *work_new(void);
/* Stop computing, and answer all waiting and new wishes with -EINTR. */
void work_stop(struct work *w);
/* Call work_stop(), then free everything, including the kept results. w may be NULL. */
void work_free(struct work *w);

struct work_waiter {
    const void *request; /* identifies the wish for work_interrupt() */
    void (*done)(void *arg, int result);
    /* Returns true if the request was already signalled. Called with the lock held before the wish
     * begins to wait, because until then work_interrupt() cannot find the request. May be NULL. */
    bool (*stopped)(void *arg);
    void *arg;
};

/* Wish for the results of tensors [first, last) in the view, except tensors without values if values
 * are needed. */
int work_want(struct work *w, const struct view *v, enum derived what, uint32_t first,
              uint32_t last, const struct work_waiter *waiter);
/* Answer a wish of `request` (NULL: of any request) with -EINTR. Returns true if such a wish was
 * waiting and not already being answered. */
bool work_interrupt(struct work *w, const void *request);

/* Return true if the result exists for this tensor. All results except hashes need values. */
bool work_applies(const struct snapshot *g, const struct gguf_tensor *t, enum derived what);

/* Return a reference to the kept result of tensor i, or NULL if it is not kept, in which case the
 * caller must wish for it. */
struct result *work_result(struct work *w, const struct view *v, uint32_t i, enum derived what);

#endif

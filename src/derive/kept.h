/* SPDX-License-Identifier: MIT */
/*
 * Keeps results computed from tensors for as long as the model is open: hashes and moments of all
 * tensors, and the most recently used texts and pictures, up to KEPT_BYTES in all.
 *
 * A result belongs to a state of a tensor (model/snapshot.h). Results for states other than the
 * newest stay for as long as a wish needs them (kept_forget_others()).
 *
 * Call these functions with a lock held; a result is constant while a reference to it is held.
 */
#ifndef DERIVE_KEPT_H
#define DERIVE_KEPT_H

#include "base/buf.h"
#include "base/hash.h"
#include "model/snapshot.h"

/* Room for about twenty pictures. */
#define KEPT_BYTES ((size_t)64 << 20)

/* Kinds of results: a hash in lower-case hex with a newline; a struct moments; the text of `stats`;
 * the picture's file. */
enum derived { DERIVED_SHA256, DERIVED_MOMENTS, DERIVED_STATS, DERIVED_PICTURE };

struct result {
    struct link link; /* must come first */
    struct tensor_id of;
    enum derived what;
    atomic_uint refs;
    uint64_t used; /* when it was last used, as a number that only rises */
    struct buf bytes;
};

void result_unref(struct result *r); /* may be NULL */

struct kept {
    struct table all; /* references, hashed by the tensor's number */
    size_t bytes;     /* total size of the kept texts and pictures */
    uint64_t uses;
};

#define KEPT_NONE ((struct kept){0})
void kept_free(struct kept *k);

/* Return the result without taking a reference, or NULL if it is not kept. */
struct result *kept_find(const struct kept *k, struct tensor_id of, enum derived what);
/* Return a reference to the result, or NULL. This counts as a use. */
struct result *kept_use(struct kept *k, struct tensor_id of, enum derived what);
/* Keep *bytes as a result, taking ownership of them on success. Returns 0 or -ENOMEM. */
int kept_put(struct kept *k, struct tensor_id of, enum derived what, struct buf *bytes);
/* Forget the results for other states of this tensor, except for those that are needed. */
void kept_forget_others(struct kept *k, struct tensor_id of,
                        bool (*needed)(void *arg, struct tensor_id other), void *arg);

#endif

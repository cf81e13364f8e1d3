/* SPDX-License-Identifier: MIT */
/*
 * What was computed of tensors, kept for as long as the model is open: hashes and moments of all
 * tensors, and of the texts and pictures those that were used last, KEPT_BYTES in all.
 *
 * A result belongs to a state of a tensor (model/ids.h). Other states than the newest stay for as long as
 * a wish needs them: kept_forget_others().
 *
 * Threads: the caller has a lock; what a reference is held to is constant.
 */
#ifndef DERIVE_KEPT_H
#define DERIVE_KEPT_H

#include "base/buf.h"
#include "base/hash.h"
#include "model/ids.h"

/* Some twenty pictures. */
#define KEPT_BYTES ((size_t)64 << 20)

/* A hash in lower-case hex, with a newline; struct moments; the text; the file. */
enum derived { DERIVED_SHA256, DERIVED_MOMENTS, DERIVED_STATS, DERIVED_PICTURE };

struct result {
    struct link link; /* first */
    struct tensor_id of;
    enum derived what;
    atomic_uint refs;
    struct result *older, *newer; /* of texts and pictures: by their last use */
    struct buf bytes;
};

void result_unref(struct result *r); /* may be NULL */

struct kept {
    struct table all;               /* references, by the tensor's number */
    struct result *newest, *oldest; /* of texts and pictures, ... */
    size_t bytes;                   /* ... that they have */
};

#define KEPT_NONE ((struct kept){0})
void kept_free(struct kept *k);

/* Not a reference; NULL: it is not kept. */
struct result *kept_find(const struct kept *k, struct tensor_id of, enum derived what);
/* A reference, or NULL: it is used now. */
struct result *kept_use(struct kept *k, struct tensor_id of, enum derived what);
/* Keep bytes, which pass. 0, -ENOMEM. */
int kept_put(struct kept *k, struct tensor_id of, enum derived what, struct buf *bytes);
/* Forget the other states of this tensor, but for those that are needed. */
void kept_forget_others(struct kept *k, struct tensor_id of,
                        bool (*needed)(void *arg, struct tensor_id other), void *arg);

#endif

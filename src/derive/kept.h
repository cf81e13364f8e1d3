/* SPDX-License-Identifier: MIT */
/*
 * What was computed of tensors, kept for as long as the model is open: hashes and moments of all
 * tensors, and of the texts and pictures those that were used last, KEPT_BYTES in all.
 *
 * Results belong to a state of a tensor (struct kept_key). Other states than the newest stay for as long as
 * a wish needs them: kept_forget_others().
 *
 * Threads: the caller has a lock.
 */
#ifndef DERIVE_KEPT_H
#define DERIVE_KEPT_H

#include <stdatomic.h>

#include "base/hash.h"
#include "derive/digest.h"
#include "derive/stats.h"

/* Some twenty pictures. */
#define KEPT_BYTES ((size_t)64 << 20)

enum derived { DERIVED_SHA256, DERIVED_MOMENTS, DERIVED_STATS, DERIVED_PICTURE };

/* A tensor's number and version (model/ids.h). */
struct kept_key {
    uint32_t id, version;
};

/* A text or picture. Counted. */
struct blob {
    atomic_uint refs;
    struct blob *older, *newer; /* in the list of those that are kept */
    struct kept_key key;
    enum derived what;
    struct buf bytes; /* constant */
};

void blob_unref(struct blob *b); /* may be NULL */

struct kept {
    struct table all;             /* of each state of a tensor that has results, by id */
    struct blob *newest, *oldest; /* references */
    size_t bytes;                 /* of blobs */
};

#define KEPT_NONE ((struct kept){0})
void kept_free(struct kept *k);

bool kept_has(const struct kept *k, struct kept_key key, enum derived what);
/* False: it is not kept. */
bool kept_sha256(const struct kept *k, struct kept_key key, uint8_t dst[DIGEST_BYTES]);
bool kept_moments(const struct kept *k, struct kept_key key, struct moments *dst);
/* A reference, or NULL. */
struct blob *kept_blob(struct kept *k, struct kept_key key, enum derived what);

/* 0, -ENOMEM. The bytes of a blob pass on success. */
int kept_put_sha256(struct kept *k, struct kept_key key, const uint8_t hash[DIGEST_BYTES]);
int kept_put_moments(struct kept *k, struct kept_key key, const struct moments *m);
int kept_put_blob(struct kept *k, struct kept_key key, enum derived what, struct buf *bytes);
/* Forget the other states of this tensor, but for those that are needed. */
void kept_forget_others(struct kept *k, struct kept_key key,
                        bool (*needed)(void *arg, struct kept_key other), void *arg);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * What was written to a view of a tensor: stretches of it, in order and disjoint, each in a log, or zeros.
 *
 * Threads: one at a time.
 */
#ifndef LIVE_EXTENTS_H
#define LIVE_EXTENTS_H

#include "model/content.h"

struct extent {
    uint64_t at, len; /* of the view */
    uint64_t src;     /* of its first byte in the log */
    struct log *log;  /* a reference; NULL: zeros */
    bool fresh;       /* it is to be judged */
};

struct extents {
    struct extent *of; /* owned */
    size_t n, cap;
};

void extents_free(struct extents *s);
/* Put one in, over what is there; it gets a reference of its own. 0, -ENOMEM. */
int extents_put(struct extents *s, const struct extent *x);
/* Nothing is behind `size` any more. */
void extents_cut(struct extents *s, uint64_t size);
/* All, with references of their own. *ret is empty before. 0, -ENOMEM. */
int extents_copy(const struct extents *s, struct extents *ret);
/* How many bytes from `off` on, at most n > 0, are of one: *ret; NULL: of none. */
uint64_t extents_stretch(const struct extents *s, uint64_t off, uint64_t n,
                         const struct extent **ret);
/* Bytes [off, off + n) of the view, which one has. 0, -EIO, -errno. */
int extent_read(const struct extent *x, uint64_t off, void *dst, size_t n);

#endif

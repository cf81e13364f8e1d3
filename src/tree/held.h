/* SPDX-License-Identifier: MIT */
/*
 * What nodes show that the kernel still knows or a program has open: a table by number, for the
 * nodes whose content may not be in the newest state. It is as large as what is known and open;
 * each call takes the same time however much that is.
 *
 * Threads: the caller has a lock.
 */
#ifndef TREE_HELD_H
#define TREE_HELD_H

#include "model/snapshot.h"

struct held {
    uint64_t key;          /* see held_key() in nodes.c */
    struct held *next;     /* in its bucket */
    struct snapshot *snap; /* a view of the whole: a reference, what it shows; of a tensor: NULL */
    uint32_t state;        /* of the mount, where it is shown */
    uint64_t lookups;      /* a view of the whole: the kernel's references */
    unsigned opens;        /* open files */
    struct view kept;      /* what they are read from, if the newest state lacks it; else empty */
};

struct held_table {
    struct held **bucket; /* owned */
    size_t buckets;       /* a power of two, or 0 */
    size_t n;
};

void held_free(struct held_table *h);
/* NULL: not held. */
struct held *held_find(const struct held_table *h, uint64_t key);
/* The one that exists, or a new one with all but its key zero. NULL: no memory. */
struct held *held_get(struct held_table *h, uint64_t key);
/* Take one out and free it, but for its references. */
void held_remove(struct held_table *h, struct held *x);
/* All of them, in any order: the first for NULL, NULL behind the last. */
struct held *held_next(const struct held_table *h, const struct held *x);

#endif

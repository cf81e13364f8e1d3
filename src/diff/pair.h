/* SPDX-License-Identifier: MIT */
/*
 * The keys, or the tensors, of two models, paired by name.
 *
 * Pairs are in the order of A, followed by those that only B has. Those whose order alone differs are the
 * fewest that have to move to make both orders one.
 *
 * Threads: any.
 */
#ifndef DIFF_PAIR_H
#define DIFF_PAIR_H

#include "gguf/gguf.h"

enum diff_status { DIFF_SAME, DIFF_CHANGED, DIFF_ONLY_A, DIFF_ONLY_B, DIFF_MOVED, DIFF_STATUSES };

#define PAIR_NONE UINT32_MAX

struct pair {
    uint32_t a, b; /* numbers; PAIR_NONE: it has not */
    enum diff_status status;
};

struct pairs {
    struct pair *of; /* owned */
    size_t n;
};

/* Names that match one of these patterns, as of fnmatch(3), are left out. */
struct pair_filter {
    const char *const *ignore;
    size_t n;
};

enum pair_what { PAIR_KEYS, PAIR_TENSORS };

/* Nothing is compared but names and their order. 0, -ENOMEM. */
int pairs_make(const struct gguf *a, const struct gguf *b, enum pair_what what,
               const struct pair_filter *filter, struct pairs *ret);
void pairs_free(struct pairs *p);
/* How many pairs there are of each status. */
void pairs_count(const struct pairs *p, size_t count[DIFF_STATUSES]);

/* "same", "changed", "only_a", "only_b", "moved" */
const char *diff_status_name(enum diff_status s);

#endif

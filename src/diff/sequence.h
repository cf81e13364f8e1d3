/* SPDX-License-Identifier: MIT */
/*
 * What differs between two sequences of hashes, as hunks: the fewest insertions and removals (Myers, 1986).
 *
 * Time and memory are bounded. Where more than SEQUENCE_MOST elements differ, element i is compared with
 * element i instead.
 *
 * Threads: any.
 */
#ifndef DIFF_SEQUENCE_H
#define DIFF_SEQUENCE_H

#include <stddef.h>
#include <stdint.h>

/* Insertions and removals that are searched for: memory is the square of it, half a word each. */
enum { SEQUENCE_MOST = 2048 };

/* Elements [a, a + n_a) are replaced by [b, b + n_b); one of the counts may be 0. */
struct hunk {
    size_t a, n_a, b, n_b;
};

struct hunks {
    struct hunk *of; /* owned; in order, none next to another */
    size_t n, cap;
};

#define HUNKS_INIT ((struct hunks){0})

/* 0, -ENOMEM. */
int sequence_diff(const uint64_t *a, size_t n_a, const uint64_t *b, size_t n_b, struct hunks *ret);
void hunks_free(struct hunks *h);

#endif

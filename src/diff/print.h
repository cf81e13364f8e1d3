/* SPDX-License-Identifier: MIT */
/*
 * Prints the differences between two models, as text for a terminal and as JSON. Names and values
 * are made safe to print. Any thread may print.
 */
#ifndef DIFF_PRINT_H
#define DIFF_PRINT_H

#include "base/buf.h"
#include "diff/compare.h"
#include "text/json.h"

/* Append text for a terminal. */
void diff_text(const struct diff *d, bool colours, struct buf *text);
/* Add a JSON object. all: include equal items. */
void diff_json(const struct diff *d, bool all, struct json *j);

/* ---- sequences of hashes ---- */

/* Largest product of the lengths of two sequences that are searched for the fewest changes. */
#define SEQUENCE_MOST ((size_t)1 << 24)

/* Elements [a, a + n_a) are replaced by [b, b + n_b); one of the counts may be 0. */
struct hunk {
    size_t a, n_a, b, n_b;
};

struct hunks {
    struct hunk *of; /* owned; in order, no two adjacent */
    size_t n, cap;
};

/*
 * Find the differences as hunks, with the fewest insertions and removals. What lies between equal
 * beginnings and ends is compared index by index if it is long. *ret must be zeroed. Returns 0 or
 * -ENOMEM.
 */
int sequence_diff(const uint64_t *a, size_t n_a, const uint64_t *b, size_t n_b, struct hunks *ret);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * A set of numbers below 2^40, as bits. Memory is taken where numbers are: 4 KiB for each stretch of
 * 32768 that has any, and a pointer for each stretch below the highest.
 *
 *     struct bits b = BITS_INIT;
 *     r = bits_add(&b, first, last);                numbers [first, last)
 *     for (n = 0; bits_next(&b, n, &lo, &hi); n = hi) ... [lo, hi) are in it
 *     bits_free(&b);
 *
 * Threads: one at a time.
 */
#ifndef BASE_BITS_H
#define BASE_BITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BITS_MAX ((uint64_t)1 << 40)

struct bits {
    uint64_t **leaf; /* owned, as each of them; NULL: an empty stretch */
    size_t n, cap;
};

#define BITS_INIT ((struct bits){0})

/* Add [first, last). 0; -ENOMEM, or -EFBIG beyond BITS_MAX (nothing is added). */
int bits_add(struct bits *b, uint64_t first, uint64_t last);
/* Take [first, last) out. */
void bits_remove(struct bits *b, uint64_t first, uint64_t last);
/* Add all of `other`, which is empty afterwards. Cannot fail if b was made from part of it. */
void bits_join(struct bits *b, struct bits *other);
bool bits_has(const struct bits *b, uint64_t i);
/* The first run [*lo, *hi) of numbers from `from` on. False: there are no more. */
bool bits_next(const struct bits *b, uint64_t from, uint64_t *lo, uint64_t *hi);
void bits_free(struct bits *b);

#endif

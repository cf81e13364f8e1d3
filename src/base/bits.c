/* SPDX-License-Identifier: MIT */
/* Sets of numbers: see bits.h. */
#include "base/bits.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/bytes.h"

enum { LEAF = 32768, LEAF_WORDS = LEAF / 64 };

/* Bits [lo, hi) of a word. */
static uint64_t mask(unsigned lo, unsigned hi)
{
    return (~(uint64_t)0 >> (64 - (hi - lo))) << lo;
}

static int make_room(struct bits *b, uint64_t first, uint64_t last)
{
    size_t n = (size_t)((last + LEAF - 1) / LEAF);
    if (n > b->n) {
        if (n > b->cap) {
            size_t cap = b->cap * 2 > n ? b->cap * 2 : n;
            uint64_t **leaf = realloc(b->leaf, cap * sizeof(*leaf));
            if (!leaf)
                return -ENOMEM;
            b->leaf = leaf;
            b->cap = cap;
        }
        memset(b->leaf + b->n, 0, (n - b->n) * sizeof(*b->leaf));
        b->n = n;
    }
    for (size_t i = (size_t)(first / LEAF); i < n; i++) {
        if (!b->leaf[i])
            b->leaf[i] = calloc(LEAF_WORDS, sizeof(uint64_t));
        if (!b->leaf[i])
            return -ENOMEM;
    }
    return 0;
}

static void change(struct bits *b, uint64_t first, uint64_t last, bool on)
{
    for (uint64_t i = first, end; i < last; i = end) {
        uint64_t *leaf = b->leaf[i / LEAF];
        end = min_u64(last, (i / 64 + 1) * 64);
        uint64_t m = mask((unsigned)(i % 64), (unsigned)(end - i / 64 * 64));
        if (!leaf)
            end = min_u64(last, (i / LEAF + 1) * LEAF);
        else if (on)
            leaf[i % LEAF / 64] |= m;
        else
            leaf[i % LEAF / 64] &= ~m;
    }
}

int bits_add(struct bits *b, uint64_t first, uint64_t last)
{
    if (first >= last)
        return 0;
    if (last > BITS_MAX)
        return -EFBIG;
    int r = make_room(b, first, last);
    if (r == 0)
        change(b, first, last, true);
    return r;
}

void bits_remove(struct bits *b, uint64_t first, uint64_t last)
{
    change(b, first, min_u64(last, (uint64_t)b->n * LEAF), false);
}

void bits_join(struct bits *b, struct bits *other)
{
    if (b->n < other->n) {
        struct bits swapped = *b;
        *b = *other;
        *other = swapped;
    }
    for (size_t i = 0; i < other->n; i++) {
        uint64_t *from = other->leaf[i];
        if (!b->leaf[i]) {
            b->leaf[i] = from;
            other->leaf[i] = NULL;
            continue;
        }
        for (size_t k = 0; from && k < LEAF_WORDS; k++)
            b->leaf[i][k] |= from[k];
    }
    bits_free(other);
}

bool bits_has(const struct bits *b, uint64_t i)
{
    const uint64_t *leaf = i / LEAF < b->n ? b->leaf[i / LEAF] : NULL;
    return leaf && leaf[i % LEAF / 64] >> i % 64 & 1;
}

/* The first number from `from` on that is in the set, or is not; the end of all stretches: none. */
static uint64_t find(const struct bits *b, uint64_t from, bool in)
{
    uint64_t end = (uint64_t)b->n * LEAF;
    while (from < end) {
        const uint64_t *leaf = b->leaf[from / LEAF];
        if (!leaf && !in)
            return from;
        if (!leaf) {
            from = (from / LEAF + 1) * LEAF;
            continue;
        }
        uint64_t word = leaf[from % LEAF / 64];
        word = (in ? word : ~word) & mask((unsigned)(from % 64), 64);
        if (word)
            return from / 64 * 64 + (unsigned)__builtin_ctzll(word);
        from = (from / 64 + 1) * 64;
    }
    return end;
}

bool bits_next(const struct bits *b, uint64_t from, uint64_t *lo, uint64_t *hi)
{
    *lo = find(b, from, true);
    if (*lo >= (uint64_t)b->n * LEAF)
        return false;
    *hi = find(b, *lo, false);
    return true;
}

void bits_free(struct bits *b)
{
    for (size_t i = 0; i < b->n; i++)
        free(b->leaf[i]);
    free(b->leaf);
    *b = BITS_INIT;
}

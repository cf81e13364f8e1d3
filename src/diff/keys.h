/* SPDX-License-Identifier: MIT */
/*
 * What differs between two metadata values. Values are compared as what they mean: the byte order, the
 * version and the length fields of the files do not matter.
 *
 * Threads: any.
 */
#ifndef DIFF_KEYS_H
#define DIFF_KEYS_H

#include "diff/pair.h"
#include "diff/sequence.h"

/* The keys of two models: pairs_make(), and what differs is DIFF_CHANGED. 0, -ENOMEM. */
int keys_compare(const struct gguf *a, const struct gguf *b, const struct pair_filter *filter,
                 struct pairs *ret);

/* Elements of arrays that are searched for insertions; in longer ones element i is compared with element i. */
#define KEYS_SEARCHED ((uint64_t)1 << 20)

/* What differs between two arrays of one type of elements. */
struct array_diff {
    uint64_t changed, inserted, removed; /* elements */
    uint64_t first_a, first_b;           /* of the first that differs; or the count */
};

/* 0, -ENOMEM. */
int array_compare(const struct gguf_value *a, const struct gguf_value *b, struct array_diff *ret);
/* Element i of an array; false: the array ends before. */
bool array_at(const struct gguf_value *array, uint64_t i, struct gguf_value *item);

/* The lines of two texts, a line ending in a newline. 0, -ENOMEM. */
struct lines {
    struct line {
        const char *at;
        size_t len; /* without the newline */
        bool open;  /* the last one, which has none */
    } * of;         /* owned */
    uint64_t *hash; /* owned */
    size_t n, cap, cap_hash;
};
int lines_split(const char *text, size_t n, struct lines *ret);
void lines_free(struct lines *l);

#endif

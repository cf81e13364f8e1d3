/* SPDX-License-Identifier: MIT */
/*
 * The keys, or the tensors, of two models, paired by name; and what differs between two metadata values, two texts and
 * two sequences. Values are compared as what they mean: the byte order, the version and the length fields of the files
 * do not matter.
 *
 * Pairs are in the order of A, followed by those that only B has. Those whose order alone differs are the
 * fewest that have to move to make both orders one.
 *
 * Threads: any.
 */
#ifndef DIFF_PAIR_H
#define DIFF_PAIR_H

#include "model/facts.h"

enum diff_status { DIFF_SAME, DIFF_CHANGED, DIFF_ONLY_A, DIFF_ONLY_B, DIFF_MOVED, DIFF_STATUSES };

#define PAIR_NONE UINT32_MAX

struct pair {
    uint32_t no[2]; /* of A and B; PAIR_NONE: it has not */
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

/* The name of a key, or of a tensor. */
struct text pair_name(const struct gguf *g, enum pair_what what, uint32_t i);

/* Nothing is compared but names and their order. 0, -ENOMEM. */
int pairs_make(const struct gguf *a, const struct gguf *b, enum pair_what what,
               const struct pair_filter *filter, struct pairs *ret);
/* The keys of two models: pairs_make(), and what differs is DIFF_CHANGED. 0, -ENOMEM. */
int keys_compare(const struct gguf *a, const struct gguf *b, const struct pair_filter *filter,
                 struct pairs *ret);
void pairs_free(struct pairs *p);
/* How many pairs there are of each status. */
void pairs_count(const struct pairs *p, size_t count[DIFF_STATUSES]);

/* "same", "changed", "only_a", "only_b", "moved" */
const char *diff_status_name(enum diff_status s);

/* ---- values ---- */

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

/* ---- sequences of hashes ---- */

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

/* What differs, as hunks: the fewest insertions and removals (Myers, 1986). Time and memory are bounded: where more than
 * SEQUENCE_MOST elements differ, element i is compared with element i instead. 0, -ENOMEM. */
int sequence_diff(const uint64_t *a, size_t n_a, const uint64_t *b, size_t n_b, struct hunks *ret);
void hunks_free(struct hunks *h);

#endif

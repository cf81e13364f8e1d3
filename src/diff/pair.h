/* SPDX-License-Identifier: MIT */
/*
 * Pairs the keys or the tensors of two models by name, and finds the differences between two
 * metadata values, two texts and two sequences. Values are compared by meaning: the files' byte
 * order, version and length fields do not matter.
 *
 * Pairs are in the order of A, followed by those that only B has. The smallest possible number of
 * pairs counts as moved.
 *
 * Any thread may call these functions.
 */
#ifndef DIFF_PAIR_H
#define DIFF_PAIR_H

#include "model/facts.h"

enum diff_status { DIFF_SAME, DIFF_CHANGED, DIFF_ONLY_A, DIFF_ONLY_B, DIFF_MOVED, DIFF_STATUSES };

#define PAIR_NONE UINT32_MAX

struct pair {
    uint32_t no[2]; /* number in A and in B; PAIR_NONE: missing there */
    enum diff_status status;
};

struct pairs {
    struct pair *of; /* owned */
    size_t n;
};

/* Names that match one of these patterns, as in fnmatch(3), are skipped. */
struct pair_filter {
    const char *const *ignore;
    size_t n;
};

enum pair_what { PAIR_KEYS, PAIR_TENSORS };

/* Return the name of a key or tensor. */
struct text pair_name(const struct gguf *g, enum pair_what what, uint32_t i);

/* Pair by name. Compares only names and their order. Returns 0 or -ENOMEM. */
int pairs_make(const struct gguf *a, const struct gguf *b, enum pair_what what,
               const struct pair_filter *filter, struct pairs *ret);
/* Pair the keys of two models like pairs_make(), and mark those that differ DIFF_CHANGED. Returns 0
 * or -ENOMEM. */
int keys_compare(const struct gguf *a, const struct gguf *b, const struct pair_filter *filter,
                 struct pairs *ret);
void pairs_free(struct pairs *p);
/* Count the pairs with each status. */
void pairs_count(const struct pairs *p, size_t count[DIFF_STATUSES]);

/* "same", "changed", "only_a", "only_b", "moved" */
const char *diff_status_name(enum diff_status s);

/* ---- values ---- */

/* Arrays of up to this many elements are searched for insertions; longer ones are compared index by
 * index. */
#define KEYS_SEARCHED ((uint64_t)1 << 20)

/* The difference between two arrays with the same element type. */
struct array_diff {
    uint64_t changed, inserted, removed; /* numbers of elements */
    uint64_t first_a, first_b; /* places of the first difference, or the counts of elements */
};

/* Find the difference between two arrays. Returns 0 or -ENOMEM. */
int array_compare(const struct gguf_value *a, const struct gguf_value *b, struct array_diff *ret);
/* Get element i of an array. Returns false if the array is shorter. */
bool array_at(const struct gguf_value *array, uint64_t i, struct gguf_value *item);

/* The lines of two texts, each ending in a newline. */
struct lines {
    struct line {
        const char *at;
        size_t len; /* without the newline */
        bool open;  /* it is the last line, and has no newline */
    } * of;         /* owned */
    uint64_t *hash; /* owned */
    size_t n, cap, cap_hash;
};
int lines_split(const char *text, size_t n, struct lines *ret);
void lines_free(struct lines *l);

/* ---- sequences of hashes ---- */

/* Maximum number of insertions and removals searched for. Memory grows with its square, half a word
 * each. */
enum { SEQUENCE_MOST = 2048 };

/* Elements [a, a + n_a) are replaced by [b, b + n_b); one of the counts may be 0. */
struct hunk {
    size_t a, n_a, b, n_b;
};

struct hunks {
    struct hunk *of; /* owned; in order, none adjacent to another */
    size_t n, cap;
};

#define HUNKS_INIT ((struct hunks){0})

/*
 * Find the differences as hunks, with the fewest insertions and removals (Myers, 1986). Time and
 * memory are bounded: if more than SEQUENCE_MOST elements differ, the sequences are compared index
 * by index instead. Returns 0 or -ENOMEM.
 */
int sequence_diff(const uint64_t *a, size_t n_a, const uint64_t *b, size_t n_b, struct hunks *ret);
void hunks_free(struct hunks *h);

#endif

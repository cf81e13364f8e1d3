/* SPDX-License-Identifier: MIT */
/*
 * Compares two models: pairs their keys and their tensors by name, and compares each pair.
 *
 * Values of keys are compared by meaning: the files' byte order, version and length fields do not
 * matter. Pairs are in the order of A, followed by the pairs that only B has.
 *
 * Tensors of the same type and shape are compared as bytes, even if the models differ in order,
 * alignment, byte order or split. If type or bytes differ but the shape is the same, the values
 * of `f32` are compared in double precision, on all processors. Positions where either value is not
 * finite are counted separately.
 *
 * Data is read into the threads' own memory, under 1 MiB each, not through mappings. Any thread may
 * call these functions.
 */
#ifndef DIFF_COMPARE_H
#define DIFF_COMPARE_H

#include "edit/open.h"
#include "model/facts.h"
#include "quant/quant.h"

/* ---- the two models ---- */

/* A model, whose tensors can be read. A split model counts as one. */
struct side {
    const char *label;   /* not owned: the name as specified by the user */
    struct gguf *g;      /* owned: the whole model */
    struct store *store; /* owned reference: its files and where each tensor is */
};

/* Open the model at `path`, or the model to which the shard at `path` belongs. Returns 0, or -errno
 * with a message. Free the side in either case. */
int side_open(struct side *s, const char *path, const char *label, struct err *e);
void side_free(struct side *s);

/* ---- the comparison ---- */

enum diff_status { DIFF_SAME, DIFF_CHANGED, DIFF_ONLY_A, DIFF_ONLY_B, DIFF_MOVED, DIFF_STATUSES };

#define PAIR_NONE UINT32_MAX

struct pair {
    uint32_t no[2]; /* index in A and in B; PAIR_NONE: missing in that model */
    enum diff_status status;
};

struct pairs {
    struct pair *of; /* owned */
    size_t n;
};

struct tensor_diff {
    bool type, shape, bytes; /* which properties differ; bytes only if type and shape are equal */
    bool measured;           /* the fields below are set */
    struct quant_distance sum;
    uint64_t max_at; /* the stored index of the element with the greatest difference */
    uint64_t nan[2]; /* counts in A and in B */
    uint64_t inf[2];
    /* number of positions where one value is NaN or infinite and the other is a different value */
    uint64_t apart;
};

struct diff_options {
    bool keys, tensors; /* what to compare */
    bool quick;         /* do not decode values */
    double tolerance;   /* relative errors up to this value are ignored; negative: no tolerance */
    /* Names that match one of these patterns, as in fnmatch(3), are skipped. */
    const char **ignore;
    size_t n_ignore;
    /* Called from time to time, on the comparing thread. May be NULL. */
    void (*progress)(void *arg, uint64_t done, uint64_t total);
    void *arg;
};

struct diff {
    const struct side *side[2]; /* A and B */
    const struct diff_options *opt;
    struct pairs keys, tensors;
    struct tensor_diff *of; /* owned: one per pair of tensors */
};

/* Compare the models in d->side according to d->opt. Returns 0, or -EIO or -ENOMEM with a message.
 * Free d in either case. */
int diff_compare(struct diff *d, struct err *e);
void diff_free(struct diff *d);
/* True if nothing differs but the order. */
bool diff_is_same(const struct diff *d);

static inline const struct gguf_tensor *pair_tensor(const struct diff *d, const struct pair *p,
                                                    size_t side)
{
    return &d->side[side]->g->tensor[p->no[side]];
}
/* Count the pairs with each status. */
void pairs_count(const struct pairs *p, size_t count[DIFF_STATUSES]);
/* True if two values have the same type, and the same bytes or text. */
bool value_same(const struct gguf_value *a, const struct gguf_value *b);

/* Return the root mean square error relative to A's root mean square. Infinite if A's is 0 and B's
 * is not. */
double diff_error(const struct quant_distance *d);
/* Return the cosine, NaN if a norm is 0. */
double diff_cosine(const struct quant_distance *d);

#endif

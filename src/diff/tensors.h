/* SPDX-License-Identifier: MIT */
/*
 * The differences between the tensors of two models.
 *
 * Tensors of the same type and shape are compared as bytes, whatever the two models' order,
 * alignment, byte order and split. If type or bytes differ but the shape is the same, the values
 * are compared in double precision, on all processors: those of `f32`, or for F64, I32 and I64 the
 * stored ones. Positions where either value is not finite are counted separately.
 *
 * Memory: under 1 MiB per processor, and sizeof(struct tensor_diff) per tensor. Holes are not read.
 *
 * tensors_compare() starts its own threads, and ends them.
 */
#ifndef DIFF_TENSORS_H
#define DIFF_TENSORS_H

#include "diff/pair.h"
#include "diff/side.h"
#include "quant/quant.h"

struct tensor_diff {
    bool type, shape, bytes; /* which properties differ; bytes only if type and shape are equal */
    bool measured;           /* the fields below are set */
    struct quant_distance sum;
    uint64_t max_at; /* the stored index of the element with the greatest difference */
    uint64_t nan[2]; /* counts in A and in B */
    uint64_t inf[2];
    /* number of positions where one value is NaN or infinite and the other is a different value */
    uint64_t apart;
    /* for a tensor that the other model lacks: a tensor there with the same bytes, or PAIR_NONE */
    uint32_t twin;
};

struct diff_options {
    bool quick;       /* do not decode values */
    double tolerance; /* relative errors up to this value are ignored; negative: none is */
    /* Called now and then, on the comparing thread. May be NULL. */
    void (*progress)(void *arg, uint64_t done, uint64_t total);
    void *arg;
};

/* Compare the tensors of each pair. ret: one element per pair. Pairs that differ become
 * DIFF_CHANGED. Returns 0, or -EIO or -ENOMEM with a message. */
int tensors_compare(const struct side *const side[2], struct pairs *p, const struct diff_options *o,
                    struct tensor_diff *ret, struct err *e);

/* Return the root mean square error relative to A's root mean square. Infinite if A's is 0 and B's
 * is not. */
double diff_error(const struct quant_distance *d);
/* Return the cosine, NaN if a norm is 0. */
double diff_cosine(const struct quant_distance *d);

#endif

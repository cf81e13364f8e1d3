/* SPDX-License-Identifier: MIT */
/*
 * What differs between the tensors of two models.
 *
 * Tensors of one type and shape are compared as bytes, whatever the order, the alignment, the byte order and
 * the split of the two models. Where type or bytes differ and the shape is the same, the values of both are
 * compared in double precision, by all processors: those that `f32` shows; of F64, I32 and I64 those that are
 * stored. Positions where either value is not finite count by themselves.
 *
 * Memory: under 1 MiB for each processor, and sizeof(struct tensor_diff) for each tensor. Holes are not read.
 *
 * Threads: tensors_compare() starts its own, and ends them.
 */
#ifndef DIFF_TENSORS_H
#define DIFF_TENSORS_H

#include "diff/pair.h"
#include "diff/side.h"
#include "quant/quant.h"

struct tensor_diff {
    bool type, shape, bytes; /* these differ; bytes only of one type and shape */
    bool measured;           /* the rest holds */
    struct quant_distance sum;
    uint64_t max_at; /* element of the greatest difference, as stored */
    uint64_t nan[2]; /* of A and of B */
    uint64_t inf[2];
    uint64_t
        apart; /* positions where one value is NaN or infinite, and the other is another value */
    uint32_t
        twin; /* of a tensor that the other model has not: one there with the same bytes, or PAIR_NONE */
};

struct diff_options {
    bool quick;       /* no values are decoded */
    double tolerance; /* a relative error up to this one does not count; below 0: every one does */
    /* Called now and then, by the thread that compares. May be NULL. */
    void (*progress)(void *arg, uint64_t done, uint64_t total);
    void *arg;
};

/* ret: as many as there are pairs. What differs is DIFF_CHANGED. 0, -EIO, -ENOMEM, with a line. */
int tensors_compare(const struct side *const side[2], struct pairs *p, const struct diff_options *o,
                    struct tensor_diff *ret, struct err *e);

/* Root mean square error relative to A's root mean square. Infinite: A's is 0, and B's is not. */
double diff_error(const struct quant_distance *d);
/* NaN: one of them is 0. */
double diff_cosine(const struct quant_distance *d);

#endif

/* SPDX-License-Identifier: MIT */
/* What values are encoded to: committed hashes, and the values themselves. */
#ifndef TESTS_LIB_GOLDEN_ENCODE_H
#define TESTS_LIB_GOLDEN_ENCODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "quant/encode.h"

/*
 * Kinds of values: uniform over an interval; like weights; of any size; prone to errors of
 * rounding, clamping and scales (all zeros, ties, maxima of either sign, scales at the limits of
 * binary16); tiny; like weights with some larger columns.
 */
enum golden_kind { UNIFORM, GAUSSIAN, WIDE, EDGES, TINY, N_KINDS, OUTLIERS = N_KINDS };

struct golden_encode {
    uint32_t id;
    enum golden_kind kind;
    uint64_t seed;
    uint32_t blocks;
    uint64_t f32_hash; /* of the values, little-endian */
    uint64_t raw_hash; /* of the blocks */
    double error;      /* of the reference, relative to the values; 0 if only bits count */
};

extern const struct golden_encode golden_encodes[];
extern const size_t n_golden_encodes;

/* n values of a kind, for the type of this id (n a whole number of blocks). */
void golden_values(float *dst, size_t n, uint32_t id, enum golden_kind kind, uint64_t seed);

/* The same for tensors with importances for their columns. */
struct golden_weighed {
    uint32_t id;
    enum golden_kind kind;
    uint64_t seed;
    uint32_t rows, columns;
    uint64_t importances; /* their seed; 0: none */
    uint64_t f32_hash, importances_hash;
    double error;
};

extern const struct golden_weighed golden_weighed[];
extern const size_t n_golden_weighed;

/* The values, and the importances for a row (1 each if there are none). */
void golden_table(const struct golden_weighed *g, float *values, float *importances);
/*
 * sqrt(sum(w * (x - y)^2) / sum(w * x^2)), where y is x encoded and decoded. Negative: the type
 * cannot encode the table.
 */
double golden_weighed_error(const struct golden_weighed *g, const struct quant_type *t,
                            const float *values, const float *importances);

/* Importances that are all 1, for types that require them; otherwise NULL. */
const struct quant_importances *golden_needed(const struct quant_type *t);

/*
 * True if a row of the table (for any kernel set) encodes the values to this hash or, if the row
 * has an error, to one at most 1 % larger.
 */
bool golden_encode_check(const struct golden_encode *g, const struct quant_type *t);

#endif

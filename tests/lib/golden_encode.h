/* SPDX-License-Identifier: MIT */
/* What values are encoded to: committed figures, and the values that they are of. */
#ifndef TESTS_LIB_GOLDEN_ENCODE_H
#define TESTS_LIB_GOLDEN_ENCODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "quant/encode.h"

/*
 * Kinds of values: even over an interval; like weights; of any size; what rounding, clamping and
 * scales get wrong (all zeros, ties, maxima at either sign, scales at the ends of binary16); tiny; like
 * weights of which some columns are larger.
 */
enum golden_kind { UNIFORM, GAUSSIAN, WIDE, EDGES, TINY, N_KINDS, OUTLIERS = N_KINDS };

struct golden_encode {
    uint32_t id;
    enum golden_kind kind;
    uint64_t seed;
    uint32_t blocks;
    uint64_t f32_hash; /* of the values, little-endian */
    uint64_t raw_hash; /* of the blocks */
    double error;      /* of the reference, relative to the values; 0 where bits alone count */
};

extern const struct golden_encode golden_encodes[];
extern const size_t n_golden_encodes;

/* n values of a kind, as for the type of this id (n a whole number of blocks). */
void golden_values(float *dst, size_t n, uint32_t id, enum golden_kind kind, uint64_t seed);

/* The same for tensors with importances of their columns. */
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

/* The values, and the importances of a row (of each: 1 where there are none). */
void golden_table(const struct golden_weighed *g, float *values, float *importances);
/* sqrt(sum(w * (x - y)^2) / sum(w * x^2)), y what the type makes of the table. Negative: it cannot. */
double golden_weighed_error(const struct golden_weighed *g, const struct quant_type *t,
                            const float *values, const float *importances);

/* Importances that are all 1, for types that cannot do without; of others NULL. */
const struct quant_importances *golden_needed(const struct quant_type *t);

/*
 * True if a row of the table (of any kernel set) encodes the values to this figure, and where the
 * figure has an error to one at most 1 % above.
 */
bool golden_encode_check(const struct golden_encode *g, const struct quant_type *t);

#endif

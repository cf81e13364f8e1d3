/* SPDX-License-Identifier: MIT */
/* What values are encoded to: committed figures, and the values that they are of. */
#ifndef TESTS_LIB_GOLDEN_ENCODE_H
#define TESTS_LIB_GOLDEN_ENCODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "quant/quant.h"

/*
 * Kinds of values: even over an interval; like weights; of any size; what rounding, clamping and
 * scales get wrong (all zeros, ties, maxima at either sign, scales at the ends of binary16); tiny.
 */
enum golden_kind { UNIFORM, GAUSSIAN, WIDE, EDGES, TINY, N_KINDS };

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

/*
 * True if a row of the table (of any kernel set) encodes the values to this figure, and where the
 * figure has an error to one at most 1 % above.
 */
bool golden_encode_check(const struct golden_encode *g, const struct quant_type *t);

#endif

/* SPDX-License-Identifier: MIT */
/* Golden results for the decoders and encoders: committed hashes, and the values. */
#ifndef TESTS_LIB_GOLDEN_H
#define TESTS_LIB_GOLDEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "quant/encode.h"

/* ---- decoders ---- */

struct golden {
    uint32_t id;
    uint64_t seed;
    uint32_t blocks;
    uint32_t n_nan;
    uint64_t raw_hash; /* hash of the bytes generated from the seed */
    uint64_t f32_hash; /* hash of the floats, little-endian, with all NaNs made equal */
};

extern const struct golden golden_figures[];
extern const size_t n_golden;

/* Return the next word from splitmix64. */
uint64_t golden_word(uint64_t *state);
/* Fill dst with the first n bytes that splitmix64 generates from the seed. */
void golden_bytes(uint8_t *dst, size_t n, uint64_t seed);
/* Convert host floats to little-endian bytes in place, and each NaN to 0x7fc00000. Returns the
 * number of NaNs. */
size_t golden_canon(float *f, size_t n);

/* FNV-1a, 64 bits. */
uint64_t golden_hash(const void *bytes, size_t n);

/* True if t, a row of any kernel set's table, decodes to this hash. */
bool golden_check(const struct golden *g, const struct quant_type *t);

/* ---- encoders ---- */

/*
 * Kinds of values: uniform over an interval; like weights; of any size; prone to errors in
 * rounding, clamping and scaling (all zeros, ties, maxima of either sign, scales at the limits of
 * binary16); tiny; like weights with some larger columns.
 */
enum golden_kind { UNIFORM, GAUSSIAN, WIDE, EDGES, TINY, N_KINDS, OUTLIERS = N_KINDS };

struct golden_encode {
    uint32_t id;
    enum golden_kind kind;
    uint64_t seed;
    uint32_t blocks;
    uint64_t f32_hash; /* hash of the values, little-endian */
    uint64_t raw_hash; /* hash of the blocks */
    double error;      /* relative error of the reference; 0 if only the hash counts */
};

extern const struct golden_encode golden_encodes[];
extern const size_t n_golden_encodes;

/* Generate n values of a kind, for the type with this id (n must be a whole number of blocks). */
void golden_values(float *dst, size_t n, uint32_t id, enum golden_kind kind, uint64_t seed);

/* Golden results for tensors whose columns have importances. */
struct golden_weighed {
    uint32_t id;
    enum golden_kind kind;
    uint64_t seed;
    uint32_t rows, columns;
    uint64_t importances; /* seed of the importances; 0: none */
    uint64_t f32_hash, importances_hash;
    double error;
};

extern const struct golden_weighed golden_weighed[];
extern const size_t n_golden_weighed;

/* Generate the values, and the importances for a row (all 1 without importances). */
void golden_table(const struct golden_weighed *g, float *values, float *importances);
/* Return sqrt(sum(w * (x - y)^2) / sum(w * x^2)). weight NULL: all equally. */
double golden_error(const float *x, const float *y, size_t n, const float *weight, size_t columns);
/* Return that error of the table encoded and decoded; negative if the type cannot encode it. */
double golden_weighed_error(const struct golden_weighed *g, const struct quant_type *t,
                            const float *values, const float *importances);

/* For types that require importances, return importances that are all 1; otherwise NULL. */
const struct quant_importances *golden_needed(const struct quant_type *t);

/*
 * True if t, a row of any kernel set's table, encodes the values to this hash or, if g has an
 * error, with an error at most 1 % larger.
 */
bool golden_encode_check(const struct golden_encode *g, const struct quant_type *t);

#endif

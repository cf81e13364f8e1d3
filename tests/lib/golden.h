/* SPDX-License-Identifier: MIT */
/* Golden results for the decoders: committed hashes. */
#ifndef TESTS_LIB_GOLDEN_H
#define TESTS_LIB_GOLDEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "quant/quant.h"

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

#endif

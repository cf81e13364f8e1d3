/* SPDX-License-Identifier: MIT */
/*
 * Kernel sets: the same decoders and encoders compiled for several instruction sets (see
 * meson.build). Private to the layer, its tests and benchmarks.
 *
 * Every file that includes kernel.h is compiled once for each set. QUANT_SET is the set's name and
 * the suffix of each global symbol. All sets produce the same bits, except in NaNs.
 */
#ifndef QUANT_SET_H
#define QUANT_SET_H

#include "quant/quant.h"

struct quant_set {
    const char *name;
    const struct quant_type *types; /* QUANT_N_TYPES rows, indexed by id */
    void (*f32_to_f16)(const float *src, size_t n, uint16_t *dst);
    void (*f32_to_bf16)(const float *src, size_t n, uint16_t *dst);
    bool (*all_finite)(const uint8_t *floats, size_t n);
    void (*distance)(const float *a, const float *b, size_t n, struct quant_distance *ret);
};

/* The set compiled for the baseline of the architecture, which runs everywhere. */
extern const struct quant_set quant_set_generic;
#ifdef QUANT_X86
extern const struct quant_set quant_set_avx2, quant_set_avx512;
#endif

#endif

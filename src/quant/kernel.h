/* SPDX-License-Identifier: MIT */
/*
 * Building blocks of the decoders (for encoders: pack.h). Only the family files include this
 * header; they are compiled once for each kernel set (set.h).
 *
 * A decoder consists of `FIXED void block_T(const uint8_t *restrict b, float *restrict y)`, which
 * turns the T_BYTES bytes at b into T_LEN floats at y, and DECODER(T), which defines the loop over
 * blocks. Types made of bit fields are unpacked in vectors (wide.h). Other types, and scales, are
 * handled eight codes at a time, as the bytes of a uint64_t:
 *
 *      63     56 55     48        15      8 7       0
 *     +---------+---------+ ... +---------+---------+
 *     | code 7  | code 6  |     | code 1  | code 0  |
 *     +---------+---------+ ... +---------+---------+
 *
 * Plain 64-bit arithmetic extracts codes from their fields or books. put8() and similar functions
 * widen them to eight floats, apply the scale, and store the result. This is fast on any machine
 * whose vectors the compiler supports, no matter how well it vectorises loops.
 *
 * The arithmetic is float32, in the order given in the comments. Fused multiply-add is switched
 * off. Codes are integers, so zero is +0, and a product with zero has the sign of the scale.
 */
#ifndef QUANT_KERNEL_H
#define QUANT_KERNEL_H

#include <assert.h>
#include <float.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#ifdef __SSE2__
#include <immintrin.h>
#endif

#include "base/bytes.h"
#include "quant/f16.h"
#include "quant/quant.h"
#include "quant/types.h"

static_assert(FLT_EVAL_METHOD == 0, "each step of float32 arithmetic is rounded to float32");

/* A global name with the set's suffix. Two macros are needed for QUANT_SET to be expanded. */
#define JOIN_NAMES(name, set) name##_##set
#define SUFFIXED(name, set) JOIN_NAMES(name, set)
#define IN_SET(name) SUFFIXED(name, QUANT_SET)

/* The signature of an encoder. */
#define ENCODES(T)                                                                            \
    size_t IN_SET(encode_##T)(const float *restrict src,                                      \
                              const float *restrict weight __attribute__((unused)), size_t n, \
                              uint8_t *restrict dst)

/* The prototypes of all decoders and encoders. */
#define PROTOTYPE(id, T, ...)                                                            \
    void IN_SET(decode_##T)(const uint8_t *restrict src, size_t n, float *restrict dst); \
    ENCODES(T);
#define PROTOTYPE_GONE(id, T)
QUANT_TYPES(PROTOTYPE, PROTOTYPE_GONE)

/* Always inlined, so that arguments that describe a type become constants and loop counts are
 * known. */
#define FIXED static inline __attribute__((always_inline))

#define DECODER(T)                                                                      \
    void IN_SET(decode_##T)(const uint8_t *restrict src, size_t n, float *restrict dst) \
    {                                                                                   \
        for (size_t i = 0; i < n; i++)                                                  \
            block_##T(src + i * T##_BYTES, dst + i * T##_LEN);                          \
    }

/* Read the binary16 at p. */
static inline float half_at(const uint8_t *p)
{
#ifdef __F16C__
    return _cvtsh_ss(get_u16(p, false));
#else
    return f16_to_f32(get_u16(p, false));
#endif
}

/* The byte x, repeated eight times. */
#define BYTES8(x) (0x0101010101010101u * (x))

/* Shift each of the eight bytes at p down by `at`, and return the bits in `mask` of each. */
static inline uint64_t fields8(const uint8_t *p, unsigned at, uint8_t mask)
{
    return get_u64(p, false) >> at & BYTES8(mask);
}

/* Return a word whose byte j is 1 if bit j is set, otherwise 0. */
static inline uint64_t spread_bits(uint8_t bits)
{
    uint64_t own = (bits * BYTES8(1)) & 0x8040201008040201u; /* only bit j of byte j */
    return ((own + BYTES8(0x7f)) >> 7) & BYTES8(1);
}

/* Return seven bits plus an eighth that makes the number of set bits even. */
static inline uint8_t even_signs(unsigned bits)
{
    return (uint8_t)(bits | (unsigned)__builtin_parity(bits) << 7);
}

/* Return the codes q (1 to 127), negated where `minus` (from spread_bits()) has a 1. */
static inline uint64_t negate8(uint64_t q, uint64_t minus)
{
    return (q ^ (minus * 0xff)) + minus;
}

/*
 * Convert eight signed codes q to floats:
 *     put8           q * d
 *     put8_shifted   (q + shift) * d
 *     put8_signed    q * d, negated where a bit is set; q 1 to 127
 */
#ifdef __AVX2__
static inline __m256 widen8(uint64_t q)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_cvtsi64_si128((long long)q)));
}

static inline void put8(float *restrict y, uint64_t q, float d)
{
    _mm256_storeu_ps(y, _mm256_mul_ps(widen8(q), _mm256_set1_ps(d)));
}

static inline void put8_shifted(float *restrict y, uint64_t q, float shift, float d)
{
    __m256 sum = _mm256_add_ps(widen8(q), _mm256_set1_ps(shift));
    _mm256_storeu_ps(y, _mm256_mul_ps(sum, _mm256_set1_ps(d)));
}

/* Each lane shifts its own bit to the position of a float's sign. */
static inline void put8_signed(float *restrict y, uint64_t q, unsigned minus, float d)
{
    const __m256i up = _mm256_setr_epi32(31, 30, 29, 28, 27, 26, 25, 24);
    const __m256i bits = _mm256_sllv_epi32(_mm256_set1_epi32((int)minus), up);
    const __m256 signs = _mm256_and_ps(_mm256_castsi256_ps(bits), _mm256_set1_ps(-0.0f));
    const __m256 product = _mm256_mul_ps(widen8(q), _mm256_set1_ps(d));
    _mm256_storeu_ps(y, _mm256_xor_ps(product, signs));
}
#else
/* Widen the codes to 16 bits in one vector, so that the compiler vectorises the loops below. */
static inline void widen8(int16_t code[8], uint64_t q)
{
    typedef int8_t bytes8 __attribute__((vector_size(8)));
    typedef int16_t halves8 __attribute__((vector_size(16)));
    uint8_t raw[8];
    bytes8 b;
    put_u64(raw, q, false);
    memcpy(&b, raw, sizeof(b));
    halves8 h = __builtin_convertvector(b, halves8);
    memcpy(code, &h, sizeof(h));
}

static inline void put8(float *restrict y, uint64_t q, float d)
{
    int16_t code[8];
    widen8(code, q);
    for (size_t i = 0; i < 8; i++)
        y[i] = (float)code[i] * d;
}

static inline void put8_shifted(float *restrict y, uint64_t q, float shift, float d)
{
    int16_t code[8];
    widen8(code, q);
    for (size_t i = 0; i < 8; i++)
        y[i] = ((float)code[i] + shift) * d;
}

static inline void put8_signed(float *restrict y, uint64_t q, unsigned minus, float d)
{
    put8(y, negate8(q, spread_bits((uint8_t)minus)), d);
}
#endif

#endif

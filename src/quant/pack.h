/* SPDX-License-Identifier: MIT */
/*
 * Building blocks of the encoders; see also kernel.h. Only the family files include this header.
 *
 * An encoder consists of `static inline bool pack_T(const float *restrict x, uint8_t *restrict b)`,
 * which turns the T_LEN floats at x into the T_BYTES bytes at b, and ENCODER(T), which defines the
 * loop over blocks. pack_T() returns false if the type cannot store the values because one is not
 * finite or a scale would not be finite. The bytes at b are then undefined, and the caller finds
 * the value at fault (encode.c). An encoder that weighs errors by importances takes them as a third
 * argument and uses WEIGHING_ENCODER(T).
 *
 * This is the reverse of kernel.h: eight floats at a time become eight codes, the bytes of a
 * uint64_t, which plain 64-bit arithmetic puts into their bit fields.
 *
 * Without importances, and except for IQ1 to IQ3, the results equal those of ggml's quantisers bit
 * for bit. The arithmetic is float32 in the order written, with each operation rounded and without
 * fused multiply-add. A scale d is inverted before it is rounded to its stored form, and codes are
 * computed with that inverse. A float is converted to an integer only when it is known to fit.
 */
#ifndef QUANT_PACK_H
#define QUANT_PACK_H

#include <math.h>

#include "quant/kernel.h"

#define ENCODER_WITH(T, ...)                                                          \
    ENCODES(T)                                                                        \
    {                                                                                 \
        size_t i = 0;                                                                 \
        while (i < n && pack_##T(src + i * T##_LEN, dst + i * T##_BYTES __VA_ARGS__)) \
            i++;                                                                      \
        return i;                                                                     \
    }
#define ENCODER(T) ENCODER_WITH(T, )
#define WEIGHING_ENCODER(T) ENCODER_WITH(T, , weight ? weight + i *T##_LEN : NULL)

/* Magnitudes of this or more round to infinity in binary16. */
#define HALF_LIMIT 65520.0f

/* Store d as binary16. Returns false if it would be infinite or is a NaN. */
static inline bool put_half(uint8_t *p, float d)
{
#ifdef __F16C__
    put_u16(p, (uint16_t)_cvtss_sh(d, _MM_FROUND_TO_NEAREST_INT), false);
#else
    put_u16(p, f32_to_f16(d), false);
#endif
    return fabsf(d) < HALF_LIMIT;
}

/* Return 1/d, or 0 if that is infinite: such a scale and its codes are stored as zeros. */
static inline float inverse(float d)
{
    const float r = 1 / d;
    return fabsf(r) <= 0x1.fffffep127f ? r : 0;
}

static inline int32_t larger(int32_t a, int32_t b)
{
    return a > b ? a : b;
}

/* Return the largest magnitude. Floats without their sign bits compare as integers in the order of
 * their values, with infinity and NaN above all others, so a NaN is never lost. */
static inline float top_magnitude(const float *restrict x, unsigned n)
{
    int32_t top = 0;
    for (unsigned i = 0; i < n; i++)
        top = larger(top, (int32_t)(f32_bits(x[i]) & 0x7fffffff));
    return f32_from_bits((uint32_t)top);
}

/* Return the value with the largest magnitude, or the first of several; +0 if all are zeros. */
static inline float top_value(const float *restrict x, unsigned n)
{
    int32_t plus = 0, minus = 0;
    for (unsigned i = 0; i < n; i++) {
        plus = larger(plus, (int32_t)f32_bits(x[i]));
        minus = larger(minus, (int32_t)(f32_bits(x[i]) ^ 0x80000000));
    }
    const float top = f32_from_bits((uint32_t)larger(plus, minus));
    if (plus != minus || plus == 0)
        return plus >= minus ? top : -top;
    while (f32_bits(*x) << 1 != f32_bits(top) << 1) /* both signs occur: find the first */
        x++;
    return *x;
}

/* The smallest and the largest value. If any value is infinite or a NaN, so is `low` or `high`. */
struct range {
    float low, high;
};

static inline struct range range_of(const float *restrict x, unsigned n)
{
    int32_t low = INT32_MAX, high = INT32_MIN;
    for (unsigned i = 0; i < n; i++) {
        /* As integers, negative floats compare in reverse: flip all bits except the sign. */
        const int32_t bits = (int32_t)f32_bits(x[i]), key = bits ^ (bits >> 31 & 0x7fffffff);
        low = key < low ? key : low;
        high = key > high ? key : high;
    }
    struct range ret = {f32_from_bits((uint32_t)(low ^ (low >> 31 & 0x7fffffff))),
                        f32_from_bits((uint32_t)(high ^ (high >> 31 & 0x7fffffff)))};
    while (ret.low == 0 && *x != 0) /* the minimum is zero: use the first, +0 or -0 */
        x++;
    ret.low = ret.low == 0 ? *x : ret.low;
    return ret;
}

/*
 * Return eight codes as bytes:
 *     cut8      ((x - low) * id) + half, truncated, at most `most`; never below 0
 *     round8    x * id rounded to the nearest integer, halves away from zero, plus `more`
 *
 * To round, the float just below one half is added (with the sign of the product) and the sum is
 * truncated. If one half itself were added, 0.49999997 would become 1.
 */
#define BELOW_HALF 0x1.fffffep-2f
#ifdef __AVX2__
static inline uint64_t narrow8(__m256i v)
{
    const __m128i low = _mm256_castsi256_si128(v), high = _mm256_extracti128_si256(v, 1);
    const __m128i words = _mm_packs_epi32(low, high);
    return (uint64_t)_mm_cvtsi128_si64(_mm_packs_epi16(words, words));
}

static inline uint64_t cut8(const float *restrict x, float low, float id, float half, float most)
{
    __m256 v = _mm256_sub_ps(_mm256_loadu_ps(x), _mm256_set1_ps(low));
    v = _mm256_add_ps(_mm256_mul_ps(v, _mm256_set1_ps(id)), _mm256_set1_ps(half));
    return narrow8(_mm256_cvttps_epi32(_mm256_min_ps(v, _mm256_set1_ps(most))));
}

static inline uint64_t round8(const float *restrict x, float id, int more)
{
    const __m256 v = _mm256_mul_ps(_mm256_loadu_ps(x), _mm256_set1_ps(id));
    const __m256 sign = _mm256_and_ps(v, _mm256_set1_ps(-0.0f));
    const __m256 half = _mm256_or_ps(sign, _mm256_set1_ps(BELOW_HALF));
    const __m256i q = _mm256_cvttps_epi32(_mm256_add_ps(v, half));
    return narrow8(_mm256_add_epi32(q, _mm256_set1_epi32(more)));
}
#else
static inline uint64_t cut8(const float *restrict x, float low, float id, float half, float most)
{
    uint8_t q[8];
    for (unsigned i = 0; i < 8; i++) {
        const float v = ((x[i] - low) * id) + half;
        q[i] = (uint8_t)(int)(v < most ? v : most);
    }
    return get_u64(q, false);
}

static inline uint64_t round8(const float *restrict x, float id, int more)
{
    uint8_t q[8];
    for (unsigned i = 0; i < 8; i++) {
        const float v = x[i] * id;
        q[i] = (uint8_t)((int)(v + copysignf(BELOW_HALF, v)) + more);
    }
    return get_u64(q, false);
}
#endif

/* Return the nearest integer from `least` to `most`, with ties to even, or `least` for a NaN. */
static inline float nearest_of(float v, float least, float most)
{
    v = v > least ? v : least;
    v = v < most ? v : most;
    /* The sum is in [2^23, 2^24], where all floats are integers. */
    return (v + 0x1.8p23f) - 0x1.8p23f;
}

/* Compute the codes (x + more) / step, rounded to nearest, minus `least`. */
static inline void take_steps(uint8_t *restrict code, const float *restrict x, unsigned n,
                              float more, float step, float least, float most)
{
    for (unsigned i = 0; i < n; i++)
        code[i] = (uint8_t)(nearest_of((x[i] + more) / step, least, most) - least);
}

/* Return a byte whose bit j is the lowest bit of byte j in x: the reverse of spread_bits(). */
static inline uint8_t gather_bits(uint64_t x)
{
    return (uint8_t)((x & BYTES8(1)) * 0x0102040810204080u >> 56);
}

#endif

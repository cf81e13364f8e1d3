/* SPDX-License-Identifier: MIT */
/*
 * Extracts bit fields in lanes, for the decoders of types made of bit fields. Each lane of a vector
 * holds one byte of the block. Shifts bring one field after another to the lowest bits of its lane,
 * where its value is computed or looked up:
 *
 *     bytes of the block     lanes of 32 bits                 a field of 4 bits, then the other
 *     +----+----+----+--     +--------+--------+--------+--
 *     | b0 | b1 | b2 |   ->  |     b0 |     b1 |     b2 |     level(4, l, b)  level(4, l, b >> 4)
 *     +----+----+----+--     +--------+--------+--------+--
 *
 * A vector is as wide as the set's registers, so that all compilers pass it in a register. With
 * AVX-512, all values of 4-bit fields fit into one register, and those of 5-bit fields into two, so
 * one instruction converts fields to floats, ignoring the bits above them. The products of scales
 * and codes are exact, so it makes no difference whether they are computed once or for each value.
 */
#ifndef QUANT_WIDE_H
#define QUANT_WIDE_H

#include "quant/kernel.h"

#if defined(__AVX512F__)
enum { WIDE = 16 };
#elif defined(__AVX2__)
enum { WIDE = 8 };
#else
enum { WIDE = 4 };
#endif
typedef float floats __attribute__((vector_size(4 * WIDE)));
typedef int32_t words __attribute__((vector_size(4 * WIDE)));

/* The minimum, as a single instruction where there is one. */
static inline floats least_of(floats a, floats b)
{
#if defined(__AVX512F__)
    return (floats)_mm512_min_ps((__m512)a, (__m512)b);
#elif defined(__AVX2__)
    return (floats)_mm256_min_ps((__m256)a, (__m256)b);
#elif defined(__SSE2__)
    return (floats)_mm_min_ps((__m128)a, (__m128)b);
#else
    const words less = a < b;
    return (floats)((less & (words)a) | (~less & (words)b));
#endif
}

static inline floats wide_at(const float *p)
{
    floats v;
    memcpy(&v, p, sizeof(v));
    return v;
}

/* Load WIDE bytes at p, each as a word. */
static inline words bytes_at(const uint8_t *p)
{
#if defined(__AVX512F__)
    return (words)_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
#elif defined(__AVX2__)
    return (words)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p));
#elif defined(__SSE2__)
    const __m128i zero = _mm_setzero_si128(), x = _mm_cvtsi32_si128((int)get_u32(p, false));
    return (words)_mm_unpacklo_epi16(_mm_unpacklo_epi8(x, zero), zero);
#else
    return (words){p[0], p[1], p[2], p[3]};
#endif
}

/* Return x in all lanes. This also works for -0, which adding x to 0 would lose. */
static inline floats all_wide(float x)
{
    return x - (floats){0};
}

/* Return 0, 1, 2, ... */
static inline words lane_numbers(void)
{
    words ret = {0};
    for (int i = 0; i < WIDE; i++)
        ret[i] = i;
    return ret;
}

/* Set bit `at` of lane j if bit from + j (at most 15) of `bits` is set; all other bits are 0. */
FIXED words spread_wide(unsigned bits, unsigned from, unsigned at)
{
    const int32_t value = (int32_t)(1u << at);
#if defined(__AVX512F__)
    return (words)_mm512_maskz_set1_epi32((__mmask16)(bits >> from), value);
#elif defined(__AVX2__)
    const words lane = lane_numbers() + (int32_t)from, all = (words){0} + (int32_t)bits;
    return (at < 16 ? all << (int32_t)at >> lane : all << ((int32_t)at - lane)) & value;
#else
    const words own = (words){1, 2, 4, 8} << (int32_t)from;
    return ((((words){0} + (int32_t)bits) & own) == own) & value;
#endif
}

/* Extract fields `from`, `from` + 1, ... of the 16 two-bit fields at p. Bits above a field are
 * unspecified. */
static inline words pairs_wide(const uint8_t *p, unsigned from)
{
#ifdef __AVX2__
    return ((words){0} + (int32_t)get_u32(p, false)) >> 2 * (lane_numbers() + (int32_t)from);
#else
    /* The products fit into 16 bits, where multiplication is fast. */
    typedef int16_t halves __attribute__((vector_size(4 * WIDE)));
    const words byte = (words){0} + p[from / 4], up = {64, 16, 4, 1};
    return (words)((halves)byte * (halves)up) >> 6;
#endif
}

static inline void put_words(uint32_t *restrict to, words w)
{
    memcpy(to, &w, sizeof(w));
}

static inline void put_wide(float *restrict y, floats v)
{
    memcpy(y, &v, sizeof(v));
}

/* The values of codes: ((code + shift) * d) + m. NONE replaces a term that the type lacks: adding
 * it changes no float, not even +0 or -0. */
#define NONE (-0.0f)
struct levels {
    floats shift, d, m;
    floats table[2]; /* with AVX-512: values of codes 0 to 15, and of codes from 16 */
};

FIXED floats compute(struct levels l, words code)
{
    return ((__builtin_convertvector(code, floats) + l.shift) * l.d) + l.m;
}

/* Prepare the values for codes of `bits` bits. */
FIXED struct levels levels(unsigned bits, float shift, float d, float m)
{
    struct levels l = {.shift = all_wide(shift), .d = all_wide(d), .m = all_wide(m)};
#ifdef __AVX512F__
    const int32_t mask = (1 << bits) - 1;
    l.table[0] = compute(l, lane_numbers() & mask);
    l.table[1] = compute(l, (lane_numbers() + WIDE) & mask);
#else
    (void)bits;
#endif
    return l;
}

/* Return the values of codes in the lowest `bits` bits of words. The bits in `mask` come from
 * high, all others from low. Higher bits are ignored. */
FIXED floats level_of_two(unsigned bits, struct levels l, words low, words high, int32_t mask)
{
    const int32_t all = (1 << bits) - 1;
#ifdef __AVX512F__
    const words code = (low & ~mask) | (high & mask);
    if (bits <= 4)
        return (floats)_mm512_permutexvar_ps((__m512i)code, (__m512)l.table[0]);
    if (bits == 5)
        return (floats)_mm512_permutex2var_ps((__m512)l.table[0], (__m512i)code,
                                              (__m512)l.table[1]);
#endif
    return compute(l, (low & (all & ~mask)) | (high & mask));
}

FIXED floats level(unsigned bits, struct levels l, words code)
{
    return level_of_two(bits, l, code, code, 0);
}

#endif

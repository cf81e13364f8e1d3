/* SPDX-License-Identifier: MIT */
/*
 * What the decoders are made of. Included by the family files, which are compiled once for each
 * kernel set (set.h), never by others.
 *
 * A decoder is `static inline void block_T(const uint8_t *restrict b, float *restrict y)`, which
 * turns the T_BYTES bytes at b into T_LEN floats at y, and DECODER(T), which makes the loop over
 * blocks. Two ways to be fast:
 *   - unpack a run of codes into bytes, then scale the run: plain loops over 16 or 32 bytes, which
 *     compilers vectorise;
 *   - where codes come from tables or single bits: eight codes at a time as the bytes of a
 *     uint64_t (the first code in the lowest byte), then put8().
 * The arithmetic is float32 in the order that the comments give; fused multiply-add is switched
 * off. Codes are integers, so that zero is +0 and the sign of a product of zero is the scale's.
 */
#ifndef QUANT_KERNEL_H
#define QUANT_KERNEL_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#ifdef __AVX2__
#include <immintrin.h>
#endif
#ifdef __ARM_NEON
#include <arm_neon.h>
#endif

#include "base/bytes.h"
#include "quant/f16.h"
#include "quant/types.h"

#define IN_SET_(name, set) name##_##set
#define IN_SET__(name, set) IN_SET_(name, set)
#define IN_SET(name) IN_SET__(name, QUANT_SET)

#define PROTOTYPE(id, T, ...) \
    void IN_SET(decode_##T)(const uint8_t *restrict src, size_t n, float *restrict dst);
#define PROTOTYPE_GONE(id, T)
QUANT_TYPES(PROTOTYPE, PROTOTYPE_GONE)
void IN_SET(narrow_f16)(const float *restrict src, size_t n, uint16_t *restrict dst);
void IN_SET(narrow_bf16)(const float *restrict src, size_t n, uint16_t *restrict dst);

#define DECODER(T)                                                                      \
    void IN_SET(decode_##T)(const uint8_t *restrict src, size_t n, float *restrict dst) \
    {                                                                                   \
        for (size_t i = 0; i < n; i++)                                                  \
            block_##T(src + i * T##_BYTES, dst + i * T##_LEN);                          \
    }

/* The binary16 at p. */
static inline float half_at(const uint8_t *p)
{
#ifdef __F16C__
    return _cvtsh_ss(get_u16(p, false));
#else
    return f16_to_f32(get_u16(p, false));
#endif
}

/* y = q * d */
static inline void scale_run(float *restrict y, const int8_t *restrict q, size_t n, float d)
{
    for (size_t i = 0; i < n; i++)
        y[i] = (float)q[i] * d;
}

/* y = q * d + m */
static inline void scale_run_add(float *restrict y, const int8_t *restrict q, size_t n, float d,
                                 float m)
{
    for (size_t i = 0; i < n; i++)
        y[i] = (float)q[i] * d + m;
}

/* 2n nibbles: the low ones of n bytes, then the high ones. */
static inline void nibbles(int8_t *restrict q, const uint8_t *restrict b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        q[i] = (int8_t)(b[i] & 15);
        q[i + n] = (int8_t)(b[i] >> 4);
    }
}

/* The byte x, eight times. */
#define BYTES8(x) (0x0101010101010101u * (x))

/* Byte j is 1 where bit j is set, else 0. */
static inline uint64_t spread_bits(uint8_t bits)
{
    uint64_t own = (bits * BYTES8(1)) & 0x8040201008040201u; /* bit j of byte j, others 0 */
    return ((own + BYTES8(0x7f)) >> 7) & BYTES8(1);
}

/* Seven bits and the eighth that makes the number of set bits even. */
static inline uint8_t even_signs(unsigned bits)
{
    return (uint8_t)(bits | (unsigned)__builtin_parity(bits) << 7);
}

/* Codes 1 to 127, negated where `minus` (of spread_bits) has a 1. */
static inline uint64_t negate8(uint64_t q, uint64_t minus)
{
    return (q ^ (minus * 0xff)) + minus;
}

/* y = q * d for eight signed codes. */
static inline void put8(float *restrict y, uint64_t q, float d)
{
#ifdef __AVX2__
    __m256i wide = _mm256_cvtepi8_epi32(_mm_cvtsi64_si128((long long)q));
    _mm256_storeu_ps(y, _mm256_mul_ps(_mm256_cvtepi32_ps(wide), _mm256_set1_ps(d)));
#else
    int8_t code[8];
    put_u64(code, q, false);
    scale_run(y, code, 8, d);
#endif
}

/* y = (q + shift) * d for eight signed codes. */
static inline void put8_shifted(float *restrict y, uint64_t q, float shift, float d)
{
#ifdef __AVX2__
    __m256 f = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_cvtsi64_si128((long long)q)));
    f = _mm256_add_ps(f, _mm256_set1_ps(shift));
    _mm256_storeu_ps(y, _mm256_mul_ps(f, _mm256_set1_ps(d)));
#else
    int8_t code[8];
    put_u64(code, q, false);
    for (size_t i = 0; i < 8; i++)
        y[i] = ((float)code[i] + shift) * d;
#endif
}

/* q[i] = table[q[i]] for 16 codes below 16. */
static inline void lookup16(int8_t *restrict q, const int8_t table[16])
{
#if defined(__SSSE3__)
    __m128i t = _mm_loadu_si128((const __m128i *)(const void *)table);
    __m128i c = _mm_loadu_si128((const __m128i *)(const void *)q);
    _mm_storeu_si128((__m128i *)(void *)q, _mm_shuffle_epi8(t, c));
#elif defined(__aarch64__) && defined(__ARM_NEON)
    vst1q_s8(q, vqtbl1q_s8(vld1q_s8(table), vld1q_u8((const uint8_t *)q)));
#else
    for (size_t i = 0; i < 16; i++)
        q[i] = table[q[i]];
#endif
}

#endif

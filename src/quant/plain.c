/* SPDX-License-Identifier: MIT */
/*
 * Plain elements: F32 F16 BF16 F64, I8 I16 I32 I64; a block is one element. Integers and F64 are
 * converted with one rounding to nearest even (I64 not by way of double, which would round twice).
 * The bits of F32 and BF16 are moved, not computed with, so that every NaN stays what it is.
 */
#include "quant/kernel.h"

#define PLAIN_DECODER(T, value)                                                         \
    void IN_SET(decode_##T)(const uint8_t *restrict src, size_t n, float *restrict dst) \
    {                                                                                   \
        for (size_t i = 0; i < n; i++) {                                                \
            const uint8_t *p = src + i * T##_BYTES;                                     \
            dst[i] = (value);                                                           \
        }                                                                               \
    }

static inline float f64_to_f32(uint64_t bits)
{
    double f;
    memcpy(&f, &bits, sizeof(f));
    return (float)f;
}

PLAIN_DECODER(I8, (float)(int8_t)p[0])
PLAIN_DECODER(I16, (float)(int16_t)get_u16(p, false))
PLAIN_DECODER(I32, (float)(int32_t)get_u32(p, false))
PLAIN_DECODER(I64, (float)(int64_t)get_u64(p, false))
PLAIN_DECODER(F64, f64_to_f32(get_u64(p, false)))

void IN_SET(decode_F32)(const uint8_t *restrict src, size_t n, float *restrict dst)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = get_u32(src + i * F32_BYTES, false);
        memcpy(dst + i, &bits, sizeof(bits));
    }
}

void IN_SET(decode_BF16)(const uint8_t *restrict src, size_t n, float *restrict dst)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = (uint32_t)get_u16(src + i * BF16_BYTES, false) << 16;
        memcpy(dst + i, &bits, sizeof(bits));
    }
}

void IN_SET(decode_F16)(const uint8_t *restrict src, size_t n, float *restrict dst)
{
    size_t i = 0;
#ifdef __F16C__
    for (; i + 8 <= n; i += 8) {
        __m128i h = _mm_loadu_si128((const __m128i *)(const void *)(src + i * F16_BYTES));
        _mm256_storeu_ps(dst + i, _mm256_cvtph_ps(h));
    }
#endif
    for (; i < n; i++)
        dst[i] = f16_to_f32(get_u16(src + i * F16_BYTES, false));
}

void IN_SET(narrow_f16)(const float *restrict src, size_t n, uint16_t *restrict dst)
{
    size_t i = 0;
#ifdef __F16C__
    for (; i + 8 <= n; i += 8) {
        __m128i h = _mm256_cvtps_ph(_mm256_loadu_ps(src + i), _MM_FROUND_TO_NEAREST_INT);
        _mm_storeu_si128((__m128i *)(void *)(dst + i), h);
    }
#endif
    for (; i < n; i++)
        dst[i] = f32_to_f16(src[i]);
}

/* A float is finite unless all bits of its exponent are set. */
static bool is_finite(uint32_t bits)
{
    return (bits & 0x7f800000) != 0x7f800000;
}

/*
 * NaN and infinity stay in a sum whatever is added, so that one addition for each value is enough.
 * Eight sums of eight lanes, as an addition takes several cycles. Sums of huge numbers overflow:
 * then, and for the rest, each value is looked at.
 */
typedef float lanes __attribute__((vector_size(32)));
enum { SUMS = 8, ROUND = SUMS * sizeof(lanes) / sizeof(float) };

static bool sums_finite(const lanes *sum)
{
    uint32_t bits[ROUND];
    bool finite = true;
    memcpy(bits, sum, sizeof(bits));
    for (size_t i = 0; i < ROUND; i++)
        finite &= is_finite(bits[i]);
    return finite;
}

bool IN_SET(all_finite)(const uint8_t *floats, size_t n)
{
    lanes sum[SUMS] = {0}, more;
    size_t i = 0;
    for (; !HOST_BIG && i + ROUND <= n; i += ROUND)
        for (size_t k = 0; k < SUMS; k++) {
            memcpy(&more, floats + i * F32_BYTES + k * sizeof(more), sizeof(more));
            sum[k] += more;
        }
    if (!sums_finite(sum))
        i = 0;
    for (; i < n; i++)
        if (!is_finite(get_u32(floats + i * F32_BYTES, false)))
            return false;
    return true;
}

void IN_SET(narrow_bf16)(const float *restrict src, size_t n, uint16_t *restrict dst)
{
    for (size_t i = 0; i < n; i++)
        dst[i] = f32_to_bf16(src[i]);
}

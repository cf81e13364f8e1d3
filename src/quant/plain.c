/* SPDX-License-Identifier: MIT */
/*
 * Plain elements: F32, F16, BF16 and F64, I8, I16, I32 and I64. A block is one element. Integers
 * and F64 are converted with a single rounding to nearest even (I64 is not converted via double,
 * which would round twice). The bits of F32 and BF16 are copied without arithmetic, so every NaN
 * survives.
 *
 * Encoders. Floats are rounded to nearest even. A finite value that becomes infinite is refused;
 * NaNs and infinities are kept. Integer types take only values that they can hold exactly, and
 * store -0 as 0.
 */
#include "quant/pack.h"

#define PLAIN_DECODER(T, value)                                                         \
    void IN_SET(decode_##T)(const uint8_t *restrict src, size_t n, float *restrict dst) \
    {                                                                                   \
        for (size_t i = 0; i < n; i++) {                                                \
            const uint8_t *p = src + i * T##_BYTES;                                     \
            dst[i] = (value);                                                           \
        }                                                                               \
    }

/*
 * A conversion between float and double keeps a NaN's sign and the upper bits of its fraction, and
 * makes it quiet. Most machines do this by themselves, but RISC-V turns every NaN into the same
 * one.
 */
#ifdef __riscv
enum { CONVERTS_NAN = 0 };
#else
enum { CONVERTS_NAN = 1 };
#endif

static inline float f64_to_f32(uint64_t bits)
{
    double f;
    if (!CONVERTS_NAN && (bits & INT64_MAX) > 0x7ff0000000000000)
        return f32_from_bits((uint32_t)(bits >> 32 & 0x80000000) | 0x7fc00000 |
                             (uint32_t)(bits >> 29 & 0x3fffff));
    memcpy(&f, &bits, sizeof(f));
    return (float)f;
}

static inline uint64_t f32_to_f64(float f)
{
    const uint64_t bits = f32_bits(f);
    const double wide = (double)f;
    uint64_t ret;
    if (!CONVERTS_NAN && (bits & 0x7fffffff) > 0x7f800000)
        return (bits & 0x80000000) << 32 | 0x7ff8000000000000 | (bits & 0x3fffff) << 29;
    memcpy(&ret, &wide, sizeof(ret));
    return ret;
}

PLAIN_DECODER(I8, (float)(int8_t)p[0])
PLAIN_DECODER(I16, (float)(int16_t)get_u16(p, false))
PLAIN_DECODER(I32, (float)(int32_t)get_u32(p, false))
PLAIN_DECODER(I64, (float)(int64_t)get_u64(p, false))
PLAIN_DECODER(F64, f64_to_f32(get_u64(p, false)))

PLAIN_DECODER(F32, f32_from_bits(get_u32(p, false)))
PLAIN_DECODER(BF16, bf16_to_f32(get_u16(p, false)))

#define PLAIN_ENCODER(T, holds, put)          \
    ENCODES(T)                                \
    {                                         \
        for (size_t i = 0; i < n; i++) {      \
            const float x = src[i];           \
            uint8_t *p = dst + i * T##_BYTES; \
            if (!(holds))                     \
                return i;                     \
            put;                              \
        }                                     \
        return n;                             \
    }

/* Whether x lies in [low, end), whose ends are powers of two and so exact floats, and survives the
 * conversion to the type and back. A NaN is in no range. */
#define IS_WHOLE(low, end, type) (x >= (low) && x < (end) && (float)(type)x == x)

PLAIN_ENCODER(I8, IS_WHOLE(-0x1p7f, 0x1p7f, int8_t), p[0] = (uint8_t)(int8_t)x)
PLAIN_ENCODER(I16, IS_WHOLE(-0x1p15f, 0x1p15f, int16_t), put_u16(p, (uint16_t)(int16_t)x, false))
PLAIN_ENCODER(I32, IS_WHOLE(-0x1p31f, 0x1p31f, int32_t), put_u32(p, (uint32_t)(int32_t)x, false))
PLAIN_ENCODER(I64, IS_WHOLE(-0x1p63f, 0x1p63f, int64_t), put_u64(p, (uint64_t)(int64_t)x, false))
PLAIN_ENCODER(F64, true, put_u64(p, f32_to_f64(x), false))
PLAIN_ENCODER(F32, true, put_u32(p, f32_bits(x), false))

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

static inline void put_halves(uint8_t *restrict p, const float *restrict x, size_t n, bool big)
{
    size_t i = 0;
#ifdef __F16C__
    for (; i + 8 <= n; i += 8) {
        __m128i h = _mm256_cvtps_ph(_mm256_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT);
        _mm_storeu_si128((__m128i *)(void *)(p + i * F16_BYTES), h);
    }
#endif
    for (; i < n; i++)
        put_u16(p + i * F16_BYTES, f32_to_f16(x[i]), big);
}

void IN_SET(narrow_f16)(const float *restrict src, size_t n, uint16_t *restrict dst)
{
    put_halves((uint8_t *)dst, src, n, HOST_BIG);
}

/* A float is finite unless all bits of its exponent are set. */
static bool is_finite(uint32_t bits)
{
    return (bits & 0x7f800000) != 0x7f800000;
}

/*
 * A sum stays NaN or infinite once a value is, so one addition per value is enough. There are eight
 * sums of eight lanes, because an addition takes several cycles. Sums of huge numbers may overflow;
 * in that case, and for the values left over, each value is checked.
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

/*
 * The encoders of 16-bit floats convert RUN values at once, assuming that all are below the
 * magnitude that becomes infinite. In the rare case that one is not, the run is converted again
 * value by value.
 */
enum { RUN = 64 };
#define BRAIN_LIMIT 0x1.ffp127f

/* Store x as binary16. A NaN loses its payload. Returns false if x becomes infinite. */
static inline bool put_any_half(uint8_t *p, float x)
{
    const uint16_t sign = (uint16_t)(f32_bits(x) >> 16 & 0x8000);
    put_u16(p, isnan(x) ? sign | 0x7e00 : f32_to_f16(x), false);
    return !isfinite(x) || fabsf(x) < HALF_LIMIT;
}

static inline bool put_any_brain(uint8_t *p, float x)
{
    put_u16(p, f32_to_bf16(x), false);
    return !isfinite(x) || fabsf(x) < BRAIN_LIMIT;
}

static inline bool put_half_run(uint8_t *restrict p, const float *restrict x)
{
    put_halves(p, x, RUN, false);
    return top_magnitude(x, RUN) < HALF_LIMIT;
}

static inline bool put_brain_run(uint8_t *restrict p, const float *restrict x)
{
    for (size_t i = 0; i < RUN; i++) {
        const uint32_t bits = f32_bits(x[i]);
        put_u16(p + i * BF16_BYTES, (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16), false);
    }
    return top_magnitude(x, RUN) < BRAIN_LIMIT;
}

#define NARROW_ENCODER(T, put_run, put_any)                                 \
    ENCODES(T)                                                              \
    {                                                                       \
        for (size_t at = 0, end; at < n; at = end) {                        \
            end = at + RUN < n ? at + RUN : n;                              \
            if (end - at == RUN && put_run(dst + at * T##_BYTES, src + at)) \
                continue;                                                   \
            for (size_t i = at; i < end; i++)                               \
                if (!put_any(dst + i * T##_BYTES, src[i]))                  \
                    return i;                                               \
        }                                                                   \
        return n;                                                           \
    }

NARROW_ENCODER(F16, put_half_run, put_any_half)
NARROW_ENCODER(BF16, put_brain_run, put_any_brain)

/* SPDX-License-Identifier: MIT */
/*
 * A set's table of types, and its kernels for plain elements and for measuring floats: see set.h
 * and types.h.
 *
 * Plain elements: F32, F16, BF16, F64, I8, I16, I32 and I64. A block is one element. Integers
 * and F64 are converted with a single rounding to nearest even (I64 is not converted via double,
 * which would round twice). The bits of F32 and BF16 are copied without arithmetic, so every NaN
 * survives.
 *
 * Encoders. Floats are rounded to nearest even. A finite value that becomes infinite is refused;
 * NaNs and infinities are kept. Integer types accept only values that they can hold exactly, and
 * store -0 as 0.
 */
#include "quant/set.h"
#include "quant/pack.h"
#include "quant/wide.h"

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
 * makes it quiet. Most machines do this by themselves, but RISC-V replaces every NaN with the
 * canonical one.
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

/* True if x is in [low, end) and survives conversion to the type and back. Both bounds are powers
 * of two, hence exact floats. A NaN is outside every range. */
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

static void narrow_f16(const float *restrict src, size_t n, uint16_t *restrict dst)
{
    put_halves((uint8_t *)dst, src, n, HOST_BIG);
}

/* A float is finite unless all bits of its exponent are set. */
static bool all_finite(const uint8_t *values, size_t n)
{
    uint32_t bad = 0;
    for (size_t i = 0; i < n; i++)
        bad |= 0x7f7fffff - (get_u32(values + i * F32_BYTES, false) & 0x7fffffff);
    return !(bad >> 31);
}

static void narrow_bf16(const float *restrict src, size_t n, uint16_t *restrict dst)
{
    for (size_t i = 0; i < n; i++)
        dst[i] = f32_to_bf16(src[i]);
}

/*
 * The encoders of 16-bit floats convert RUN values at a time, assuming that no value becomes
 * infinite. In the rare case that a value does, the run is converted again value by value.
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

/*
 * ---- the distance between floats ----
 *
 * Sums are computed side by side in lanes, few enough for all sums to stay in registers. Each value
 * always goes to the same lane, so all sets give the same bits.
 */
enum { FEW = 8 };

struct apart {
    double aa[FEW], bb[FEW], ab[FEW], dd[FEW], most[FEW];
    int64_t differ[FEW];
};

FIXED void add_apart(struct apart *s, size_t l, double x, double y)
{
    const double d = x - y, m = fabs(d);
    s->aa[l] += x * x;
    s->bb[l] += y * y;
    s->ab[l] += x * y;
    s->dd[l] += d * d;
    s->most[l] = m > s->most[l] ? m : s->most[l];
    s->differ[l] += d != 0;
}

static void distance(const float *a, const float *b, size_t n, struct quant_distance *ret)
{
    struct apart s = {0};
    size_t i = 0;
    for (; i + FEW <= n; i += FEW)
        for (size_t l = 0; l < FEW; l++)
            add_apart(&s, l, (double)a[i + l], (double)b[i + l]);
    for (size_t l = 0; i < n; i++, l++)
        add_apart(&s, l, (double)a[i], (double)b[i]);
    for (size_t l = 0; l < FEW; l++) {
        ret->squares_a += s.aa[l];
        ret->squares_b += s.bb[l];
        ret->products += s.ab[l];
        ret->squares += s.dd[l];
        ret->max = s.most[l] > ret->max ? s.most[l] : ret->max;
        ret->differ += (uint64_t)s.differ[l];
    }
}

/* ---- the set ---- */

#define ENCODE_BOTH(T) .encode = IN_SET(encode_##T)
#define ENCODE_WEIGH(T) ENCODE_BOTH(T), .weighs = QUANT_WEIGHS
#define ENCODE_NEED(T) ENCODE_BOTH(T), .weighs = QUANT_NEEDS
#define ENCODE_DECODE(T) .encode = NULL

#define ROW(i, T, len, bytes, ways, ...) \
    [i] = {.id = (i),                    \
           .name = #T,                   \
           .block_len = (len),           \
           .block_bytes = (bytes),       \
           .decode = IN_SET(decode_##T), \
           ENCODE_##ways(T),             \
           __VA_ARGS__},
#define ROW_GONE(i, T) [i] = {.id = (i), .name = #T},

static const struct quant_type types[QUANT_N_TYPES] = {QUANT_TYPES(ROW, ROW_GONE)};

#define STRING(x) #x
#define STRING_OF(x) STRING(x)

const struct quant_set IN_SET(quant_set) = {
    .name = STRING_OF(QUANT_SET),
    .types = types,
    .f32_to_f16 = narrow_f16,
    .f32_to_bf16 = narrow_bf16,
    .all_finite = all_finite,
    .distance = distance,
};

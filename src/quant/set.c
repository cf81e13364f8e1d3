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
static bool is_finite(uint32_t bits)
{
    return (bits & 0x7f800000) != 0x7f800000;
}

/*
 * Once a NaN or infinite value has been added, a sum never becomes finite again, so one addition
 * per value is enough. There are eight sums of eight lanes, because the latency of an addition is
 * several cycles. Sums of huge numbers can overflow; each value is then checked separately, as are
 * the values after the last full round.
 */
typedef float eight __attribute__((vector_size(32)));
enum { SUMS = 8, ROUND = SUMS * sizeof(eight) / sizeof(float) };

static bool sums_finite(const eight *sum)
{
    uint32_t bits[ROUND];
    bool finite = true;
    memcpy(bits, sum, sizeof(bits));
    for (size_t i = 0; i < ROUND; i++)
        finite &= is_finite(bits[i]);
    return finite;
}

static bool all_finite(const uint8_t *values, size_t n)
{
    eight sum[SUMS] = {0}, more;
    size_t i = 0;
    for (; !HOST_BIG && i + ROUND <= n; i += ROUND)
        for (size_t k = 0; k < SUMS; k++) {
            memcpy(&more, values + i * F32_BYTES + k * sizeof(more), sizeof(more));
            sum[k] += more;
        }
    if (!sums_finite(sum))
        i = 0;
    for (; i < n; i++)
        if (!is_finite(get_u32(values + i * F32_BYTES, false)))
            return false;
    return true;
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
 * ---- measures of floats ----
 *
 * Sums are computed side by side in lanes, which compilers keep in vectors. Each value always goes
 * to the same lane, so all sets give the same bits.
 */

enum { LANES = 16 };

#define EACH_LANE for (size_t l = 0; l < LANES; l++)

/* Number of vectors that hold the lanes. */
enum { VECTORS = LANES / WIDE };

static struct quant_extremes extremes(const float *x, size_t n)
{
    struct quant_extremes ret = {x[0], x[0], 0};
    floats low[VECTORS], high[VECTORS];
    words zeros[VECTORS] = {{0}};
    size_t i = 0;
    for (size_t j = 0; j < VECTORS; j++)
        low[j] = high[j] = all_wide(x[0]);
    for (; i + LANES <= n; i += LANES)
        for (size_t j = 0; j < VECTORS; j++) {
            const floats v = wide_at(x + i + j * WIDE);
            low[j] = least_of(v, low[j]);
            high[j] = most_of(v, high[j]);
            zeros[j] -= (words)(v == 0);
        }
    for (size_t j = 0; j < VECTORS; j++)
        for (size_t l = 0; l < WIDE; l++) {
            ret.min = low[j][l] < ret.min ? low[j][l] : ret.min;
            ret.max = high[j][l] > ret.max ? high[j][l] : ret.max;
            ret.zeros += (uint32_t)zeros[j][l];
        }
    for (; i < n; i++) {
        ret.min = x[i] < ret.min ? x[i] : ret.min;
        ret.max = x[i] > ret.max ? x[i] : ret.max;
        ret.zeros += x[i] == 0;
    }
    return ret;
}

/* Return the sum of power(distance) over the distances from the mean. */
FIXED double sum_of(const float *x, size_t n, double mean, double (*power)(double d))
{
    double s[LANES] = {0}, sum = 0;
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        EACH_LANE s[l] += power((double)x[i + l] - mean);
    for (size_t l = 0; i < n; i++, l++)
        s[l] += power((double)x[i] - mean);
    EACH_LANE sum += s[l];
    return sum;
}

FIXED double first_power(double d)
{
    return d;
}

FIXED double square(double d)
{
    return d * d;
}

FIXED double fourth_power(double d)
{
    return d * d * (d * d);
}

static double sum(const float *x, size_t n)
{
    return sum_of(x, n, 0, first_power);
}

static double sum_squares(const float *x, size_t n, double mean)
{
    return sum_of(x, n, mean, square);
}

static double sum_fourth(const float *x, size_t n, double mean)
{
    return sum_of(x, n, mean, fourth_power);
}

/* Number of lanes in each of the sums below, small enough for all sums to stay in registers. */
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

/* Compute the bin of each value. Returns false if a value is so close to an edge that rounding may
 * have put it on the wrong side. */
static bool number_bins(const float *restrict x, size_t n, double mean, double std,
                        uint8_t *restrict bin)
{
    const double scale = 4 / std, most = QUANT_BINS / 2 - 0.5;
    int32_t apart = 0;
    for (size_t i = 0; i < n; i++) {
        double at = ((double)x[i] - mean) * scale;
        at = at < -most ? -most : at;
        at = (at > most ? most : at) + QUANT_BINS / 2;
        const int32_t k = (int32_t)(at - 1e-9);
        apart |= k ^ (int32_t)(at + 1e-9);
        bin[i] = (uint8_t)k;
    }
    return apart == 0;
}

static double lower_edge(double mean, double std, int bin)
{
    return mean + std * (bin - QUANT_BINS / 2) / 4;
}

static void number_exactly(const float *x, size_t n, double mean, double std, uint8_t *bin)
{
    for (size_t i = 0; i < n; i++)
        bin[i] = (uint8_t)(bin[i] + (bin[i] < QUANT_BINS - 1 &&
                                     (double)x[i] >= lower_edge(mean, std, bin[i] + 1)));
}

/* Number of bytes in a vector: as many as in AVX2, even on machines without AVX2. */
#ifdef __AVX2__
enum { BYTES = 32 };
#else
enum { BYTES = 16 };
#endif
typedef uint8_t bytes __attribute__((vector_size(BYTES)));

/* Number of bins counted at a time, few enough that they and their counts stay in registers. */
enum { COUNTED = 8 };
/* Number of values counted at a time, limited because a byte of a vector counts only to 255. */
enum { PORTION = 2048 };
static_assert(PORTION / BYTES <= 255 && PORTION % BYTES == 0, "bytes");

FIXED bytes equal(bytes a, bytes b)
{
#ifdef __AVX2__
    return (bytes)_mm256_cmpeq_epi8((__m256i)a, (__m256i)b);
#else
    return (bytes)(a == b);
#endif
}

/*
 * Count the occurrences of each of the COUNTED numbers that start at `first` in the n vectors at
 * `bin`, and add the counts to `count`. Comparing each value with each number is faster than
 * counting in memory, and its time does not depend on the values.
 */
static void count_numbers(const uint8_t *bin, size_t n, unsigned first, uint64_t *count)
{
    bytes found[COUNTED] = {{0}};
    for (size_t i = 0; i < n; i++) {
        bytes v;
        memcpy(&v, bin + i * BYTES, BYTES);
#pragma GCC unroll 8
        for (unsigned k = 0; k < COUNTED; k++)
            found[k] -= equal(v, (bytes){0} + (uint8_t)(first + k));
    }
    for (unsigned k = 0; k < COUNTED; k++)
        for (unsigned l = 0; l < BYTES; l++)
            count[k] += found[k][l];
}

static void bins(const float *x, size_t n, double mean, double std, uint64_t count[QUANT_BINS])
{
    uint8_t bin[PORTION];
    for (size_t k; n > 0; n -= k, x += k) {
        uint64_t all[QUANT_BINS + COUNTED - 1] = {0};
        k = n < PORTION ? n : PORTION;
        if (!number_bins(x, k, mean, std, bin))
            number_exactly(x, k, mean, std, bin);
        for (size_t i = k; i % BYTES; i++)
            bin[i] = UINT8_MAX; /* no bin */
        for (unsigned first = 0; first < QUANT_BINS; first += COUNTED)
            count_numbers(bin, (k + BYTES - 1) / BYTES, first, all + first);
        for (unsigned i = 0; i < QUANT_BINS; i++)
            count[i] += all[i];
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
    .extremes = extremes,
    .sum = sum,
    .sum_squares = sum_squares,
    .distance = distance,
    .sum_fourth = sum_fourth,
    .bins = bins,
};

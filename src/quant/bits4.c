/* SPDX-License-Identifier: MIT */
/*
 * Types whose four-bit codes select one of the 16 values of a fixed table: 4-bit floats and the
 * non-linear IQ4.
 *
 *     IQ4_NL   d:half  qs[16]                        32 elements   y = d * value
 *     IQ4_XS   d:half  high:u16  low[4]  qs[128]    256 elements   y = (d * (s - 32)) * value
 *     MXFP4    e:E8M0  qs[16]                        32 elements   y = value * 2^(e - 128)
 *     NVFP4    e[4]:UE4M3  qs[32]                    64 elements   y = value * scale(e)
 *
 * Codes come in runs of n = 32 (NVFP4: 16) elements. In IQ4_XS, the six-bit scale s of run g
 * consists of nibble g of low[] and bits 2g, 2g + 1 of high:
 *
 *       7       4 3       0             7      4 3      0            15 14       3  2 1  0
 *     +----------+---------+          +---------+---------+         +-----+- - -+-----+-----+
 *     | k + n/2  |    k    | byte k   | 2j + 1  |   2j    | low[j]  | g=7 | ... | g=1 | g=0 | high
 *     +----------+---------+          +---------+---------+         +-----+- - -+-----+-----+
 */
#include "quant/fit.h"
#include "quant/wide.h"

enum { NL_QS = 2, XS_HIGH = 2, XS_LOW = 4, XS_QS = 8, MX_QS = 1, NV_QS = 4 };
static_assert(NL_QS + 16 == IQ4_NL_BYTES, "IQ4_NL");
static_assert(XS_QS + 128 == IQ4_XS_BYTES, "IQ4_XS");
static_assert(MX_QS + 16 == MXFP4_BYTES, "MXFP4");
static_assert(NV_QS + 32 == NVFP4_BYTES, "NVFP4");

static const int8_t iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                      1,    13,   25,  38,  53,  69,  89,  113};

/* E2M1 times two, so that all values are integers; the scales are halved to compensate. "Minus
 * zero" (8) is plain zero. */
static const int8_t e2m1_values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

#ifdef __AVX2__
/* A table's values times d, in one AVX-512 register or two AVX2 registers. */
struct book {
    floats part[16 / WIDE];
};

FIXED struct book book(const int8_t table[16], float d)
{
    struct book b;
    for (unsigned k = 0; k < 16; k += WIDE) {
        words value = {0};
        for (unsigned i = 0; i < WIDE; i++)
            value[i] = table[k + i];
        b.part[k / WIDE] = __builtin_convertvector(value, floats) * d;
    }
    return b;
}

/* Look up codes. Bits above the lowest four are ignored. */
FIXED floats look_up(struct book b, words code)
{
#ifdef __AVX512F__
    return (floats)_mm512_permutexvar_ps((__m512i)code, (__m512)b.part[0]);
#else
    const __m256 low = _mm256_permutevar8x32_ps((__m256)b.part[0], (__m256i)code);
    const __m256 high = _mm256_permutevar8x32_ps((__m256)b.part[1], (__m256i)code);
    return (floats)_mm256_blendv_ps(low, high, (__m256)(code << 28)); /* bit 3 becomes the sign */
#endif
}

/* Return codes k to k + WIDE - 1 of the 2n codes in n bytes. Bits above a code are unspecified. */
FIXED words codes_at(const uint8_t *restrict qs, unsigned n, unsigned k)
{
#ifdef __AVX512F__
    if (n == 8) { /* the bytes twice; the second copy supplies the high nibbles */
        const __m128i twice = _mm_set1_epi64x((long long)get_u64(qs, false));
        return (words)_mm512_cvtepu8_epi32(twice) >> (lane_numbers() & 8) / 2;
    }
#endif
    return bytes_at(qs + k % n) >> (int32_t)(4 * (k / n));
}

/* Decode the 2n codes in n bytes (8 or 16) to values times d. */
FIXED void table_run(float *restrict y, const uint8_t *restrict qs, unsigned n,
                     const int8_t table[16], float d)
{
    const struct book b = book(table, d);
    for (unsigned k = 0; k < 2 * n; k += WIDE)
        put_wide(y + k, look_up(b, codes_at(qs, n, k)));
}
#else
FIXED void table_run(float *restrict y, const uint8_t *restrict qs, unsigned n,
                     const int8_t table[16], float d)
{
    float value[16];
    for (unsigned c = 0; c < 16; c++)
        value[c] = (float)table[c] * d;
    for (unsigned k = 0; k < n; k++) {
        y[k] = value[qs[k] & 15];
        y[n + k] = value[qs[k] >> 4];
    }
}
#endif

FIXED void block_IQ4_NL(const uint8_t *restrict b, float *restrict y)
{
    table_run(y, b + NL_QS, 16, iq4_values, half_at(b));
}
DECODER(IQ4_NL)

/* The midpoints between table values. A value at a midpoint becomes the larger neighbour. */
static const float iq4_between[15] = {-115.5f, -93.5f, -74,   -57,   -42, -28.5f, -16, -4.5f,
                                      7,       19,     31.5f, 45.5f, 61,  79,     101};

/* Return the table values nearest to y. */
static inline lanes iq4_nearest(lanes y)
{
    lanes value = all_lanes(iq4_values[0]);
    for (unsigned c = 0; c < 15; c++) {
        const lanes step = all_lanes((float)(iq4_values[c + 1] - iq4_values[c]));
        value += (lanes)((masks)step & (y >= all_lanes(iq4_between[c])));
    }
    return value;
}

/* Multiply 32 values by k, and compute the sums for the resulting codes. */
static inline void iq4_sums(const lanes *x, const lanes *w, lanes k, lanes *xq, lanes *qq)
{
    lanes sum_xq = {0}, sum_qq = {0};
    for (unsigned i = 0; i < 32; i++) {
        const lanes v = iq4_nearest(k * x[i]);
        sum_xq += w[i] * v * x[i];
        sum_qq += w[i] * v * v;
    }
    *xq = sum_xq;
    *qq = sum_qq;
}

/* Find scales for LANES groups of 32 values. First try the scale that puts the top value at 127,
 * then the one that puts it at -127 and 7 scales on either side of it. */
FIXED void fit_iq4(const float *values, const float *weight, float *scales)
{
    lanes x[32], w[32], xq, qq, zero = {0};
    side_by_side(x, values, 32);
    const lanes top = top_values(x, 32);
    if (weight)
        side_by_side(w, weight, 32);
    for (unsigned i = 0; i < 32 && !weight; i++)
        w[i] = x[i] * x[i];
    iq4_sums(x, w, 1 / (-top / -127), &xq, &qq);
    struct best best = best_first(xq, qq);
    for (int t = -7; t <= 7; t++) {
        iq4_sums(x, w, (float)(t - 127) / top, &xq, &qq);
        (void)best_next(&best, xq, qq);
    }
    put_lanes(scales, pick(all_zeros(top), zero, best.scale));
}

/* Store the codes of 32 values in 16 bytes. The factor k converts a value to the table's units. */
static inline void put_iq4(uint8_t *restrict qs, const float *restrict x, float k)
{
    uint8_t q[32] = {0};
    for (unsigned c = 0; c < 15; c++)
        for (unsigned i = 0; i < 32; i++)
            q[i] = (uint8_t)(q[i] + (k * x[i] >= iq4_between[c]));
    for (unsigned i = 0; i < 16; i += 8)
        put_u64(qs + i, get_u64(q + i, false) | get_u64(q + 16 + i, false) << 4, false);
}

/* With importances, a group whose magnitudes are all below this is stored as zeros. The limit is
 * the second smallest level at the smallest scale that can be stored. */
#define IQ4_TINY (10 * 0x1p-24f)

/* A block is a single group, so LANES blocks are searched side by side. */
ENCODES(IQ4_NL)
{
    struct fit_side s;
    for (size_t done = 0; done < n; done += LANES) {
        const float *x = src + done * IQ4_NL_LEN;
        take_side(&s, x, weight ? weight + done * IQ4_NL_LEN : NULL, n - done);
        fit_iq4(s.x, weight ? s.w : NULL, s.scale);
        for (size_t i = 0; i < s.n; i++, x += IQ4_NL_LEN) {
            uint8_t *b = dst + (done + i) * IQ4_NL_BYTES;
            const float top = top_magnitude(x, IQ4_NL_LEN);
            if (weight)
                s.scale[i] = top < IQ4_TINY ? 0 : at_least_half(s.scale[i]);
            if (!(top < FIT_LIMIT) || !put_half(b, s.scale[i]))
                return done + i;
            put_iq4(b + NL_QS, x, inverse(weight ? half_at(b) : s.scale[i]));
        }
    }
    return n;
}

FIXED void block_IQ4_XS(const uint8_t *restrict b, float *restrict y)
{
    float d = half_at(b);
    unsigned high = get_u16(b + XS_HIGH, false);
    for (size_t g = 0; g < 8; g++) {
        unsigned low = b[XS_LOW + g / 2] >> 4 * (g % 2) & 15;
        int scale = (int)(low | (high >> 2 * g & 3) << 4) - 32;
        table_run(y + 32 * g, b + XS_QS + 16 * g, 16, iq4_values, d * (float)scale);
    }
}
DECODER(IQ4_XS)

static inline bool pack_IQ4_XS(const float *restrict x, uint8_t *restrict b,
                               const float *restrict weight)
{
    float found[8], room[256];
    const float *w = weigh(room, weight, 256);
    unsigned high = 0;
    if (!(top_magnitude(x, IQ4_XS_LEN) < FIT_LIMIT))
        return false;
    for (unsigned g = 0; g < 8; g += LANES)
        fit_iq4(x + 32 * g, w ? w + 32 * g : NULL, found + g);
    float d = -top_scale(found, 8) / 32;
    if (!put_half(b, weight ? at_least_half(d) : d))
        return false;
    d = weight ? half_at(b) : d;
    memset(b + XS_LOW, 0, 4);
    for (unsigned g = 0; g < 8; g++) {
        float scale = nearest_of(inverse(d) * found[g], -32, 31);
        if (weight && scale == 0 && top_magnitude(x + 32 * g, 32) >= IQ4_TINY * fabsf(d) * 0x1p24f)
            scale = copysignf(1, d) * copysignf(1, found[g]);
        const unsigned stored = (unsigned)(int)(scale + 32);
        b[XS_LOW + g / 2] |= (uint8_t)((stored & 15) << 4 * (g % 2));
        high |= stored >> 4 << 2 * g;
        put_iq4(b + XS_QS + 16 * g, x + 32 * g, inverse(d * scale));
    }
    put_u16(b + XS_HIGH, (uint16_t)high, false);
    return true;
}
WEIGHING_ENCODER(IQ4_XS)

/* Return half of 2^(e - 127). For e < 2 the result is subnormal. Here 255 is not a NaN. */
static inline float e8m0_half(unsigned e)
{
    return f32_from_bits(e < 2 ? 0x00200000u << e : (e - 1) << 23);
}

FIXED void block_MXFP4(const uint8_t *restrict b, float *restrict y)
{
    table_run(y, b + MX_QS, 16, e2m1_values, e8m0_half(b[0]));
}
DECODER(MXFP4)

/*
 * The midpoints between neighbouring magnitudes in e2m1_values, times the scale d. A value's code
 * is the number of midpoints that it exceeds, so a value exactly at a midpoint is stored with the
 * smaller magnitude.
 */
struct e2m1_steps {
    float at[7];
};

static inline struct e2m1_steps e2m1_steps(float d)
{
    static const float between[7] = {0.5f, 1.5f, 2.5f, 3.5f, 5, 7, 10};
    struct e2m1_steps ret;
    for (unsigned k = 0; k < 7; k++)
        ret.at[k] = between[k] * d;
    return ret;
}

/* Return eight codes as bytes. The code of zero has no sign. */
static inline uint64_t e2m1_codes8(const float *restrict x, const struct e2m1_steps *s)
{
#ifdef __AVX2__
    const __m256 v = _mm256_loadu_ps(x), size = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), v);
    __m256i n = _mm256_setzero_si256();
    for (unsigned k = 0; k < 7; k++) {
        const __m256 above = _mm256_cmp_ps(size, _mm256_set1_ps(s->at[k]), _CMP_GT_OQ);
        n = _mm256_sub_epi32(n, _mm256_castps_si256(above));
    }
    const __m256i eight = _mm256_slli_epi32(_mm256_srli_epi32(_mm256_castps_si256(v), 31), 3);
    const __m256i zero = _mm256_cmpeq_epi32(n, _mm256_setzero_si256());
    return narrow8(_mm256_or_si256(n, _mm256_andnot_si256(zero, eight)));
#else
    uint8_t q[8];
    for (unsigned i = 0; i < 8; i++) {
        int n = 0;
        for (unsigned k = 0; k < 7; k++)
            n += fabsf(x[i]) > s->at[k];
        q[i] = (uint8_t)(n | (n > 0 && x[i] < 0 ? 8 : 0));
    }
    return get_u64(q, false);
#endif
}

/* Store the codes of 2n values in n bytes; n is a multiple of 8. */
static inline void put_e2m1(uint8_t *restrict qs, const float *restrict x, unsigned n,
                            struct e2m1_steps s)
{
    for (unsigned k = 0; k < n; k += 8)
        put_u64(qs + k, e2m1_codes8(x + k, &s) | e2m1_codes8(x + n + k, &s) << 4, false);
}

/*
 * Return log2(x) rounded to float32, then rounded down to an integer; x is finite and normal. The
 * result is the exponent of x, except for the last floats below a power of two, 2^K * (1 - n *
 * 2^-24): their logarithm, K - n * 2^-24 / ln 2, rounds to K if it is within half a step of K. The
 * floats just below K are 2^(c - 24) apart, where 2^c is |K| (if K <= 0, |K| + 1) rounded up to a
 * power of two, so this applies if n is at most ln 2 * 2^(c - 1).
 */
static inline int floor_log2(float x)
{
    static const uint8_t most[8] = {0, 0, 1, 2, 5, 11, 22, 44}; /* indexed by c */
    const int exponent = (int)(f32_bits(x) >> 23) - 127, next = exponent + 1;
    const uint32_t below = 0x800000 - (f32_bits(x) & 0x7fffff);
    const uint32_t size = (uint32_t)(next > 0 ? next : 1 - next);
    const int c = size > 1 ? 32 - __builtin_clz(size - 1) : 0;
    return below <= most[c] ? next : exponent;
}

/* Choose the scale that puts the largest magnitude between 8 and 16. Magnitudes above 12 are
 * clipped. */
static inline bool pack_MXFP4(const float *restrict x, uint8_t *restrict b)
{
    const float top = top_magnitude(x, 32);
    if (!isfinite(top))
        return false;
    const int log = top < 0x1p-125f ? -125 : floor_log2(top);
    b[0] = (uint8_t)(log + 125);
    struct e2m1_steps s = e2m1_steps(e8m0_half(b[0]));
    if (log == 128) /* 8 times the scale would be infinite, so 6 times is nearer */
        s.at[5] = s.at[6];
    put_e2m1(b + MX_QS, x, 16, s);
    return true;
}
ENCODER(MXFP4)

/*
 * Return half of an unsigned E4M3 (bias 7). Bit 7 is ignored, except that 0x7f is 0 and 0xff is
 * not:
 *
 *       7   6    3 2     0
 *     +---+-------+-------+
 *     | - |   e   |   m   |   e = 0: m * 2^-10, else (8 + m) * 2^(e - 11)
 *     +---+-------+-------+
 */
static inline float ue4m3_half(unsigned b)
{
    unsigned e = b >> 3 & 15, m = b & 7;
    if (b == 0x7f)
        return 0;
    return e ? f32_from_bits((e + 127 - 8) << 23 | m << 20) : (float)(int)m * 0x1p-10f;
}

FIXED void block_NVFP4(const uint8_t *restrict b, float *restrict y)
{
    for (size_t s = 0; s < 4; s++)
        table_run(y + 16 * s, b + NV_QS + 8 * s, 8, e2m1_values, ue4m3_half(b[s]));
}
DECODER(NVFP4)

/* Return the UE4M3 nearest to v >= 0, with halves rounded up. If v >= 248, the result is 448,
 * the largest value. Between 7.5 * 2^-9 and 2^-6 it is 7 * 2^-9, the largest subnormal. */
static inline uint8_t ue4m3_of(float v)
{
    if (v >= 256)
        return 0x7e;
    if (v < 0x1p-6f) {
        const float m = v * 512 + 0.5f;
        return (uint8_t)(m < 7 ? m : 7);
    }
    const uint32_t u = (f32_bits(v) - ((127 - 7) << 23) + (1 << 19)) >> 20;
    return (uint8_t)(u < 0x78 ? u : 0x7e);
}

/* Return the code whose value differs least from x in float32 subtraction, or the first of
 * several such codes. Far above the largest value all differences are equal, so code 0 wins. */
static inline unsigned e2m1_nearest(float x, float d)
{
    unsigned best = 0;
    for (unsigned c = 1; c < 16; c++)
        if (fabsf((float)e2m1_values[c] * d - x) < fabsf((float)e2m1_values[best] * d - x))
            best = c;
    return best;
}

static inline void put_nearest(uint8_t *restrict qs, const float *restrict x, float d)
{
    for (unsigned k = 0; k < 8; k++)
        qs[k] = (uint8_t)(e2m1_nearest(x[k], d) | e2m1_nearest(x[8 + k], d) << 4);
}

/* For each group of 16 values, choose the scale that puts the largest magnitude at 12, as closely
 * as the three bits of the scale's fraction allow. */
static inline bool pack_NVFP4(const float *restrict x, uint8_t *restrict b)
{
    for (size_t s = 0; s < 4; s++) {
        const float *run = x + 16 * s;
        const float top = top_magnitude(run, 16);
        uint8_t *qs = b + NV_QS + 8 * s;
        if (!isfinite(top))
            return false;
        b[s] = ue4m3_of(top / 6);
        const float d = ue4m3_half(b[s]);
        if (d == 0 || top >= 0x1p20f * d)
            put_nearest(qs, run, d);
        else
            put_e2m1(qs, run, 8, e2m1_steps(d));
    }
    return true;
}
ENCODER(NVFP4)

/* SPDX-License-Identifier: MIT */
/*
 * The K types, with 256 elements in runs of 16 or 32. Each run has its own scale (and minimum), a
 * small integer that is multiplied by the block's float d (dmin).
 *
 *     Q2_K   scales[16]  qs[64]  d:half  dmin:half             y = (d * s) * q - dmin * m
 *     Q3_K   hmask[32]  qs[64]  scales[12]  d:half             y = (d * (s - 32)) * (q - 4)
 *     Q4_K   d:half  dmin:half  scales[12]  qs[128]            y = (d * s) * q - dmin * m
 *     Q5_K   d:half  dmin:half  scales[12]  qh[32]  qs[128]    y = (d * s) * q - dmin * m
 *     Q6_K   ql[128]  qh[64]  scales[16]  d:half               y = (d * s) * (q - 32)
 *     Q8_K   d:float  qs[256]  sums[16]:i16                    y = d * q        (sums not needed)
 *
 * Each run r = 0..7 has 32 elements. A byte holds parts of codes from different runs: byte l of 32
 * contains a part of element l from each of these runs:
 *
 *     two-bit fields qs, qh               nibbles qs                  ql of Q6_K
 *     of runs 4n to 4n + 3                of runs 2n, 2n + 1          bytes 0..31: a = 0, b = 2
 *       7   6 5   4 3   2 1   0             7      4 3     0          bytes 32..63: a = 1, b = 3
 *     +-----+-----+-----+-----+           +--------+--------+         +---------+---------+
 *     | n,3 | n,2 | n,1 | n,0 |           | 2n + 1 |   2n   |         | 4n + b  | 4n + a  |
 *     +-----+-----+-----+-----+           +--------+--------+         +---------+---------+
 *     byte 32n + l                        byte 32n + l                byte 64n + 32a + l
 *
 * Bit r in byte l of hmask and of Q5_K's qh belongs to element l of run r. Where each half run has
 * its own scale, half runs are numbered h = 0..15: h is in run h/2 and begins at byte 16 * (h % 2).
 *
 * Encoders. A search finds a scale (and minimum) for each run (fit.h). The largest in the block
 * determines d (dmin); divided by it, the scales become small integers. Then the codes are computed
 * again for the stored scales. A run whose d * s is zero keeps the codes that the search found.
 */
#include "quant/fit.h"
#include "quant/wide.h"

/* Offsets of the fields. */
enum { Q2_SCALES = 0, Q2_QS = 16, Q2_D = 80, Q2_DMIN = 82 };
enum { Q3_HMASK = 0, Q3_QS = 32, Q3_SCALES = 96, Q3_D = 108 };
enum { Q45_D = 0, Q45_DMIN = 2, Q45_SCALES = 4, Q4_QS = 16, Q5_QH = 16, Q5_QS = 48 };
enum { Q6_QL = 0, Q6_QH = 128, Q6_SCALES = 192, Q6_D = 208 };
enum { Q8_D = 0, Q8_QS = 4, Q8_SUMS = 260 };
static_assert(Q2_DMIN + 2 == Q2_K_BYTES, "Q2_K");
static_assert(Q3_D + 2 == Q3_K_BYTES, "Q3_K");
static_assert(Q4_QS + 128 == Q4_K_BYTES, "Q4_K");
static_assert(Q5_QS + 128 == Q5_K_BYTES, "Q5_K");
static_assert(Q6_D + 2 == Q6_K_BYTES, "Q6_K");
static_assert(Q8_SUMS + 16 * 2 == Q8_K_BYTES, "Q8_K");

/* Store bits `at` to `at` + `bits` - 1 of the codes of 256 values. A byte holds those of values that
 * are 32 apart, with the first in the lowest bits. */
FIXED void put_runs(uint8_t *restrict to, const uint8_t *restrict code, unsigned at, unsigned bits)
{
    const unsigned runs = 8 / bits; /* per byte */
    for (unsigned k = 0; k < 256 / runs; k += 8) {
        uint64_t q = 0;
        for (unsigned j = 0; j < runs; j++)
            q |= fields8(code + 32 * (runs * (k / 32) + j) + k % 32, at, (uint8_t)((1 << bits) - 1))
                 << bits * j;
        put_u64(to + k, q, false);
    }
}

/* The stored scales and minima of the runs: small integers, in units of the block's d and dmin. */
struct min_scales {
    uint8_t s[FIT_GROUPS], m[FIT_GROUPS];
};

/* Store d. If `stored` is true and d is not 0, round it to binary16, but not to 0, and set
 * *inverted to the inverse of the result. */
static inline bool put_unit(uint8_t *p, float d, bool stored, float *inverted)
{
    if (!stored || d == 0)
        return put_half(p, d);
    if (!put_half(p, at_least_half(d)))
        return false;
    *inverted = 1 / half_at(p);
    return true;
}

/* Store n values as integers from 0 to `most`, and the unit that makes the largest value `most`. If
 * `stored` is true, divide by the stored form of the unit, which is rounded, but not to 0. */
static inline bool put_integers(uint8_t *to, const float *v, unsigned n, float most, bool stored,
                                uint8_t *unit)
{
    float top = 0;
    for (unsigned i = 0; i < n; i++)
        top = v[i] > top ? v[i] : top;
    float k = top > 0 ? most / top : 0;
    const bool ok = put_unit(unit, top / most, stored, &k);
    for (unsigned i = 0; i < n; i++)
        to[i] = (uint8_t)nearest_of(k * v[i], 0, most);
    return ok;
}

/* Compute the codes for the stored scales. Where a scale is 0, codes stay as they are. */
FIXED void min_steps(struct min_form f, const float *restrict x, float d, float dmin,
                     const struct min_scales *s, uint8_t *code)
{
    for (unsigned r = 0; r < 256 / f.n; r++) {
        const float scale = d * (float)s->s[r], min = dmin * (float)s->m[r];
        if (scale != 0)
            take_steps(code + r * f.n, x + r * f.n, f.n, min, scale, 0, f.last);
    }
}

/* Sums over a block for the least squares fit of d * a - dmin * b, where a = scale * code and b =
 * minimum. */
struct min_sums {
    float aa, ab, bb, xa, xb;
};

FIXED struct min_sums min_sums_of(struct min_form f, const float *restrict x,
                                  const float *restrict w, const struct min_scales *s,
                                  const uint8_t *code)
{
    struct min_sums ret = {0};
    for (unsigned r = 0; r < 256 / f.n; r += LANES) {
        lanes v[32], u[32], l1 = {0}, ll = {0}, xl = {0}, x1 = {0}, one = {0};
        side_by_side(v, x + r * f.n, f.n);
        side_by_side(u, w + r * f.n, f.n);
        for (unsigned i = 0; i < f.n; i++) {
            lanes c;
            for (unsigned g = 0; g < LANES; g++)
                c[g] = code[(r + g) * f.n + i];
            l1 += u[i] * c;
            ll += u[i] * c * c;
            xl += u[i] * c * v[i];
            x1 += u[i] * v[i];
            one += u[i];
        }
        for (unsigned g = 0; g < LANES; g++) {
            const float a = s->s[r + g], b = s->m[r + g];
            ret.aa += a * a * ll[g];
            ret.ab += a * b * l1[g];
            ret.bb += b * b * one[g];
            ret.xa += a * xl[g];
            ret.xb += b * x1[g];
        }
    }
    return ret;
}

/* Store the d and dmin that fit the sums best, if they can be stored. */
static inline void put_block_fit(struct min_sums s, uint8_t *d, uint8_t *dmin)
{
    const float det = s.aa * s.bb - s.ab * s.ab;
    float scale = s.xa / s.aa, min = 0;
    uint8_t to[2], to_min[2];
    if (det > 0 && s.xa * s.ab > s.xb * s.aa) {
        scale = (s.xa * s.bb - s.xb * s.ab) / det;
        min = (s.xa * s.ab - s.xb * s.aa) / det;
    }
    if (!(scale > 0) || !put_half(to, scale) || !put_half(to_min, min))
        return;
    memcpy(d, to, 2);
    memcpy(dmin, to_min, 2);
}

/* Choose each run's integers again for the stored d and dmin: the best among the current integers
 * and their neighbours. */
FIXED void choose_integers(struct min_form f, float most, const float *restrict x,
                           const float *restrict w, float d, float dmin, struct min_scales *s)
{
    lanes zero = {0};
    if (d == 0)
        return;
    for (unsigned r = 0; r < 256 / f.n; r += LANES) {
        lanes v[32], u[32], s0, m0, best_s, best_m, best = zero + FLT_MAX;
        side_by_side(v, x + r * f.n, f.n);
        side_by_side(u, w + r * f.n, f.n);
        for (unsigned g = 0; g < LANES; g++) {
            s0[g] = s->s[r + g];
            m0[g] = s->m[r + g];
        }
        best_s = s0;
        best_m = m0;
        for (int i = -1; i <= 1; i++)
            for (int k = -1; k <= 1; k++) {
                const lanes si = clamp(s0 + (float)i, 0, most), mk = clamp(m0 + (float)k, 0, most);
                const lanes scale = d * si, low = dmin * mk,
                            inv = pick(scale > zero, 1 / scale, zero);
                lanes error = zero;
                for (unsigned j = 0; j < f.n; j++) {
                    const lanes c = nearest((v[j] + low) * inv, 0, f.last);
                    const lanes off = scale * c - low - v[j];
                    error += u[j] * off * off;
                }
                const masks better = error < best;
                best = pick(better, error, best);
                best_s = pick(better, si, best_s);
                best_m = pick(better, mk, best_m);
            }
        for (unsigned g = 0; g < LANES; g++) {
            s->s[r + g] = (uint8_t)best_s[g];
            s->m[r + g] = (uint8_t)best_m[g];
        }
    }
}

/* For types with minima: search for scales, and encode 256 values in runs of f.n, with scales up to
 * `most`. d and dmin point into the block. */
FIXED bool take_min(struct min_form f, float most, const float *restrict x,
                    const float *restrict weight, uint8_t *d, uint8_t *dmin, struct min_scales *ret,
                    uint8_t code[256])
{
    const unsigned runs = 256 / f.n;
    struct min_fits fits;
    float room[256];
    const float *w = weigh(room, weight, 256);
    if (!(top_magnitude(x, 256) < FIT_LIMIT))
        return false;
    for (unsigned r = 0; r < runs; r += LANES)
        if (w)
            fit_min(weighed_form(f), x + r * f.n, w + r * f.n, &fits, r, code + r * f.n);
        else
            fit_min(f, x + r * f.n, NULL, &fits, r, code + r * f.n);
    if (!put_integers(ret->s, fits.scale, runs, most, w != NULL, d) ||
        !put_integers(ret->m, fits.min, runs, most, w != NULL, dmin))
        return false;
    min_steps(f, x, half_at(d), half_at(dmin), ret, code);
    for (unsigned k = 0; k < 2 && w; k++) {
        if (half_at(d) >= HALF_LEAST && half_at(dmin) >= HALF_LEAST)
            put_block_fit(min_sums_of(f, x, w, ret, code), d, dmin);
        choose_integers(f, most, x, w, half_at(d), half_at(dmin), ret);
        min_steps(f, x, half_at(d), half_at(dmin), ret, code);
    }
    return true;
}

/* Compute the codes of half runs with scales d * scale[h]; the lowest code is -zero. Where a scale
 * is 0, codes stay as they are. */
FIXED void take_signed(float d, const int8_t scale[16], float zero, const float *restrict x,
                       uint8_t code[256])
{
    for (unsigned h = 0; h < 16; h++)
        if (d * (float)scale[h] != 0)
            take_steps(code + 16 * h, x + 16 * h, 16, 0, d * (float)scale[h], -zero, zero - 1);
}

/* Fit d to all codes again, then the scales to d, and the codes to both. */
FIXED void refit_signed(uint8_t *d, int8_t scale[16], float zero, float least, float most,
                        const float *restrict x, const float *restrict w, uint8_t code[256])
{
    float xl = 0, ll = 0, of[16] = {0}, to[16] = {0};
    uint8_t half[2];
    for (unsigned h = 0; h < 16; h += LANES) {
        lanes v[16], u[16], sum_xl = {0}, sum_ll = {0};
        side_by_side(v, x + 16 * h, 16);
        side_by_side(u, w + 16 * h, 16);
        for (unsigned i = 0; i < 16; i++) {
            lanes c;
            for (unsigned g = 0; g < LANES; g++)
                c[g] = (float)code[16 * (h + g) + i] - zero;
            sum_xl += u[i] * v[i] * c;
            sum_ll += u[i] * c * c;
        }
        put_lanes(of + h, sum_xl);
        put_lanes(to + h, sum_ll);
    }
    for (unsigned h = 0; h < 16; h++) {
        xl += (float)scale[h] * of[h];
        ll += (float)scale[h] * (float)scale[h] * to[h];
    }
    if (!(ll > 0) || !put_half(half, xl / ll) || half_at(half) == 0)
        return;
    memcpy(d, half, 2);
    for (unsigned h = 0; h < 16; h++)
        if (to[h] > 0)
            scale[h] = (int8_t)nearest_of(of[h] / to[h] / half_at(half), least, most);
    take_signed(half_at(half), scale, zero, x, code);
}

/* Search for scales from -`last` to `last` - 1, and encode 256 values in half runs with codes from
 * -`zero` to `zero` - 1. d points into the block. */
FIXED bool pack_signed(float zero, float last, const float *restrict x,
                       const float *restrict weight, uint8_t *d, int8_t scale[16],
                       uint8_t code[256])
{
    float found[16], room[256];
    const float *w = weigh(room, weight, 256);
    const bool passes = zero == 4 && !w;
    if (!(top_magnitude(x, 256) < FIT_LIMIT))
        return false;
    for (unsigned h = 0; h < 16; h += passes ? 2 * LANES : LANES)
        if (passes)
            fit_passes(x + 16 * h, found + h, code + 16 * h);
        else
            fit_even((struct even_form){16, zero, 9}, x + 16 * h, w ? w + 16 * h : NULL, found + h,
                     code + 16 * h);
    const float top = top_scale(found, 16);
    float k = -last / top;
    if (zero > 4 && fabsf(top) < FIT_NOTHING) {
        memset(scale, 0, 16);
        memset(code, 0, 256);
        return put_half(d, 0);
    }
    if (!put_unit(d, top == 0 ? 0 : 1 / k, w != NULL, &k))
        return false;
    for (unsigned h = 0; h < 16; h++)
        scale[h] = (int8_t)(top == 0 ? -last : nearest_of(k * found[h], -last, last - 1));
    take_signed(half_at(d), scale, zero, x, code);
    if (w)
        refit_signed(d, scale, zero, -last, last - 1, x, w, code);
    return true;
}

/* The scales and minima of half or whole runs, as floats. */
struct sub_scales {
    float scale[16], minus_min[16];
};

/* In scales[h], the low nibble is the scale of half run h, and the high nibble is its minimum. */
FIXED void block_Q2_K(const uint8_t *restrict b, float *restrict y)
{
    const float d = half_at(b + Q2_D), dmin = half_at(b + Q2_DMIN);
    struct sub_scales s;
    for (unsigned h = 0; h < 16; h += 8) {
        put8(s.scale + h, fields8(b + Q2_SCALES + h, 0, 15), d);
        put8(s.minus_min + h, fields8(b + Q2_SCALES + h, 4, 15), -dmin);
    }
    for (unsigned n = 0; n < 2; n++)
        for (unsigned k = 0; k < 32; k += WIDE) {
            const words q = bytes_at(b + Q2_QS + 32 * n + k);
            for (unsigned j = 0; j < 4; j++) {
                const unsigned r = 4 * n + j, h = 2 * r + k / 16;
                const struct levels l = levels(2, NONE, s.scale[h], s.minus_min[h]);
                put_wide(y + 32 * r + k, level(2, l, q >> 2 * j));
            }
        }
}
DECODER(Q2_K)

static inline bool pack_Q2_K(const float *restrict x, uint8_t *restrict b,
                             const float *restrict weight)
{
    const struct min_form form = {
        .n = 16, .last = 3, .from = -0.5f, .step = 0.1f, .tries = 16, .squares = false};
    struct min_scales scales;
    uint8_t code[256];
    if (!take_min(form, 15, x, weight, b + Q2_D, b + Q2_DMIN, &scales, code))
        return false;
    for (unsigned h = 0; h < 16; h++)
        b[Q2_SCALES + h] = (uint8_t)(scales.s[h] | scales.m[h] << 4);
    put_runs(b + Q2_QS, code, 0, 2);
    return true;
}
WEIGHING_ENCODER(Q2_K)

/*
 * Read sixteen 6-bit scales from 12 bytes. Their low four bits are nibbles in bytes 0..7 (low
 * nibbles first); their top two bits are two-bit fields in bytes 8..11:
 *
 *       7     4 3     0                  7    6 5   4 3   2 1   0
 *     +--------+--------+              +------+-----+-----+-----+
 *     | s + 8  |   s    |  byte s      | t+12 | t+8 | t+4 |  t  |  byte 8 + t, t = 0..3
 *     +--------+--------+              +------+-----+-----+-----+
 */
static inline void q3_scales(float scale[16], const uint8_t *b, float d)
{
    const uint64_t top = get_u32(b + 8, false);
    for (unsigned h = 0; h < 16; h += 8) {
        const uint64_t high = (top >> h / 2 & 0x03030303) | (top >> (h / 2 + 2) & 0x03030303) << 32;
        put8_shifted(scale + h, fields8(b, h / 2, 15) | high << 4, -32, d);
    }
}

FIXED void block_Q3_K(const uint8_t *restrict b, float *restrict y)
{
    float scale[16];
    q3_scales(scale, b + Q3_SCALES, half_at(b + Q3_D));
    for (unsigned n = 0; n < 2; n++)
        for (unsigned k = 0; k < 32; k += WIDE) {
            const words q = bytes_at(b + Q3_QS + 32 * n + k);
            const words top = bytes_at(b + Q3_HMASK + k) << 2 >> 4 * n;
            for (unsigned j = 0; j < 4; j++) {
                const unsigned r = 4 * n + j;
                const struct levels l = levels(3, -4, scale[2 * r + k / 16], NONE);
                put_wide(y + 32 * r + k, level_of_two(3, l, q >> 2 * j, top >> j, 4));
            }
        }
}
DECODER(Q3_K)

static inline void put_q3_scales(uint8_t *b, const int8_t s[16])
{
    memset(b, 0, 12);
    for (unsigned i = 0; i < 16; i++) {
        const unsigned stored = (unsigned)(s[i] + 32);
        b[i % 8] |= (uint8_t)((stored & 15) << 4 * (i / 8));
        b[8 + i % 4] |= (uint8_t)(stored >> 4 << 2 * (i / 4));
    }
}

static inline bool pack_Q3_K(const float *restrict x, uint8_t *restrict b,
                             const float *restrict weight)
{
    int8_t scale[16];
    uint8_t code[256];
    if (!pack_signed(4, 32, x, weight, b + Q3_D, scale, code))
        return false;
    put_q3_scales(b + Q3_SCALES, scale);
    put_runs(b + Q3_QS, code, 0, 2);
    put_runs(b + Q3_HMASK, code, 2, 1);
    return true;
}
WEIGHING_ENCODER(Q3_K)

/*
 * Read eight 6-bit scales s and minima m from 12 bytes. Those of runs 4..7 have their top two bits
 * in the bytes of runs 0..3:
 *
 *       7     6 5      0         7     6 5      0         7     4 3     0
 *     +--------+--------+      +--------+--------+      +--------+--------+
 *     | s(i+4) |  s(i)  |      | m(i+4) |  m(i)  |      | m(i+4) | s(i+4) |
 *     +--------+--------+      +--------+--------+      +--------+--------+
 *     byte i: top of s(i+4)    byte 4 + i: top of m     byte 8 + i: low parts      i = 0..3
 */
static inline void q45_scales(struct sub_scales *ret, const uint8_t *b)
{
    const uint8_t *c = b + Q45_SCALES;
    const uint32_t first = get_u32(c, false), second = get_u32(c + 4, false);
    const uint32_t low = get_u32(c + 8, false);
    const uint32_t s = (low & 0x0f0f0f0f) | (first >> 2 & 0x30303030);
    const uint32_t m = (low >> 4 & 0x0f0f0f0f) | (second >> 2 & 0x30303030);
    put8(ret->scale, (first & 0x3f3f3f3f) | (uint64_t)s << 32, half_at(b + Q45_D));
    put8(ret->minus_min, (second & 0x3f3f3f3f) | (uint64_t)m << 32, -half_at(b + Q45_DMIN));
}

/* Decode codes of `bits` bits: 4 or 5. */
FIXED void q45_block(unsigned bits, const uint8_t *restrict b, float *restrict y)
{
    const uint8_t *qs = b + (bits == 5 ? Q5_QS : Q4_QS);
    const int32_t mask = bits == 5 ? 16 : 0;
    struct sub_scales s;
    q45_scales(&s, b);
    for (unsigned r = 0; r < 8; r += 2) {
        const struct levels low = levels(bits, NONE, s.scale[r], s.minus_min[r]);
        const struct levels high = levels(bits, NONE, s.scale[r + 1], s.minus_min[r + 1]);
        for (unsigned k = 0; k < 32; k += WIDE) {
            const words q = bytes_at(qs + 16 * r + k), top = bytes_at(b + Q5_QH + k) << 4;
            put_wide(y + 32 * r + k, level_of_two(bits, low, q, top >> r, mask));
            put_wide(y + 32 * r + 32 + k, level_of_two(bits, high, q >> 4, top >> (r + 1), mask));
        }
    }
}

FIXED void block_Q4_K(const uint8_t *restrict b, float *restrict y)
{
    q45_block(4, b, y);
}
DECODER(Q4_K)

static inline void put_q45_scales(uint8_t *b, const struct min_scales *s)
{
    uint8_t *c = b + Q45_SCALES;
    for (unsigned i = 0; i < 4; i++) {
        c[i] = (uint8_t)(s->s[i] | s->s[4 + i] >> 4 << 6);
        c[4 + i] = (uint8_t)(s->m[i] | s->m[4 + i] >> 4 << 6);
        c[8 + i] = (uint8_t)((s->s[4 + i] & 15) | s->m[4 + i] << 4);
    }
}

FIXED bool pack_q45(unsigned bits, struct min_form form, const float *restrict x,
                    uint8_t *restrict b, const float *restrict weight)
{
    struct min_scales scales;
    uint8_t code[256];
    if (!take_min(form, 63, x, weight, b + Q45_D, b + Q45_DMIN, &scales, code))
        return false;
    put_q45_scales(b, &scales);
    put_runs(b + (bits == 5 ? Q5_QS : Q4_QS), code, 0, 4);
    if (bits == 5)
        put_runs(b + Q5_QH, code, 4, 1);
    return true;
}

static inline bool pack_Q4_K(const float *restrict x, uint8_t *restrict b,
                             const float *restrict weight)
{
    const struct min_form form = {
        .n = 32, .last = 15, .from = -1, .step = 0.1f, .tries = 21, .squares = true};
    return pack_q45(4, form, x, b, weight);
}
WEIGHING_ENCODER(Q4_K)

FIXED void block_Q5_K(const uint8_t *restrict b, float *restrict y)
{
    q45_block(5, b, y);
}
DECODER(Q5_K)

static inline bool pack_Q5_K(const float *restrict x, uint8_t *restrict b,
                             const float *restrict weight)
{
    const struct min_form form = {
        .n = 32, .last = 31, .from = -0.5f, .step = 0.1f, .tries = 16, .squares = true};
    return pack_q45(5, form, x, b, weight);
}
WEIGHING_ENCODER(Q5_K)

FIXED void block_Q6_K(const uint8_t *restrict b, float *restrict y)
{
    const float d = half_at(b + Q6_D);
    float scale[16];
    for (unsigned h = 0; h < 16; h += 8)
        put8(scale + h, get_u64(b + Q6_SCALES + h, false), d);
    for (unsigned n = 0; n < 2; n++)
        for (unsigned k = 0; k < 32; k += WIDE) {
            const uint8_t *low = b + Q6_QL + 64 * n + k;
            const words q[2] = {bytes_at(low), bytes_at(low + 32)};
            const words top = bytes_at(b + Q6_QH + 32 * n + k) << 4;
            for (unsigned j = 0; j < 4; j++) {
                const unsigned r = 4 * n + j;
                const struct levels l = levels(6, -32, scale[2 * r + k / 16], NONE);
                const words rest = q[j % 2] >> 4 * (j / 2);
                put_wide(y + 32 * r + k, level_of_two(6, l, rest, top >> 2 * j, 48));
            }
        }
}
DECODER(Q6_K)

static inline bool pack_Q6_K(const float *restrict x, uint8_t *restrict b,
                             const float *restrict weight)
{
    uint8_t code[256];
    if (!pack_signed(32, 128, x, weight, b + Q6_D, (int8_t *)b + Q6_SCALES, code))
        return false;
    for (unsigned i = 0; i < 128; i += 8) {
        const uint8_t *low = code + 128 * (i / 64) + i % 64;
        put_u64(b + Q6_QL + i, fields8(low, 0, 15) | fields8(low + 64, 0, 15) << 4, false);
    }
    put_runs(b + Q6_QH, code, 4, 2);
    return true;
}
WEIGHING_ENCODER(Q6_K)

FIXED void block_Q8_K(const uint8_t *restrict b, float *restrict y)
{
    float d = f32_from_bits(get_u32(b + Q8_D, false));
    for (unsigned k = 0; k < 256; k += 8)
        put8(y + k, get_u64(b + Q8_QS + k, false), d);
}
DECODER(Q8_K)

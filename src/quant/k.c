/* SPDX-License-Identifier: MIT */
/*
 * The K types: 256 elements in runs of 16 or 32, each run with its own small integer scale (and
 * minimum), which one or two float scales of the block make real.
 *
 *     Q2_K   scales[16]  qs[64]  d:half  dmin:half             y = (d * s) * q - dmin * m
 *     Q3_K   hmask[32]  qs[64]  scales[12]  d:half             y = (d * (s - 32)) * (q - 4)
 *     Q4_K   d:half  dmin:half  scales[12]  qs[128]            y = (d * s) * q - dmin * m
 *     Q5_K   d:half  dmin:half  scales[12]  qh[32]  qs[128]    y = (d * s) * q - dmin * m
 *     Q6_K   ql[128]  qh[64]  scales[16]  d:half               y = (d * s) * (q - 32)
 *     Q8_K   d:float  qs[256]  sums[16]:i16                    y = d * q        (sums not needed)
 *
 * A run r = 0..7 is 32 elements. The parts of codes in one byte belong to different runs; byte l of
 * 32 has a part of element l of each:
 *
 *     two-bit fields qs, qh               nibbles qs                  ql of Q6_K
 *     of runs 4n to 4n + 3                of runs 2n, 2n + 1          bytes 0..31: a = 0, b = 2
 *       7   6 5   4 3   2 1   0             7      4 3     0          bytes 32..63: a = 1, b = 3
 *     +-----+-----+-----+-----+           +--------+--------+         +---------+---------+
 *     | n,3 | n,2 | n,1 | n,0 |           | 2n + 1 |   2n   |         | 4n + b  | 4n + a  |
 *     +-----+-----+-----+-----+           +--------+--------+         +---------+---------+
 *     byte 32n + l                        byte 32n + l                byte 64n + 32a + l
 *
 * and bit r of byte l of hmask and of Q5_K's qh belongs to element l of run r. Where each 16
 * elements have a scale, h = 0..15 numbers these half runs: run h/2, bytes from 16 * (h % 2) on.
 *
 * Encoders. A search finds a scale (and minimum) for each run (fit.h); the largest of the block
 * fixes d (dmin), with which the others become small integers; then the codes are made anew, for
 * the scales that the block really has. A run of which d * s is zero keeps the codes of the search.
 */
#include "quant/fit.h"
#include "quant/kernel.h"

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

/* Codes of 256 values to fields of `bits` bits: of runs 32 values apart, the first lowest. */
FIXED void put_runs(uint8_t *restrict to, const uint8_t *restrict code, unsigned bits, uint8_t mask)
{
    const unsigned runs = 8 / bits; /* in a byte */
    for (unsigned k = 0; k < 256 / runs; k += 8) {
        uint64_t q = 0;
        for (unsigned j = 0; j < runs; j++)
            q |= (get_u64(code + 32 * (runs * (k / 32) + j) + k % 32, false) & BYTES8(mask))
                 << bits * j;
        put_u64(to + k, q, false);
    }
}

/* What scales and minima of runs become: two floats of the block and small integers. */
struct min_scales {
    uint8_t s[FIT_GROUPS], m[FIT_GROUPS];
};

static inline float largest(const float *v, unsigned n)
{
    float top = 0;
    for (unsigned i = 0; i < n; i++)
        top = v[i] > top ? v[i] : top;
    return top;
}

/* n integers from 0 to most, the largest value at `most`, and what their unit is. */
static inline bool put_integers(uint8_t *to, const float *v, unsigned n, float most, uint8_t *unit)
{
    const float top = largest(v, n), k = top > 0 ? most / top : 0;
    for (unsigned i = 0; i < n; i++)
        to[i] = (uint8_t)nearest_of(k * v[i], 0, most);
    return put_half(unit, top / most);
}

/*
 * The search and the codes of the types with minima: 256 values in runs of f.n, scales up to
 * `most`; d, dmin: where the block has these.
 */
FIXED bool take_min(struct min_form f, float most, const float *restrict x, uint8_t *d,
                    uint8_t *dmin, struct min_scales *ret, uint8_t code[256])
{
    const unsigned runs = 256 / f.n;
    struct min_fits fits;
    if (!(top_magnitude(x, 256) < FIT_LIMIT))
        return false;
    for (unsigned r = 0; r < runs; r += LANES)
        fit_min(f, x + r * f.n, &fits, r, code + r * f.n);
    if (!put_integers(ret->s, fits.scale, runs, most, d) ||
        !put_integers(ret->m, fits.min, runs, most, dmin))
        return false;
    for (unsigned r = 0; r < runs; r++) {
        const float scale = half_at(d) * (float)ret->s[r], min = half_at(dmin) * (float)ret->m[r];
        if (scale != 0)
            take_steps(code + r * f.n, x + r * f.n, f.n, min, scale, 0, f.last);
    }
    return true;
}

/* The codes of half runs with the scales d * scale[h], from -zero on; where that is 0 they stay. */
FIXED void take_signed(float d, const int8_t scale[16], float zero, const float *restrict x,
                       uint8_t code[256])
{
    for (unsigned h = 0; h < 16; h++)
        if (d * (float)scale[h] != 0)
            take_steps(code + 16 * h, x + 16 * h, 16, 0, d * (float)scale[h], -zero, zero - 1);
}

/* scales[h]: the scale of half run h in the low nibble, its minimum in the high one. */
static inline void block_Q2_K(const uint8_t *restrict b, float *restrict y)
{
    float d = half_at(b + Q2_D), dmin = half_at(b + Q2_DMIN);
    for (unsigned h = 0; h < 16; h++) {
        const uint8_t *qs = b + Q2_QS + 32 * (h / 8) + 16 * (h % 2);
        float scale = d * (float)(b[Q2_SCALES + h] & 15);
        float min = dmin * (float)(b[Q2_SCALES + h] >> 4);
        for (unsigned k = 0; k < 16; k += 8)
            put8_add(y + 16 * h + k, fields8(qs + k, 2 * (h / 2 % 4), 3), scale, -min);
    }
}
DECODER(Q2_K)

static inline bool pack_Q2_K(const float *restrict x, uint8_t *restrict b)
{
    const struct min_form form = {.n = 16, .last = 3, .from = -0.5f, .tries = 16, .squares = false};
    struct min_scales scales;
    uint8_t code[256];
    if (!take_min(form, 15, x, b + Q2_D, b + Q2_DMIN, &scales, code))
        return false;
    for (unsigned h = 0; h < 16; h++)
        b[Q2_SCALES + h] = (uint8_t)(scales.s[h] | scales.m[h] << 4);
    put_runs(b + Q2_QS, code, 2, 3);
    return true;
}
ENCODER(Q2_K)

/*
 * Sixteen 6-bit scales in 12 bytes: low four bits as nibbles of bytes 0..7 (low ones first), top
 * two bits as the two-bit fields of bytes 8..11:
 *
 *       7     4 3     0                  7    6 5   4 3   2 1   0
 *     +--------+--------+              +------+-----+-----+-----+
 *     | s + 8  |   s    |  byte s      | t+12 | t+8 | t+4 |  t  |  byte 8 + t, t = 0..3
 *     +--------+--------+              +------+-----+-----+-----+
 */
static inline void q3_scales(int8_t s[16], const uint8_t *b)
{
    for (unsigned i = 0; i < 16; i++) {
        unsigned low = b[i % 8] >> 4 * (i / 8) & 15, top = b[8 + i % 4] >> 2 * (i / 4) & 3;
        s[i] = (int8_t)((low | top << 4) - 32);
    }
}

static inline void block_Q3_K(const uint8_t *restrict b, float *restrict y)
{
    float d = half_at(b + Q3_D);
    int8_t scale[16];
    q3_scales(scale, b + Q3_SCALES);
    for (unsigned h = 0; h < 16; h++) {
        const uint8_t *qs = b + Q3_QS + 32 * (h / 8) + 16 * (h % 2);
        const uint8_t *hmask = b + Q3_HMASK + 16 * (h % 2); /* a code's third bit */
        for (unsigned k = 0; k < 16; k += 8) {
            uint64_t q = fields8(qs + k, 2 * (h / 2 % 4), 3) | fields8(hmask + k, h / 2, 1) << 2;
            put8_shifted(y + 16 * h + k, q, -4, d * (float)scale[h]);
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

static inline bool pack_Q3_K(const float *restrict x, uint8_t *restrict b)
{
    float found[16];
    int8_t scale[16];
    uint8_t code[256];
    if (!(top_magnitude(x, 256) < FIT_LIMIT))
        return false;
    for (unsigned h = 0; h < 16; h += LANES)
        fit_passes(x + 16 * h, found + h, code + 16 * h);
    const float top = top_scale(found, 16), k = -32 / top;
    if (!put_half(b + Q3_D, top == 0 ? 0 : 1 / k))
        return false;
    for (unsigned h = 0; h < 16; h++)
        scale[h] = top == 0 ? -32 : (int8_t)nearest_of(k * found[h], -32, 31);
    put_q3_scales(b + Q3_SCALES, scale);
    take_signed(half_at(b + Q3_D), scale, 4, x, code);
    put_runs(b + Q3_QS, code, 2, 3);
    for (unsigned i = 0; i < 256; i++)
        code[i] >>= 2;
    put_runs(b + Q3_HMASK, code, 1, 1);
    return true;
}
ENCODER(Q3_K)

/*
 * Eight 6-bit scales s and minima m in 12 bytes; those of runs 4..7 take their top two bits from
 * the bytes of runs 0..3:
 *
 *       7     6 5      0         7     6 5      0         7     4 3     0
 *     +--------+--------+      +--------+--------+      +--------+--------+
 *     | s(i+4) |  s(i)  |      | m(i+4) |  m(i)  |      | m(i+4) | s(i+4) |
 *     +--------+--------+      +--------+--------+      +--------+--------+
 *     byte i: top of s(i+4)    byte 4 + i: top of m     byte 8 + i: low parts      i = 0..3
 */
struct q45_scales {
    float scale[8], minus_min[8];
};

static inline void q45_scales(struct q45_scales *ret, const uint8_t *b)
{
    const uint8_t *c = b + Q45_SCALES;
    int s[8], m[8];
    for (unsigned i = 0; i < 4; i++) {
        s[i] = c[i] & 63;
        m[i] = c[4 + i] & 63;
        s[4 + i] = (c[8 + i] & 15) | c[i] >> 6 << 4;
        m[4 + i] = c[8 + i] >> 4 | c[4 + i] >> 6 << 4;
    }
    float d = half_at(b + Q45_D), dmin = half_at(b + Q45_DMIN);
    for (unsigned i = 0; i < 8; i++) {
        ret->scale[i] = d * (float)s[i];
        ret->minus_min[i] = -(dmin * (float)m[i]);
    }
}

static inline void block_Q4_K(const uint8_t *restrict b, float *restrict y)
{
    struct q45_scales s;
    q45_scales(&s, b);
    for (unsigned r = 0; r < 8; r++) {
        const uint8_t *qs = b + Q4_QS + 32 * (r / 2);
        for (unsigned k = 0; k < 32; k += 8)
            put8_add(y + 32 * r + k, fields8(qs + k, 4 * (r % 2), 15), s.scale[r], s.minus_min[r]);
    }
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

static inline bool pack_Q4_K(const float *restrict x, uint8_t *restrict b)
{
    const struct min_form form = {.n = 32, .last = 15, .from = -1, .tries = 21, .squares = true};
    struct min_scales scales;
    uint8_t code[256];
    if (!take_min(form, 63, x, b + Q45_D, b + Q45_DMIN, &scales, code))
        return false;
    put_q45_scales(b, &scales);
    put_runs(b + Q4_QS, code, 4, 15);
    return true;
}
ENCODER(Q4_K)

static inline void block_Q5_K(const uint8_t *restrict b, float *restrict y)
{
    struct q45_scales s;
    q45_scales(&s, b);
    for (unsigned r = 0; r < 8; r++) {
        const uint8_t *qs = b + Q5_QS + 32 * (r / 2), *qh = b + Q5_QH;
        for (unsigned k = 0; k < 32; k += 8) {
            uint64_t q = fields8(qs + k, 4 * (r % 2), 15) | fields8(qh + k, r, 1) << 4;
            put8_add(y + 32 * r + k, q, s.scale[r], s.minus_min[r]);
        }
    }
}
DECODER(Q5_K)

static inline bool pack_Q5_K(const float *restrict x, uint8_t *restrict b)
{
    const struct min_form form = {.n = 32, .last = 31, .from = -0.5f, .tries = 16, .squares = true};
    struct min_scales scales;
    uint8_t code[256];
    if (!take_min(form, 63, x, b + Q45_D, b + Q45_DMIN, &scales, code))
        return false;
    put_q45_scales(b, &scales);
    put_runs(b + Q5_QS, code, 4, 15);
    for (unsigned i = 0; i < 256; i++)
        code[i] >>= 4;
    put_runs(b + Q5_QH, code, 1, 1);
    return true;
}
ENCODER(Q5_K)

static inline void block_Q6_K(const uint8_t *restrict b, float *restrict y)
{
    const int8_t *scale = (const int8_t *)b + Q6_SCALES;
    float d = half_at(b + Q6_D);
    for (unsigned h = 0; h < 16; h++) {
        const uint8_t *ql = b + Q6_QL + 64 * (h / 8) + 16 * (h % 4);
        const uint8_t *qh = b + Q6_QH + 32 * (h / 8) + 16 * (h % 2);
        for (unsigned k = 0; k < 16; k += 8) {
            uint64_t low = fields8(ql + k, 4 * (h / 4 % 2), 15);
            uint64_t top = fields8(qh + k, 2 * (h / 2 % 4), 3);
            put8_shifted(y + 16 * h + k, low | top << 4, -32, d * (float)scale[h]);
        }
    }
}
DECODER(Q6_K)

static inline bool pack_Q6_K(const float *restrict x, uint8_t *restrict b)
{
    int8_t *scale = (int8_t *)b + Q6_SCALES;
    float found[16];
    uint8_t code[256];
    if (!(top_magnitude(x, 256) < FIT_LIMIT))
        return false;
    for (unsigned h = 0; h < 16; h += LANES)
        fit_even(x + 16 * h, found + h, code + 16 * h);
    const float top = top_scale(found, 16), k = -128 / top;
    if (fabsf(top) < FIT_NOTHING) {
        memset(b, 0, Q6_K_BYTES);
        return true;
    }
    if (!put_half(b + Q6_D, 1 / k))
        return false;
    for (unsigned h = 0; h < 16; h++)
        scale[h] = (int8_t)nearest_of(k * found[h], -128, 127);
    take_signed(half_at(b + Q6_D), scale, 32, x, code);
    for (unsigned i = 0; i < 128; i += 8) {
        const uint8_t *low = code + 128 * (i / 64) + i % 64;
        const uint64_t q = get_u64(low, false), high = get_u64(low + 64, false);
        put_u64(b + Q6_QL + i, (q & BYTES8(15)) | (high & BYTES8(15)) << 4, false);
    }
    for (unsigned i = 0; i < 256; i++)
        code[i] >>= 4;
    put_runs(b + Q6_QH, code, 2, 3);
    return true;
}
ENCODER(Q6_K)

static inline void block_Q8_K(const uint8_t *restrict b, float *restrict y)
{
    float d = f32_from_bits(get_u32(b + Q8_D, false));
    for (unsigned k = 0; k < 256; k += 8)
        put8(y + k, get_u64(b + Q8_QS + k, false), d);
}
DECODER(Q8_K)

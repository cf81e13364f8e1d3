/* SPDX-License-Identifier: MIT */
/*
 * The first quantised types, with 32 elements, one scale d and, in some types, a minimum m that is
 * added.
 *
 *     Q4_0   d:half  qs[16]                              y = (c - 8) * d
 *     Q4_1   d:half  m:half  qs[16]                      y = c * d + m
 *     Q5_0   d:half  qh:u32  qs[16]                      y = (c - 16) * d
 *     Q5_1   d:half  m:half  qh:u32  qs[16]              y = c * d + m
 *     Q8_0   d:half  qs[32]                              y = qs * d        (qs signed)
 *     Q8_1   d:half  s:half  qs[32]                      y = qs * d        (s is not needed)
 *
 * Byte k of qs[16] holds the low four bits of two codes that are 16 apart; bit i of qh is the fifth
 * bit of code i:
 *
 *       7     4 3     0              31          16 15           0
 *     +--------+--------+          +---------------+--------------+
 *     | c k+16 |  c k   |  qs[k]   | c31  ...  c16 | c15  ...  c0 |  qh
 *     +--------+--------+          +---------------+--------------+
 *
 * Encoders. In types without m, the value with the largest magnitude gets code 0, even if it is
 * positive (Q4_0: d = value / -8). In types with m, the smallest value gets code 0 and the largest
 * gets the last code. In Q8_0, the largest magnitude gets code 127. With importances, all types
 * except Q8_0 search for a scale (fit.h), LANES blocks side by side.
 */
#include "quant/fit.h"
#include "quant/wide.h"

enum { HALF = 2, QH = 4, NIBBLES = 16 };
static_assert(Q4_0_BYTES == HALF + NIBBLES, "Q4_0");
static_assert(Q4_1_BYTES == 2 * HALF + NIBBLES, "Q4_1");
static_assert(Q5_0_BYTES == HALF + QH + NIBBLES, "Q5_0");
static_assert(Q5_1_BYTES == 2 * HALF + QH + NIBBLES, "Q5_1");
static_assert(Q8_0_BYTES == HALF + 32, "Q8_0");
static_assert(Q8_1_BYTES == 2 * HALF + 32, "Q8_1");

/* Decode 32 codes of four bits. */
FIXED void four_bits(float *restrict y, const uint8_t *restrict qs, struct levels l)
{
    for (unsigned k = 0; k < 16; k += WIDE) {
        const words q = bytes_at(qs + k);
        put_wide(y + k, level(4, l, q));
        put_wide(y + 16 + k, level(4, l, q >> 4));
    }
}

/* Decode 32 codes of five bits. The fifth bits are stored before the low four. */
FIXED void five_bits(float *restrict y, const uint8_t *restrict qh, struct levels l)
{
    const uint32_t top = get_u32(qh, false);
    for (unsigned k = 0; k < 16; k += WIDE) {
        const words q = bytes_at(qh + QH + k);
        put_wide(y + k, level_of_two(5, l, q, spread_wide(top, k, 4), 16));
        put_wide(y + 16 + k, level_of_two(5, l, q >> 4, spread_wide(top >> 16, k, 4), 16));
    }
}

/* Store 32 codes in the nibbles of 16 bytes. q[k] holds codes 8k to 8k + 7. */
static inline void put_nibbles(uint8_t *qs, const uint64_t q[4])
{
    for (unsigned k = 0; k < 2; k++)
        put_u64(qs + 8 * k, (q[k] & BYTES8(15)) | (q[k + 2] & BYTES8(15)) << 4, false);
}

/* Store nibbles as put_nibbles() does, with the fifth bits before them. */
static inline void put_five_bits(uint8_t *qh, const uint64_t q[4])
{
    for (unsigned k = 0; k < 4; k++)
        qh[k] = gather_bits(q[k] >> 4);
    put_nibbles(qh + QH, q);
}

FIXED void block_Q4_0(const uint8_t *restrict b, float *restrict y)
{
    four_bits(y, b + HALF, levels(4, -8, half_at(b), NONE));
}
DECODER(Q4_0)

/* Compute 32 codes around zero, which has the code `zero`. The value with the largest magnitude
 * gets code 0. */
static inline bool take_around(const float *restrict x, float zero, uint8_t *d, uint64_t q[4])
{
    const float scale = top_value(x, 32) / -zero;
    for (unsigned k = 0; k < 4; k++)
        q[k] = cut8(x + 8 * k, 0, inverse(scale), zero + 0.5f, 2 * zero - 1);
    return put_half(d, scale);
}

/* Compute the codes of 32 values for the scale and, unless min is NULL, the minimum that the
 * search found. Both are stored at d. */
static inline bool take_found(const float *restrict x, float least, float last, float scale,
                              const float *min, uint8_t *d, uint64_t q[4])
{
    uint8_t code[32] = {0};
    if (!(top_magnitude(x, 32) < FIT_LIMIT) || !put_half(d, at_least_half(scale)) ||
        (min && !put_half(d + HALF, -*min)))
        return false;
    if (half_at(d) != 0)
        take_steps(code, x, 32, min ? -half_at(d + HALF) : 0, half_at(d), least, last);
    for (unsigned k = 0; k < 4; k++)
        q[k] = get_u64(code + 8 * k, false);
    return true;
}

/* Define an encoder that searches if there are importances. `found` stores block i of the side. */
#define SEARCHING_ENCODER(T, fit, found)                                                 \
    ENCODES(T)                                                                           \
    {                                                                                    \
        struct fit_side s;                                                               \
        size_t done = 0;                                                                 \
        while (!weight && done < n && pack_##T(src + done * 32, dst + done * T##_BYTES)) \
            done++;                                                                      \
        for (; weight && done < n; done += LANES) {                                      \
            take_side(&s, src + done * 32, weight + done * 32, n - done);                \
            fit;                                                                         \
            for (unsigned i = 0; i < s.n; i++) {                                         \
                uint8_t *b = dst + (done + i) * T##_BYTES;                               \
                uint64_t q[4];                                                           \
                if (!(found))                                                            \
                    return done + i;                                                     \
            }                                                                            \
        }                                                                                \
        return done < n ? done : n;                                                      \
    }
#define FIT_AROUND(zero) fit_even((struct even_form){32, zero, 9}, s.x, s.w, s.scale, s.code)
#define FIT_RANGE(most)                                                                     \
    fit_min(weighed_form((struct min_form){.n = 32, .last = most, .free = true}), s.x, s.w, \
            &s.min, 0, s.code)

static inline bool pack_Q4_0(const float *restrict x, uint8_t *restrict b)
{
    uint64_t q[4];
    const bool ok = take_around(x, 8, b, q);
    put_nibbles(b + HALF, q);
    return ok;
}
SEARCHING_ENCODER(Q4_0, FIT_AROUND(8),
                  take_found(s.x + 32 * i, -8, 7, s.scale[i], NULL, b, q) &&
                      (put_nibbles(b + HALF, q), true))

FIXED void block_Q4_1(const uint8_t *restrict b, float *restrict y)
{
    four_bits(y, b + 2 * HALF, levels(4, NONE, half_at(b), half_at(b + HALF)));
}
DECODER(Q4_1)

/* Compute 32 codes from 0 for the smallest value to `last` for the largest. */
static inline bool take_range(const float *restrict x, float last, uint8_t *d, uint64_t q[4])
{
    const struct range r = range_of(x, 32);
    const float scale = (r.high - r.low) / last;
    for (unsigned k = 0; k < 4; k++)
        q[k] = cut8(x + 8 * k, r.low, inverse(scale), 0.5f, last);
    const bool ok = put_half(d, scale);
    return put_half(d + HALF, r.low) && ok;
}

static inline bool pack_Q4_1(const float *restrict x, uint8_t *restrict b)
{
    uint64_t q[4];
    const bool ok = take_range(x, 15, b, q);
    put_nibbles(b + 2 * HALF, q);
    return ok;
}
SEARCHING_ENCODER(Q4_1, FIT_RANGE(15),
                  take_found(s.x + 32 * i, 0, 15, s.min.scale[i], &s.min.min[i], b, q) &&
                      (put_nibbles(b + 2 * HALF, q), true))

FIXED void block_Q5_0(const uint8_t *restrict b, float *restrict y)
{
    five_bits(y, b + HALF, levels(5, -16, half_at(b), NONE));
}
DECODER(Q5_0)

static inline bool pack_Q5_0(const float *restrict x, uint8_t *restrict b)
{
    uint64_t q[4];
    const bool ok = take_around(x, 16, b, q);
    put_five_bits(b + HALF, q);
    return ok;
}
SEARCHING_ENCODER(Q5_0, FIT_AROUND(16),
                  take_found(s.x + 32 * i, -16, 15, s.scale[i], NULL, b, q) &&
                      (put_five_bits(b + HALF, q), true))

FIXED void block_Q5_1(const uint8_t *restrict b, float *restrict y)
{
    five_bits(y, b + 2 * HALF, levels(5, NONE, half_at(b), half_at(b + HALF)));
}
DECODER(Q5_1)

static inline bool pack_Q5_1(const float *restrict x, uint8_t *restrict b)
{
    uint64_t q[4];
    const bool ok = take_range(x, 31, b, q);
    put_five_bits(b + 2 * HALF, q);
    return ok;
}
SEARCHING_ENCODER(Q5_1, FIT_RANGE(31),
                  take_found(s.x + 32 * i, 0, 31, s.min.scale[i], &s.min.min[i], b, q) &&
                      (put_five_bits(b + 2 * HALF, q), true))

FIXED void block_Q8_0(const uint8_t *restrict b, float *restrict y)
{
    float d = half_at(b);
    for (unsigned k = 0; k < 32; k += 8)
        put8(y + k, get_u64(b + HALF + k, false), d);
}
DECODER(Q8_0)

static inline bool pack_Q8_0(const float *restrict x, uint8_t *restrict b)
{
    const float d = top_magnitude(x, 32) / 127;
    if (!put_half(b, d))
        return false;
    for (unsigned k = 0; k < 32; k += 8)
        put_u64(b + HALF + k, round8(x + k, inverse(d), 0), false);
    return true;
}
ENCODER(Q8_0)

FIXED void block_Q8_1(const uint8_t *restrict b, float *restrict y)
{
    float d = half_at(b);
    for (unsigned k = 0; k < 32; k += 8)
        put8(y + k, get_u64(b + 2 * HALF + k, false), d);
}
DECODER(Q8_1)

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

/* How the types with packed codes differ. */
struct packed {
    unsigned bits; /* of a code: 4 or 5 */
    bool min;      /* the type has m */
};

/* The last code, and the code of zero in types without m. */
FIXED float last_code(struct packed f)
{
    return (float)((1 << f.bits) - 1);
}

FIXED float zero_code(struct packed f)
{
    return (float)(1 << (f.bits - 1));
}

FIXED void unpack_block(struct packed f, const uint8_t *restrict b, float *restrict y)
{
    const struct levels l =
        levels(f.bits, f.min ? NONE : -zero_code(f), half_at(b), f.min ? half_at(b + HALF) : NONE);
    const uint8_t *codes = b + (f.min ? 2 * HALF : HALF), *qs = codes + (f.bits == 5 ? QH : 0);
    const uint32_t top = f.bits == 5 ? get_u32(codes, false) : 0;
    const int32_t mask = f.bits == 5 ? 16 : 0;
    for (unsigned k = 0; k < 16; k += WIDE) {
        const words q = bytes_at(qs + k);
        put_wide(y + k, level_of_two(f.bits, l, q, spread_wide(top, k, 4), mask));
        put_wide(y + 16 + k, level_of_two(f.bits, l, q >> 4, spread_wide(top >> 16, k, 4), mask));
    }
}

/* Store a block's 32 codes. q[k] holds codes 8k to 8k + 7. */
FIXED void put_packed(struct packed f, uint8_t *b, const uint64_t q[4])
{
    uint8_t *to = b + (f.min ? 2 * HALF : HALF);
    for (unsigned k = 0; f.bits == 5 && k < 4; k++)
        *to++ = gather_bits(q[k] >> 4);
    for (unsigned k = 0; k < 2; k++)
        put_u64(to + 8 * k, (q[k] & BYTES8(15)) | (q[k + 2] & BYTES8(15)) << 4, false);
}

FIXED bool pack_block(struct packed f, const float *restrict x, uint8_t *restrict b)
{
    uint64_t q[4];
    const struct range r = f.min ? range_of(x, 32) : (struct range){0, 0};
    const float scale = f.min ? (r.high - r.low) / last_code(f) : top_value(x, 32) / -zero_code(f);
    for (unsigned k = 0; k < 4; k++)
        q[k] =
            cut8(x + 8 * k, r.low, inverse(scale), (f.min ? 0 : zero_code(f)) + 0.5f, last_code(f));
    put_packed(f, b, q);
    const bool ok = put_half(b, scale);
    return (!f.min || put_half(b + HALF, r.low)) && ok;
}

/* Store 32 values with the scale and the minimum (fit.h: -low) that the search found. */
FIXED bool pack_found(struct packed f, const float *restrict x, float scale, float min,
                      uint8_t *restrict b)
{
    const float least = f.min ? 0 : -zero_code(f);
    uint8_t code[32] = {0};
    uint64_t q[4];
    if (!(top_magnitude(x, 32) < FIT_LIMIT) || !put_half(b, at_least_half(scale)) ||
        (f.min && !put_half(b + HALF, -min)))
        return false;
    if (half_at(b) != 0)
        take_steps(code, x, 32, f.min ? -half_at(b + HALF) : 0, half_at(b), least,
                   least + last_code(f));
    for (unsigned k = 0; k < 4; k++)
        q[k] = get_u64(code + 8 * k, false);
    put_packed(f, b, q);
    return true;
}

FIXED size_t encode_packed(struct packed f, size_t bytes, const float *restrict src,
                           const float *restrict weight, size_t n, uint8_t *restrict dst)
{
    struct fit_side s;
    size_t done = 0;
    while (!weight && done < n && pack_block(f, src + done * 32, dst + done * bytes))
        done++;
    for (; weight && done < n; done += LANES) {
        take_side(&s, src + done * 32, weight + done * 32, n - done);
        if (f.min)
            fit_min(weighed_form((struct min_form){.n = 32, .last = last_code(f), .free = true}),
                    s.x, s.w, &s.min, 0, s.code);
        else
            fit_even((struct even_form){32, zero_code(f), 9}, s.x, s.w, s.scale, s.code);
        for (unsigned i = 0; i < s.n; i++)
            if (!pack_found(f, s.x + 32 * i, f.min ? s.min.scale[i] : s.scale[i],
                            f.min ? s.min.min[i] : 0, dst + (done + i) * bytes))
                return done + i;
    }
    return done < n ? done : n;
}

#define PACKED(T, bits, min)                                                              \
    FIXED void block_##T(const uint8_t *restrict b, float *restrict y)                    \
    {                                                                                     \
        unpack_block((struct packed){bits, min}, b, y);                                   \
    }                                                                                     \
    DECODER(T)                                                                            \
    ENCODES(T)                                                                            \
    {                                                                                     \
        return encode_packed((struct packed){bits, min}, T##_BYTES, src, weight, n, dst); \
    }
PACKED(Q4_0, 4, false)
PACKED(Q4_1, 4, true)
PACKED(Q5_0, 5, false)
PACKED(Q5_1, 5, true)

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

/* SPDX-License-Identifier: MIT */
/*
 * Ternary, one-bit and two-bit types: one scale d for the block.
 *
 *     TQ1_0   qs[48]  qh[4]  d:half       256 elements     y = (trit - 1) * d
 *     TQ2_0   qs[64]  d:half              256 elements     y = (q - 1) * d      (q = 3 gives 2d)
 *     Q1_0    d:half  qs[16]              128 elements     y = bit ? d : -d
 *     Q2_0    d:half  qs[16]               64 elements     y = (q - 1) * d
 *
 * A byte x of TQ1_0 holds five trits (of qh: four), as the fraction x/256 in base 3: trit t is the
 * first digit after the point of x * 3^t. Trit t of byte k is element
 *
 *     qs[0..31]    32t + k               qs[32..47]    160 + 16t + (k - 32)
 *     qh[0..3]    240 + 4t + k
 *
 * Bits of Q1_0 and fields of Q2_0 are in the order of the elements, those of TQ2_0 32 apart:
 *
 *     TQ2_0: byte 32n + l                          Q2_0: byte k
 *       7    6 5    4 3    2 1    0                  7    6 5    4 3    2 1    0
 *     +-------+------+------+------+               +-------+------+------+------+
 *     |  +96  | +64  | +32  |  +0  | 128n + l      |  +3   |  +2  |  +1  |  +0  | 4k
 *     +-------+------+------+------+               +-------+------+------+------+
 */
#include "quant/kernel.h"

enum { TQ1_QH = 48, TQ1_D = 52, TQ2_D = 64, BITS_QS = 2 };
static_assert(TQ1_D + 2 == TQ1_0_BYTES, "TQ1_0");
static_assert(TQ2_D + 2 == TQ2_0_BYTES, "TQ2_0");
static_assert(BITS_QS + 128 / 8 == Q1_0_BYTES, "Q1_0");
static_assert(BITS_QS + 64 / 4 == Q2_0_BYTES, "Q2_0");

/* Eight trits: a digit of each byte, in lanes of 16 bits, the even bytes and the odd ones. */
static inline uint64_t trits8(uint64_t x, unsigned pow)
{
    const uint64_t lanes = 0x00ff00ff00ff00ffu, digit = 0x0003000300030003u;
    uint64_t even = (x & lanes) * pow & lanes, odd = (x >> 8 & lanes) * pow & lanes;
    return (even * 3 >> 8 & digit) | (odd * 3 & digit << 8);
}

static inline void block_TQ1_0(const uint8_t *restrict b, float *restrict y)
{
    static const uint8_t pow3[5] = {1, 3, 9, 27, 81};
    float d = half_at(b + TQ1_D);
    for (unsigned t = 0; t < 5; t++) {
        for (unsigned k = 0; k < 32; k += 8)
            put8_shifted(y + 32 * t + k, trits8(get_u64(b + k, false), pow3[t]), -1, d);
        for (unsigned k = 0; k < 16; k += 8)
            put8_shifted(y + 160 + 16 * t + k, trits8(get_u64(b + 32 + k, false), pow3[t]), -1, d);
    }
    uint64_t x = get_u32(b + TQ1_QH, false);
    for (unsigned t = 0; t < 4; t += 2) { /* two trits of four bytes */
        uint64_t q = trits8(x, pow3[t]) | trits8(x, pow3[t + 1]) << 32;
        put8_shifted(y + 240 + 4 * t, q, -1, d);
    }
}
DECODER(TQ1_0)

static inline void block_TQ2_0(const uint8_t *restrict b, float *restrict y)
{
    float d = half_at(b + TQ2_D);
    for (unsigned r = 0; r < 8; r++)
        for (unsigned k = 0; k < 32; k += 8)
            put8_shifted(y + 32 * r + k, fields8(b + 32 * (r / 4) + k, 2 * (r % 4), 3), -1, d);
}
DECODER(TQ2_0)

static inline void block_Q1_0(const uint8_t *restrict b, float *restrict y)
{
    float d = half_at(b);
    for (size_t k = 0; k < 16; k++) {
        uint64_t minus = spread_bits((uint8_t)~b[BITS_QS + k]);
        put8(y + 8 * k, negate8(BYTES8(1), minus), d);
    }
}
DECODER(Q1_0)

/* Eight two-bit fields as bytes. */
static inline uint64_t spread_pairs(unsigned w)
{
    uint64_t x = (w & 0xff) | (uint64_t)(w >> 8) << 32;
    return (x | x << 6 | x << 12 | x << 18) & BYTES8(3);
}

static inline void block_Q2_0(const uint8_t *restrict b, float *restrict y)
{
    float d = half_at(b);
    for (size_t k = 0; k < 8; k++)
        put8_shifted(y + 8 * k, spread_pairs(get_u16(b + BITS_QS + 2 * k, false)), -1, d);
}
DECODER(Q2_0)

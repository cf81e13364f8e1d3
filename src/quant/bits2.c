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
 * TQ2_0's two-bit fields lie as in Q2_K (k.c): byte 32H + l is elements 128H + 32j + l. Bits of
 * Q1_0 and fields of Q2_0 are in the order of the elements, lowest bits first.
 */
#include "quant/kernel.h"

enum { TQ1_QH = 48, TQ1_D = 52, TQ2_D = 64, BITS_QS = 2 };
static_assert(TQ1_D + 2 == TQ1_0_BYTES, "TQ1_0");
static_assert(TQ2_D + 2 == TQ2_0_BYTES, "TQ2_0");
static_assert(BITS_QS + 128 / 8 == Q1_0_BYTES, "Q1_0");
static_assert(BITS_QS + 64 / 4 == Q2_0_BYTES, "Q2_0");

/* Codes of one trit of n bytes; pow is 3^t. */
static inline void trits(int8_t *restrict q, const uint8_t *restrict b, size_t n, unsigned pow)
{
    for (size_t k = 0; k < n; k++) {
        uint8_t fraction = (uint8_t)(b[k] * pow);
        q[k] = (int8_t)((fraction * 3u >> 8) - 1);
    }
}

static inline void block_TQ1_0(const uint8_t *restrict b, float *restrict y)
{
    static const uint8_t pow3[5] = {1, 3, 9, 27, 81};
    int8_t q[256];
    for (size_t t = 0; t < 5; t++)
        trits(q + 32 * t, b, 32, pow3[t]);
    for (size_t t = 0; t < 5; t++)
        trits(q + 160 + 16 * t, b + 32, 16, pow3[t]);
    for (size_t t = 0; t < 4; t++)
        trits(q + 240 + 4 * t, b + TQ1_QH, 4, pow3[t]);
    scale_run(y, q, 256, half_at(b + TQ1_D));
}
DECODER(TQ1_0)

static inline void block_TQ2_0(const uint8_t *restrict b, float *restrict y)
{
    float d = half_at(b + TQ2_D);
    for (size_t r = 0; r < 8; r++) {
        int8_t q[32];
        for (size_t l = 0; l < 32; l++)
            q[l] = (int8_t)((b[32 * (r / 4) + l] >> 2 * (r % 4) & 3) - 1);
        scale_run(y + 32 * r, q, 32, d);
    }
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

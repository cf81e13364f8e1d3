/* SPDX-License-Identifier: MIT */
/*
 * Ternary, one-bit and two-bit types, with one scale d for each block.
 *
 *     TQ1_0   qs[48]  qh[4]  d:half       256 elements     y = (trit - 1) * d
 *     TQ2_0   qs[64]  d:half              256 elements     y = (q - 1) * d      (q = 3 gives 2d)
 *     Q1_0    d:half  qs[16]              128 elements     y = bit ? d : -d
 *     Q2_0    d:half  qs[16]               64 elements     y = (q - 1) * d
 *
 * A byte x of TQ1_0 holds five trits (in qh: four) as the fraction x/256 in base 3: trit t is the
 * first digit after the point in x/256 * 3^t. Trit t of byte k is element
 *
 *     qs[0..31]    32t + k               qs[32..47]    160 + 16t + (k - 32)
 *     qh[0..3]    240 + 4t + k
 *
 * Bits of Q1_0 and fields of Q2_0 are in the order of the elements; fields of TQ2_0 belong to
 * elements 32 apart:
 *
 *     TQ2_0: byte 32n + l                          Q2_0: byte k
 *       7    6 5    4 3    2 1    0                  7    6 5    4 3    2 1    0
 *     +-------+------+------+------+               +-------+------+------+------+
 *     |  +96  | +64  | +32  |  +0  | 128n + l      |  +3   |  +2  |  +1  |  +0  | 4k
 *     +-------+------+------+------+               +-------+------+------+------+
 *
 * Encoders. d is the largest magnitude, and every value becomes the nearest of -d, 0 and d (the
 * code for 2d is never used). In Q1_0, which has no zero, d is the mean magnitude.
 */
#include "quant/pack.h"
#include "quant/wide.h"

enum { TQ1_QH = 48, TQ1_D = 52, TQ2_D = 64, BITS_QS = 2 };
static_assert(TQ1_D + 2 == TQ1_0_BYTES, "TQ1_0");
static_assert(TQ2_D + 2 == TQ2_0_BYTES, "TQ2_0");
static_assert(BITS_QS + 128 / 8 == Q1_0_BYTES, "Q1_0");
static_assert(BITS_QS + 64 / 4 == Q2_0_BYTES, "Q2_0");

/* Extract eight trits, one from each byte. Even and odd bytes are computed separately, in 16-bit
 * lanes. */
static inline uint64_t trits8(uint64_t x, unsigned pow)
{
    const uint64_t lanes = 0x00ff00ff00ff00ffu, digit = 0x0003000300030003u;
    uint64_t even = (x & lanes) * pow & lanes, odd = (x >> 8 & lanes) * pow & lanes;
    return (even * 3 >> 8 & digit) | (odd * 3 & digit << 8);
}

/* Decode the five trits in each of WIDE bytes. A trit is the integer part of three times the
 * fraction. */
FIXED void five_trits(float *restrict y, size_t step, words x, struct levels l)
{
    for (size_t t = 0; t < 5; t++) {
        x += x << 1;
        put_wide(y + t * step, level(2, l, x >> 8));
        x &= 255;
    }
}

FIXED void block_TQ1_0(const uint8_t *restrict b, float *restrict y)
{
    static const uint8_t pow3[4] = {1, 3, 9, 27};
    const float d = half_at(b + TQ1_D);
    const struct levels l = levels(2, -1, d, NONE);
    for (unsigned k = 0; k < 32; k += WIDE)
        five_trits(y + k, 32, bytes_at(b + k), l);
    for (unsigned k = 0; k < 16; k += WIDE)
        five_trits(y + 160 + k, 16, bytes_at(b + 32 + k), l);
    uint64_t x = get_u32(b + TQ1_QH, false);
    for (unsigned t = 0; t < 4; t += 2) { /* two trits from each of four bytes */
        uint64_t q = trits8(x, pow3[t]) | trits8(x, pow3[t + 1]) << 32;
        put8_shifted(y + 240 + 4 * t, q, -1, d);
    }
}
DECODER(TQ1_0)

/* Store n <= 8 bytes, each of which encodes five digits. The digits form a number below 243, which
 * is stored as the smallest fraction x/256 that is not below number / 243. */
static inline void put_trits(uint8_t *b, unsigned n, const uint64_t digit[5])
{
    uint64_t number = 0; /* up to 242 in each byte */
    for (unsigned t = 0; t < 5; t++)
        number = number * 3 + digit[t];
    for (unsigned i = 0; i < n; i++)
        b[i] = (uint8_t)(((unsigned)(number >> 8 * i & 255) * 256 + 242) / 243);
}

static inline void put_five_trits(uint8_t *b, const float *restrict x, size_t step, float id)
{
    uint64_t digit[5];
    for (unsigned t = 0; t < 5; t++)
        digit[t] = round8(x + t * step, id, 1);
    put_trits(b, 8, digit);
}

static inline bool pack_TQ1_0(const float *restrict x, uint8_t *restrict b)
{
    const float d = top_magnitude(x, 256), id = inverse(d);
    if (!put_half(b + TQ1_D, d))
        return false;
    for (unsigned k = 0; k < 32; k += 8)
        put_five_trits(b + k, x + k, 32, id);
    for (unsigned k = 0; k < 16; k += 8)
        put_five_trits(b + 32 + k, x + 160 + k, 16, id);
    /* Each of the last four bytes holds four digits, for values that are 4 apart, and then a 0. */
    const uint64_t early = round8(x + 240, id, 1), late = round8(x + 248, id, 1);
    put_trits(b + TQ1_QH, 4, (const uint64_t[5]){early, early >> 32, late, late >> 32, 0});
    return true;
}
ENCODER(TQ1_0)

FIXED void block_TQ2_0(const uint8_t *restrict b, float *restrict y)
{
    const struct levels l = levels(2, -1, half_at(b + TQ2_D), NONE);
    for (unsigned n = 0; n < 2; n++)
        for (unsigned k = 0; k < 32; k += WIDE) {
            const words q = bytes_at(b + 32 * n + k);
            for (unsigned j = 0; j < 4; j++)
                put_wide(y + 128 * n + 32 * j + k, level(2, l, q >> 2 * j));
        }
}
DECODER(TQ2_0)

static inline bool pack_TQ2_0(const float *restrict x, uint8_t *restrict b)
{
    const float d = top_magnitude(x, 256), id = inverse(d);
    if (!put_half(b + TQ2_D, d))
        return false;
    for (unsigned k = 0; k < 64; k += 8) {
        const float *run = x + 128 * (k / 32) + k % 32;
        uint64_t q = 0;
        for (unsigned j = 0; j < 4; j++)
            q |= round8(run + 32 * j, id, 1) << 2 * j;
        put_u64(b + k, q, false);
    }
    return true;
}
ENCODER(TQ2_0)

FIXED void block_Q1_0(const uint8_t *restrict b, float *restrict y)
{
    const words d = (words)all_wide(half_at(b));
    for (unsigned n = 0; n < Q1_0_LEN; n += 16) {
        const unsigned minus = ~(unsigned)get_u16(b + BITS_QS + n / 8, false);
        for (unsigned k = 0; k < 16; k += WIDE)
            put_wide(y + n + k, (floats)(d ^ spread_wide(minus, k, 31)));
    }
}
DECODER(Q1_0)

static inline bool put_mean(uint8_t *b, float sum)
{
    return put_half(b, sum / Q1_0_LEN);
}

/* Store one bit per value, set unless the value is below zero. */
static inline void put_signs(uint8_t *bits, const float *restrict x)
{
    for (size_t k = 0; k < Q1_0_LEN / 8; k++) {
        unsigned byte = 0;
        for (unsigned i = 0; i < 8; i++)
            byte |= (unsigned)!(x[8 * k + i] < 0) << i;
        bits[k] = (uint8_t)byte;
    }
}

static inline bool pack_Q1_0(const float *restrict x, uint8_t *restrict b)
{
    float sum = 0;
    for (size_t i = 0; i < Q1_0_LEN; i++)
        sum += fabsf(x[i]);
    put_signs(b + BITS_QS, x);
    return put_mean(b, sum);
}

/* Each block's values are summed in order, eight blocks side by side. */
ENCODES(Q1_0)
{
    enum { SIDE = 8 };
    size_t done = 0;
    for (; done + SIDE <= n; done += SIDE) {
        const float *x = src + done * Q1_0_LEN;
        float sum[SIDE] = {0};
        for (size_t i = 0; i < Q1_0_LEN; i++)
            for (size_t k = 0; k < SIDE; k++)
                sum[k] += fabsf(x[k * Q1_0_LEN + i]);
        for (size_t k = 0; k < SIDE; k++) {
            uint8_t *b = dst + (done + k) * Q1_0_BYTES;
            put_signs(b + BITS_QS, x + k * Q1_0_LEN);
            if (!put_mean(b, sum[k]))
                return done + k;
        }
    }
    while (done < n && pack_Q1_0(src + done * Q1_0_LEN, dst + done * Q1_0_BYTES))
        done++;
    return done;
}

FIXED void block_Q2_0(const uint8_t *restrict b, float *restrict y)
{
    const struct levels l = levels(2, -1, half_at(b), NONE);
    for (unsigned n = 0; n < Q2_0_LEN; n += 16)
        for (unsigned k = 0; k < 16; k += WIDE)
            put_wide(y + n + k, level(2, l, pairs_wide(b + BITS_QS + n / 4, k)));
}
DECODER(Q2_0)

/* Collect two bits from each of eight bytes. */
static inline uint16_t gather_pairs(uint64_t q)
{
    q |= q >> 6 | q >> 12 | q >> 18;
    return (uint16_t)((q & 0xff) | (q >> 24 & 0xff00));
}

static inline bool pack_Q2_0(const float *restrict x, uint8_t *restrict b)
{
    const float d = top_magnitude(x, Q2_0_LEN), id = inverse(d);
    if (!put_half(b, d))
        return false;
    for (size_t k = 0; k < Q2_0_LEN / 8; k++)
        put_u16(b + BITS_QS + 2 * k, gather_pairs(round8(x + 8 * k, id, 1)), false);
    return true;
}
ENCODER(Q2_0)

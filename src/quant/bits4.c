/* SPDX-License-Identifier: MIT */
/*
 * Four-bit codes that stand for values of a fixed table of 16: 4-bit floats and non-linear IQ4.
 *
 *     IQ4_NL   d:half  qs[16]                        32 elements   y = d * value
 *     IQ4_XS   d:half  high:u16  low[4]  qs[128]    256 elements   y = (d * (s - 32)) * value
 *     MXFP4    e:E8M0  qs[16]                        32 elements   y = value * 2^(e - 128)
 *     NVFP4    e[4]:UE4M3  qs[32]                    64 elements   y = value * scale(e)
 *
 * Codes come in runs of n = 32 (NVFP4: 16) elements. The six-bit scale s of run g of IQ4_XS is made
 * of nibble g of low[] and bits 2g, 2g + 1 of high:
 *
 *       7       4 3       0             7      4 3      0            15 14       3  2 1  0
 *     +----------+---------+          +---------+---------+         +-----+- - -+-----+-----+
 *     | k + n/2  |    k    | byte k   | 2j + 1  |   2j    | low[j]  | g=7 | ... | g=1 | g=0 | high
 *     +----------+---------+          +---------+---------+         +-----+- - -+-----+-----+
 */
#include "quant/kernel.h"

enum { NL_QS = 2, XS_HIGH = 2, XS_LOW = 4, XS_QS = 8, MX_QS = 1, NV_QS = 4 };
static_assert(NL_QS + 16 == IQ4_NL_BYTES, "IQ4_NL");
static_assert(XS_QS + 128 == IQ4_XS_BYTES, "IQ4_XS");
static_assert(MX_QS + 16 == MXFP4_BYTES, "MXFP4");
static_assert(NV_QS + 32 == NVFP4_BYTES, "NVFP4");

static const int8_t iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                      1,    13,   25,  38,  53,  69,  89,  113};

/* E2M1 times two, so that it is whole; the scales are halved. "Minus zero" (8) is plain zero. */
static const int8_t e2m1_values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/* The 2n values of n bytes of codes, times d; n a multiple of 8. */
static inline void table_run(float *restrict y, const uint8_t *restrict qs, unsigned n,
                             const int8_t table[16], float d)
{
    for (unsigned k = 0; k < n; k += 8) {
        put8(y + k, lookup8(fields8(qs + k, 0, 15), table), d);
        put8(y + n + k, lookup8(fields8(qs + k, 4, 15), table), d);
    }
}

static inline void block_IQ4_NL(const uint8_t *restrict b, float *restrict y)
{
    table_run(y, b + NL_QS, 16, iq4_values, half_at(b));
}
DECODER(IQ4_NL)

static inline void block_IQ4_XS(const uint8_t *restrict b, float *restrict y)
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

/* Half of 2^(e - 127); the first two are subnormal. 255 is no NaN here. */
static inline float e8m0_half(unsigned e)
{
    return f32_from_bits(e < 2 ? 0x00200000u << e : (e - 1) << 23);
}

static inline void block_MXFP4(const uint8_t *restrict b, float *restrict y)
{
    table_run(y, b + MX_QS, 16, e2m1_values, e8m0_half(b[0]));
}
DECODER(MXFP4)

/*
 * Half of an unsigned E4M3 (bias 7); bit 7 is ignored, except that 0x7f is 0 and 0xff is not:
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

static inline void block_NVFP4(const uint8_t *restrict b, float *restrict y)
{
    for (size_t s = 0; s < 4; s++)
        table_run(y + 16 * s, b + NV_QS + 8 * s, 8, e2m1_values, ue4m3_half(b[s]));
}
DECODER(NVFP4)

/* SPDX-License-Identifier: MIT */
/*
 * The two-bit IQ types: 256 elements in groups of 32; each eight are an entry of a code book
 * (magnitudes 8, 25, 43) with eight signs.
 *
 *     IQ2_XXS   d:half  8 x { index[4]  a:u32 }                   book of 256
 *     IQ2_XS    d:half  qs[32]:u16  scales[8]                     book of 512
 *     IQ2_S     d:half  qs[32]  signs[32]  qh[8]  scales[8]       book of 1024
 *
 *     y = +-(((d * (0.5 + s)) * 0.25) * magnitude)
 *
 *     IQ2_XXS: a; signs of entry l               IQ2_XS: qs[k]         IQ2_S: qh[g], top bits
 *      31   28 27  21 20  14 13   7 6    0        15     9 8     0      7   6 5   4 3   2 1   0
 *     +-------+------+------+------+------+      +--------+-------+    +-----+-----+-----+-----+
 *     | scale | l=3  | l=2  | l=1  | l=0  |      | signs  | index |    | l=3 | l=2 | l=1 | l=0 |
 *     +-------+------+------+------+------+      +--------+-------+    +-----+-----+-----+-----+
 *
 * Signs of seven bits stand for eight, the eighth making the number of set bits even. scales[g] has
 * the scale of the first 16 elements of group g in its low nibble, of the last 16 in its high one.
 */
#include "quant/codebook.h"
#include "quant/kernel.h"

enum { XXS_GROUPS = 2 };
enum { XS_QS = 2, XS_SCALES = 66 };
enum { S_QS = 2, S_SIGNS = 34, S_QH = 66, S_SCALES = 74 };
static_assert(XXS_GROUPS + 8 * 8 == IQ2_XXS_BYTES, "IQ2_XXS");
static_assert(XS_SCALES + 8 == IQ2_XS_BYTES, "IQ2_XS");
static_assert(S_SCALES + 8 == IQ2_S_BYTES, "IQ2_S");

static inline float iq2_scale(float d, unsigned s)
{
    return (d * (0.5f + (float)(int)s)) * 0.25f;
}

FIXED void block_IQ2_XXS(const uint8_t *restrict b, float *restrict y)
{
    float d = half_at(b);
    for (size_t g = 0; g < 8; g++) {
        const uint8_t *index = b + XXS_GROUPS + 8 * g;
        uint32_t a = get_u32(index + 4, false);
        float scale = iq2_scale(d, a >> 28);
        for (size_t l = 0; l < 4; l++) {
            uint64_t minus = spread_bits(even_signs(a >> 7 * l & 127));
            put8(y + 32 * g + 8 * l, negate8(iq2xxs_grid[index[l]], minus), scale);
        }
    }
}
DECODER(IQ2_XXS)

FIXED void block_IQ2_XS(const uint8_t *restrict b, float *restrict y)
{
    float d = half_at(b);
    for (size_t h = 0; h < 16; h++) { /* halves of groups: 16 elements, two entries */
        float scale = iq2_scale(d, b[XS_SCALES + h / 2] >> 4 * (h % 2) & 15);
        for (size_t l = 2 * h; l < 2 * h + 2; l++) {
            unsigned w = get_u16(b + XS_QS + 2 * l, false);
            uint64_t minus = spread_bits(even_signs(w >> 9));
            put8(y + 8 * l, negate8(iq2xs_grid[w & 511], minus), scale);
        }
    }
}
DECODER(IQ2_XS)

FIXED void block_IQ2_S(const uint8_t *restrict b, float *restrict y)
{
    float d = half_at(b);
    for (size_t h = 0; h < 16; h++) {
        float scale = iq2_scale(d, b[S_SCALES + h / 2] >> 4 * (h % 2) & 15);
        for (size_t l = 2 * h; l < 2 * h + 2; l++) {
            unsigned index = b[S_QS + l] | ((unsigned)b[S_QH + l / 4] >> 2 * (l % 4) & 3) << 8;
            uint64_t minus = spread_bits(b[S_SIGNS + l]);
            put8(y + 8 * l, negate8(iq2s_grid[index], minus), scale);
        }
    }
}
DECODER(IQ2_S)

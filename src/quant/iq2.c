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
            const unsigned minus = even_signs(a >> 7 * l & 127);
            put8_signed(y + 32 * g + 8 * l, iq2xxs_grid[index[l]], minus, scale);
        }
    }
}
DECODER(IQ2_XXS)

/* From scales[8]: of the first halves of groups 0 to 7, then of the second ones. All is exact. */
static inline void iq2_scales(float scale[2][8], const uint8_t *scales, float d)
{
    put8_shifted(scale[0], fields8(scales, 0, 15), 0.5f, d * 0.25f);
    put8_shifted(scale[1], fields8(scales, 4, 15), 0.5f, d * 0.25f);
}

FIXED void block_IQ2_XS(const uint8_t *restrict b, float *restrict y)
{
    float scale[2][8];
    iq2_scales(scale, b + XS_SCALES, half_at(b));
    for (size_t g = 0; g < 8; g++)
        for (size_t l = 0; l < 4; l++) {
            const unsigned w = get_u16(b + XS_QS + 8 * g + 2 * l, false);
            put8_signed(y + 32 * g + 8 * l, iq2xs_grid[w & 511], even_signs(w >> 9),
                        scale[l / 2][g]);
        }
}
DECODER(IQ2_XS)

FIXED void block_IQ2_S(const uint8_t *restrict b, float *restrict y)
{
    float scale[2][8];
    iq2_scales(scale, b + S_SCALES, half_at(b));
    for (size_t g = 0; g < 8; g++) {
        const unsigned top = (unsigned)b[S_QH + g] << 8;
        for (size_t l = 0; l < 4; l++) {
            const unsigned index = b[S_QS + 4 * g + l] | (top >> 2 * l & 0x300);
            put8_signed(y + 32 * g + 8 * l, iq2s_grid[index], b[S_SIGNS + 4 * g + l],
                        scale[l / 2][g]);
        }
    }
}
DECODER(IQ2_S)

/* SPDX-License-Identifier: MIT */
/*
 * The two-bit IQ types, with 256 elements in groups of 32. Eight elements are an entry from a code
 * book (magnitudes 8, 25, 43) with eight signs.
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
 * Seven sign bits stand for eight; the eighth makes the number of set bits even. In scales[g], the
 * low nibble is the scale of the first 16 elements in group g, the high nibble that of the last 16.
 */
#include "quant/codebook.h"
#include "quant/points.h"

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

/* The levels 8, 25 and 43 are numbered by their bits from bit 4 up. */
#define IQ2_LEVELS .last = 15, .span = 3, .levels = 3, .level = {1, 3.125f, 5.375f}, .at = 4
static const struct point_form iq2xxs_form = {
    .points = 256, .n = 8, .group = 4, .signs = POINT_EVEN, .of8 = iq2xxs_grid, IQ2_LEVELS};

static inline void put_IQ2_XXS(const struct point_block *p, const uint8_t d[2], uint8_t *restrict b)
{
    memcpy(b, d, 2);
    for (unsigned g = 0; g < 8; g++) {
        uint8_t *index = b + XXS_GROUPS + 8 * g;
        uint32_t a = (uint32_t)p->l[g] << 28;
        for (unsigned l = 0; l < 4; l++) {
            index[l] = (uint8_t)p->point[4 * g + l];
            a |= (uint32_t)(p->minus[4 * g + l] & 127) << 7 * l;
        }
        put_u32(index + 4, a, false);
    }
}
POINT_ENCODER(IQ2_XXS, iq2xxs_form)

/* Read scales[8] to one row of scales for the first halves of groups 0 to 7 and one for the second
 * halves. All results are exact. */
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

static const struct point_form iq2xs_form = {
    .points = 512, .n = 8, .group = 2, .signs = POINT_EVEN, .of8 = iq2xs_grid, IQ2_LEVELS};

static inline void put_IQ2_XS(const struct point_block *p, const uint8_t d[2], uint8_t *restrict b)
{
    memcpy(b, d, 2);
    for (unsigned u = 0; u < 32; u++) {
        const unsigned w = p->point[u] | (unsigned)(p->minus[u] & 127) << 9;
        put_u16(b + XS_QS + 2 * u, (uint16_t)w, false);
    }
    put_scales(b + XS_SCALES, p, 8);
}
POINT_ENCODER(IQ2_XS, iq2xs_form)

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

static const struct point_form iq2s_form = {
    .points = 1024, .n = 8, .group = 2, .signs = POINT_FREE, .of8 = iq2s_grid, IQ2_LEVELS};

static inline void put_IQ2_S(const struct point_block *p, const uint8_t d[2], uint8_t *restrict b)
{
    memcpy(b, d, 2);
    memcpy(b + S_SIGNS, p->minus, 32);
    memset(b + S_QH, 0, 8);
    for (unsigned u = 0; u < 32; u++) {
        b[S_QS + u] = (uint8_t)p->point[u];
        b[S_QH + u / 4] |= (uint8_t)(p->point[u] >> 8 << 2 * (u % 4));
    }
    put_scales(b + S_SCALES, p, 8);
}
POINT_ENCODER(IQ2_S, iq2s_form)

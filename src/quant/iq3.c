/* SPDX-License-Identifier: MIT */
/*
 * The three-bit IQ types, with 256 elements in groups of 32. Four elements are an entry from a code
 * book of magnitudes, and eight elements share a byte of signs.
 *
 *     IQ3_XXS   d:half  qs[64]  a[8]:u32                          book of 256
 *     IQ3_S     d:half  qs[64]  qh[8]  signs[32]  scales[4]       book of 512
 *
 *     IQ3_XXS   y = +-(((d * (0.5 + s)) * 0.5) * magnitude)
 *     IQ3_S     y = +-((d * (1 + 2s)) * magnitude)
 *
 *     IQ3_XXS: a[g]; signs of 8 elements         IQ3_S: qh[g], ninth bits   IQ3_S: scales[k]
 *      31   28 27  21 20  14 13   7 6    0        7   6         1   0      7     4 3     0
 *     +-------+------+------+------+------+      +---+---+- - -+---+---+  +--------+--------+
 *     | scale | l=3  | l=2  | l=1  | l=0  |      | entry 7 ... entry 0 |  | g=2k+1 |  g=2k  |
 *     +-------+------+------+------+------+      +---+---+- - -+---+---+  +--------+--------+
 *
 * The seven sign bits of IQ3_XXS stand for eight, as in IQ2_XXS.
 */
#include "quant/codebook.h"
#include "quant/points.h"

enum { XXS_QS = 2, XXS_A = 66, S_QS = 2, S_QH = 66, S_SIGNS = 74, S_SCALES = 106 };
static_assert(XXS_A + 8 * 4 == IQ3_XXS_BYTES, "IQ3_XXS");
static_assert(S_SCALES + 4 == IQ3_S_BYTES, "IQ3_S");

/* Join the eight codes of two entries. With AVX2 they are instead joined in a vector, where they
 * are used. */
static inline uint64_t join(uint32_t first, uint32_t second)
{
#ifdef __AVX2__
    const __m128i low = _mm_cvtsi32_si128((int)first);
    return (uint64_t)_mm_cvtsi128_si64(_mm_insert_epi32(low, (int)second, 1));
#else
    return first | (uint64_t)second << 32;
#endif
}

FIXED void block_IQ3_XXS(const uint8_t *restrict b, float *restrict y)
{
    float d = half_at(b);
    for (size_t g = 0; g < 8; g++) {
        uint32_t a = get_u32(b + XXS_A + 4 * g, false);
        float scale = (d * (0.5f + (float)(int)(a >> 28))) * 0.5f;
        for (size_t l = 0; l < 4; l++) {
            const uint8_t *qs = b + XXS_QS + 8 * g + 2 * l;
            const unsigned minus = even_signs(a >> 7 * l & 127);
            uint64_t q = join(iq3xxs_grid[qs[0]], iq3xxs_grid[qs[1]]);
            put8_signed(y + 32 * g + 8 * l, q, minus, scale);
        }
    }
}
DECODER(IQ3_XXS)

#define IQ3_LEVELS(top) \
    .n = 4, .group = 8, .last = 15, .span = 3, .levels = 8, .level = {1, 3, 5, 7, 9, 11, 13, top}
static const struct point_form iq3xxs_form = {
    .points = 256, .signs = POINT_EVEN_PAIR, .of4 = iq3xxs_grid, .at = 3, IQ3_LEVELS(15.5f)};

/* Return the signs of the eight values in two units. */
static inline uint8_t two_signs(const struct point_block *p, unsigned k)
{
    return (uint8_t)(p->minus[2 * k] | p->minus[2 * k + 1] << 4);
}

static inline void put_IQ3_XXS(const struct point_block *p, const uint8_t d[2], uint8_t *restrict b)
{
    memcpy(b, d, 2);
    for (unsigned u = 0; u < 64; u++)
        b[XXS_QS + u] = (uint8_t)p->point[u];
    for (unsigned g = 0; g < 8; g++) {
        uint32_t a = (uint32_t)p->l[g] << 28;
        for (unsigned l = 0; l < 4; l++)
            a |= (uint32_t)(two_signs(p, 4 * g + l) & 127) << 7 * l;
        put_u32(b + XXS_A + 4 * g, a, false);
    }
}
POINT_ENCODER(IQ3_XXS, iq3xxs_form)

FIXED void block_IQ3_S(const uint8_t *restrict b, float *restrict y)
{
    const float d = half_at(b);
    uint32_t index[64];
    for (unsigned k = 0; k < 64; k += WIDE) {
        const unsigned ninth = get_u16(b + S_QH + k / 16 * 2, false);
        put_words(index + k, bytes_at(b + S_QS + k) | spread_wide(ninth, k % 16, 8));
    }
    for (size_t g = 0; g < 8; g++) {
        const unsigned s = b[S_SCALES + g / 2] >> 4 * (g % 2) & 15;
        const float scale = d * (float)(int)(1 + 2 * s);
        for (size_t l = 0; l < 4; l++) {
            const uint32_t *two = index + 8 * g + 2 * l;
            const uint64_t q = join(iq3s_grid[two[0]], iq3s_grid[two[1]]);
            put8_signed(y + 32 * g + 8 * l, q, b[S_SIGNS + 4 * g + l], scale);
        }
    }
}
DECODER(IQ3_S)

static const struct point_form iq3s_form = {
    .points = 512, .signs = POINT_FREE, .of4 = iq3s_grid, .at = 1, IQ3_LEVELS(15)};

static inline void put_IQ3_S(const struct point_block *p, const uint8_t d[2], uint8_t *restrict b)
{
    memcpy(b, d, 2);
    memset(b + S_QH, 0, 8);
    for (unsigned u = 0; u < 64; u++) {
        b[S_QS + u] = (uint8_t)p->point[u];
        b[S_QH + u / 8] |= (uint8_t)(p->point[u] >> 8 << u % 8);
    }
    for (unsigned k = 0; k < 32; k++)
        b[S_SIGNS + k] = two_signs(p, k);
    put_scales(b + S_SCALES, p, 4);
}
POINT_ENCODER(IQ3_S, iq3s_form)

/* SPDX-License-Identifier: MIT */
/*
 * The one-bit IQ types, with 256 elements. Eight elements are an entry from a book of 2048 (codes
 * -1, 0, 1), and are all shifted by +1/8 or -1/8.
 *
 *     IQ1_S   d:half  qs[32]  qh[8]:u16         y = (d * (2s + 1)) * (code +- 1/8)
 *     IQ1_M   qs[32]  qh[16]  scales[4]:u16     as IQ1_S; d has no field of its own
 *
 * The index of entry l in a group of 32 consists of a byte of qs (the low bits) and three bits of
 * qh:
 *
 *     IQ1_S: qh[g], the word of group g               IQ1_M: qh[k], entries 2k and 2k + 1
 *      15  14    12 11   9 8    6 5    3 2    0          7  6      4  3  2      0
 *     +---+--------+------+------+------+------+       +---+--------+---+--------+
 *     | - | scale  | l=3  | l=2  | l=1  | l=0  |       | - | 2k + 1 | - |   2k   |
 *     +---+--------+------+------+------+------+       +---+--------+---+--------+
 *
 *     IQ1_M: scales[k], each for 16 elements
 *      15        12 11    9 8     6 5     3 2     0
 *     +------------+-------+-------+-------+-------+
 *     | nibble k   | 4k+3  | 4k+2  | 4k+1  |  4k   |   nibble k of d: bits 4k to 4k + 3
 *     | of d       |       |       |       |       |
 *     +------------+-------+-------+-------+-------+
 *
 * A set bit in a place marked - moves the entry down, a clear one up.
 */
#include "quant/codebook.h"
#include "quant/points.h"

enum { S_QS = 2, S_QH = 34, M_QS = 0, M_QH = 32, M_SCALES = 48 };
static_assert(S_QH + 8 * 2 == IQ1_S_BYTES, "IQ1_S");
static_assert(M_SCALES + 4 * 2 == IQ1_M_BYTES, "IQ1_M");

/* Return -1/8 if the flag (0 or 1) is set, otherwise 1/8. It sets the sign bit, as a branch could
 * not be predicted. */
static inline float iq1_shift(unsigned flag)
{
    return f32_from_bits(0x3e000000 | flag << 31);
}

FIXED void block_IQ1_S(const uint8_t *restrict b, float *restrict y)
{
    float d = half_at(b);
    for (size_t g = 0; g < 8; g++) {
        unsigned w = get_u16(b + S_QH + 2 * g, false);
        float scale = d * (float)(int)(2 * (w >> 12 & 7) + 1), shift = iq1_shift(w >> 15);
        for (size_t l = 0; l < 4; l++) {
            unsigned index = b[S_QS + 4 * g + l] | (w >> 3 * l & 7) << 8;
            put8_shifted(y + 32 * g + 8 * l, iq1s_grid[index], shift, scale);
        }
    }
}
DECODER(IQ1_S)

/* The levels 0, 1 and 2 are the codes -1, 0 and 1. */
#define IQ1_LEVELS \
    .points = 2048, .n = 8, .last = 7, .levels = 3, .level = {-1, 0, 1}, .of8 = iq1s_grid, .add = 1
static const struct point_form iq1s_form = {
    .group = 4, .span = 1, .signs = POINT_MOVED_GROUP, IQ1_LEVELS};

static inline void put_IQ1_S(const struct point_block *p, const uint8_t d[2], uint8_t *restrict b)
{
    memcpy(b, d, 2);
    for (unsigned g = 0; g < 8; g++) {
        unsigned w = (unsigned)(p->way[4 * g] << 15 | p->l[g] << 12);
        for (unsigned l = 0; l < 4; l++) {
            b[S_QS + 4 * g + l] = (uint8_t)p->point[4 * g + l];
            w |= (unsigned)p->point[4 * g + l] >> 8 << 3 * l;
        }
        put_u16(b + S_QH + 2 * g, (uint16_t)w, false);
    }
}
POINT_ENCODER(IQ1_S, iq1s_form)

static inline float iq1_m_d(const uint8_t *scales)
{
    unsigned d = 0;
    for (unsigned k = 0; k < 4; k++)
        d |= (unsigned)(get_u16(scales + 2 * k, false) >> 12) << 4 * k;
    uint8_t half[2];
    put_u16(half, (uint16_t)d, false);
    return half_at(half);
}

/* Return the four scales in a word w, one per byte. */
static inline uint32_t iq1_m_fields(unsigned w)
{
    return (w & 7) | (w << 5 & 0x700) | (w << 10 & 0x70000) | (w << 15 & 0x7000000);
}

static inline void iq1_m_scales(float scale[16], const uint8_t *scales)
{
    const float d = iq1_m_d(scales);
    for (unsigned h = 0; h < 16; h += 8) {
        const uint8_t *two = scales + h / 2;
        const uint64_t s = iq1_m_fields(get_u16(two, false)) |
                           (uint64_t)iq1_m_fields(get_u16(two + 2, false)) << 32;
        put8(scale + h, s << 1 | BYTES8(1), d);
    }
}

FIXED void block_IQ1_M(const uint8_t *restrict b, float *restrict y)
{
    float scale[16];
    iq1_m_scales(scale, b + M_SCALES);
    for (size_t h = 0; h < 16; h++) /* half groups: 16 elements, two entries */
        for (size_t l = 0; l < 2; l++) {
            const unsigned n = b[M_QH + h] >> 4 * l, index = b[M_QS + 2 * h + l] | (n & 7) << 8;
            put8_shifted(y + 16 * h + 8 * l, iq1s_grid[index], iq1_shift(n >> 3 & 1), scale[h]);
        }
}
DECODER(IQ1_M)

static const struct point_form iq1m_form = {
    .group = 2, .span = 1, .signs = POINT_MOVED, IQ1_LEVELS};

static inline void put_IQ1_M(const struct point_block *p, const uint8_t d[2], uint8_t *restrict b)
{
    memset(b + M_QH, 0, 16);
    for (unsigned u = 0; u < 32; u++) {
        b[M_QS + u] = (uint8_t)p->point[u];
        b[M_QH + u / 2] |= (uint8_t)((p->point[u] >> 8 | p->way[u] << 3) << 4 * (u % 2));
    }
    for (unsigned k = 0; k < 4; k++) {
        unsigned w = (get_u16(d, false) >> 4 * k & 15u) << 12;
        for (unsigned h = 0; h < 4; h++)
            w |= (unsigned)p->l[4 * k + h] << 3 * h;
        put_u16(b + M_SCALES + 2 * k, (uint16_t)w, false);
    }
}
POINT_ENCODER(IQ1_M, iq1m_form)

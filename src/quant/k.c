/* SPDX-License-Identifier: MIT */
/*
 * The K types: 256 elements in runs of 16 or 32, each run with its own small integer scale (and
 * minimum), which one or two float scales of the block make real.
 *
 *     Q2_K   scales[16]  qs[64]  d:half  dmin:half             y = (d * s) * q - dmin * m
 *     Q3_K   hmask[32]  qs[64]  scales[12]  d:half             y = (d * (s - 32)) * (q - 4)
 *     Q4_K   d:half  dmin:half  scales[12]  qs[128]            y = (d * s) * q - dmin * m
 *     Q5_K   d:half  dmin:half  scales[12]  qh[32]  qs[128]    y = (d * s) * q - dmin * m
 *     Q6_K   ql[128]  qh[64]  scales[16]  d:half               y = (d * s) * (q - 32)
 *     Q8_K   d:float  qs[256]  sums[16]:i16                    y = d * q        (sums not needed)
 *
 * A run r = 0..7 is 32 elements. The parts of codes in one byte belong to different runs; byte l of
 * 32 has a part of element l of each:
 *
 *     two-bit fields qs, qh               nibbles qs                  ql of Q6_K
 *     of runs 4n to 4n + 3                of runs 2n, 2n + 1          bytes 0..31: a = 0, b = 2
 *       7   6 5   4 3   2 1   0             7      4 3     0          bytes 32..63: a = 1, b = 3
 *     +-----+-----+-----+-----+           +--------+--------+         +---------+---------+
 *     | n,3 | n,2 | n,1 | n,0 |           | 2n + 1 |   2n   |         | 4n + b  | 4n + a  |
 *     +-----+-----+-----+-----+           +--------+--------+         +---------+---------+
 *     byte 32n + l                        byte 32n + l                byte 64n + 32a + l
 *
 * and bit r of byte l of hmask and of Q5_K's qh belongs to element l of run r. Where each 16
 * elements have a scale, h = 0..15 numbers these half runs: run h/2, bytes from 16 * (h % 2) on.
 */
#include "quant/kernel.h"

/* Offsets of the fields. */
enum { Q2_SCALES = 0, Q2_QS = 16, Q2_D = 80, Q2_DMIN = 82 };
enum { Q3_HMASK = 0, Q3_QS = 32, Q3_SCALES = 96, Q3_D = 108 };
enum { Q45_D = 0, Q45_DMIN = 2, Q45_SCALES = 4, Q4_QS = 16, Q5_QH = 16, Q5_QS = 48 };
enum { Q6_QL = 0, Q6_QH = 128, Q6_SCALES = 192, Q6_D = 208 };
enum { Q8_D = 0, Q8_QS = 4, Q8_SUMS = 260 };
static_assert(Q2_DMIN + 2 == Q2_K_BYTES, "Q2_K");
static_assert(Q3_D + 2 == Q3_K_BYTES, "Q3_K");
static_assert(Q4_QS + 128 == Q4_K_BYTES, "Q4_K");
static_assert(Q5_QS + 128 == Q5_K_BYTES, "Q5_K");
static_assert(Q6_D + 2 == Q6_K_BYTES, "Q6_K");
static_assert(Q8_SUMS + 16 * 2 == Q8_K_BYTES, "Q8_K");

/* scales[h]: the scale of half run h in the low nibble, its minimum in the high one. */
static inline void block_Q2_K(const uint8_t *restrict b, float *restrict y)
{
    float d = half_at(b + Q2_D), dmin = half_at(b + Q2_DMIN);
    for (unsigned h = 0; h < 16; h++) {
        const uint8_t *qs = b + Q2_QS + 32 * (h / 8) + 16 * (h % 2);
        float scale = d * (float)(b[Q2_SCALES + h] & 15);
        float min = dmin * (float)(b[Q2_SCALES + h] >> 4);
        for (unsigned k = 0; k < 16; k += 8)
            put8_add(y + 16 * h + k, fields8(qs + k, 2 * (h / 2 % 4), 3), scale, -min);
    }
}
DECODER(Q2_K)

/*
 * Sixteen 6-bit scales in 12 bytes: low four bits as nibbles of bytes 0..7 (low ones first), top
 * two bits as the two-bit fields of bytes 8..11:
 *
 *       7     4 3     0                  7    6 5   4 3   2 1   0
 *     +--------+--------+              +------+-----+-----+-----+
 *     | s + 8  |   s    |  byte s      | t+12 | t+8 | t+4 |  t  |  byte 8 + t, t = 0..3
 *     +--------+--------+              +------+-----+-----+-----+
 */
static inline void q3_scales(int8_t s[16], const uint8_t *b)
{
    for (unsigned i = 0; i < 16; i++) {
        unsigned low = b[i % 8] >> 4 * (i / 8) & 15, top = b[8 + i % 4] >> 2 * (i / 4) & 3;
        s[i] = (int8_t)((low | top << 4) - 32);
    }
}

static inline void block_Q3_K(const uint8_t *restrict b, float *restrict y)
{
    float d = half_at(b + Q3_D);
    int8_t scale[16];
    q3_scales(scale, b + Q3_SCALES);
    for (unsigned h = 0; h < 16; h++) {
        const uint8_t *qs = b + Q3_QS + 32 * (h / 8) + 16 * (h % 2);
        const uint8_t *hmask = b + Q3_HMASK + 16 * (h % 2); /* a code's third bit */
        for (unsigned k = 0; k < 16; k += 8) {
            uint64_t q = fields8(qs + k, 2 * (h / 2 % 4), 3) | fields8(hmask + k, h / 2, 1) << 2;
            put8_shifted(y + 16 * h + k, q, -4, d * (float)scale[h]);
        }
    }
}
DECODER(Q3_K)

/*
 * Eight 6-bit scales s and minima m in 12 bytes; those of runs 4..7 take their top two bits from
 * the bytes of runs 0..3:
 *
 *       7     6 5      0         7     6 5      0         7     4 3     0
 *     +--------+--------+      +--------+--------+      +--------+--------+
 *     | s(i+4) |  s(i)  |      | m(i+4) |  m(i)  |      | m(i+4) | s(i+4) |
 *     +--------+--------+      +--------+--------+      +--------+--------+
 *     byte i: top of s(i+4)    byte 4 + i: top of m     byte 8 + i: low parts      i = 0..3
 */
struct q45_scales {
    float scale[8], minus_min[8];
};

static inline void q45_scales(struct q45_scales *ret, const uint8_t *b)
{
    const uint8_t *c = b + Q45_SCALES;
    int s[8], m[8];
    for (unsigned i = 0; i < 4; i++) {
        s[i] = c[i] & 63;
        m[i] = c[4 + i] & 63;
        s[4 + i] = (c[8 + i] & 15) | c[i] >> 6 << 4;
        m[4 + i] = c[8 + i] >> 4 | c[4 + i] >> 6 << 4;
    }
    float d = half_at(b + Q45_D), dmin = half_at(b + Q45_DMIN);
    for (unsigned i = 0; i < 8; i++) {
        ret->scale[i] = d * (float)s[i];
        ret->minus_min[i] = -(dmin * (float)m[i]);
    }
}

static inline void block_Q4_K(const uint8_t *restrict b, float *restrict y)
{
    struct q45_scales s;
    q45_scales(&s, b);
    for (unsigned r = 0; r < 8; r++) {
        const uint8_t *qs = b + Q4_QS + 32 * (r / 2);
        for (unsigned k = 0; k < 32; k += 8)
            put8_add(y + 32 * r + k, fields8(qs + k, 4 * (r % 2), 15), s.scale[r], s.minus_min[r]);
    }
}
DECODER(Q4_K)

static inline void block_Q5_K(const uint8_t *restrict b, float *restrict y)
{
    struct q45_scales s;
    q45_scales(&s, b);
    for (unsigned r = 0; r < 8; r++) {
        const uint8_t *qs = b + Q5_QS + 32 * (r / 2), *qh = b + Q5_QH;
        for (unsigned k = 0; k < 32; k += 8) {
            uint64_t q = fields8(qs + k, 4 * (r % 2), 15) | fields8(qh + k, r, 1) << 4;
            put8_add(y + 32 * r + k, q, s.scale[r], s.minus_min[r]);
        }
    }
}
DECODER(Q5_K)

static inline void block_Q6_K(const uint8_t *restrict b, float *restrict y)
{
    const int8_t *scale = (const int8_t *)b + Q6_SCALES;
    float d = half_at(b + Q6_D);
    for (unsigned h = 0; h < 16; h++) {
        const uint8_t *ql = b + Q6_QL + 64 * (h / 8) + 16 * (h % 4);
        const uint8_t *qh = b + Q6_QH + 32 * (h / 8) + 16 * (h % 2);
        for (unsigned k = 0; k < 16; k += 8) {
            uint64_t low = fields8(ql + k, 4 * (h / 4 % 2), 15);
            uint64_t top = fields8(qh + k, 2 * (h / 2 % 4), 3);
            put8_shifted(y + 16 * h + k, low | top << 4, -32, d * (float)scale[h]);
        }
    }
}
DECODER(Q6_K)

static inline void block_Q8_K(const uint8_t *restrict b, float *restrict y)
{
    float d = f32_from_bits(get_u32(b + Q8_D, false));
    for (unsigned k = 0; k < 256; k += 8)
        put8(y + k, get_u64(b + Q8_QS + k, false), d);
}
DECODER(Q8_K)

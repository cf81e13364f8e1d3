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
 * Bits of a code that share a byte belong to elements 32 (two-bit fields) or 32 of 64 (nibbles)
 * apart, so that 32 consecutive bytes hold whole runs. For half H (128 elements), j = 0..3:
 *
 *       7   6 5   4 3   2 1   0               7     4 3     0
 *     +-----+-----+-----+-----+             +--------+--------+
 *     | j=3 | j=2 | j=1 | j=0 |             | run 2k+1 | run 2k |
 *     +-----+-----+-----+-----+             +--------+--------+
 *     two bits: byte 32H + l is             nibbles: byte 32k + l is
 *     element 128H + 32j + l                elements 64k + l, 64k + 32 + l
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

/* Field j of 32 bytes of two-bit codes. */
static inline void two_bits(int8_t *restrict q, const uint8_t *restrict b, unsigned j)
{
    for (size_t l = 0; l < 32; l++)
        q[l] = (int8_t)(b[l] >> 2 * j & 3);
}

static inline void block_Q2_K(const uint8_t *restrict b, float *restrict y)
{
    float d = half_at(b + Q2_D), dmin = half_at(b + Q2_DMIN);
    for (unsigned r = 0; r < 8; r++) {
        int8_t q[32];
        two_bits(q, b + Q2_QS + 32 * (r / 4), r % 4);
        for (unsigned k = 0; k < 2; k++) {
            unsigned s = b[Q2_SCALES + 2 * r + k]; /* scale in the low nibble, minimum above */
            scale_run_add(y + 32 * r + 16 * k, q + 16 * k, 16, d * (float)(int)(s & 15),
                          -(dmin * (float)(int)(s >> 4)));
        }
    }
}
DECODER(Q2_K)

/*
 * Sixteen 6-bit scales in 12 bytes: low four bits as nibbles of bytes 0..7 (low ones first), top
 * two bits as the two-bit fields of bytes 8..11:
 *
 *       7     4 3     0                  7   6 5    4 3   2 1   0
 *     +--------+--------+              +------+------+-----+-----+
 *     |  s+8   |   s    |  byte s      | s=12+ | s=8+ | s=4+ | s=0+ |  byte 8 + s%4
 *     +--------+--------+              +------+------+-----+-----+
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
    for (unsigned r = 0; r < 8; r++) {
        int8_t q[32];
        two_bits(q, b + Q3_QS + 32 * (r / 4), r % 4);
        for (size_t l = 0; l < 32; l++) /* bit r of hmask: the code's third bit; minus 4 */
            q[l] = (int8_t)((q[l] | (b[Q3_HMASK + l] >> r & 1) << 2) - 4);
        scale_run(y + 32 * r, q, 16, d * (float)scale[2 * r]);
        scale_run(y + 32 * r + 16, q + 16, 16, d * (float)scale[2 * r + 1]);
    }
}
DECODER(Q3_K)

/*
 * Eight 6-bit scales s and minima m in 12 bytes; those of runs 4..7 take their top two bits from
 * the bytes of runs 0..3:
 *
 *       7       6 5      0        7       6 5      0        7      4 3      0
 *     +----------+--------+     +----------+--------+     +---------+---------+
 *     | s(i+4) hi |  s(i)  |    | m(i+4) hi |  m(i)  |    | m(i+4) lo | s(i+4) lo |
 *     +----------+--------+     +----------+--------+     +---------+---------+
 *     byte i                    byte 4 + i                byte 8 + i          i = 0..3
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
    for (unsigned r = 0; r < 8; r += 2) {
        int8_t q[64];
        nibbles(q, b + Q4_QS + 16 * r, 32);
        scale_run_add(y + 32 * r, q, 32, s.scale[r], s.minus_min[r]);
        scale_run_add(y + 32 * r + 32, q + 32, 32, s.scale[r + 1], s.minus_min[r + 1]);
    }
}
DECODER(Q4_K)

static inline void block_Q5_K(const uint8_t *restrict b, float *restrict y)
{
    struct q45_scales s;
    q45_scales(&s, b);
    for (unsigned r = 0; r < 8; r += 2) {
        int8_t q[64];
        nibbles(q, b + Q5_QS + 16 * r, 32);
        for (size_t l = 0; l < 32; l++) { /* bit r of qh[l]: the fifth bit of run r, element l */
            q[l] = (int8_t)(q[l] | (b[Q5_QH + l] >> r & 1) << 4);
            q[32 + l] = (int8_t)(q[32 + l] | (b[Q5_QH + l] >> (r + 1) & 1) << 4);
        }
        scale_run_add(y + 32 * r, q, 32, s.scale[r], s.minus_min[r]);
        scale_run_add(y + 32 * r + 32, q + 32, 32, s.scale[r + 1], s.minus_min[r + 1]);
    }
}
DECODER(Q5_K)

/* Run r of 32: low bits from a nibble of the half's 64 bytes ql, top two from a field of its qh. */
static inline void block_Q6_K(const uint8_t *restrict b, float *restrict y)
{
    const int8_t *scale = (const int8_t *)b + Q6_SCALES;
    float d = half_at(b + Q6_D);
    for (unsigned r = 0; r < 8; r++) {
        const uint8_t *ql = b + Q6_QL + 64 * (r / 4) + 32 * (r % 2);
        int8_t q[32];
        two_bits(q, b + Q6_QH + 32 * (r / 4), r % 4);
        for (size_t l = 0; l < 32; l++)
            q[l] = (int8_t)(((ql[l] >> 4 * (r / 2 % 2) & 15) | q[l] << 4) - 32);
        scale_run(y + 32 * r, q, 16, d * (float)scale[2 * r]);
        scale_run(y + 32 * r + 16, q + 16, 16, d * (float)scale[2 * r + 1]);
    }
}
DECODER(Q6_K)

static inline void block_Q8_K(const uint8_t *restrict b, float *restrict y)
{
    scale_run(y, (const int8_t *)b + Q8_QS, 256, f32_from_bits(get_u32(b + Q8_D, false)));
}
DECODER(Q8_K)

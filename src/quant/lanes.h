/* SPDX-License-Identifier: MIT */
/*
 * Handles groups of values side by side, for the encoders that search (fit.h). A group is summed in
 * the order of its values, as in ggml, so its sums cannot be split, but the groups in a block are
 * independent. A vector has one value from each of LANES groups:
 *
 *     values in memory                         v[0]  v[1]        v[n-1]
 *     group 0:  x0 x1 ... x(n-1)      lane 0    x0    x1   ...   x(n-1)
 *     group 1:  y0 y1 ... y(n-1)      lane 1    y0    y1   ...   y(n-1)
 *
 * Lanes never interact, so their number does not change a bit of the result. Vectors are as wide as
 * the set's registers, so that all compilers pass them in registers.
 */
#ifndef QUANT_LANES_H
#define QUANT_LANES_H

#include "quant/pack.h"

#ifdef __AVX2__
enum { LANES = 8 };
#else
enum { LANES = 4 };
#endif
typedef float lanes __attribute__((vector_size(4 * LANES)));
typedef int32_t masks
    __attribute__((vector_size(4 * LANES))); /* the result of a comparison: -1 or 0 */

/* Return `yes` where the mask is set, `no` elsewhere. */
static inline lanes pick(masks mask, lanes yes, lanes no)
{
#ifdef __AVX2__
    return (lanes)_mm256_blendv_ps((__m256)no, (__m256)yes, (__m256)mask);
#else
    return (lanes)((mask & (masks)yes) | (~mask & (masks)no));
#endif
}

static inline lanes all_lanes(float x)
{
    return (lanes){0} + x;
}

static inline bool any_lane(masks mask)
{
#ifdef __AVX2__
    return _mm256_movemask_ps((__m256)mask) != 0;
#else
    int32_t any = 0;
    for (unsigned g = 0; g < LANES; g++)
        any |= mask[g];
    return any != 0;
#endif
}

static inline lanes magnitudes(lanes x)
{
    return (lanes)((masks)x & 0x7fffffff);
}

/* Limit v to the range from `least` to `most`. A NaN becomes `least`. */
static inline lanes clamp(lanes v, float least, float most)
{
    const lanes a = all_lanes(least), b = all_lanes(most);
#ifdef __AVX2__
    return (lanes)_mm256_min_ps(_mm256_max_ps((__m256)v, (__m256)a), (__m256)b);
#elif defined(__SSE2__)
    return (lanes)_mm_min_ps(_mm_max_ps((__m128)v, (__m128)a), (__m128)b);
#else
    v = pick(v > a, v, a);
    return pick(v < b, v, b);
#endif
}

/* Return the nearest integer from `least` to `most` as a float, with ties to even. Around 1.5 *
 * 2^23 floats are integers, so the addition rounds. */
static inline lanes nearest(lanes v, float least, float most)
{
    return (clamp(v, least, most) + 0x1.8p23f) - 0x1.8p23f;
}

/* Load LANES groups of n values each. */
static inline void side_by_side(lanes *restrict to, const float *restrict x, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        lanes v = {0};
        for (unsigned g = 0; g < LANES; g++)
            v[g] = x[g * n + i];
        to[i] = v;
    }
}

static inline void put_lanes(float *to, lanes x)
{
    memcpy(to, &x, sizeof(x));
}

/* Store LANES groups of n codes, numbered from `least`. */
static inline void put_codes(uint8_t *restrict to, const lanes *restrict code, unsigned n,
                             float least)
{
    for (unsigned g = 0; g < LANES; g++)
        for (unsigned i = 0; i < n; i++)
            to[g * n + i] = (uint8_t)(code[i][g] - least);
}

/* Return the value with the largest magnitude in each group, or the first of several. */
static inline lanes top_values(const lanes *x, unsigned n)
{
    lanes top = x[0];
    for (unsigned i = 1; i < n; i++)
        top = pick(magnitudes(x[i]) > magnitudes(top), x[i], top);
    return top;
}

#endif

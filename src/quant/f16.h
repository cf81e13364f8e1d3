/* SPDX-License-Identifier: MIT */
/*
 * Converts single values between 16-bit floats and float32; quant.h has the functions for arrays.
 *
 *     float32    s eeeeeeee fffffffffffffffffffffff     exponent bias 127
 *     bfloat16   s eeeeeeee fffffff                     the upper half of a float32
 *     binary16   s eeeee ffffffffff                     exponent bias 15
 *
 * Widening is exact. Narrowing rounds to nearest, ties to even, and overflows to infinity. A NaN
 * stays a NaN and keeps the upper bits of its fraction; widening binary16 and narrowing make it
 * quiet. Both alternatives are always computed before one is chosen, so that compilers vectorise
 * loops over these functions.
 */
#ifndef QUANT_F16_H
#define QUANT_F16_H

#include <stdint.h>
#include <string.h>

static inline uint32_t f32_bits(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof(bits));
    return bits;
}

static inline float f32_from_bits(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof(f));
    return f;
}

static inline float f16_to_f32(uint16_t h)
{
    const uint32_t mag = h & 0x7fffu, rebias = (127 - 15) << 23;
    uint32_t bits = (mag << 13) + rebias;
    bits += mag >= 0x7c00 ? rebias : 0;
    bits |= mag > 0x7c00 ? 0x400000 : 0;
    uint32_t tiny = f32_bits((float)(int32_t)mag * 0x1p-24f);
    bits = mag < 0x400 ? tiny : bits;
    return f32_from_bits(bits | (h & 0x8000u) << 16);
}

static inline uint16_t f32_to_f16(float f)
{
    const uint32_t mag = f32_bits(f) & 0x7fffffff, sign = (f32_bits(f) & 0x80000000) >> 16;
    /* Add just under half of what the 13 dropped bits can hold, plus the last kept bit, so that
     * ties go to even. A carry goes into the exponent. */
    uint32_t normal = ((mag + 0xfff + (mag >> 13 & 1)) >> 13) - ((127 - 15) << 10);
    /* From 0.5 to 1, the last bit of a float32 is worth 2^-24, as in binary16's subnormals. */
    uint32_t tiny = f32_bits(f32_from_bits(mag) + 0.5f) - f32_bits(0.5f);
    uint32_t nan = 0x7e00 | (mag >> 13 & 0x3ff);
    uint32_t h = mag < 0x38800000 ? tiny : normal;
    h = mag < 0x477ff000 ? h : 0x7c00;
    return (uint16_t)((mag > 0x7f800000 ? nan : h) | sign);
}

static inline float bf16_to_f32(uint16_t h)
{
    return f32_from_bits((uint32_t)h << 16);
}

static inline uint16_t f32_to_bf16(float f)
{
    const uint32_t bits = f32_bits(f);
    uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    uint32_t nan = bits >> 16 | 0x40;
    return (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? nan : rounded);
}

#endif

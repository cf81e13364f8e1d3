/* SPDX-License-Identifier: MIT */
/*
 * Reads and writes numbers in memory in a given byte order, and does checked arithmetic.
 *
 * File data is read only through these functions. They read byte by byte, so they work at any
 * alignment and on hosts of either byte order. Compilers turn each read into one load (and a byte
 * swap).
 */
#ifndef BASE_BYTES_H
#define BASE_BYTES_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define HOST_BIG 0
#elif __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#define HOST_BIG 1
#else
#error "ggufs knows little-endian and big-endian hosts only"
#endif

/* The number of elements in an array (not for pointers). */
#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* Define get_uN() and put_uN(). */
#define GET_AND_PUT(bits)                                               \
    static inline uint##bits##_t get_u##bits(const void *p, bool big)   \
    {                                                                   \
        uint##bits##_t v;                                               \
        memcpy(&v, p, sizeof(v));                                       \
        return big == HOST_BIG ? v : __builtin_bswap##bits(v);          \
    }                                                                   \
    static inline void put_u##bits(void *p, uint##bits##_t v, bool big) \
    {                                                                   \
        v = big == HOST_BIG ? v : __builtin_bswap##bits(v);             \
        memcpy(p, &v, sizeof(v));                                       \
    }

GET_AND_PUT(16)
GET_AND_PUT(32)
GET_AND_PUT(64)

/* Return the unsigned number in `width` bytes (1, 2, 4 or 8). */
static inline uint64_t get_uint(const uint8_t *p, size_t width, bool big)
{
    assert(width == 1 || width == 2 || width == 4 || width == 8);
    return width == 1   ? *p
           : width == 2 ? get_u16(p, big)
           : width == 4 ? get_u32(p, big)
                        : get_u64(p, big);
}

/* Write the low `width` bytes (1, 2, 4 or 8) of v. */
static inline void put_uint(uint8_t *p, uint64_t v, size_t width, bool big)
{
    assert(width == 1 || width == 2 || width == 4 || width == 8);
    if (width == 1)
        *p = (uint8_t)v;
    else if (width == 2)
        put_u16(p, (uint16_t)v, big);
    else if (width == 4)
        put_u32(p, (uint32_t)v, big);
    else
        put_u64(p, v, big);
}

/* Set *ret to the result and return true, or return false if the result does not fit. */
static inline bool add_u64(uint64_t a, uint64_t b, uint64_t *ret)
{
    return !__builtin_add_overflow(a, b, ret);
}

static inline bool mul_u64(uint64_t a, uint64_t b, uint64_t *ret)
{
    return !__builtin_mul_overflow(a, b, ret);
}

/* Set *ret to the first multiple of `align` (a power of two) that is not below v. Returns false if
 * it does not fit. */
static inline bool align_u64(uint64_t v, uint64_t align, uint64_t *ret)
{
    if (!add_u64(v, align - 1, &v))
        return false;
    *ret = v & ~(align - 1);
    return true;
}

/* Like align_u64() for a v that is known to be far below 2^64, but returns the multiple. */
static inline uint64_t round_up(uint64_t v, uint64_t align)
{
    return (v + align - 1) & ~(align - 1);
}

static inline bool is_zero(const uint8_t *p, size_t n)
{
    return n == 0 || (p[0] == 0 && memcmp(p, p + 1, n - 1) == 0);
}

static inline bool is_pow2(uint64_t v)
{
    return v != 0 && (v & (v - 1)) == 0;
}

static inline uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Return how many of the n bytes starting at `off` lie within `size` bytes. */
static inline uint64_t within_u64(uint64_t off, uint64_t n, uint64_t size)
{
    uint64_t left = off < size ? size - off : 0;
    return n < left ? n : left;
}

/* Return how many of n ascending numbers are at most v. Each is at byte `at` of a record of
 * `stride` bytes; the records start at `of`. */
static inline size_t upto_u64(const void *of, size_t at, size_t stride, size_t n, uint64_t v)
{
    size_t ret = 0;
    while (n > 0) {
        uint64_t number;
        memcpy(&number, (const uint8_t *)of + (ret + n / 2) * stride + at, sizeof(number));
        ret += number > v ? 0 : n / 2 + 1;
        n = number > v ? n / 2 : n - n / 2 - 1;
    }
    return ret;
}

/* Return the same count for one member of the structs in an array. */
#define UPTO(of, member, n, v) \
    upto_u64(of, offsetof(__typeof__(*(of)), member), sizeof(*(of)), n, v)

#endif

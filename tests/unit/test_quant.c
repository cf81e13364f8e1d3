/* SPDX-License-Identifier: MIT */
/* quant: the table of types, golden data for the types, streams of values, narrowing. */
#define CU_OWN_MAIN
#include "cu_test.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/bytes.h"
#include "golden.h"
#include "quant/set.h"
#include "quant/f16.h"
#include "quant/quant.h"
#include "quant/types.h"

TEST("types have values in either byte order or only in one")
{
    static const uint32_t no_form[] = {6, 7, 15, 16, 17, 18, 19, 23, 29};
    CU_ASSERT_FALSE(quant_has_values(NULL, false));
    CU_ASSERT_FALSE(quant_has_values(quant_find(4), false));
    for (uint32_t id = 0, k = 0; id < QUANT_N_TYPES; id++) {
        const struct quant_type *t = quant_find(id);
        bool unknown = k < COUNT(no_form) && no_form[k] == id;
        k += unknown;
        CU_ASSERT_EQUAL(quant_has_values(t, false), t->block_len != 0);
        CU_ASSERT_EQUAL(quant_has_values(t, true), t->block_len != 0 && !unknown);
    }
}

TEST("every type decodes to the golden data")
{
    unsigned rows[QUANT_N_TYPES] = {0};
    for (size_t i = 0; i < n_golden; i++) {
        const struct golden *g = &golden_figures[i];
        CU_ASSERT_PTR_NOT_NULL_FATAL(quant_find(g->id));
        CU_ASSERT_TRUE(golden_check(g, quant_find(g->id)));
        rows[g->id]++;
    }
    for (uint32_t id = 0; id < QUANT_N_TYPES; id++)
        CU_ASSERT_EQUAL(rows[id], quant_find(id)->decode ? 4 : 0);
}

/* A tensor of random blocks, and its values, decoded in one call. */
struct tensor {
    const struct quant_type *type;
    uint8_t *raw;
    uint8_t *values; /* little-endian float32; all NaNs are made equal */
    size_t blocks, size;
};

static void tensor_free(struct tensor *t)
{
    free(t->raw);
    free(t->values);
}

static struct tensor tensor_new(const struct quant_type *type, size_t blocks)
{
    struct tensor t = {.type = type, .blocks = blocks, .size = blocks * type->block_len * 4};
    t.raw = malloc(blocks * type->block_bytes);
    float *f = malloc(t.size);
    CU_ASSERT_TRUE_FATAL(t.raw && f);
    golden_bytes(t.raw, blocks * type->block_bytes, type->id + 7u);
    type->decode(t.raw, blocks, f);
    golden_canon(f, t.size / 4);
    t.values = (uint8_t *)f;
    return t;
}

/* Compare part of a stream of float32, from byte `off` on; all NaNs count as equal. */
static bool same_values(const struct tensor *t, const uint8_t *got, size_t off, size_t n)
{
    for (size_t i = 0; i < n;) {
        size_t at = off + i, in = at % 4, len = n - i < 4 - in ? n - i : 4 - in;
        if (get_u32(t->values + at - in, false) != 0x7fc00000 &&
            memcmp(got + i, t->values + at, len) != 0)
            return false;
        i += len;
    }
    return true;
}

/* Read a range into an aligned buffer, at byte `shift`. Bytes outside the range must stay
 * unchanged. */
static bool read_is_right(const struct tensor *t, size_t off, size_t n, size_t shift)
{
    static _Alignas(8) uint8_t buf[16384];
    CU_ASSERT_TRUE_FATAL(shift + n + 8 <= sizeof(buf));
    memset(buf, 0xa5, shift + n + 8);
    quant_read(&quant_f32, t->type, false, t->raw, off, n, buf + shift);
    for (size_t i = 0; i < 8; i++)
        if ((i < shift && buf[i] != 0xa5) || buf[shift + n + i] != 0xa5)
            return false;
    return same_values(t, buf + shift, off, n);
}

TEST("any range of values can be read at any address")
{
    for (uint32_t id = 0; id < QUANT_N_TYPES; id++) {
        if (!quant_find(id)->decode)
            continue;
        CLEANUP(tensor_free) struct tensor t = tensor_new(quant_find(id), 5);
        const size_t block = 4u * t.type->block_len;
        bool ok = true;
        for (size_t b = 0; b < 3; b++)
            for (size_t d = 0; d < 10 && d < block; d++)
                for (size_t n = 0; n + b * block + d <= t.size; n += n < 10 ? 1 : block / 3 + 1)
                    for (size_t shift = 0; shift < 5; shift += shift == 1 ? 3 : 1)
                        ok &= read_is_right(&t, b * block + d, n, shift);
        CU_ASSERT_TRUE(ok);
        CU_ASSERT_TRUE(read_is_right(&t, 0, t.size, 0));
        CU_ASSERT_TRUE(read_is_right(&t, t.size - 1, 1, 3));
        CU_ASSERT_TRUE(read_is_right(&t, t.size, 0, 0));
    }
}

/* If fields are reversed by hand, as in a big-endian file, the values stay the same. */
TEST("big-endian blocks decode to the same values")
{
    /* id, width and offsets of the fields, from the layouts */
    static const struct {
        uint8_t id, width, n, at[2];
    } forms[] = {{0, 4, 1, {0}},     {1, 2, 1, {0}},     {2, 2, 1, {0}},       {3, 2, 2, {0, 2}},
                 {8, 2, 1, {0}},     {9, 2, 2, {0, 2}},  {10, 2, 2, {80, 82}}, {11, 2, 1, {108}},
                 {12, 2, 2, {0, 2}}, {13, 2, 2, {0, 2}}, {14, 2, 1, {208}},    {20, 2, 1, {0}},
                 {21, 2, 1, {0}},    {22, 2, 1, {0}},    {24, 0, 0, {0}},      {25, 2, 1, {0}},
                 {26, 4, 1, {0}},    {27, 8, 1, {0}},    {28, 8, 1, {0}},      {30, 2, 1, {0}},
                 {34, 2, 1, {52}},   {35, 2, 1, {64}},   {39, 0, 0, {0}},      {40, 0, 0, {0}},
                 {41, 2, 1, {0}},    {42, 2, 1, {0}}};
    size_t formed = 0;
    for (uint32_t id = 0; id < QUANT_N_TYPES; id++)
        formed += quant_find(id)->decode && !quant_find(id)->big_unknown;
    CU_ASSERT_EQUAL(COUNT(forms), formed);
    for (size_t k = 0; k < COUNT(forms); k++) {
        const struct quant_type *type = quant_find(forms[k].id);
        const size_t blocks = 3000u / type->block_len + 2u; /* more than fits in the swap buffer */
        CLEANUP(tensor_free) struct tensor t = tensor_new(type, blocks);
        CLEANUP(buf_free) struct buf got = BUF_INIT;
        uint8_t *p = buf_extend(&got, t.size);
        CU_ASSERT_PTR_NOT_NULL_FATAL(p);
        for (size_t b = 0; b < blocks; b++)
            for (size_t i = 0; i < forms[k].n; i++) {
                uint8_t *at = t.raw + b * type->block_bytes + forms[k].at[i];
                put_uint(at, get_uint(at, forms[k].width, false), forms[k].width, true);
            }
        quant_read(&quant_f32, type, true, t.raw, 0, t.size, p);
        CU_ASSERT_TRUE(same_values(&t, p, 0, t.size));
        quant_read(&quant_f32, type, true, t.raw, 5, t.size - 6, p);
        CU_ASSERT_TRUE(same_values(&t, p, 5, t.size - 6));
    }
}

/* Return the value of a binary16, computed in double precision from the definition. */
static double f16_value(unsigned h)
{
    int e = h >> 10 & 31;
    double f = h & 1023, v = e ? 1024 + f : f;
    for (int i = e ? e : 1; i < 25; i++)
        v /= 2;
    for (int i = 25; i < e; i++)
        v *= 2;
    return h & 0x8000 ? -v : v;
}

TEST("every binary16 value converts to float32")
{
    size_t bad = 0;
    for (unsigned h = 0; h < 0x10000; h++) {
        uint32_t bits = f32_bits(f16_to_f32((uint16_t)h));
        if ((h & 0x7fff) > 0x7c00) /* a NaN becomes quiet but keeps its other bits */
            bad += bits != ((h & 0x8000) << 16 | 0x7fc00000 | (h & 0x3ff) << 13);
        else if ((h & 0x7fff) == 0x7c00)
            bad += bits != ((h & 0x8000) << 16 | 0x7f800000);
        else
            bad += bits != f32_bits((float)f16_value(h));
    }
    CU_ASSERT_EQUAL(bad, 0);
}

/* Narrow nine equal values, one vector and one extra value. */
static uint16_t narrowed(uint32_t bits, bool brain)
{
    uint8_t many[9 * 4], h[9 * 2];
    for (size_t i = 0; i < 9; i++)
        put_u32(many + 4 * i, bits, false);
    quant_read(brain ? &quant_bf16 : &quant_f16, quant_find(0), false, many, 0, sizeof(h), h);
    CU_ASSERT_EQUAL(get_u16(h, false), get_u16(h + 16, false));
    return get_u16(h, false);
}

static uint16_t narrow16(uint32_t bits)
{
    const uint16_t h = narrowed(bits, false);
    CU_ASSERT_EQUAL(h, f32_to_f16(f32_from_bits(bits)));
    return h;
}

/* Values around each binary16 value and each midpoint are rounded to the nearest binary16 value,
 * ties to even. */
TEST("float32 rounds to the nearest binary16, ties to even")
{
    size_t bad = 0;
    for (unsigned h = 0; h < 0x7c00; h++) {
        float mid = (float)((f16_value(h) + (h == 0x7bff ? 65536 : f16_value(h + 1))) / 2);
        uint32_t bits = f32_bits(f16_to_f32((uint16_t)h)), m = f32_bits(mid);
        unsigned even = h & 1 ? h + 1 : h;
        for (uint32_t sign = 0; sign < 2; sign++) {
            uint32_t s = sign << 31, s16 = sign << 15;
            bad += narrow16(bits | s) != (h | s16);
            bad += narrow16((m - 1) | s) != (h | s16);
            bad += narrow16((m + 1) | s) != ((h + 1) | s16);
            bad += narrow16(m | s) != (even | s16);
        }
    }
    CU_ASSERT_EQUAL(bad, 0);
    CU_ASSERT_EQUAL(narrow16(0x7f800000), 0x7c00);
    CU_ASSERT_EQUAL(narrow16(0xff7fffff), 0xfc00);
    CU_ASSERT_EQUAL(narrow16(0x00000001), 0x0000);
    CU_ASSERT_EQUAL(narrow16(0x807fffff), 0x8000);
    CU_ASSERT_EQUAL(narrow16(0x7fc00000), 0x7e00);
    CU_ASSERT_EQUAL(narrow16(0xff800001), 0xfe00);
    CU_ASSERT_EQUAL(narrow16(0x7fbfe000), 0x7fff);
}

TEST("float32 rounds to the nearest bfloat16, ties to even")
{
    static const struct {
        uint32_t bits;
        uint16_t want;
    } cases[] = {{0, 0},
                 {0x80000000, 0x8000},
                 {0x3f800000, 0x3f80},
                 {0x3f808000, 0x3f80}, /* tie, already even */
                 {0x3f808001, 0x3f81},
                 {0x3f818000, 0x3f82}, /* tie, odd, rounds up */
                 {0x3f817fff, 0x3f81},
                 {0x00008000, 0x0000}, /* subnormals round the same way */
                 {0x00018000, 0x0002},
                 {0x7f7f7fff, 0x7f7f},
                 {0x7f7f8000, 0x7f80}, /* overflow */
                 {0xff7fffff, 0xff80},
                 {0x7f800000, 0x7f80},
                 {0x7f800001, 0x7fc0}, /* NaNs */
                 {0xffbfffff, 0xffff},
                 {0x7fffffff, 0x7fff}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        CU_ASSERT_EQUAL(narrowed(cases[i].bits, true), cases[i].want);
        CU_ASSERT_EQUAL(f32_to_bf16(f32_from_bits(cases[i].bits)), cases[i].want);
    }
}

/* Return whether element i of a stream of narrowed values is right; any NaN is right for a NaN. */
static bool narrowed_right(const struct tensor *t, size_t i, const uint8_t *got, bool brain)
{
    uint32_t bits = get_u32(t->values + 4 * i, false);
    uint16_t h = get_u16(got, false), inf = brain ? 0x7f80 : 0x7c00;
    if (bits == 0x7fc00000)
        return (h & 0x7fff) > inf;
    float f = f32_from_bits(bits);
    return h == (brain ? f32_to_bf16(f) : f32_to_f16(f));
}

TEST("any type can be read as 16-bit values")
{
    for (uint32_t id = 0; id < QUANT_N_TYPES; id++) {
        if (!quant_find(id)->decode)
            continue;
        CLEANUP(tensor_free) struct tensor t = tensor_new(quant_find(id), id == 0 ? 3000 : 5);
        const size_t values = t.size / 4;
        CLEANUP(buf_free) struct buf room = BUF_INIT;
        uint8_t *got = buf_extend(&room, t.size / 2 + 1);
        CU_ASSERT_PTR_NOT_NULL_FATAL(got);
        for (int brain = 0; brain < 2; brain++) {
            bool ok = true;
            for (size_t from = 0; from < values && from < 40; from++) {
                size_t shift = from % 2, n = 2 * (values - from);
                /* Read one byte, then all others from an odd offset in the stream. */
                quant_read(brain ? &quant_bf16 : &quant_f16, t.type, false, t.raw, 2 * from, 1,
                           got + shift);
                quant_read(brain ? &quant_bf16 : &quant_f16, t.type, false, t.raw, 2 * from + 1,
                           n - 1, got + shift + 1);
                for (size_t i = from; i < values; i++)
                    ok &= narrowed_right(&t, i, got + shift + 2 * (i - from), brain);
            }
            CU_ASSERT_TRUE(ok);
        }
    }
}

/* Run all tests with each set of kernels that this machine supports. */
int main(void)
{
    int failed = 0;
    for (size_t i = 0; quant_set_at(i); i++) {
        quant_use(quant_set_at(i));
        failed |= cu_run(quant_set_at(i)->name, cu_tests);
    }
    return failed;
}

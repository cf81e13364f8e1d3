/* SPDX-License-Identifier: MIT */
/* quant: encoding values to blocks, with golden data and with values that must be refused. */
#include "cu_test.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include "base/bytes.h"
#include "golden.h"
#include "quant/set.h"
#include "quant/encode.h"
#include "quant/f16.h"
#include "quant/quant.h"
#include "quant/types.h"

enum { MOST_BLOCKS = 64 };

static float values[MOST_BLOCKS * QUANT_MAX_BLOCK_LEN], back[MOST_BLOCKS * QUANT_MAX_BLOCK_LEN];
static uint8_t raw[MOST_BLOCKS * QUANT_MAX_BLOCK_BYTES], more[MOST_BLOCKS * QUANT_MAX_BLOCK_BYTES];

TEST("every kernel set encodes to the golden data")
{
    uint32_t ids = 0;
    for (size_t s = 0; quant_set_at(s); s++)
        for (size_t i = 0; i < n_golden_encodes; i++) {
            const struct golden_encode *g = &golden_encodes[i];
            const struct quant_type *t = &quant_set_at(s)->types[g->id];
            const bool right = t->encode && golden_encode_check(g, t);
            CU_SAYS(right, "%s: %s, kind %d, seed %llu\n", quant_set_at(s)->name, t->name, g->kind,
                    (unsigned long long)g->seed);
            ids += s == 0 && (i == 0 || g->id != g[-1].id);
        }
    CU_ASSERT_EQUAL(ids, 20); /* every type with an encoder except F32, F64 and the integers */
}

TEST("the types in which values can be stored")
{
    static const uint32_t none[] = {9, 15};
    CU_ASSERT_FALSE(quant_can_encode(NULL, false));
    for (uint32_t id = 0, k = 0; id < QUANT_N_TYPES; id++) {
        const struct quant_type *t = quant_find(id);
        const bool raw_only = k < COUNT(none) && none[k] == id;
        k += raw_only;
        CU_ASSERT_EQUAL(quant_can_encode(t, false), t->decode && !raw_only);
        CU_ASSERT_EQUAL(quant_can_encode(t, true), t->decode && !raw_only && !t->big_unknown);
        CU_ASSERT_TRUE(t->encode == NULL || t->decode != NULL);
    }
}

/* Encode the first n blocks of `values` and return the result; a fault must be at `element`. */
static int encoded(uint32_t id, size_t n, uint64_t element)
{
    struct quant_fault fault = {.element = UINT64_MAX};
    int r =
        quant_encode(quant_find(id), false, values, n, raw, golden_needed(quant_find(id)), &fault);
    if (r) {
        CU_ASSERT_EQUAL(fault.element, element);
        CU_ASSERT_EQUAL(f32_bits(fault.value.f32), f32_bits(values[element]));
    }
    return r;
}

static bool holds_any_float(uint32_t id)
{
    return id == F32_ID || id == F16_ID || id == BF16_ID || id == F64_ID;
}

/* In three blocks of ones, each element of the second block in turn is not finite. */
TEST("NaN and infinity are refused, and the first is named")
{
    static const uint32_t odd[] = {0x7f800000, 0xff800000, 0x7fc00000, 0xffc00001, 0x7f800001};
    for (uint32_t id = 0; id < QUANT_N_TYPES; id++) {
        const struct quant_type *t = quant_find(id);
        for (size_t k = 0; t->encode && k < 5 * t->block_len; k++) {
            const size_t at = t->block_len + k / 5;
            for (size_t i = 0; i < 3u * t->block_len; i++)
                values[i] = 1;
            values[at] = f32_from_bits(odd[k % 5]);
            values[3u * t->block_len - 1] = NAN; /* later values are not reported */
            CU_ASSERT_EQUAL(encoded(id, 3, at), holds_any_float(id) ? 0 : -EDOM);
            values[2u * t->block_len - 1] =
                FLT_MAX; /* an out-of-range value in the same block is not reported either */
            values[at] = f32_from_bits(odd[k % 5]);
            if (!holds_any_float(id))
                CU_ASSERT_EQUAL(encoded(id, 3, at), -EDOM);
        }
    }
}

/* Each type stores its largest value with either sign, at either end of a block of zeros, and
 * refuses the next larger float. In Q1_0 all values of a block are equal. */
TEST("values at the limit of the scales are stored, larger ones refused")
{
    static const struct {
        uint8_t id;
        float least; /* the smallest value too large for the type */
    } rows[] = {{F16_ID, 65520},        {Q4_0_ID, 65520 * 8}, {Q5_0_ID, 65520 * 16},
                {Q8_0_ID, 65520 * 127}, {TQ1_0_ID, 65520},    {TQ2_0_ID, 65520},
                {Q2_0_ID, 65520},       {Q1_0_ID, 65520},     {BF16_ID, 0x1.ffp127f}};
    for (size_t k = 0; k < 4 * COUNT(rows); k++) {
        const uint32_t id = rows[k / 4].id;
        const size_t len = quant_find(id)->block_len, at = k & 1 ? len : 2 * len - 1;
        const float sign = k & 2 ? -1 : 1;
        memset(values, 0, 2 * len * sizeof(float));
        for (size_t i = len; i < 2 * len && id == Q1_0_ID; i++)
            values[i] = sign * rows[k / 4].least;
        values[at] = sign * rows[k / 4].least;
        CU_ASSERT_EQUAL(encoded(id, 2, id == Q1_0_ID ? len : at), -ERANGE);
        for (size_t i = len; i < 2 * len && id == Q1_0_ID; i++)
            values[i] = sign * nextafterf(rows[k / 4].least, 0);
        values[at] = sign * nextafterf(rows[k / 4].least, 0);
        CU_ASSERT_EQUAL(encoded(id, 2, 0), 0);
        quant_find(id)->decode(raw, 2, back);
        CU_ASSERT_TRUE(quant_all_finite((const uint8_t *)back, 2 * len));
        CU_ASSERT_DOUBLE_EQUAL(back[at], values[at], 0.004 * fabs((double)values[at]));
    }
}

/* Some types store a minimum and the distance to the maximum; both must fit. */
TEST("minima and maxima at the limit of the scales")
{
    static const struct {
        uint8_t id;
        float low, high;
        int want;
    } rows[] = {
        {Q4_1_ID, 0, 65520 * 15, -ERANGE},     {Q4_1_ID, 0, 982799.9375f, 0},
        {Q4_1_ID, -65520, 0, -ERANGE},         {Q4_1_ID, -65519.99f, 65520 * 13, 0},
        {Q4_1_ID, 65520, 65520, -ERANGE},      {Q4_1_ID, 65519.99f, 65519.99f, 0},
        {Q5_1_ID, 0, 65520 * 31, -ERANGE},     {Q5_1_ID, 0, 2031119.875f, 0},
        {Q5_1_ID, -65520, 0, -ERANGE},         {Q5_1_ID, 65520, 65521, -ERANGE},
        {Q4_1_ID, -FLT_MAX, FLT_MAX, -ERANGE}, {Q5_1_ID, -FLT_MAX, FLT_MAX, -ERANGE},
        {MXFP4_ID, -FLT_MAX, FLT_MAX, 0},      {NVFP4_ID, -FLT_MAX, FLT_MAX, 0},
        {MXFP4_ID, 0, 0x1.fffffcp127f, 0},     {Q1_0_ID, -FLT_MAX, FLT_MAX, -ERANGE},
    };
    for (size_t k = 0; k < COUNT(rows); k++) {
        const size_t len = quant_find(rows[k].id)->block_len;
        for (size_t i = 0; i < len; i++)
            values[i] = i % 2 ? rows[k].high : rows[k].low;
        const bool high = fabsf(rows[k].high) > fabsf(rows[k].low);
        CU_ASSERT_EQUAL(encoded(rows[k].id, 1, high), rows[k].want);
        quant_find(rows[k].id)->decode(raw, 1, back);
        CU_ASSERT_TRUE(rows[k].want || quant_all_finite((const uint8_t *)back, len));
    }
}

TEST("integers hold exact values only")
{
    static const struct {
        uint8_t id;
        float value;
        int want;
        int64_t stored;
    } rows[] = {
        {I8_ID, 127, 0, 127},
        {I8_ID, -128, 0, -128},
        {I8_ID, 128, -ERANGE, 0},
        {I8_ID, -129, -ERANGE, 0},
        {I8_ID, 0.5f, -ERANGE, 0},
        {I8_ID, -0.0f, 0, 0},
        {I8_ID, FLT_MIN, -ERANGE, 0},
        {I16_ID, 32767, 0, 32767},
        {I16_ID, -32768, 0, -32768},
        {I16_ID, 32768, -ERANGE, 0},
        {I16_ID, -32769, -ERANGE, 0},
        {I16_ID, 32766.5f, -ERANGE, 0},
        {I32_ID, 0x1p31f - 128, 0, 2147483520},
        {I32_ID, -0x1p31f, 0, INT32_MIN},
        {I32_ID, 0x1p31f, -ERANGE, 0},
        {I32_ID, -0x1p31f - 256, -ERANGE, 0},
        {I32_ID, -1.25f, -ERANGE, 0},
        {I64_ID, 0x1p63f - 0x1p39f, 0, INT64_MAX - (1ll << 39) + 1},
        {I64_ID, -0x1p63f, 0, INT64_MIN},
        {I64_ID, 0x1p63f, -ERANGE, 0},
        {I64_ID, -FLT_MAX, -ERANGE, 0},
        {I64_ID, 8388607.5f, -ERANGE, 0},
        {I64_ID, INFINITY, -EDOM, 0},
        {I8_ID, NAN, -EDOM, 0},
    };
    for (size_t k = 0; k < COUNT(rows); k++) {
        const unsigned width = quant_find(rows[k].id)->block_bytes, bits = 8 * width;
        for (size_t i = 0; i < 40; i++)
            values[i] = i < 17 ? 3 : rows[k].value;
        CU_ASSERT_EQUAL(encoded(rows[k].id, 40, 17), rows[k].want);
        const uint64_t want = (uint64_t)rows[k].stored << (64 - bits) >> (64 - bits);
        CU_ASSERT_TRUE(rows[k].want || get_uint(raw + 39 * width, width, false) == want);
    }
}

/* A big-endian block is the little-endian block with the bytes of each field reversed. */
TEST("big-endian blocks have the bytes of each field reversed")
{
    for (uint32_t id = 0; id < QUANT_N_TYPES; id++) {
        const struct quant_type *t = quant_find(id);
        struct quant_fault fault;
        for (size_t i = 0; i < 3u * QUANT_MAX_BLOCK_LEN; i++)
            values[i] = (float)((int)(i * 37 % 101) - 50);
        if (!quant_can_encode(t, true)) {
            const int r = quant_encode(t, true, values, 3, raw, golden_needed(t), &fault);
            CU_ASSERT_TRUE(r == -EOPNOTSUPP && fault.element == 0);
            continue;
        }
        CU_ASSERT_EQUAL(encoded(id, 3, 0), 0);
        CU_ASSERT_EQUAL(quant_encode(t, true, values, 3, more, golden_needed(t), &fault), 0);
        for (size_t i = 0; i < 3u * t->swap_count; i++) {
            uint8_t *p = raw + i % 3 * t->block_bytes + t->swap_at[i / 3];
            put_uint(p, get_uint(p, t->swap_width, false), t->swap_width, true);
        }
        CU_ASSERT_EQUAL(memcmp(raw, more, 3u * t->block_bytes), 0);
    }
}

/* SPDX-License-Identifier: MIT */
/* quant: encoding values to blocks, with golden data and with values that must be refused; writing
 * new values over old blocks; converting blocks of one type to another, also those whose values
 * float32 cannot represent; importances, with errors compared to those of ggml's quantisers. */
#include "cu_test.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include "base/bytes.h"
#include "golden.h"
#include "quant/encode.h"
#include "quant/f16.h"
#include "quant/quant.h"
#include "quant/set.h"
#include "quant/types.h"

enum { MOST_BLOCKS = 64, MOST_VALUES = 1 << 16, COLUMNS = 4096 };

static float values[MOST_VALUES], back[MOST_VALUES];
static uint8_t raw[MOST_VALUES * 2], more[MOST_VALUES * 2];

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

/* ==== writing over old blocks ==== */

static uint8_t stream[MOST_BLOCKS * QUANT_MAX_BLOCK_LEN * 4 + 1];

/* Return how many blocks of a type fit in the buffers. Small blocks are processed in several
 * steps. */
static size_t blocks_of(const struct quant_type *t)
{
    const size_t by_len = MOST_BLOCKS * QUANT_MAX_BLOCK_LEN / t->block_len;
    const size_t by_bytes = MOST_BLOCKS * QUANT_MAX_BLOCK_BYTES / t->block_bytes;
    return by_len < by_bytes ? by_len : by_bytes;
}

/* Called for each type with values, in each byte order and for each view. */
typedef void each_fn(const struct quant_type *t, bool big, const struct quant_form *view);

static void for_each_view(each_fn *fn)
{
    static const struct quant_form *const form[] = {&quant_f32, &quant_f16, &quant_bf16};
    for (uint32_t id = 0; id < QUANT_N_TYPES; id++)
        for (unsigned k = 0; k < 6; k++)
            if (quant_has_values(quant_find(id), k & 1))
                fn(quant_find(id), k & 1, form[k / 2]);
}

/* If values are written back unchanged, in place or to another buffer, with or without importances,
 * no block changes, not even one with NaNs or with codes that no encoder produces. */
static void write_back(const struct quant_type *t, bool big, const struct quant_form *view)
{
    static const float importances[QUANT_MAX_BLOCK_LEN] = {1, 0, 9};
    const struct quant_importances imp = {importances, QUANT_MAX_BLOCK_LEN, UINT64_MAX, 0};
    const size_t n = blocks_of(t), odd = t->id % 2, size = n * t->block_bytes;
    struct quant_fault fault;
    static uint8_t first[sizeof(raw)];
    golden_bytes(first, size, t->id + 100u);
    quant_read(view, t, big, first, 0, n * t->block_len * view->width, stream + odd);
    for (unsigned how = 0; how < 4; how++) {
        uint8_t *to = how & 1 ? raw : more;
        const struct quant_importances *with = how & 2 ? &imp : NULL;
        memcpy(raw, first, size);
        memset(more, 0xa5, sizeof(more));
        CU_ASSERT_EQUAL(quant_write(t, big, view, raw, stream + odd, n, to, with, &fault), 0);
        CU_ASSERT_EQUAL(memcmp(to, first, size), 0);
    }
}

TEST("writing values back unchanged changes no byte")
{
    for_each_view(write_back);
}

/* Convert the values of a view to floats. */
static void widen(const struct quant_form *view, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const uint8_t *p = stream + i * view->width;
        values[i] = view == &quant_f32   ? f32_from_bits(get_u32(p, false))
                    : view == &quant_f16 ? f16_to_f32(get_u16(p, false))
                                         : bf16_to_f32(get_u16(p, false));
    }
}

/* Change values in some blocks to -2 or 2, which every view and type can hold. Only those blocks
 * are encoded again. */
static void change_some(const struct quant_type *t, bool big, const struct quant_form *view)
{
    const size_t n = blocks_of(t), width = view->width, len = t->block_len;
    const size_t at[] = {len - 1, 3 * len, 4 * len, n / 2 * len + len / 3, n * len - 1};
    struct quant_fault fault;
    golden_bytes(raw, n * t->block_bytes, t->id + 200u);
    for (size_t i = 0; i < n * t->block_bytes; i++) /* keep scales below 2 */
        raw[i] &= 0x3f;
    quant_read(view, t, big, raw, 0, n * len * width, stream);
    for (size_t k = 0; k < COUNT(at); k++) {
        uint8_t *p = stream + at[k] * width;
        const uint8_t was = p[width - 1];
        const float two = was == 0x40 ? -2 : 2;
        if (view == &quant_f32)
            put_u32(p, f32_bits(two), false);
        else
            put_u16(p, view == &quant_f16 ? f32_to_f16(two) : f32_to_bf16(two), false);
    }
    int r = quant_write(t, big, view, raw, stream, n, more, golden_needed(t), &fault);
    if (!t->encode) {
        CU_ASSERT_TRUE(r == -EOPNOTSUPP && fault.element == at[0] && fabsf(fault.value.f32) == 2);
        return;
    }
    CU_ASSERT_EQUAL(r, 0);
    widen(view, n * len);
    for (size_t k = 0; k < COUNT(at); k++) {
        const size_t block = at[k] / len;
        uint8_t *p = raw + block * t->block_bytes;
        CU_ASSERT_EQUAL(quant_encode(t, big, values + block * len, 1, p, golden_needed(t), &fault),
                        0);
    }
    CU_ASSERT_EQUAL(memcmp(raw, more, n * t->block_bytes), 0);
}

TEST("changing a value changes only its block")
{
    for_each_view(change_some);
}

/* A value that cannot be stored is reported, whether the tensor is new or not. */
static void refuse_one(const struct quant_type *t, bool big, const struct quant_form *view)
{
    const size_t n = blocks_of(t), width = view->width, at = n * t->block_len * 2 / 3;
    struct quant_fault fault = {0};
    memset(raw, 0, n * t->block_bytes);
    quant_read(view, t, big, raw, 0, n * t->block_len * width, stream);
    put_u16(stream + at * width + width - 2, view == &quant_f16 ? 0x7c00 : 0x7f80,
            false); /* infinity */
    const int want = !t->encode ? -EOPNOTSUPP : holds_any_float(t->id) ? 0 : -EDOM;
    CU_ASSERT_EQUAL(quant_write(t, big, view, raw, stream, n, more, golden_needed(t), &fault),
                    want);
    CU_ASSERT_TRUE(!want || (fault.element == at && fault.value.f32 == INFINITY));
    CU_ASSERT_EQUAL(quant_write(t, big, view, NULL, stream, n, more, golden_needed(t), &fault),
                    want);
    CU_ASSERT_TRUE(!want || fault.element == (t->encode ? at : 0));
}

TEST("a value that cannot be stored is named")
{
    for_each_view(refuse_one);
}

/* A view of the same format preserves every 16-bit pattern of F16 and BF16. */
TEST("values in the format of the type are stored unchanged")
{
    static uint8_t all[2 * 65536], swapped[2 * 65536], got[2 * 65536];
    struct quant_fault fault;
    for (unsigned i = 0; i < 65536; i++) {
        put_u16(all + 2 * i, (uint16_t)i, false);
        put_u16(swapped + 2 * i, (uint16_t)i, true);
    }
    for (unsigned k = 0; k < 4; k++) {
        const struct quant_type *t = quant_find(k & 1 ? F16_ID : BF16_ID);
        const struct quant_form *view = k & 1 ? &quant_f16 : &quant_bf16;
        CU_ASSERT_EQUAL(
            quant_write(t, k & 2, view, NULL, all, 65536, got, golden_needed(t), &fault), 0);
        CU_ASSERT_EQUAL(memcmp(got, k & 2 ? swapped : all, sizeof(got)), 0);
    }
}

/* ==== conversions ==== */

/* N is more elements than one step converts; AT is an element of the second step. */
enum { N = 2048, AT = 1500 };

static uint8_t from[N * 8], to[N * 8], want[N * 8];

/* A value: `i` for integer types, `d` for all others. */
struct number {
    int64_t i;
    double d;
};

static void put_number(uint8_t *p, const struct quant_type *t, bool big, struct number x)
{
    uint64_t bits = (uint64_t)x.i;
    if (t->id == F64_ID)
        memcpy(&bits, &x.d, sizeof(bits));
    else if (t->id == F32_ID)
        bits = f32_bits((float)x.d);
    else if (t->id == F16_ID)
        bits = f32_to_f16((float)x.d);
    else if (t->id == BF16_ID)
        bits = f32_to_bf16((float)x.d);
    put_uint(p, bits, t->block_bytes, big);
}

/* A conversion, and its expected result or error. */
struct row {
    uint32_t from, to;
    struct number in, out;
    int code;
};

#define I(x)     \
    {            \
        .i = (x) \
    }
#define D(x)     \
    {            \
        .d = (x) \
    }

static const struct row held[] = {
    {I32_ID, I64_ID, I(16777217), I(16777217), 0},
    {I32_ID, I64_ID, I(INT32_MAX), I(INT32_MAX), 0},
    {I32_ID, I64_ID, I(INT32_MIN), I(INT32_MIN), 0},
    {I32_ID, I16_ID, I(-32768), I(-32768), 0},
    {I32_ID, I8_ID, I(127), I(127), 0},
    {I32_ID, F64_ID, I(2147483647), D(2147483647), 0},
    {I64_ID, I32_ID, I(-16777217), I(-16777217), 0},
    {I64_ID, I32_ID, I(INT32_MAX), I(INT32_MAX), 0},
    {I64_ID, I8_ID, I(-128), I(-128), 0},
    {I64_ID, F64_ID, I(9007199254740991), D(9007199254740991), 0},
    {I64_ID, F64_ID, I(INT64_MIN), D(-0x1p63), 0},
    {F64_ID, I64_ID, D(9007199254740991), I(9007199254740991), 0},
    {F64_ID, I64_ID, D(-0x1p63), I(INT64_MIN), 0},
    {F64_ID, I32_ID, D(16777217), I(16777217), 0},
    {F64_ID, I16_ID, D(-0.0), I(0), 0},
    {F64_ID, I8_ID, D(-128), I(-128), 0},
    /* These values are rounded only once, and infinities stay infinite. */
    {I32_ID, F32_ID, I(16777219), D(16777220), 0},
    {I64_ID, F32_ID, I(0x4000004000000001), D(0x4.000008p60), 0},
    {I64_ID, BF16_ID, I(INT64_MAX), D(0x1p63), 0},
    {I64_ID, F64_ID, I(9007199254740993), D(9007199254740992), 0},
    {I64_ID, F64_ID, I(-9007199254740995), D(-9007199254740996), 0},
    {I64_ID, F64_ID, I(INT64_MAX), D(0x1p63), 0},
    {F64_ID, F32_ID, D(0x1.0000010000001p0), D(0x1.000002p0), 0},
    {F64_ID, F32_ID, D(0x1.fffffeffffffp127), D(0x1.fffffep127), 0},
    {F64_ID, F32_ID, D(1e-300), D(0), 0},
    {F64_ID, F32_ID, D(-INFINITY), D(-INFINITY), 0},
    {F64_ID, F16_ID, D(65504), D(65504), 0},
    {F64_ID, BF16_ID, D(INFINITY), D(INFINITY), 0},
};

static const struct row refused[] = {
    {I32_ID, I16_ID, I(32768), I(0), -ERANGE},
    {I32_ID, I8_ID, I(-129), I(0), -ERANGE},
    {I32_ID, F16_ID, I(65520), I(0), -ERANGE},
    {I64_ID, I32_ID, I(2147483648), I(0), -ERANGE},
    {I64_ID, I32_ID, I(INT64_MIN), I(0), -ERANGE},
    {F64_ID, I64_ID, D(0x1p63), I(0), -ERANGE},
    {F64_ID, I64_ID, D(-1e300), I(0), -ERANGE},
    {F64_ID, I64_ID, D(0.5), I(0), -ERANGE},
    {F64_ID, I32_ID, D(16777217.5), I(0), -ERANGE},
    {F64_ID, I32_ID, D(2147483648), I(0), -ERANGE},
    {F64_ID, I8_ID, D(1e-300), I(0), -ERANGE},
    {F64_ID, I32_ID, D(INFINITY), I(0), -EDOM},
    {F64_ID, I64_ID, D(NAN), I(0), -EDOM},
    {F64_ID, F32_ID, D(1e300), I(0), -ERANGE},
    {F64_ID, F32_ID, D(-0x1.ffffffp127), I(0), -ERANGE},
    {F64_ID, F16_ID, D(-1e39), I(0), -ERANGE},
    {F64_ID, F16_ID, D(65520.25), I(0), -ERANGE},
    {F64_ID, BF16_ID, D(1e300), I(0), -ERANGE},
    {F64_ID, Q8_0_ID, D(1e300), I(0), -ERANGE},
    {F64_ID, Q8_0_ID, D(1e30), I(0), -ERANGE},
    {F64_ID, Q4_K_ID, D(-1e39), I(0), -ERANGE},
    {F64_ID, Q8_0_ID, D(NAN), I(0), -EDOM},
};

/* Convert a tensor that is zero except for a row's value, and return the result. */
static int converted(const struct row *r, bool big, struct quant_fault *fault)
{
    const struct quant_type *t = quant_find(r->from);
    memset(from, 0, sizeof(from));
    put_number(from + (size_t)AT * t->block_bytes, t, big, r->in);
    return quant_convert(t, quant_find(r->to), big, from, N, to, golden_needed(quant_find(r->to)),
                         fault);
}

TEST("values that the new type can hold are kept")
{
    for (size_t i = 0; i < 2 * COUNT(held); i++) {
        const struct row *r = &held[i / 2];
        const struct quant_type *t = quant_find(r->to);
        const bool big = i % 2;
        struct quant_fault fault;
        memset(to, 0xa5, sizeof(to));
        memset(want, 0, sizeof(want));
        put_number(want + (size_t)AT * t->block_bytes, t, big, r->out);
        CU_ASSERT_EQUAL(converted(r, big, &fault), 0);
        CU_ASSERT_EQUAL(memcmp(to, want, (size_t)N * t->block_bytes), 0);
    }
}

/* The fault reports the element and its exact value. */
TEST("values that the new type cannot hold are named")
{
    for (size_t i = 0; i < 2 * COUNT(refused); i++) {
        const struct row *r = &refused[i / 2];
        struct quant_fault fault = {.element = UINT64_MAX};
        CU_ASSERT_EQUAL(converted(r, i % 2, &fault), r->code);
        CU_ASSERT_EQUAL(fault.element, AT);
        CU_ASSERT_EQUAL(fault.value.kind, r->from == F64_ID ? QUANT_DOUBLE : QUANT_INTEGER);
        CU_ASSERT_TRUE(r->from == F64_ID ? fault.value.f64 == r->in.d || isnan(r->in.d)
                                         : fault.value.i64 == r->in.i);
    }
}

/* If several values cannot be stored, the first one is reported, even if a later one fails with a
 * different error. */
TEST("the first of several values that do not fit is named")
{
    static const uint32_t ids[] = {I32_ID, F32_ID, Q8_0_ID};
    const struct quant_type *t = quant_find(F64_ID);
    for (size_t k = 0; k < 2 * COUNT(ids); k++) {
        struct quant_fault fault;
        const bool nan_first = k % 2 && ids[k / 2] != F32_ID; /* F32 can hold a NaN */
        memset(from, 0, sizeof(from));
        put_number(from + 100 * 8, t, false, (struct number)D(k % 2 ? NAN : 1e300));
        put_number(from + 200 * 8, t, false, (struct number)D(k % 2 ? 1e300 : NAN));
        CU_ASSERT_EQUAL(quant_convert(t, quant_find(ids[k / 2]), false, from, N, to, NULL, &fault),
                        nan_first ? -EDOM : -ERANGE);
        CU_ASSERT_EQUAL(fault.element, k % 2 && !nan_first ? 200 : 100);
    }
}

/* Small integers give the same blocks whether they are converted or encoded. */
TEST("small numbers convert to every type")
{
    for (size_t i = 0; i < N; i++)
        values[i] = (float)((int)(i * 7 % 255) - 127);
    for (uint32_t k = 0; k < QUANT_N_TYPES * 8u; k++) {
        static const uint32_t sources[] = {I16_ID, I32_ID, I64_ID, F64_ID};
        const struct quant_type *s = quant_find(sources[k % 4]), *t = quant_find(k / 8);
        const bool big = k / 4 % 2;
        struct quant_fault fault;
        if (!quant_can_encode(t, big))
            continue;
        CU_ASSERT_EQUAL(quant_encode(s, big, values, N, from, golden_needed(s), &fault), 0);
        CU_ASSERT_EQUAL(
            quant_encode(t, big, values, N / t->block_len, want, golden_needed(t), &fault), 0);
        CU_ASSERT_EQUAL(quant_convert(s, t, big, from, N, to, golden_needed(t), &fault), 0);
        CU_ASSERT_EQUAL(memcmp(to, want, (size_t)N / t->block_len * t->block_bytes), 0);
    }
}

/* ==== importances ==== */

static float importances[COLUMNS];

static const uint32_t points[] = {IQ2_XXS_ID, IQ2_XS_ID, IQ2_S_ID, IQ3_XXS_ID,
                                  IQ3_S_ID,   IQ1_S_ID,  IQ1_M_ID};

static bool is_point(uint32_t id)
{
    bool is = false;
    for (size_t i = 0; i < COUNT(points); i++)
        is |= points[i] == id;
    return is;
}

/* Hash floats as little-endian bytes. */
static uint64_t hash_of(const float *f, size_t n)
{
    (void)memcpy(back, f, n * sizeof(float));
    (void)golden_canon(back, n);
    return golden_hash(back, n * sizeof(float));
}

/* The error of each row is at most 1.01 times the reference's. For IQ1 to IQ3, the mean ratio per
 * type is at most 0.96. */
TEST("errors are close to the reference's")
{
    double sum[QUANT_N_TYPES] = {0};
    unsigned n[QUANT_N_TYPES] = {0};
    for (size_t i = 0; i < n_golden_weighed; i++) {
        const struct golden_weighed *g = &golden_weighed[i];
        const size_t all = (size_t)g->rows * g->columns;
        if (quant_find(g->id)->weighs == QUANT_IGNORES)
            continue;
        golden_table(g, values, importances);
        CU_ASSERT_EQUAL(hash_of(values, all), g->f32_hash);
        CU_ASSERT_TRUE(!g->importances || hash_of(importances, g->columns) == g->importances_hash);
        const double error = golden_weighed_error(g, quant_find(g->id), values, importances);
        CU_ASSERT_TRUE(error > 0 && error <= 1.01 * g->error);
        if (!(error > 0 && error <= 1.01 * g->error))
            (void)printf("%s, seed %llu: %.4f of the reference\n", quant_find(g->id)->name,
                         (unsigned long long)g->seed, error / g->error);
        sum[g->id] += g->importances ? error / g->error : 0;
        n[g->id] += g->importances != 0;
    }
    for (uint32_t id = 0; id < QUANT_N_TYPES; id++) {
        CU_ASSERT_EQUAL(n[id] > 0, quant_find(id)->weighs != QUANT_IGNORES);
        CU_ASSERT_TRUE(!is_point(id) || sum[id] / n[id] <= 0.96);
        if (n[id])
            (void)printf("%s %.3f, ", quant_find(id)->name, sum[id] / n[id]);
    }
}

/* All machines must produce the same bytes. After changing a search, copy the test's output here
 * and check it with scripts/test-arch. */
TEST("all machines produce the same bytes")
{
    static const struct {
        uint32_t id;
        uint64_t hash;
    } rows[] = {
        {Q4_0_ID, 0x041597847ada41f3},   {Q4_1_ID, 0x284be362397bf8f6},
        {Q5_0_ID, 0x9edffc407cdc6700},   {Q5_1_ID, 0x4c3dfa8a0f9af36e},
        {Q2_K_ID, 0x78dd4ca35bf90b14},   {Q3_K_ID, 0x181e902d7f39dab2},
        {Q4_K_ID, 0xc40ebd44b4089f0f},   {Q5_K_ID, 0xfb7e1a1bae01c0b0},
        {Q6_K_ID, 0x3dc6614fad3d3608},   {IQ2_XXS_ID, 0x2dd1889d204d378d},
        {IQ2_XS_ID, 0x8b3d4a2c1a430e4d}, {IQ3_XXS_ID, 0x0ae80252cfcae22e},
        {IQ1_S_ID, 0x802b5f461c3de8e1},  {IQ4_NL_ID, 0xebf22bb85a741421},
        {IQ3_S_ID, 0x61e67c46480a8345},  {IQ2_S_ID, 0x24c269c387a9a30f},
        {IQ4_XS_ID, 0xf72b8fbb65f629c3}, {IQ1_M_ID, 0x1d90f33cb0543608},
    };
    const size_t n = 16 * 1024;
    for (size_t k = 0; k < COUNT(rows); k++) {
        const struct quant_type *t = quant_find(rows[k].id);
        const struct golden_weighed g = {t->id, OUTLIERS, 77 + t->id, 16, 1024, 99, 0, 0, 0};
        golden_table(&g, values, importances);
        for (size_t r = 0; r < g.rows; r++)
            (void)t->encode(values + r * g.columns, importances, g.columns / t->block_len,
                            raw + r * g.columns / t->block_len * t->block_bytes);
        const uint64_t hash = golden_hash(raw, n / t->block_len * t->block_bytes);
        CU_ASSERT_EQUAL(hash, rows[k].hash);
        if (hash != rows[k].hash)
            (void)printf("{%s_ID, 0x%016llx},\n", t->name, (unsigned long long)hash);
    }
}

/* Generate n blocks of weights like those of a model. */
static void fill_weighed(size_t n)
{
    golden_values(values, n, 0, GAUSSIAN, 5);
    for (size_t i = 0; i < COLUMNS; i++)
        importances[i] = (float)(i * 37 % 101 + 1);
}

static void encode_weighed(const struct quant_type *t, size_t n, const float *weight, uint8_t *dst)
{
    CU_ASSERT_EQUAL(t->encode(values, weight, n / t->block_len, dst), n / t->block_len);
    t->decode(dst, n / t->block_len, back);
}

/* Encode zeros, and values of every magnitude that the type's scale can express. */
TEST("values of every magnitude are encoded")
{
    for (uint32_t id = 0; id < QUANT_N_TYPES; id++) {
        const struct quant_type *t = quant_find(id);
        if (t->weighs == QUANT_IGNORES)
            continue;
        fill_weighed(256);
        memset(values, 0, sizeof(values[0]) * 256);
        encode_weighed(t, 256, importances, raw);
        for (size_t i = 0; i < 256; i++) {
            CU_ASSERT_EQUAL(back[i], 0);
            importances[i] = 1;
        }
        for (int e = -120; e < 128; e++) {
            struct quant_fault fault;
            const struct quant_importances imp = {importances, 256, 256, 0};
            golden_values(values, 256, 0, UNIFORM, 3);
            for (size_t i = 0; i < 256; i++)
                values[i] = ldexpf(values[i], e);
            const int r = quant_encode(t, false, values, 256 / t->block_len, raw, &imp, &fault);
            CU_ASSERT_TRUE(r == 0 || (r == -ERANGE && e > 14));
            if (r == 0)
                t->decode(raw, 256 / t->block_len, back);
            CU_ASSERT_TRUE(r || quant_all_finite((const uint8_t *)back, 256));
            const double error = golden_error(values, back, 256, NULL, 1);
            CU_ASSERT_TRUE(r || error <= (e < -12 ? 1.0001 : is_point(t->id) ? 0.6 : 0.45));
            CU_ASSERT_TRUE(r || e < -14 || error < 0.99);
        }
    }
}

/* Types that need importances fail without them. Each matrix has its own importances. */
TEST("rows and matrices have their own importances")
{
    struct quant_fault fault;
    fill_weighed(2048);
    const struct quant_importances imp = {importances, 256, 512, 256};
    for (uint32_t id = 0; id < QUANT_N_TYPES; id++) {
        const struct quant_type *t = quant_find(id);
        if (t->weighs == QUANT_IGNORES)
            continue;
        const size_t n = 256u / t->block_len, bytes = n * t->block_bytes;
        const int r = quant_encode(t, false, values, n, raw, NULL, &fault);
        CU_ASSERT_EQUAL(r, t->weighs == QUANT_NEEDS ? -EOPNOTSUPP : 0);
        CU_ASSERT_TRUE(r == 0 || fault.element == 0);
        /* Encoding begins at element 256, the second row of the first matrix, and continues with
         * the two rows of each of the next two matrices. */
        CU_ASSERT_EQUAL(quant_encode(t, false, values, 5 * n, raw, &imp, &fault), 0);
        for (size_t b = 0; b < 5; b++) {
            const size_t matrix = (256 + b * 256) / 512;
            (void)t->encode(values + b * 256, importances + matrix * 256, n, more);
            CU_ASSERT_EQUAL(memcmp(raw + b * bytes, more, bytes), 0);
        }
    }
}

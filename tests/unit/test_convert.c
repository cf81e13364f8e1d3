/* SPDX-License-Identifier: MIT */
/* quant: converting blocks of one type to another, especially types whose values float32 cannot
 * represent. */
#include "cu_test.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/bytes.h"
#include "golden.h"
#include "quant/encode.h"
#include "quant/f16.h"
#include "quant/quant.h"
#include "quant/types.h"

/* N is more elements than one step converts; AT is an element of the second step. */
enum { N = 2048, AT = 1500 };

static uint8_t from[N * 8], to[N * 8], want[N * 8];
static float values[N];

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

/* SPDX-License-Identifier: MIT */
/* quant: writing new values over old blocks through a view. */
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

enum { MOST_BLOCKS = 64 };

static float values[MOST_BLOCKS * QUANT_MAX_BLOCK_LEN];
static uint8_t raw[MOST_BLOCKS * QUANT_MAX_BLOCK_BYTES], more[MOST_BLOCKS * QUANT_MAX_BLOCK_BYTES];
static uint8_t stream[MOST_BLOCKS * QUANT_MAX_BLOCK_LEN * 4 + 1];

/* Return how many blocks of a type fit in the buffers. Small blocks are processed in several
 * steps. */
static size_t blocks_of(const struct quant_type *t)
{
    const size_t by_len = COUNT(values) / t->block_len;
    const size_t by_bytes = sizeof(raw) / t->block_bytes;
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

static bool holds_any_float(uint32_t id)
{
    return id == F32_ID || id == F16_ID || id == BF16_ID || id == F64_ID;
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

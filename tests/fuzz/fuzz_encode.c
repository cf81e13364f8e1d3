/* SPDX-License-Identifier: MIT */
/*
 * Treats arbitrary bytes as values. The first bytes choose a type, a byte order, a view and a
 * second type; the rest are blocks of the tensor, then new values for these blocks. Values must be
 * encoded or refused: encoded values are finite unless the type can hold non-finite ones, and a
 * refusal names the refused value. Unchanged values leave the bytes unchanged, in any type. The
 * blocks are also converted to the second type, or refused. All kernel sets must give the same
 * result.
 */
#include "fuzz.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/bytes.h"
#include "quant/encode.h"
#include "quant/set.h"
#include "quant/quant.h"

enum { HEAD = 3, MOST_BLOCKS = 40 };
enum { RAW_ROOM = MOST_BLOCKS * QUANT_MAX_BLOCK_BYTES };
enum { STREAM_ROOM = MOST_BLOCKS * QUANT_MAX_BLOCK_LEN * 4 };

struct tensor {
    const struct quant_type *type;
    bool big;
    enum quant_view view;
    size_t n; /* number of blocks */
    uint8_t raw[RAW_ROOM];
    uint8_t stream[STREAM_ROOM];
};

static const struct view {
    unsigned width;
    void (*read)(const struct quant_type *t, bool big, const uint8_t *data, uint64_t off, size_t n,
                 void *dst);
} views[] = {{4, quant_read_f32}, {2, quant_read_f16}, {2, quant_read_bf16}};

static bool holds_any(const struct quant_type *t)
{
    return strcmp(t->name, "F32") == 0 || strcmp(t->name, "F16") == 0 ||
           strcmp(t->name, "BF16") == 0 || strcmp(t->name, "F64") == 0;
}

static bool is_integer(const struct quant_type *t)
{
    return t->block_len == 1 && t->name[0] == 'I';
}

static void check_fault(const struct tensor *t, int r, const struct quant_fault *f)
{
    const size_t values = t->n * t->type->block_len;
    FUZZ_CHECK(r == -EDOM || r == -ERANGE || r == -EOPNOTSUPP);
    FUZZ_CHECK(f->element < values);
    FUZZ_CHECK(r != -EDOM || !(isfinite(f->value.f32) || holds_any(t->type)));
    FUZZ_CHECK(r != -ERANGE || isfinite(f->value.f32));
    FUZZ_CHECK((r == -EOPNOTSUPP) == !t->type->encode);
}

/* Make importances from the old blocks, so that they are as arbitrary as the blocks. */
static const struct quant_importances *importances(const struct tensor *t)
{
    static float of[QUANT_MAX_BLOCK_LEN];
    static const struct quant_importances imp = {of, QUANT_MAX_BLOCK_LEN, UINT64_MAX, 0};
    for (size_t i = 0; i < QUANT_MAX_BLOCK_LEN; i++)
        of[i] = ldexpf(t->raw[i] & 15, (t->raw[i] >> 4) * 16 - 128);
    return &imp;
}

/* Write the stream over the blocks. Returns the result, and the blocks in dst. */
static int write_with(struct tensor *t, const struct quant_set *set, uint8_t *dst,
                      struct quant_fault *f)
{
    quant_use(set);
    t->type = quant_find(t->type->id);
    memset(dst, 0, RAW_ROOM);
    return quant_write(t->type, t->big, t->view, t->raw, t->stream, t->n, dst, importances(t), f);
}

static void check_write(struct tensor *t)
{
    static uint8_t one[RAW_ROOM], other[RAW_ROOM];
    static float values[MOST_BLOCKS * QUANT_MAX_BLOCK_LEN];
    struct quant_fault f, g;
    const int r = write_with(t, quant_set_at(0), one, &f);
    for (size_t s = 1; quant_set_at(s); s++) {
        FUZZ_CHECK(write_with(t, quant_set_at(s), other, &g) == r);
        FUZZ_CHECK(r ? f.element == g.element : memcmp(one, other, RAW_ROOM) == 0);
    }
    if (r) {
        check_fault(t, r, &f);
        return;
    }
    if (!t->type->encode ||
        quant_write(t->type, t->big, t->view, NULL, t->stream, t->n, one, importances(t), &f))
        return;
    t->type->decode(one, t->n, values); /* meaningless values if the tensor is big-endian */
    for (size_t i = 0; i < t->n * t->type->block_len && !t->big; i++)
        FUZZ_CHECK(isfinite(values[i]) || holds_any(t->type));
}

static void check_unchanged(struct tensor *t)
{
    static uint8_t same[RAW_ROOM];
    struct quant_fault f;
    quant_use(quant_set_at(0)); /* the bits of a computed NaN depend on the set */
    t->type = quant_find(t->type->id);
    views[t->view].read(t->type, t->big, t->raw, 0,
                        t->n * t->type->block_len * views[t->view].width, t->stream);
    FUZZ_CHECK(write_with(t, quant_set_at(0), same, &f) == 0);
    FUZZ_CHECK(memcmp(same, t->raw, t->n * t->type->block_bytes) == 0);
}

/* Convert the blocks to a different type. Integers that fit F64 must survive the round trip
 * unchanged. */
static void check_convert(struct tensor *t, uint32_t id)
{
    static uint8_t made[STREAM_ROOM * 2], other[STREAM_ROOM * 2], back[RAW_ROOM];
    const size_t n = t->n * t->type->block_len;
    struct quant_fault f, g;
    const struct quant_type *to = quant_find(id);
    if (!quant_can_encode(to, t->big) || n % to->block_len)
        return;
    quant_use(quant_set_at(0));
    const int r = quant_convert(t->type, to, t->big, t->raw, n, made, importances(t), &f);
    FUZZ_CHECK(r == 0 || ((r == -EDOM || r == -ERANGE) && f.element < n));
    for (size_t s = 1; quant_set_at(s); s++) {
        quant_use(quant_set_at(s));
        t->type = quant_find(t->type->id);
        to = quant_find(id);
        FUZZ_CHECK(quant_convert(t->type, to, t->big, t->raw, n, other, importances(t), &g) == r);
        FUZZ_CHECK(r == 0 || f.element == g.element);
    }
    if (r == 0 && is_integer(t->type) && strcmp(to->name, "F64") == 0) {
        FUZZ_CHECK(quant_convert(to, t->type, t->big, made, n, back, NULL, &f) == 0);
        FUZZ_CHECK(memcmp(back, t->raw, n * t->type->block_bytes) == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct tensor t;
    if (size < HEAD)
        return 0;
    quant_use(quant_set_at(0));
    memset(&t, 0, sizeof(t));
    t.type = quant_find(data[0] % 64);
    t.big = data[1] & 1;
    t.view = (enum quant_view)(data[2] % 3);
    const uint32_t to = data[2] / 3 % 64;
    if (!quant_has_values(t.type, t.big))
        return 0;
    const size_t raw = t.type->block_bytes, of_values = t.type->block_len * views[t.view].width;
    data += HEAD;
    size -= HEAD;
    t.n = size / (raw + of_values) < MOST_BLOCKS ? size / (raw + of_values) : MOST_BLOCKS;
    memcpy(t.raw, data, t.n * raw);
    memcpy(t.stream, data + t.n * raw, t.n * of_values);
    check_convert(&t, to);
    check_write(&t);
    check_unchanged(&t);
    return 0;
}

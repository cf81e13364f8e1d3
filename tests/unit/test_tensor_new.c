/* SPDX-License-Identifier: MIT */
/* New tensors, judged from all their files: those that count, are ignored, or are missing. Also
 * conversions between types. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "live/tensor_judge.h"
#include "quant/encode.h"
#include "quant/types.h"
#include "tensor_dir.h"

/* A new, incomplete tensor in the directory of a model. */
struct making {
    struct tensor_dir x;
    struct tensor_base *none;
    struct tensor_new t;
};

static void making_begin(struct making *m, bool big)
{
    memset(m, 0, sizeof(*m));
    tensor_dir_make(&m->x, F32, big, SHAPE(4), NULL);
    CU_ASSERT_EQUAL_FATAL(tensor_base_none(big, &m->none), 0);
}

static void making_end(struct making *m)
{
    for (size_t i = 0; i < TENSOR_VIEWS; i++)
        draft_free(m->t.draft[i]);
    tensor_base_unref(m->none);
    tensor_dir_free(&m->x);
}

static void give(struct making *m, enum tensor_view view, const void *bytes, size_t n)
{
    struct err e = {0};
    if (!m->t.draft[view])
        CU_ASSERT_EQUAL_FATAL(tensor_draft_make(&m->x.logs, m->none, view, &m->t.draft[view], &e),
                              0);
    CU_ASSERT_EQUAL_FATAL(tensor_draft_truncate(m->t.draft[view], 0, &e), 0);
    CU_ASSERT_EQUAL_FATAL(tensor_draft_write(m->t.draft[view], false, 0, bytes, n, &e), 0);
}

static void give_type(struct making *m, const char *name)
{
    m->t.has_type = true;
    CU_ASSERT_EQUAL_FATAL(tensor_type_parse(name, strlen(name), &m->t.type, NULL), 0);
}

static void give_shape(struct making *m, const char *text)
{
    m->t.has_shape = true;
    CU_ASSERT_EQUAL_FATAL(tensor_shape_parse(text, strlen(text), &m->t.shape, NULL), 0);
}

/* Write n small values, from `first` on, as the bytes of a view, after its header if it has one. */
static size_t values(uint8_t *dst, const char *descr, const uint64_t *dims, uint32_t n_dims,
                     unsigned width, float first)
{
    struct buf b = BUF_INIT;
    uint64_t n = 1;
    for (uint32_t i = 0; i < n_dims; i++)
        n *= dims[i];
    size_t at = descr ? npy_header(&b, descr, n_dims, dims) : 0;
    memcpy(dst, b.data ? b.data : dst, at);
    buf_free(&b);
    for (uint64_t i = 0; i < n; i++, at += width) {
        float v = first + (float)(i % 61);
        uint16_t half;
        uint32_t bits;
        memcpy(&bits, &v, 4);
        quant_f32_to_f16(&v, 1, &half);
        put_uint(dst + at, width == 4 ? bits : half, width, false);
    }
    return at;
}

static void judged(struct making *m, int want, const char *line)
{
    struct tensor_edit edit = TENSOR_EDIT_INIT;
    struct err e = {0};
    int r = tensor_new_judge(&m->t, NULL, &edit, &e);
    if (r != want || !strstr(e.msg, line))
        (void)printf("\n%d, not %d: %s\n", r, want, e.msg);
    CU_ASSERT_EQUAL(r, want);
    CU_ASSERT_PTR_NOT_NULL(strstr(e.msg, line));
    tensor_edit_free(&edit);
}

/* Check that the tensor is complete and has this type, shape and content. */
static void whole(struct making *m, uint32_t type, uint64_t rows, const uint8_t *raw, size_t n)
{
    struct tensor_edit edit = TENSOR_EDIT_INIT;
    struct err e = {0};
    size_t got;
    int r = tensor_new_judge(&m->t, NULL, &edit, &e);
    if (r != TENSOR_CHANGED)
        (void)printf("\n%d: %s\n", r, e.msg);
    CU_ASSERT_EQUAL_FATAL(r, TENSOR_CHANGED);
    CU_ASSERT_TRUE(edit.shaped && edit.whole);
    CU_ASSERT_EQUAL(edit.shape.type, type);
    CU_ASSERT_EQUAL(edit.shape.dims[edit.shape.n_dims - 1], rows);
    struct tensor_base *now = tensor_dir_after(&m->x, m->none, &edit);
    uint8_t *bytes = tensor_dir_bytes(now, TENSOR_RAW, &got);
    CU_ASSERT_EQUAL(got, n);
    CU_ASSERT_EQUAL(memcmp(bytes, raw, n), 0);
    free(bytes);
    tensor_base_unref(now);
    tensor_edit_free(&edit);
}

static void encoded(uint8_t *dst, uint32_t type, bool big, const uint8_t *f32, size_t n)
{
    struct quant_fault fault;
    const struct quant_type *t = quant_find(type);
    CU_ASSERT_EQUAL(quant_write(t, big, QUANT_F32, NULL, f32, n / t->block_len, dst, NULL, &fault),
                    0);
}

static uint8_t room[65536], raw[65536];

/* `raw`, `type` and `shape` are written in any order; values are ignored. */
static void test_raw(void)
{
    struct making m;
    memset(raw, 0x55, sizeof(raw));
    for (int order = 0; order < 6; order++) {
        static const char orders[6][4] = {"rts", "rst", "trs", "tsr", "srt", "str"};
        making_begin(&m, order % 2);
        judged(&m, TENSOR_SHORT, "still needs type, shape, and raw or values");
        size_t n = values(room, "<f4", SHAPE(64, 3), 4, 0);
        for (int i = 0; i < 3; i++) {
            if (orders[order][i] == 'r')
                give(&m, TENSOR_RAW, raw, 6 * 34);
            if (orders[order][i] == 't')
                give_type(&m, "Q8_0");
            if (orders[order][i] == 's')
                give_shape(&m, "3 64");
            if (i == 2)
                break;
            if (m.t.draft[TENSOR_RAW])
                give(&m, TENSOR_F32_NPY, room, n); /* would be enough if there were no raw */
            judged(&m, TENSOR_SHORT, "still needs");
        }
        whole(&m, Q8_0_ID, 3, raw, 6 * 34);
        making_end(&m);
    }
}

/* Check the whole content of the draft. */
static void shows(struct draft *d, const uint8_t *want, size_t n)
{
    size_t got = 0;
    uint8_t *bytes = malloc(n + 1);
    CU_ASSERT_EQUAL(tensor_draft_read(d, 0, bytes, n + 1, &got), 0);
    CU_ASSERT_EQUAL(got, n);
    CU_ASSERT_EQUAL(memcmp(bytes, want, n), 0);
    free(bytes);
}

/* Write n bytes of `raw`: first those from `at` on, then byte 0. The others are zeros. The draft
 * keeps all its bytes for the next edit. */
static void sparse_raw(uint64_t n, uint64_t at)
{
    struct making m;
    char shape[32];
    uint8_t *want = calloc(1, (size_t)n);
    (void)snprintf(shape, sizeof(shape), "%llu", (unsigned long long)n);
    memset(want + at, 0x77, (size_t)(n - at));
    want[0] = 0x11;
    making_begin(&m, false);
    give_type(&m, "I8");
    give_shape(&m, shape);
    CU_ASSERT_EQUAL_FATAL(
        tensor_draft_make(&m.x.logs, m.none, TENSOR_RAW, &m.t.draft[TENSOR_RAW], NULL), 0);
    struct draft *d = m.t.draft[TENSOR_RAW];
    CU_ASSERT_EQUAL(tensor_draft_truncate(d, n, NULL), 0);
    CU_ASSERT_EQUAL(tensor_draft_write(d, false, at, want + at, (size_t)(n - at), NULL), 0);
    CU_ASSERT_EQUAL(tensor_draft_write(d, false, 0, want, 1, NULL), 0);
    whole(&m, I8_ID, n, want, (size_t)n);
    shows(d, want, (size_t)n);
    want[n / 2 + 1] = 0x22;
    CU_ASSERT_EQUAL(tensor_draft_write(d, false, n / 2 + 1, want + n / 2 + 1, 1, NULL), 0);
    whole(&m, I8_ID, n, want, (size_t)n);
    shows(d, want, (size_t)n);
    making_end(&m);
    free(want);
}

static void test_sparse_raw(void)
{
    static const uint64_t sizes[] = {5, 4096, 4097, 65536, 65537, 300000};
    for (size_t i = 0; i < COUNT(sizes); i++) {
        uint64_t n = sizes[i];
        sparse_raw(n, n - 1);
        sparse_raw(n, n / 2);
    }
}

/* The disk is full when a hole in `raw` is stored. */
static void test_sparse_full(void)
{
    struct making m;
    bool hit = true;
    for (unsigned n = 1; hit; n++) {
        struct tensor_edit edit = TENSOR_EDIT_INIT;
        making_begin(&m, false);
        give(&m, TENSOR_RAW, "x", 1);
        give_type(&m, "I8");
        give_shape(&m, "5000");
        CU_ASSERT_EQUAL(tensor_draft_truncate(m.t.draft[TENSOR_RAW], 0, NULL), 0);
        CU_ASSERT_EQUAL(tensor_draft_truncate(m.t.draft[TENSOR_RAW], 5000, NULL), 0);
        tensor_dir_fault(&m.x, FAULT_BROKEN, n, -ENOSPC);
        int r = tensor_new_judge(&m.t, NULL, &edit, NULL);
        hit = m.x.fs.hit;
        CU_ASSERT_EQUAL(r, hit ? -ENOSPC : TENSOR_CHANGED);
        tensor_edit_free(&edit);
        making_end(&m);
    }
}

static void test_raw_refused(void)
{
    struct making m;
    making_begin(&m, false);
    give(&m, TENSOR_RAW, raw, 100);
    judged(&m, TENSOR_SHORT, "still needs type and shape");
    give_type(&m, "Q8_0");
    judged(&m, TENSOR_SHORT, "still needs shape");
    give_shape(&m, "3 64");
    judged(&m, TENSOR_SHORT, "raw has 100 of 204 bytes");
    give_shape(&m, "32");
    judged(&m, -EINVAL, "raw has 100 bytes, but type and shape require 34");
    give_shape(&m, "33");
    judged(&m, -EINVAL, "whole number of blocks");
    making_end(&m);
}

/* numpy.save() alone is enough. If there is a `type`, the values are encoded in that type. */
static void test_npy(void)
{
    struct making m;
    for (int big = 0; big < 2; big++) {
        making_begin(&m, big);
        size_t n = values(room, "<f4", SHAPE(64, 3), 4, -7);
        give(&m, TENSOR_F32_NPY, room, 128);
        judged(&m, TENSOR_SHORT, "still needs the values");
        give(&m, TENSOR_F32_NPY, room, 200);
        judged(&m, TENSOR_SHORT, "f32.npy has 200 of 896 bytes");
        give(&m, TENSOR_F32_NPY, room, n);
        encoded(raw, F32_ID, big, room + 128, 192);
        whole(&m, F32_ID, 3, raw, 768);
        give_type(&m, "Q4_0");
        encoded(raw, Q4_0_ID, big, room + 128, 192);
        whole(&m, Q4_0_ID, 3, raw, 6 * 18);
        give_shape(&m, "192");
        judged(&m, -EINVAL, "do not agree");
        give_shape(&m, "3 64");
        whole(&m, Q4_0_ID, 3, raw, 6 * 18);
        making_end(&m);
    }
    /* f16.npy alone makes an F16 tensor, but halves in f32.npy make an F32 tensor. */
    making_begin(&m, false);
    size_t n = values(room, "<f2", SHAPE(64, 3), 2, 0);
    give(&m, TENSOR_F16_NPY, room, n);
    whole(&m, F16_ID, 3, room + 128, 384);
    give(&m, TENSOR_F32_NPY, room, n);
    CU_ASSERT_EQUAL(values(raw, NULL, SHAPE(64, 3), 4, 0), 768);
    whole(&m, F32_ID, 3, raw, 768);
    making_end(&m);
}

static void test_values(void)
{
    struct making m;
    making_begin(&m, false);
    size_t n = values(room, NULL, SHAPE(256, 3), 4, 0);
    give(&m, TENSOR_F32, room, n);
    judged(&m, TENSOR_SHORT, "still needs shape");
    give_shape(&m, "3 256");
    whole(&m, F32_ID, 3, room, n);
    give_type(&m, "Q6_K");
    encoded(raw, Q6_K_ID, false, room, 768);
    whole(&m, Q6_K_ID, 3, raw, 630);
    give_type(&m, "IQ2_XXS");
    judged(&m, -EOPNOTSUPP, "IQ2_XXS");
    give_type(&m, "I8");
    for (size_t i = 0; i < 768; i++)
        raw[i] = (uint8_t)(i % 61);
    whole(&m, I8_ID, 3, raw, 768);
    room[4 * 300 + 3] = 0x7f;
    room[4 * 300 + 2] = 0xc0;
    give(&m, TENSOR_F32, room, n);
    judged(&m, -EDOM, "element [1, 44] is nan");
    making_end(&m);
    making_begin(&m, false);
    memset(room, 0, 1000);
    give_shape(&m, "5");
    judged(&m, TENSOR_SHORT, "still needs type, and raw or values");
    give(&m, TENSOR_BF16, room, 10);
    whole(&m, BF16_ID, 5, room, 10);
    making_end(&m);
}

/* ---- conversions ---- */

/* Return whether float32 cannot hold all values of the type. */
static bool is_wide(uint32_t id)
{
    return id == I32_ID || id == I64_ID || id == F64_ID;
}

/* Compute the expected bytes of the tensor. */
static int want_bytes(const struct tensor_dir *x, const struct quant_type *t, uint8_t *want)
{
    const bool big = x->base->big;
    const size_t n_elem = (size_t)x->base->n_elem;
    struct quant_fault fault;
    size_t n;
    if (!quant_can_encode(t, big) || t->weighs == QUANT_NEEDS)
        return -EOPNOTSUPP;
    if (is_wide(x->base->type))
        return quant_convert(quant_find(x->base->type), t, big, x->raw, n_elem, want, NULL, &fault);
    uint8_t *f32 = tensor_dir_bytes(x->base, TENSOR_F32, &n);
    int r = quant_write(t, big, QUANT_F32, NULL, f32, n_elem / t->block_len, want, NULL, &fault);
    free(f32);
    return r;
}

static void convert(struct tensor_dir *x, uint32_t to)
{
    struct tensor_edit edit = TENSOR_EDIT_INIT;
    struct err e = {0};
    size_t got;
    uint8_t *want = malloc((size_t)x->base->n_elem * 8);
    int wanted = want_bytes(x, quant_find(to), want);
    int r = tensor_convert(x->base, to, &x->logs, NULL, &edit, &e);
    if (to == x->base->type) {
        CU_ASSERT_EQUAL(r, TENSOR_SAME);
    } else if (wanted < 0) {
        CU_ASSERT_EQUAL(r, wanted);
        CU_ASSERT_EQUAL(e.code, wanted);
    } else {
        CU_ASSERT_EQUAL_FATAL(r, TENSOR_CHANGED);
        CU_ASSERT_TRUE(edit.shaped && edit.whole && edit.shape.type == to);
        struct tensor_base *now = tensor_dir_after(x, x->base, &edit);
        uint8_t *bytes = tensor_dir_bytes(now, TENSOR_RAW, &got);
        CU_ASSERT_EQUAL(memcmp(bytes, want, got), 0);
        free(bytes);
        tensor_base_unref(now);
    }
    tensor_edit_free(&edit);
    free(want);
}

static void test_convert(void)
{
    for (uint32_t from = 0; quant_find(from); from++)
        for (int big = 0; big < 2; big++) {
            struct tensor_dir x;
            if (!quant_has_values(quant_find(from), big))
                continue;
            memset(raw, 0x11, sizeof(raw));
            tensor_dir_make(&x, from, big, SHAPE(256, 7), raw);
            for (uint32_t to = 0; quant_find(to); to++)
                if (quant_find(to)->block_len)
                    convert(&x, to);
            tensor_dir_free(&x);
        }
}

/* A tensor without dimensions gets one when it is converted, because a shape needs at least one. */
static void test_convert_scalar(void)
{
    static const uint8_t one[] = {0, 0, 0x80, 0x3f};
    struct tensor_edit edit = TENSOR_EDIT_INIT;
    struct err e = {0};
    struct tensor_dir x;
    size_t n;
    tensor_dir_make(&x, F32_ID, false, NULL, 0, one);
    CU_ASSERT_EQUAL_FATAL(tensor_convert(x.base, F16_ID, &x.logs, NULL, &edit, &e), TENSOR_CHANGED);
    CU_ASSERT_TRUE(edit.shape.type == F16_ID && edit.shape.n_dims == 1 && edit.shape.dims[0] == 1);
    struct tensor_base *now = tensor_dir_after(&x, x.base, &edit);
    uint8_t *bytes = tensor_dir_bytes(now, TENSOR_RAW, &n);
    CU_ASSERT_TRUE(n == 2 && bytes[0] == 0 && bytes[1] == 0x3c);
    free(bytes);
    tensor_base_unref(now);
    tensor_edit_free(&edit);
    tensor_dir_free(&x);
}

/* Convert integers and doubles, most of which float32 cannot hold exactly, in both byte orders. The
 * value is in the last of three units. */
static void test_convert_exact(void)
{
    static const struct {
        uint32_t from, to;
        uint64_t in, out; /* bits */
        const char *line; /* message for -ERANGE; NULL: success */
    } rows[] = {
        {I32_ID, I64_ID, 16777217, 16777217, NULL},
        {I32_ID, I64_ID, 0x80000001, 0xffffffff80000001, NULL},
        {I64_ID, I32_ID, 2147483647, 2147483647, NULL},
        {I64_ID, F64_ID, 0x1fffffffffffff, 0x433fffffffffffff, NULL},
        {I64_ID, F64_ID, 0x20000000000003, 0x4340000000000002, NULL},
        {F64_ID, I64_ID, 0x433fffffffffffff, 0x1fffffffffffff, NULL},
        {I64_ID, I32_ID, 2147483648, 0, "[2, 40000] is 2147483648, which I32 cannot hold"},
        {F64_ID, F32_ID, 0x7e37e43c8800759c, 0, "[2, 40000] is 1e+300, which F32 cannot hold"},
        {F64_ID, F16_ID, 0xc8078287f49c4a1d, 0, "[2, 40000] is -1e+39, which F16 cannot hold"},
        {F64_ID, Q8_0_ID, 0x7e37e43c8800759c, 0, "[2, 40000] is 1e+300: the scale of its block"},
    };
    enum { WIDTH = 65536, AT = 2 * WIDTH + 40000 };
    for (size_t i = 0; i < 2 * COUNT(rows); i++) {
        const uint32_t id = rows[i / 2].from;
        const size_t width = quant_find(id)->block_bytes,
                     made = quant_find(rows[i / 2].to)->block_bytes;
        uint8_t *bytes = calloc(3 * WIDTH, width);
        struct tensor_edit edit = TENSOR_EDIT_INIT;
        struct tensor_dir x;
        struct err e = {0};
        size_t n;
        put_uint(bytes + AT * width, rows[i / 2].in, width, i % 2);
        tensor_dir_make(&x, id, i % 2, SHAPE(WIDTH, 3), bytes);
        int r = tensor_convert(x.base, rows[i / 2].to, &x.logs, NULL, &edit, &e);
        CU_ASSERT_EQUAL_FATAL(r, rows[i / 2].line ? -ERANGE : TENSOR_CHANGED);
        if (r == -ERANGE) {
            CU_ASSERT_PTR_NOT_NULL(strstr(e.msg, rows[i / 2].line));
        } else {
            struct tensor_base *now = tensor_dir_after(&x, x.base, &edit);
            uint8_t *got = tensor_dir_bytes(now, TENSOR_RAW, &n);
            CU_ASSERT_EQUAL(get_uint(got + AT * made, made, i % 2), rows[i / 2].out);
            free(got);
            tensor_base_unref(now);
        }
        tensor_edit_free(&edit);
        tensor_dir_free(&x);
        free(bytes);
    }
}

static void progress(void *arg, uint64_t done, uint64_t all)
{
    CU_ASSERT_TRUE(done <= all && all == 4);
    ++*(unsigned *)arg;
}

static void test_convert_watched(void)
{
    struct tensor_dir x;
    struct tensor_edit edit = TENSOR_EDIT_INIT;
    struct err e = {0};
    unsigned called = 0;
    atomic_bool cancel = false;
    struct units_watch w = {&cancel, progress, &called};
    memset(raw, 0, sizeof(raw));
    tensor_dir_make(&x, I8_ID, false, SHAPE(4096, 50), NULL);
    CU_ASSERT_EQUAL(tensor_convert(x.base, Q8_0_ID, &x.logs, &w, &edit, &e), TENSOR_CHANGED);
    CU_ASSERT_TRUE(called > 0);
    tensor_edit_free(&edit);
    cancel = true;
    CU_ASSERT_EQUAL(tensor_convert(x.base, Q8_0_ID, &x.logs, &w, &edit, &e), -EINTR);
    tensor_dir_free(&x);
}

/* Some types need importances of columns, most others use them, and plain types ignore them. */
static void test_convert_importances(void)
{
    float of[256];
    struct imatrix_row row = {.of = of, .n = COUNT(of)};
    struct tensor_edit edit = TENSOR_EDIT_INIT;
    struct tensor_dir x;
    struct err e = {0};
    for (size_t i = 0; i < COUNT(of); i++)
        of[i] = 1 + (float)(i % 7);
    tensor_dir_sane(&x, F32, SHAPE(256, 2));
    CU_ASSERT_EQUAL(tensor_convert(x.base, IQ2_XXS_ID, &x.logs, NULL, &edit, &e), -EOPNOTSUPP);
    CU_ASSERT_PTR_NOT_NULL(strstr(e.msg, "only with importances"));
    x.base->imp = &row;
    CU_ASSERT_EQUAL(tensor_convert(x.base, IQ2_XXS_ID, &x.logs, NULL, &edit, &e), TENSOR_CHANGED);
    tensor_edit_free(&edit);
    row.n = 100;
    CU_ASSERT_EQUAL(tensor_convert(x.base, Q4_K_ID, &x.logs, NULL, &edit, &e), -EINVAL);
    CU_ASSERT_EQUAL(tensor_convert(x.base, F16_ID, &x.logs, NULL, &edit, &e), TENSOR_CHANGED);
    tensor_edit_free(&edit);
    struct draft *d;
    CU_ASSERT_EQUAL_FATAL(tensor_draft_make(&x.logs, x.base, TENSOR_RAW, &d, &e), 0);
    CU_ASSERT_EQUAL(tensor_draft_write(d, false, 0, "raw!", 4, &e), 0);
    CU_ASSERT_EQUAL(tensor_draft_judge(d, NULL, &edit, &e), TENSOR_CHANGED);
    tensor_edit_free(&edit);
    draft_free(d);
    tensor_dir_free(&x);
}

/* Types whose values are unknown (some only in big-endian files), and more dimensions than a new
 * shape can have. */
static void test_convert_unreadable(void)
{
    struct tensor_edit edit = TENSOR_EDIT_INIT;
    struct tensor_dir x;
    struct err e = {0};
    unsigned n = 0;
    for (uint32_t from = 0; quant_find(from); from++) {
        if (quant_find(from)->block_len == 0 || quant_has_values(quant_find(from), true))
            continue;
        tensor_dir_make(&x, from, true, SHAPE(256, 2), NULL);
        CU_ASSERT_EQUAL(tensor_convert(x.base, F16_ID, &x.logs, NULL, &edit, &e), -EOPNOTSUPP);
        CU_ASSERT_PTR_NOT_NULL(strstr(e.msg, "cannot be read"));
        tensor_dir_free(&x);
        n++;
    }
    CU_ASSERT_TRUE(n > 0);
    tensor_dir_make(&x, F32_ID, false, SHAPE(2), NULL);
    while (x.base->n_dims < 5)
        x.base->dims[x.base->n_dims++] = 1;
    CU_ASSERT_EQUAL(tensor_convert(x.base, F16_ID, &x.logs, NULL, &edit, &e), -EINVAL);
    tensor_dir_free(&x);
}

static void test_convert_refused(void)
{
    struct tensor_dir x;
    struct tensor_edit edit = TENSOR_EDIT_INIT;
    struct err e = {0};
    tensor_dir_make(&x, I8_ID, false, SHAPE(33, 2), NULL);
    CU_ASSERT_EQUAL(tensor_convert(x.base, Q8_0_ID, &x.logs, NULL, &edit, &e), -EINVAL);
    CU_ASSERT_PTR_NOT_NULL(strstr(e.msg, "whole number of blocks"));
    CU_ASSERT_EQUAL(tensor_convert(x.base, IQ1_S_ID, &x.logs, NULL, &edit, &e), -EOPNOTSUPP);
    for (unsigned n = 1;; n++) {
        tensor_dir_fault(&x, FAULT_FAIL, n, -ENOSPC);
        int r = tensor_convert(x.base, F16_ID, &x.logs, NULL, &edit, &e);
        CU_ASSERT_TRUE(r == TENSOR_CHANGED || r == -ENOSPC);
        tensor_edit_free(&edit);
        if (!x.fs.hit)
            break;
    }
    tensor_dir_free(&x);
}

static CU_TestInfo tests[] = {
    {"raw, type and shape are written in any order", test_raw},
    {"raw may have holes, in memory or in a file", test_sparse_raw},
    {"a hole in raw fails on a full disk", test_sparse_full},
    {"raw of the wrong size or without a file is refused", test_raw_refused},
    {"a NumPy array alone makes a tensor", test_npy},
    {"values and a shape make a tensor", test_values},
    {"every type is converted to every other", test_convert},
    {"a tensor without dimensions is converted", test_convert_scalar},
    {"values that float32 cannot hold are converted exactly or refused", test_convert_exact},
    {"a conversion reports progress and can be cancelled", test_convert_watched},
    {"a conversion uses the importances of columns", test_convert_importances},
    {"values that cannot be read are not converted", test_convert_unreadable},
    {"impossible conversions are refused", test_convert_refused},
    CU_TEST_INFO_NULL,
};

CU_MAIN("tensor_new", tests)

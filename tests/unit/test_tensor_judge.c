/* SPDX-License-Identifier: MIT */
/* How drafts are judged: whole files, single values, NumPy arrays, pages of a mapping, contents of
 * the wrong length, and values that a type cannot hold. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "live/tensor_judge.h"
#include "quant/encode.h"
#include "quant/types.h"
#include "tensor_dir.h"

static struct draft *draft(struct tensor_dir *x, enum tensor_view view)
{
    struct draft *d = NULL;
    struct err e = {0};
    CU_ASSERT_EQUAL_FATAL(tensor_draft_make(&x->logs, x->base, view, &d, &e), 0);
    return d;
}

static void put(struct draft *d, uint64_t off, const void *bytes, size_t n)
{
    struct err e = {0};
    CU_ASSERT_EQUAL_FATAL(tensor_draft_write(d, false, off, bytes, n, &e), 0);
}

static void cut(struct draft *d, uint64_t n)
{
    CU_ASSERT_EQUAL_FATAL(tensor_draft_truncate(d, n, NULL), 0);
}

/* Check the judgement and part of the message. */
static void judged(struct draft *d, int want, const char *line)
{
    struct tensor_edit edit = TENSOR_EDIT_INIT;
    struct err e = {0};
    int r = tensor_draft_judge(d, NULL, &edit, &e);
    if (r != want || (line && !strstr(e.msg, line)))
        (void)printf("\n%d, not %d: %s\n", r, want, e.msg);
    CU_ASSERT_EQUAL(r, want);
    CU_ASSERT_TRUE(!line || strstr(e.msg, line));
    CU_ASSERT_EQUAL(edit.n, 0);
}

/* Check that the draft is an edit, and return the tensor after it. */
static struct tensor_base *accepted(struct tensor_dir *x, struct draft *d)
{
    struct tensor_edit edit = TENSOR_EDIT_INIT;
    struct err e = {0};
    int r = tensor_draft_judge(d, NULL, &edit, &e);
    if (r != TENSOR_CHANGED)
        (void)printf("\n%d: %s\n", r, e.msg);
    CU_ASSERT_EQUAL_FATAL(r, TENSOR_CHANGED);
    struct tensor_base *now = tensor_dir_after(x, d->base, &edit);
    tensor_draft_passed(d, now);
    tensor_edit_free(&edit);
    return now;
}

/* Find the range [*first, *last) of bytes that differ from the file. */
static void changed(const struct tensor_dir *x, const struct tensor_base *now, size_t *first,
                    size_t *last)
{
    size_t n;
    uint8_t *raw = tensor_dir_bytes(now, TENSOR_RAW, &n);
    CU_ASSERT_EQUAL_FATAL(n, x->n);
    *first = 0;
    *last = n;
    while (*first < n && raw[*first] == x->raw[*first])
        ++*first;
    while (*last > *first && raw[*last - 1] == x->raw[*last - 1])
        --*last;
    free(raw);
}

/* ---- values ---- */

/* A change to one value changes only its block. */
static void one_value(uint32_t type, bool big)
{
    const struct quant_type *t = quant_find(type);
    struct tensor_dir x;
    uint8_t *raw = tensor_dir_encode(type, big, 512 * 400), four[4];
    size_t first, last;
    tensor_dir_make(&x, type, big, SHAPE(512, 400), raw);
    struct draft *d = draft(&x, TENSOR_F32);
    put_u32(four, 0xc2fe0000, false); /* -127; was 45 */
    put(d, (uint64_t)4 * 150001, four, 4);
    struct tensor_base *now = accepted(&x, d);
    changed(&x, now, &first, &last);
    size_t block = (size_t)150001 / t->block_len * t->block_bytes;
    CU_ASSERT_TRUE(first < last && first >= block && last <= block + t->block_bytes);
    CU_ASSERT_EQUAL(now->content->n, 1);
    CU_ASSERT_TRUE(now->content->piece[0].len == t->block_bytes);
    judged(d, TENSOR_SAME, NULL);
    put(d, (uint64_t)4 * 150001, four, 4); /* the same values again change nothing */
    judged(d, TENSOR_SAME, NULL);
    tensor_base_unref(now);
    draft_free(d);
    tensor_dir_free(&x);
    free(raw);
}

static void test_one_value(void)
{
    for (uint32_t id = 0; quant_find(id); id++)
        for (int big = 0; big < 2; big++)
            if (quant_can_encode(quant_find(id), big) && quant_find(id)->weighs != QUANT_NEEDS)
                one_value(id, big);
}

/* Pieces found by different threads are stored in the order of the tensor, at the same offsets
 * within pages as in the model, so that one call can map or clone them all. */
static void test_places(void)
{
    struct tensor_dir x;
    struct tensor_edit edit = TENSOR_EDIT_INIT;
    const size_t n = 4 << 20;
    uint8_t *bytes = malloc(n);
    CU_ASSERT_PTR_NOT_NULL_FATAL(bytes);
    memset(bytes, 0xa5, n);
    tensor_dir_make(&x, F32, false, SHAPE(n / 4), NULL);
    const uint64_t off = x.base->store->place[x.base->place].off;
    struct draft *d = draft(&x, TENSOR_RAW);
    put(d, 4096, bytes, n - 4096);
    CU_ASSERT_EQUAL_FATAL(tensor_draft_judge(d, NULL, &edit, NULL), TENSOR_CHANGED);
    CU_ASSERT_TRUE_FATAL(edit.n > 1);
    for (size_t i = 0; i < edit.n; i++) {
        const struct tensor_piece *p = &edit.piece[i];
        CU_ASSERT_EQUAL(p->src - p->at, edit.piece[0].src - edit.piece[0].at);
        CU_ASSERT_EQUAL(p->src % 4096, (off + p->at) % 4096);
    }
    tensor_draft_failed(d);
    tensor_edit_free(&edit);
    draft_free(d);
    tensor_dir_free(&x);
    free(bytes);
}

static void test_write_back(void)
{
    for (uint32_t id = 0; quant_find(id); id++)
        for (int i = 0; i < 2 * TENSOR_VIEWS; i++) {
            enum tensor_view view = (enum tensor_view)(i / 2);
            struct tensor_dir x;
            size_t n;
            if (!quant_has_values(quant_find(id), i % 2))
                continue;
            tensor_dir_make(&x, id, i % 2, SHAPE(256, 5), NULL);
            uint8_t *bytes = tensor_dir_bytes(x.base, view, &n);
            struct draft *d = draft(&x, view);
            cut(d, 0);
            for (size_t at = 0, len; at < n; at += len) {
                len = n - at < 1000 ? n - at : 1000;
                put(d, at, bytes + at, len);
            }
            judged(d, TENSOR_SAME, NULL);
            draft_free(d);
            tensor_dir_free(&x);
            free(bytes);
        }
}

static void test_faults(void)
{
    static const struct {
        uint32_t type, bits;
        int want;
        const char *line;
    } rows[] = {
        {Q8_0_ID, 0x7fc00000, -EDOM, "element [1, 44] is nan, which Q8_0 cannot hold"},
        {Q4_K_ID, 0xff800000, -EDOM, "element [1, 44] is -inf, which Q4_K cannot hold"},
        {Q8_0_ID, 0x7f000000, -ERANGE, "element [1, 44] is 1.7014118e+38: the scale of its block"},
        {I8_ID, 0x3f000000, -ERANGE, "element [1, 44] is 0.5, which I8 cannot hold exactly"},
        {I16_ID, 0x7fc00000, -EDOM, "element [1, 44] is nan, which I16 cannot hold"},
        {F16_ID, 0x7f000000, -ERANGE, "element [1, 44]"},
        {IQ2_XXS_ID, 0x3f800000, -EOPNOTSUPP, "IQ2_XXS"},
        {Q8_K_ID, 0x3f800000, -EOPNOTSUPP, "or another `type`"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct tensor_dir x;
        uint8_t four[4];
        uint8_t *raw =
            rows[i].want == -EOPNOTSUPP ? NULL : tensor_dir_encode(rows[i].type, false, 768);
        tensor_dir_make(&x, rows[i].type, false, SHAPE(256, 3), raw);
        struct draft *d = draft(&x, TENSOR_F32);
        put_u32(four, rows[i].bits, false);
        put(d, 4 * 300, four, 4);
        judged(d, rows[i].want, rows[i].line);
        judged(d, rows[i].want, rows[i].line); /* the same judgement again */
        CU_ASSERT_EQUAL(tensor_view_read(x.base, TENSOR_F32, 4 * 300, four, 4), 0);
        put(d, 4 * 300, four, 4);
        judged(d, TENSOR_SAME, NULL);
        draft_free(d);
        tensor_dir_free(&x);
        free(raw);
    }
}

/* ---- lengths ---- */

static void test_lengths(void)
{
    struct tensor_dir x;
    struct err e = {0};
    uint8_t bytes[4096] = {1, 2, 3};
    tensor_dir_make(&x, F32, false, SHAPE(1000), NULL);
    struct draft *d = draft(&x, TENSOR_RAW);
    cut(d, 0);
    judged(d, TENSOR_SAME, NULL); /* just truncated */
    put(d, 0, bytes, 10);
    judged(d, TENSOR_SHORT, "it has 10 of 4000 bytes");
    judged(d, TENSOR_SHORT, NULL);
    CU_ASSERT_EQUAL(tensor_draft_write(d, false, 10, bytes, 3991, &e), -EFBIG);
    CU_ASSERT_PTR_NOT_NULL(strstr(e.msg, "raw of this tensor holds at most 4000 bytes"));
    CU_ASSERT_EQUAL(tensor_draft_write(d, false, UINT64_MAX, bytes, 2, &e), -EFBIG);
    CU_ASSERT_EQUAL(tensor_draft_allocate(d, 0, 4001, false, &e), -EFBIG);
    CU_ASSERT_EQUAL(tensor_draft_allocate(d, 0, 4000, true, &e), 0);
    CU_ASSERT_EQUAL(d->size, 10);
    CU_ASSERT_EQUAL(tensor_draft_write(d, true, 0, bytes, 90, &e), 0); /* appended */
    CU_ASSERT_EQUAL(d->size, 100);
    CU_ASSERT_EQUAL(tensor_draft_allocate(d, 0, 4000, false, &e), 0);
    CU_ASSERT_EQUAL(d->size, 4000);
    struct tensor_base *now = accepted(&x, d);
    size_t n;
    uint8_t *raw = tensor_dir_bytes(now, TENSOR_RAW, &n);
    CU_ASSERT_TRUE(raw[0] == 1 && raw[10] == 1 && raw[12] == 3 && raw[13] == 0 && raw[3999] == 0);
    free(raw);
    tensor_base_unref(now);
    draft_free(d);
    tensor_dir_free(&x);
}

/* ---- NumPy arrays ---- */

static size_t array(uint8_t *dst, const char *descr, const uint64_t *dims, uint32_t n_dims,
                    float first)
{
    struct buf b = BUF_INIT;
    uint64_t n = 1;
    for (uint32_t i = 0; i < n_dims; i++)
        n *= dims[i];
    size_t len = npy_header(&b, descr, n_dims, dims);
    memcpy(dst, b.data, len);
    buf_free(&b);
    for (uint64_t i = 0; i < n; i++) {
        float v = first + (float)i;
        uint32_t bits;
        memcpy(&bits, &v, 4);
        put_u32(dst + len + 4 * i, bits, false);
    }
    return len + 4 * n;
}

/* numpy.save() writes a different shape and flushes after the header. */
static void test_npy_shape(void)
{
    static uint8_t bytes[65536], old[65536];
    struct tensor_dir x;
    uint8_t *raw = tensor_dir_encode(Q8_0_ID, false, 96);
    tensor_dir_make(&x, Q8_0_ID, false, SHAPE(32, 3), raw);
    struct draft *d = draft(&x, TENSOR_F32_NPY);
    size_t n = array(bytes, "<f4", SHAPE(32, 5), 1);
    CU_ASSERT_EQUAL(tensor_view_read(x.base, TENSOR_F32, 0, old, 64 * 4), 0);
    memcpy(bytes + 128, old, 64 * 4); /* two rows unchanged */
    cut(d, 0);
    put(d, 0, bytes, 100);
    judged(d, TENSOR_SHORT, "its NumPy header is incomplete");
    put(d, 100, bytes + 100, 28);
    judged(d, TENSOR_BEGUN, NULL);
    put(d, n - 1, "", 1);
    put(d, 128, bytes + 128, n - 128);
    struct tensor_base *now = accepted(&x, d);
    CU_ASSERT_TRUE(now->n_dims == 2 && now->dims[0] == 32 && now->dims[1] == 5);
    uint8_t *got = tensor_dir_bytes(now, TENSOR_RAW, &n);
    CU_ASSERT_EQUAL(n, 34 * 5);
    CU_ASSERT_EQUAL(memcmp(got, x.raw, 34 * 2), 0);
    CU_ASSERT_NOT_EQUAL(memcmp(got + 34 * 2, x.raw + 34 * 2, 34), 0);
    free(got);
    put(d, 128 + 4, bytes + 128 + 4, 4); /* the same values again */
    judged(d, TENSOR_SAME, NULL);
    tensor_base_unref(now);
    draft_free(d);
    tensor_dir_free(&x);
    free(raw);
}

/* The same number of values gets a different shape. Then a value is written in place, as memmap
 * does. */
static void test_npy_reshape(void)
{
    static uint8_t bytes[65536];
    struct tensor_dir x;
    struct tensor_edit edit = TENSOR_EDIT_INIT;
    size_t n, first, last;
    tensor_dir_make(&x, Q4_K_ID, false, SHAPE(256, 6), NULL);
    struct draft *d = draft(&x, TENSOR_F32_NPY);
    n = array(bytes, "<f4", SHAPE(512, 3), 0);
    CU_ASSERT_EQUAL(tensor_view_read(x.base, TENSOR_F32, 0, bytes + 128, 1536 * 4), 0);
    cut(d, 0);
    put(d, 0, bytes, n);
    CU_ASSERT_EQUAL(tensor_draft_judge(d, NULL, &edit, NULL), TENSOR_CHANGED);
    CU_ASSERT_TRUE(edit.shaped && !edit.whole && edit.n == 0);
    struct tensor_base *now = tensor_dir_after(&x, d->base, &edit);
    tensor_draft_passed(d, now);
    tensor_edit_free(&edit);
    tensor_base_unref(now);
    put(d, 128 + 4 * 700, "\0\0\xc0\x40", 4); /* 6 */
    now = accepted(&x, d);
    CU_ASSERT_TRUE(now->dims[0] == 512 && now->dims[1] == 3);
    changed(&x, now, &first, &last);
    CU_ASSERT_TRUE(first >= 2 * 144 && last <= 3 * 144 && first < last);
    tensor_base_unref(now);
    draft_free(d);
    tensor_dir_free(&x);
}

/* For a tensor without dimensions, NumPy uses an array of one value, which does not count as a
 * different shape. */
static void test_npy_scalar(void)
{
    static const struct {
        uint64_t dims[2];
        uint32_t n_dims;
        bool shaped;
    } rows[] = {{{1, 0}, 1, false}, {{1, 1}, 2, true}, {{5, 0}, 1, true}};
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct tensor_dir x;
        struct tensor_edit edit = TENSOR_EDIT_INIT;
        uint8_t bytes[256];
        tensor_dir_make(&x, F32, false, NULL, 0, NULL);
        struct draft *d = draft(&x, TENSOR_F32_NPY);
        size_t n = array(bytes, "<f4", rows[i].dims, rows[i].n_dims, 1234.5f);
        cut(d, 0);
        put(d, 0, bytes, n);
        CU_ASSERT_EQUAL(tensor_draft_judge(d, NULL, &edit, NULL), TENSOR_CHANGED);
        CU_ASSERT_EQUAL(edit.shaped, rows[i].shaped);
        tensor_edit_free(&edit);
        draft_free(d);
        tensor_dir_free(&x);
    }
}

/* Write a header of n < 256 bytes. */
static void header(uint8_t *dst, size_t n, const char *dict)
{
    memset(dst, ' ', n);
    memcpy(dst, "\x93NUMPY\x01\x00\x00\x00", 10);
    dst[8] = (uint8_t)(n - 10);
    memcpy(dst + 10, dict, strlen(dict));
}

/* Check that a tensor has the values, each of `width` bytes, that follow `head` bytes of its
 * draft. */
static void same_values(struct draft *d, const struct tensor_base *now, size_t head, unsigned width)
{
    static uint8_t shown[65536];
    static float want[9600];
    size_t n, got, others = 0;
    uint8_t *values = tensor_dir_bytes(now, TENSOR_F32, &n);
    CU_ASSERT_EQUAL_FATAL(n, sizeof(want));
    CU_ASSERT_EQUAL(tensor_draft_read(d, 0, shown, sizeof(shown), &got), 0);
    CU_ASSERT_EQUAL(got, head + (size_t)9600 * width);
    quant_find(width == 2 ? F16_ID : F32)->decode(shown + head, 9600, want);
    for (size_t i = 0; i < 9600; i++) { /* views are always little-endian */
        uint32_t bits;
        memcpy(&bits, &want[i], 4);
        others += get_u32(values + 4 * i, false) != bits;
    }
    CU_ASSERT_EQUAL(others, 0);
    free(values);
}

/* Overwrite only the header, with a longer one that has a different type and shape. A malformed
 * header, or one for which the array is too long, is refused at once. */
static void test_npy_in_place(void)
{
    struct tensor_dir x;
    tensor_dir_sane(&x, F32, SHAPE(96, 100));
    struct draft *d = draft(&x, TENSOR_F32_NPY);
    uint8_t head[192];
    header(head, 192, "{'descr':'<f2','fortran_order':False,'shape':(19200-32,)}");
    CU_ASSERT_EQUAL(tensor_draft_write(d, false, 0, head, 192, NULL), -EINVAL);
    header(head, 192, "{'descr':'<f2','fortran_order':False,'shape':(9600,) }");
    CU_ASSERT_EQUAL(tensor_draft_write(d, false, 0, head, 192, NULL), -EFBIG);
    cut(d, 192 + 19200);
    put(d, 0, head, 192);
    struct tensor_base *now = accepted(&x, d);
    CU_ASSERT_TRUE(now->n_dims == 1 && now->dims[0] == 9600);
    same_values(d, now, 192, 2);
    tensor_base_unref(now);
    draft_free(d);
    tensor_dir_free(&x);
}

/* A header with the same shape but a different length or type moves the values. */
static void test_npy_moved(void)
{
    static const struct {
        size_t head;
        unsigned width;
        const char *dict;
    } rows[] = {{192, 4, "{'descr':'<f4','fortran_order':False,'shape':(100,96)}"},
                {128, 2, "{'descr':'<f2','fortran_order':False,'shape':(100,96)}"}};
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct tensor_dir x;
        uint8_t head[192];
        tensor_dir_sane(&x, F32, SHAPE(96, 100));
        struct draft *d = draft(&x, TENSOR_F32_NPY);
        header(head, rows[i].head, rows[i].dict);
        cut(d, rows[i].head + (uint64_t)9600 * rows[i].width);
        put(d, 0, head, rows[i].head);
        struct tensor_base *now = accepted(&x, d);
        same_values(d, now, rows[i].head, rows[i].width);
        tensor_base_unref(now);
        draft_free(d);
        tensor_dir_free(&x);
    }
}

/* Another program truncates an array after its judgement has begun and before its values are moved.
 * The judgement reads the lost bytes as zeros, and must then be repeated. */
static void test_npy_moved_and_cut(void)
{
    struct tensor_dir x;
    struct tensor_round round;
    uint8_t head[192], last = 1;
    const uint64_t half = 128 + 9600, whole = 128 + 2 * 9600;
    tensor_dir_sane(&x, F32, SHAPE(96, 100));
    struct draft *d = draft(&x, TENSOR_F32_NPY);
    header(head, 128, "{'descr':'<f2','fortran_order':False,'shape':(100,96)}");
    cut(d, whole);
    put(d, 0, head, 128);
    CU_ASSERT_EQUAL_FATAL(tensor_draft_begin(d, &round), 1);
    cut(d, half);
    CU_ASSERT_EQUAL_FATAL(tensor_draft_detach(d, &round, &d->npy), 0);
    CU_ASSERT_EQUAL(tensor_round_read(d, &round, whole - 1, &last, 1), 0);
    CU_ASSERT_EQUAL(last, 0);
    CU_ASSERT_EQUAL(tensor_draft_end(d, &round, true, 0), -EAGAIN);
    draft_free(d);
    tensor_dir_free(&x);
}

/* If just the header is overwritten after values have been accepted, all values change. */
static void test_npy_header_again(void)
{
    static const struct {
        size_t head;
        unsigned width;
        const char *dict;
    } rows[] = {{128, 2, "{'descr':'<f2','fortran_order':False,'shape':(100,96)}"},
                {128, 4, "{'descr':'<f4','fortran_order':False,'shape':(100,96)}"},
                {192, 4, "{'descr':'<f4','fortran_order':False,'shape':(100,96)}"},
                {128, 4, "{'descr':'<f4','fortran_order':False,'shape':(100,96)}"}};
    static uint8_t bytes[65536];
    /* Whether the array changes the shape or keeps it, the result is the same. */
    for (uint64_t high = 50; high <= 100; high += 50) {
        struct tensor_dir x;
        uint8_t head[192];
        tensor_dir_sane(&x, F32, SHAPE(96, high));
        struct draft *d = draft(&x, TENSOR_F32_NPY);
        cut(d, 0);
        put(d, 0, bytes, array(bytes, "<f4", SHAPE(96, 100), 1000));
        tensor_base_unref(accepted(&x, d));
        for (size_t i = 0; i < COUNT(rows); i++) {
            const uint64_t size = rows[i].head + (uint64_t)9600 * rows[i].width;
            header(head, rows[i].head, rows[i].dict);
            if (size < d->size)
                cut(d, size);
            put(d, 0, head, rows[i].head);
            cut(d, size);
            struct tensor_base *now = accepted(&x, d);
            same_values(d, now, rows[i].head, rows[i].width);
            judged(d, TENSOR_SAME, NULL);
            put(d, 0, head, rows[i].head);
            judged(d, TENSOR_SAME, NULL);
            tensor_base_unref(now);
        }
        draft_free(d);
        tensor_dir_free(&x);
    }
}

static void test_npy_refused(void)
{
    static uint8_t bytes[65536];
    struct tensor_dir x;
    struct err e = {0};
    tensor_dir_make(&x, Q8_0_ID, false, SHAPE(32, 3), NULL);
    struct draft *d = draft(&x, TENSOR_F16_NPY);
    cut(d, 0);
    CU_ASSERT_EQUAL(tensor_draft_write(d, false, 0, "\x93NUMPZ", 6, &e), -EINVAL);
    cut(d, 0);
    size_t n = array(bytes, "<f8", SHAPE(32), 0);
    put(d, 0, bytes, 50); /* incomplete, but could be completed */
    CU_ASSERT_EQUAL(tensor_draft_write(d, false, 50, bytes + 50, 78, &e), -EINVAL);
    CU_ASSERT_PTR_NOT_NULL(strstr(e.msg, "'<f8'"));
    cut(d, 0);
    n = array(bytes, "<f4", SHAPE(33, 2), 0);
    put(d, 0, bytes, n);
    judged(d, -EINVAL, "whole number of blocks of 32");
    cut(d, 0);
    n = array(bytes, "<f4", SHAPE(32, 2), 0); /* each view accepts both types */
    put(d, 0, bytes, n);
    CU_ASSERT_EQUAL(tensor_draft_write(d, false, n, bytes, 1, &e), -EFBIG);
    cut(d, n);
    struct tensor_base *now = accepted(&x, d);
    CU_ASSERT_TRUE(now->dims[1] == 2);
    tensor_base_unref(now);
    draft_free(d);
    tensor_dir_free(&x);
}

static CU_TestInfo tests[] = {
    {"a change to one value changes only its block", test_one_value},
    {"new bytes keep their order and their offsets within pages", test_places},
    {"writing unchanged values back changes nothing", test_write_back},
    {"values that the type cannot hold are refused and named", test_faults},
    {"content that is too short or too long is refused", test_lengths},
    {"numpy.save() writes a different shape", test_npy_shape},
    {"an array of the same number of values gets a different shape", test_npy_reshape},
    {"an array of one value fits a tensor without dimensions", test_npy_scalar},
    {"a NumPy header is overwritten in place", test_npy_in_place},
    {"a NumPy header of another length or type moves the values", test_npy_moved},
    {"an array is truncated while its values are moved", test_npy_moved_and_cut},
    {"a NumPy header overwritten after the values changes all values", test_npy_header_again},
    {"bad NumPy arrays are refused", test_npy_refused},
    CU_TEST_INFO_NULL,
};

CU_MAIN("tensor_judge", tests)

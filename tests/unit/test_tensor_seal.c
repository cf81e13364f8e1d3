/* SPDX-License-Identifier: MIT */
/* Drafts of raw: which are sealed and which are copied, to the byte, and what becomes of gaps. */
#include <stdlib.h>

#include "base/count.h"
#include "live/tensor_draft.h"
#include "quant/types.h"
#include "tensor_dir.h"

enum { G = TENSOR_GRANULE, LEAST = 1 << 20, BLOCK = 512 };

/* n runs of `granules` each, with a granule between them, are written: whether the draft is sealed. */
static bool is_sealed(unsigned runs, unsigned granules)
{
    struct tensor_dir x;
    struct tensor_draft *d = NULL;
    struct tensor_edit edit = TENSOR_EDIT_INIT;
    size_t n = (size_t)granules * G;
    uint8_t *bytes = malloc(n);
    tensor_dir_make(&x, I8, false, SHAPE((uint64_t)4 << 20), NULL);
    CU_ASSERT_EQUAL_FATAL(tensor_draft_make(&x.f, x.base, TENSOR_RAW, &d, NULL), 0);
    for (unsigned i = 0; i < runs; i++) {
        uint64_t at = (uint64_t)i * (granules + 1) * G;
        for (size_t k = 0; k < n; k++)
            bytes[k] = x.raw[at + k] ^ 1;
        CU_ASSERT_EQUAL(tensor_draft_write(d, false, at, bytes, n, NULL), 0);
    }
    CU_ASSERT_EQUAL(tensor_draft_judge(d, NULL, &edit, NULL), TENSOR_CHANGED);
    bool ret = d->seal;
    tensor_edit_free(&edit);
    tensor_draft_free(d);
    tensor_dir_free(&x);
    free(bytes);
    return ret;
}

static void test_sealed(void)
{
    CU_ASSERT_TRUE(is_sealed(1, LEAST / G));
    CU_ASSERT_FALSE(is_sealed(1, LEAST / G - 1));
    CU_ASSERT_TRUE(is_sealed(8, LEAST / G / 8));
    CU_ASSERT_FALSE(is_sealed(8, LEAST / G / 8 - 1));
    CU_ASSERT_TRUE(is_sealed(16, LEAST / G / 8));
    CU_ASSERT_FALSE(is_sealed(17, LEAST / G / 8)); /* too many holes */
}

/* The bytes at `first` and `second` are changed: one piece, or two. */
static void pieces(uint64_t size, uint64_t first, uint64_t second, struct edit_piece want,
                   struct edit_piece other)
{
    struct tensor_dir x;
    struct tensor_draft *d = NULL;
    struct tensor_edit edit = TENSOR_EDIT_INIT;
    tensor_dir_make(&x, I8, false, SHAPE(size), NULL);
    CU_ASSERT_EQUAL_FATAL(tensor_draft_make(&x.f, x.base, TENSOR_RAW, &d, NULL), 0);
    const uint8_t a = x.raw[first] ^ 1, b = x.raw[second] ^ 1;
    CU_ASSERT_EQUAL(tensor_draft_write(d, false, first, &a, 1, NULL), 0);
    CU_ASSERT_EQUAL(tensor_draft_write(d, false, second, &b, 1, NULL), 0);
    CU_ASSERT_EQUAL(tensor_draft_judge(d, NULL, &edit, NULL), TENSOR_CHANGED);
    CU_ASSERT_EQUAL_FATAL(edit.n, 1u + (other.len > 0));
    CU_ASSERT_TRUE(edit.piece[0].at == want.at && edit.piece[0].len == want.len);
    CU_ASSERT_TRUE(edit.n == 1 || (edit.piece[1].at == other.at && edit.piece[1].len == other.len));
    tensor_edit_free(&edit);
    tensor_draft_free(d);
    tensor_dir_free(&x);
}

#define AT(at_, len_) ((struct edit_piece){.at = (at_), .len = (len_)})

/* Blocks of 512 bytes are compared; up to 16 KiB of equal ones between two are written again. */
static void test_gaps(void)
{
    pieces(100000, 0, 511, AT(0, BLOCK), AT(0, 0));
    pieces(100000, 511, 512, AT(0, 2 * BLOCK), AT(0, 0));
    pieces(100000, 0, 33 * BLOCK, AT(0, 34 * BLOCK), AT(0, 0));
    pieces(100000, 0, 34 * BLOCK, AT(0, BLOCK), AT(34 * BLOCK, BLOCK));
    pieces(100000, 5 * BLOCK, 99999, AT(5 * BLOCK, BLOCK), AT(195 * BLOCK, 160));
    pieces(1000, 999, 999, AT(BLOCK, 488), AT(0, 0));
    /* units of 256 KiB are judged by themselves */
    pieces(600000, 262143, 262144, AT(262144 - BLOCK, BLOCK), AT(262144, BLOCK));
}

static void test_stretches(void)
{
    static const struct {
        uint64_t off, n, len;
        bool held;
    } rows[] = {
        {0, 10 * G, 2 * G, false},       {0, 7, 7, false},
        {2 * G - 1, 10 * G, 1, false},   {2 * G, 10 * G, 2 * G, true},
        {2 * G + 5, 10, 10, true},       {4 * G - 1, 2, 1, true},
        {4 * G, 10 * G, G + 100, false}, {5 * G + 99, 7, 1, false},
        {5 * G + 100, 7, 7, true},       {5 * G + 100, 10 * G, 2 * G - 100, true},
        {7 * G, 10 * G, G, true},        {8 * G, 3, 3, true},
    };
    struct bits present = BITS_INIT;
    CU_ASSERT_EQUAL(bits_add(&present, 2, 4), 0);
    CU_ASSERT_EQUAL(bits_add(&present, 7, 8), 0);
    struct tensor_seal *s = tensor_seal_make(NULL, NULL, &present, 5 * G + 100, 0);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    for (size_t i = 0; i < COUNT(rows); i++) {
        bool held = !rows[i].held;
        uint64_t len = tensor_seal_stretch(s, rows[i].off, rows[i].n, &held);
        CU_ASSERT_EQUAL(len, rows[i].len);
        CU_ASSERT_EQUAL(held, rows[i].held);
    }
    tensor_seal_unref(s);
}

static CU_TestInfo tests[] = {
    {"how much is sealed", test_sealed},
    {"equal bytes between two that were written", test_gaps},
    {"stretches of what was sealed", test_stretches},
    CU_TEST_INFO_NULL,
};

CU_MAIN("tensor_seal", tests)

/* SPDX-License-Identifier: MIT */
/* live/spool: places of bytes, files that are begun anew, what is taken back. */
#include <errno.h>
#include <string.h>

#include "alloc.h"
#include "live/spool.h"
#include "tensor_dir.h"

static void read_back(const struct edit_draft *d, uint64_t at, const char *want)
{
    char got[16];
    size_t n = strlen(want);
    CU_ASSERT_EQUAL(d->src.read(&d->src, at, got, n), 0);
    CU_ASSERT_EQUAL(memcmp(got, want, n), 0);
}

static uint64_t take(struct spool *s, uint64_t n)
{
    uint64_t at = UINT64_MAX;
    CU_ASSERT_EQUAL(spool_take(s, n, &at, NULL), 0);
    return at;
}

static uint64_t reserve(struct spool *s, uint64_t n, uint64_t phase)
{
    uint64_t at = UINT64_MAX;
    CU_ASSERT_EQUAL(spool_reserve(s, n, phase, &at, NULL), 0);
    return at;
}

static void test_places(void)
{
    struct tensor_dir x;
    struct spool s = SPOOL_INIT;
    struct edit_draft *d = NULL, *later = NULL;
    tensor_dir_make(&x, F32, false, SHAPE(4), NULL);
    tensor_dir_in_files(&x);
    spool_begin(&s, &x.f);
    CU_ASSERT_EQUAL(take(&s, 3), 0);
    CU_ASSERT_EQUAL(take(&s, 4), 3); /* the small ones side by side */
    CU_ASSERT_EQUAL(take(&s, 4096), 4096);
    CU_ASSERT_EQUAL(take(&s, 5000), 8192); /* the others at a page */
    CU_ASSERT_EQUAL(take(&s, 1), 13192);
    CU_ASSERT_EQUAL(spool_put(&s, 0, "one", 3), 0);
    CU_ASSERT_EQUAL(spool_put(&s, 13192, "x", 1), 0);
    CU_ASSERT_EQUAL(spool_end(&s, &d), 0);
    CU_ASSERT_EQUAL(d->src.size, 13193);
    /* What was put is dropped; what stood before stays. */
    spool_begin(&s, &x.f);
    CU_ASSERT_EQUAL(take(&s, 2), 13193);
    spool_back(&s);
    spool_begin(&s, &x.f);
    CU_ASSERT_EQUAL(take(&s, 2), 13193);
    CU_ASSERT_EQUAL(spool_put(&s, 13193, "yz", 2), 0);
    CU_ASSERT_EQUAL(spool_end(&s, &later), 0);
    spool_free(&s);
    read_back(d, 0, "one");
    read_back(d, 13192, "x");
    read_back(later, 13192, "xyz");
    edit_draft_unref(d);
    read_back(later, 0, "one");
    edit_draft_unref(later);
    tensor_dir_free(&x);
}

/* What is set aside begins where it is asked to, is filled in any order, and its holes are no bytes. */
static void test_reserve(void)
{
    struct tensor_dir x;
    struct spool s = SPOOL_INIT;
    struct edit_draft *d = NULL;
    const uint64_t large = (uint64_t)1 << 30;
    tensor_dir_make(&x, F32, false, SHAPE(4), NULL);
    tensor_dir_in_files(&x);
    spool_begin(&s, &x.f);
    CU_ASSERT_EQUAL(take(&s, 3), 0);
    const struct edit_draft *first = s.to;
    CU_ASSERT_EQUAL(reserve(&s, 4 * large, 32), 4096 + 32);
    CU_ASSERT_EQUAL(spool_fill(&s, 4128 + 6, "def", 3), 0);
    CU_ASSERT_EQUAL(spool_fill(&s, 4128 + 3, "abc", 3), 0);
    CU_ASSERT_EQUAL(take(&s, 1), 4128 + 4 * large);
    CU_ASSERT_EQUAL(spool_end(&s, &d), 0);
    read_back(d, 4128 + 3, "abcdef");
    edit_draft_unref(d);
    spool_begin(&s, &x.f);
    CU_ASSERT_PTR_EQUAL(s.to, first);
    (void)reserve(&s, (uint64_t)1 << 36, 0);
    spool_begin(&s, &x.f);
    CU_ASSERT_EQUAL(take(&s, 1), 0); /* in another file */
    spool_free(&s);
    tensor_dir_free(&x);
}

/* A large file is left to those that need it. */
static void test_large(void)
{
    struct tensor_dir x;
    struct spool s = SPOOL_INIT;
    const uint64_t large = (uint64_t)1 << 30;
    tensor_dir_make(&x, F32, false, SHAPE(4), NULL);
    tensor_dir_in_files(&x);
    spool_begin(&s, &x.f);
    CU_ASSERT_EQUAL(take(&s, large - 1), 0);
    const struct edit_draft *first = s.to;
    spool_begin(&s, &x.f);
    CU_ASSERT_PTR_EQUAL(s.to, first);
    CU_ASSERT_EQUAL(take(&s, 1), large - 1);
    spool_begin(&s, &x.f);
    CU_ASSERT_EQUAL(take(&s, 1), 0);
    spool_free(&s);
    tensor_dir_free(&x);
}

static void test_faults(void)
{
    struct tensor_dir x;
    struct spool s = SPOOL_INIT;
    struct err e = {0};
    uint64_t at;
    tensor_dir_make(&x, F32, false, SHAPE(4), NULL);
    tensor_dir_in_files(&x);
    tensor_dir_fault(&x, FAULT_BROKEN, 1, -ENOSPC);
    spool_begin(&s, &x.f);
    CU_ASSERT_EQUAL(spool_take(&s, 1, &at, &e), -ENOSPC);
    CU_ASSERT_EQUAL(e.code, -ENOSPC);
    e = (struct err){0};
    CU_ASSERT_EQUAL(spool_reserve(&s, 1, 0, &at, &e), -ENOSPC);
    CU_ASSERT_EQUAL(e.code, -ENOSPC);
    tensor_dir_fault(&x, FAULT_BROKEN, 2, -ENOSPC);
    spool_begin(&s, &x.f);
    CU_ASSERT_EQUAL(spool_put(&s, take(&s, 1), "x", 1), -ENOSPC);
    spool_free(&s);
    tensor_dir_free(&x);
}

/* ---- in memory ---- */

/* Few bytes make no file. What a draft has stays when others are put. */
static void test_few(void)
{
    struct tensor_dir x;
    struct spool s = SPOOL_INIT;
    struct edit_draft *first = NULL, *next = NULL;
    tensor_dir_make(&x, F32, false, SHAPE(4), NULL);
    tensor_dir_fault(&x, FAULT_BROKEN, 1, -EIO);
    spool_begin(&s, &x.f);
    CU_ASSERT_EQUAL(take(&s, 5000), 0);
    CU_ASSERT_EQUAL(spool_put(&s, 4997, "one", 3), 0);
    CU_ASSERT_EQUAL(reserve(&s, 6, 77), 5000);
    CU_ASSERT_EQUAL(spool_fill(&s, 5000, "two", 3), 0);
    CU_ASSERT_EQUAL(spool_end(&s, &first), 0);
    CU_ASSERT_EQUAL(first->src.size, 5006);
    spool_begin(&s, &x.f);
    CU_ASSERT_EQUAL(take(&s, 3), 0);
    CU_ASSERT_EQUAL(spool_put(&s, 0, "new", 3), 0);
    CU_ASSERT_EQUAL(spool_end(&s, &next), 0);
    spool_begin(&s, &x.f);
    CU_ASSERT_EQUAL(take(&s, 3), 0);
    CU_ASSERT_EQUAL(spool_put(&s, 0, "bad", 3), 0);
    spool_back(&s);
    spool_free(&s);
    CU_ASSERT_FALSE(x.fs.hit);
    read_back(first, 4997, "onetwo");
    read_back(next, 0, "new");
    edit_draft_unref(first);
    edit_draft_unref(next);
    tensor_dir_free(&x);
}

/* With one byte more than is in memory, all are in a file, where they were. */
static void test_spill(void)
{
    struct tensor_dir x;
    struct spool s = SPOOL_INIT;
    struct edit_draft *d = NULL;
    tensor_dir_make(&x, F32, false, SHAPE(4), NULL);
    spool_begin(&s, &x.f);
    CU_ASSERT_EQUAL(take(&s, 3), 0);
    CU_ASSERT_EQUAL(spool_put(&s, 0, "abc", 3), 0);
    CU_ASSERT_EQUAL(take(&s, DRAFT_BYTES_FEW - 3), 3);
    CU_ASSERT_EQUAL(spool_put(&s, DRAFT_BYTES_FEW - 3, "xyz", 3), 0);
    CU_ASSERT_TRUE(draft_bytes_in_memory(s.to));
    CU_ASSERT_EQUAL(take(&s, 1), DRAFT_BYTES_FEW);
    CU_ASSERT_FALSE(draft_bytes_in_memory(s.to));
    CU_ASSERT_EQUAL(spool_put(&s, DRAFT_BYTES_FEW, "!", 1), 0);
    CU_ASSERT_EQUAL(spool_end(&s, &d), 0);
    read_back(d, 0, "abc");
    read_back(d, DRAFT_BYTES_FEW - 3, "xyz!");
    edit_draft_unref(d);
    spool_free(&s);
    spool_begin(&s, &x.f);
    CU_ASSERT_EQUAL(take(&s, DRAFT_BYTES_FEW + 1), 0);
    CU_ASSERT_FALSE(draft_bytes_in_memory(s.to));
    spool_free(&s);
    tensor_dir_free(&x);
}

/* Each call and each allocation of the way to a file fails: an error, and nothing stays. */
static void test_spill_fails(void)
{
    struct tensor_dir x;
    struct err e;
    bool hit = true;
    for (unsigned n = 1; hit; n++) {
        struct spool s = SPOOL_INIT;
        uint64_t at = 0;
        tensor_dir_make(&x, F32, false, SHAPE(4), NULL);
        tensor_dir_fault(&x, FAULT_BROKEN, n, -ENOSPC);
        spool_begin(&s, &x.f);
        CU_ASSERT_EQUAL(take(&s, 3), 0);
        e = (struct err){0};
        int r = spool_take(&s, DRAFT_BYTES_FEW, &at, &e);
        hit = x.fs.hit;
        CU_ASSERT_EQUAL(r, hit ? -ENOSPC : 0);
        CU_ASSERT_EQUAL(e.code, r);
        CU_ASSERT_EQUAL(draft_bytes_in_memory(s.to), hit);
        spool_free(&s);
        tensor_dir_free(&x);
    }
    tensor_dir_make(&x, F32, false, SHAPE(4), NULL);
    for (unsigned n = 1; n == 1 || hit; n++) {
        struct spool s = SPOOL_INIT;
        uint64_t at = 0;
        alloc_count();
        alloc_arm(n, false);
        spool_begin(&s, &x.f);
        e = (struct err){0};
        int r = spool_take(&s, 3, &at, &e);
        if (r == 0)
            r = spool_take(&s, 3, &at, &e);
        if (r == 0)
            r = spool_take(&s, DRAFT_BYTES_FEW, &at, &e);
        hit = alloc_disarm();
        CU_ASSERT_EQUAL(r, hit ? -ENOMEM : 0);
        CU_ASSERT_EQUAL(e.code, r);
        spool_free(&s);
        CU_ASSERT_EQUAL(alloc_live(), 0);
    }
    tensor_dir_free(&x);
}

/* All that is in memory is bounded: then files are made, and once some is given back, none. */
static void test_all_memory(void)
{
    enum { MOST = EDIT_DRAFT_MEMORY / DRAFT_BYTES_FEW };
    struct tensor_dir x;
    static struct spool s[MOST + 1];
    tensor_dir_make(&x, F32, false, SHAPE(4), NULL);
    for (size_t i = 0; i <= MOST; i++) {
        spool_begin(&s[i], &x.f);
        CU_ASSERT_EQUAL(take(&s[i], DRAFT_BYTES_FEW), 0);
        CU_ASSERT_EQUAL(draft_bytes_in_memory(s[i].to), i < MOST);
    }
    spool_free(&s[0]);
    spool_begin(&s[0], &x.f);
    CU_ASSERT_EQUAL(take(&s[0], DRAFT_BYTES_FEW), 0);
    CU_ASSERT_TRUE(draft_bytes_in_memory(s[0].to));
    for (size_t i = 0; i <= MOST; i++)
        spool_free(&s[i]);
    tensor_dir_free(&x);
}

static CU_TestInfo tests[] = {
    {"places of bytes", test_places},
    {"what is set aside", test_reserve},
    {"large files", test_large},
    {"a full disk", test_faults},
    {"few bytes are in memory", test_few},
    {"one more makes a file of them", test_spill},
    {"which fails", test_spill_fails},
    {"all that is in memory", test_all_memory},
    CU_TEST_INFO_NULL,
};

CU_MAIN("spool", tests)

/* SPDX-License-Identifier: MIT */
/* live/spool: places of bytes, files that are begun anew, what is taken back. */
#include <errno.h>
#include <string.h>

#include "live/spool.h"
#include "tensor_dir.h"

static void read_back(const struct edit_draft *d, uint64_t at, const char *want)
{
    char got[16];
    size_t n = strlen(want);
    CU_ASSERT_EQUAL(d->src.read(&d->src, at, got, n), 0);
    CU_ASSERT_EQUAL(memcmp(got, want, n), 0);
}

static void test_places(void)
{
    struct tensor_dir x;
    struct spool s = SPOOL_INIT;
    struct edit_draft *d = NULL, *later = NULL;
    tensor_dir_make(&x, F32, false, SHAPE(4), NULL);
    CU_ASSERT_EQUAL(spool_begin(&s, &x.f, NULL), 0);
    CU_ASSERT_EQUAL(spool_take(&s, 3), 0);
    CU_ASSERT_EQUAL(spool_take(&s, 4), 3); /* the small ones side by side */
    CU_ASSERT_EQUAL(spool_take(&s, 4096), 4096);
    CU_ASSERT_EQUAL(spool_take(&s, 5000), 8192); /* the others at a page */
    CU_ASSERT_EQUAL(spool_take(&s, 1), 13192);
    CU_ASSERT_EQUAL(spool_put(&s, 0, "one", 3), 0);
    CU_ASSERT_EQUAL(spool_put(&s, 13192, "x", 1), 0);
    CU_ASSERT_EQUAL(spool_end(&s, &d), 0);
    CU_ASSERT_EQUAL(d->src.size, 13193);
    /* What was put is dropped; what stood before stays. */
    CU_ASSERT_EQUAL(spool_begin(&s, &x.f, NULL), 0);
    CU_ASSERT_EQUAL(spool_take(&s, 2), 13193);
    spool_back(&s);
    CU_ASSERT_EQUAL(spool_begin(&s, &x.f, NULL), 0);
    CU_ASSERT_EQUAL(spool_take(&s, 2), 13193);
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
    CU_ASSERT_EQUAL(spool_begin(&s, &x.f, NULL), 0);
    const struct edit_draft *first = s.file;
    CU_ASSERT_EQUAL(spool_take(&s, 3), 0);
    CU_ASSERT_EQUAL(spool_reserve(&s, 4 * large, 32), 4096 + 32);
    CU_ASSERT_EQUAL(spool_fill(&s, 4128 + 6, "def", 3), 0);
    CU_ASSERT_EQUAL(spool_fill(&s, 4128 + 3, "abc", 3), 0);
    CU_ASSERT_EQUAL(spool_take(&s, 1), 4128 + 4 * large);
    CU_ASSERT_EQUAL(spool_end(&s, &d), 0);
    read_back(d, 4128 + 3, "abcdef");
    edit_draft_unref(d);
    CU_ASSERT_EQUAL(spool_begin(&s, &x.f, NULL), 0);
    CU_ASSERT_PTR_EQUAL(s.file, first);
    (void)spool_reserve(&s, (uint64_t)1 << 36, 0);
    CU_ASSERT_EQUAL(spool_begin(&s, &x.f, NULL), 0);
    CU_ASSERT_EQUAL(spool_take(&s, 1), 0); /* in another file */
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
    CU_ASSERT_EQUAL(spool_begin(&s, &x.f, NULL), 0);
    const struct edit_draft *first = s.file;
    CU_ASSERT_EQUAL(spool_take(&s, large - 1), 0);
    CU_ASSERT_EQUAL(spool_begin(&s, &x.f, NULL), 0);
    CU_ASSERT_PTR_EQUAL(s.file, first);
    CU_ASSERT_EQUAL(spool_take(&s, 1), large - 1);
    CU_ASSERT_EQUAL(spool_begin(&s, &x.f, NULL), 0);
    CU_ASSERT_EQUAL(spool_take(&s, 1), 0);
    spool_free(&s);
    tensor_dir_free(&x);
}

static void test_faults(void)
{
    struct tensor_dir x;
    struct spool s = SPOOL_INIT;
    struct err e = {0};
    tensor_dir_make(&x, F32, false, SHAPE(4), NULL);
    tensor_dir_fault(&x, FAULT_BROKEN, 1, -ENOSPC);
    CU_ASSERT_EQUAL(spool_begin(&s, &x.f, &e), -ENOSPC);
    CU_ASSERT_EQUAL(e.code, -ENOSPC);
    tensor_dir_fault(&x, FAULT_BROKEN, 2, -ENOSPC);
    CU_ASSERT_EQUAL(spool_begin(&s, &x.f, &e), 0);
    CU_ASSERT_EQUAL(spool_put(&s, spool_take(&s, 1), "x", 1), -ENOSPC);
    spool_free(&s);
    tensor_dir_free(&x);
}

static CU_TestInfo tests[] = {
    {"places of bytes", test_places},
    {"what is set aside", test_reserve},
    {"large files", test_large},
    {"a full disk", test_faults},
    CU_TEST_INFO_NULL,
};

CU_MAIN("spool", tests)

/* SPDX-License-Identifier: MIT */
/* edit/patch: which heads of a journal of bytes of tensors are taken, and what their ranges become. */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/count.h"
#include "cu_main.h"
#include "edit/patch_units.h"

#define U PATCH_UNIT
#define S PATCH_STRETCH
#define HALF ((uint64_t)1 << 63)
#define NAME "model.gguf"

struct range {
    uint64_t lo, n;
};

/* A journal: sizes of the model before, after and now; ranges; the units that its head names are more
 * by `more`, and its bytes by `longer`. */
struct head {
    uint64_t before, after, size;
    struct range range[4];
    int more, longer;
    const char *name;
    const char *foreign; /* "": it fits; NULL: it is not whole */
};

static const char outside[] = "its ranges lie outside",
                  sized[] = "it is for a file of another size", named[] = "it names another file";

static size_t ranges_of(const struct head *h, uint64_t *units)
{
    size_t n = 0;
    *units = 0;
    for (; n < 4 && (h->range[n].lo || h->range[n].n); n++)
        *units += h->range[n].n / U + (h->range[n].n % U != 0);
    return n;
}

/* The journal as a file. */
static int write_head(const struct head *h)
{
    CLEANUP(buf_free) struct buf fixed = BUF_INIT, b = BUF_INIT;
    uint64_t units, named_units, src = U;
    size_t n = ranges_of(h, &units);
    const uint64_t rest = units > 100 ? U : U + units * U;
    named_units = units > 100 ? 1 : units + (uint64_t)h->more;
    const char *name = h->name ? h->name : NAME;
    buf_str(&fixed, PATCH_MAGIC);
    buf_uint(&fixed, U, 4, false);
    buf_uint(&fixed, strlen(name), 4, false);
    buf_uint(&fixed, h->before, 8, false);
    buf_uint(&fixed, h->after, 8, false);
    buf_uint(&fixed, n, 8, false);
    buf_uint(&fixed, named_units, 8, false);
    buf_uint(&fixed, rest, 8, false);
    buf_uint(&fixed, patch_sum(0, fixed.data, fixed.len), 8, false);
    for (size_t i = 0; i < n; i++) {
        buf_uint(&b, h->range[i].lo, 8, false);
        buf_uint(&b, h->range[i].n, 8, false);
        buf_uint(&b, src, 8, false);
        src += (h->range[i].n + U - 1) / U * U;
    }
    for (uint64_t i = 0; i < named_units; i++)
        buf_uint(&b, 1000 + i, 8, false);
    buf_str(&b, name);
    buf_uint(&b, patch_sum(patch_sum(0, fixed.data, fixed.len - 8), b.data, b.len), 8, false);
    int fd = memfd_create("journal", MFD_CLOEXEC);
    CU_ASSERT_EQUAL_FATAL(pwrite(fd, fixed.data, fixed.len, 0), (ssize_t)fixed.len);
    CU_ASSERT_EQUAL_FATAL(pwrite(fd, b.data, b.len, (off_t)rest), (ssize_t)b.len);
    uint64_t size = rest + b.len + units * PATCH_ROW;
    if (units <= 100)
        CU_ASSERT_EQUAL(ftruncate(fd, (off_t)size + h->longer), 0);
    return fd;
}

static const struct head heads[] = {
    /* Whole units, but at the end of the model; in order, and apart. */
    {3 * U + 100, 3 * U + 100, 3 * U + 100, {{0, U}}, 0, 0, NULL, ""},
    {3 * U + 100, 3 * U + 100, 3 * U + 100, {{0, 3 * U + 100}}, 0, 0, NULL, ""},
    {3 * U + 100, 3 * U + 100, 3 * U + 100, {{2 * U, U + 100}}, 0, 0, NULL, ""},
    {3 * U + 100, 3 * U + 100, 3 * U + 100, {{U, U}, {3 * U, 100}}, 0, 0, NULL, ""},
    {3 * U + 100, 3 * U + 100, 3 * U + 100, {{0, U}, {U, U}}, 0, 0, NULL, ""},
    {4 * U, 4 * U, 4 * U, {{3 * U, U}}, 0, 0, NULL, ""},
    {3 * U, 3 * U, 3 * U, {{1, U}}, 0, 0, NULL, outside},
    {3 * U, 3 * U, 3 * U, {{U / 2, U}}, 0, 0, NULL, outside},
    {3 * U, 3 * U, 3 * U, {{U, 0}}, 0, 0, NULL, outside},
    {3 * U, 3 * U, 3 * U, {{U, U}, {2 * U, 0}}, 0, 0, NULL, outside},
    {3 * U, 3 * U, 3 * U, {{0, 2 * U}, {U, U}}, 0, 0, NULL, outside},
    {3 * U, 3 * U, 3 * U, {{2 * U, U}, {0, U}}, 0, 0, NULL, outside},
    {3 * U, 3 * U, 3 * U, {{0, 100}}, 0, 0, NULL, outside},
    {3 * U, 3 * U, 3 * U, {{U, U + 1}}, 0, 0, NULL, outside},
    {3 * U, 3 * U, 3 * U, {{3 * U, U}}, 0, 0, NULL, outside},
    {3 * U + 100, 3 * U + 100, 3 * U + 100, {{3 * U, 101}}, 0, 0, NULL, outside},
    {3 * U, 3 * U, 3 * U, {{-U, U}}, 0, 0, NULL, outside},
    {3 * U, 3 * U, 3 * U, {{U, -U}}, 0, 0, NULL, outside},
    {3 * U, 3 * U, 3 * U, {{0}}, 0, 0, NULL, outside}, /* nothing */
    /* What the model did not have before is there, and begins where that ended, or before. */
    {U + 10, 2 * U + 20, U + 10, {{U, U + 20}}, 0, 0, NULL, ""},
    {U + 10, 2 * U + 20, U + 10, {{0, 2 * U + 20}}, 0, 0, NULL, ""},
    {U + 10, 2 * U + 20, U + 10, {{0, U}, {U, U + 20}}, 0, 0, NULL, ""},
    {2 * U, 2 * U + 20, 2 * U, {{2 * U, 20}}, 0, 0, NULL, ""},
    {2 * U, 3 * U, 2 * U, {{0, U}, {2 * U, U}}, 0, 0, NULL, ""},
    {U + 10, 2 * U + 20, U + 10, {{0, U}}, 0, 0, NULL, outside},
    {U + 10, 2 * U + 20, U + 10, {{2 * U, 20}}, 0, 0, NULL, outside},
    {U + 10, 2 * U + 20, U + 10, {{0, U}, {2 * U, 20}}, 0, 0, NULL, outside},
    {U + 10, 2 * U + 20, U + 10, {{0}}, 0, 0, NULL, outside},
    {2 * U + 1, 2 * U, 2 * U, {{0, U}}, 0, 0, NULL, outside},
    {HALF - 1, HALF - 1, U, {{0, U}}, 0, 0, NULL, sized},
    {HALF, HALF, U, {{0, U}}, 0, 0, NULL, outside},
    /* The size that the model has now. */
    {2 * U, 2 * U + 20, 2 * U + 20, {{2 * U, 20}}, 0, 0, NULL, ""},
    {2 * U, 2 * U + 20, 2 * U + 7, {{2 * U, 20}}, 0, 0, NULL, ""},
    {2 * U, 2 * U + 20, 2 * U - 1, {{2 * U, 20}}, 0, 0, NULL, sized},
    {2 * U, 2 * U + 20, 2 * U + 21, {{2 * U, 20}}, 0, 0, NULL, sized},
    /* Names, numbers of units, and bytes behind the head. */
    {2 * U, 2 * U, 2 * U, {{0, U}}, 0, 0, "model.ggu", named},
    {2 * U, 2 * U, 2 * U, {{0, U}}, 0, 0, "model.gguff", named},
    {2 * U, 2 * U, 2 * U, {{0, U}}, 0, 0, "model.gguF", named},
    {2 * U, 2 * U, 2 * U, {{0, U}}, 1, 0, NULL, outside},
    {2 * U, 2 * U, 2 * U, {{0, U}}, -1, 0, NULL, outside},
    {2 * U, 2 * U, 2 * U, {{0, U}}, 0, -1, NULL, NULL},
    {2 * U, 2 * U, 2 * U, {{0, U}}, 0, 1, NULL, NULL},
    {U + 10, U + 10, U + 10, {{U, 10}}, 0, -1, NULL, NULL},
    {U + 10, U + 10, U + 10, {{U, 10}}, 0, 1, NULL, NULL},
};

static void check_ranges(const struct head *h, const struct patch *p)
{
    uint64_t units, stretches = 0, unit = 0;
    size_t n = ranges_of(h, &units);
    CU_ASSERT_EQUAL(p->n_range, n);
    CU_ASSERT_EQUAL(p->units, units);
    CU_ASSERT_TRUE(p->before == h->before && p->after == h->after);
    for (size_t i = 0; i < n; i++) {
        const struct patch_range *r = &p->range[i];
        CU_ASSERT_TRUE(r->lo == h->range[i].lo && r->n == h->range[i].n);
        CU_ASSERT_TRUE(r->unit == unit && r->stretch == stretches);
        unit += (r->n + U - 1) / U;
        stretches += (r->n + S - 1) / S;
    }
    CU_ASSERT_EQUAL(p->stretches, stretches);
    for (uint64_t i = 0; i < units; i++)
        CU_ASSERT_EQUAL(p->sum[i], 1000 + i);
}

static void test_heads(void)
{
    for (size_t i = 0; i < COUNT(heads); i++) {
        const struct head *h = &heads[i];
        struct patch p = PATCH_INIT;
        bool whole = !h->foreign;
        const char *foreign = "?";
        int fd = write_head(h);
        CU_ASSERT_EQUAL(patch_load(&sys_libc, fd, NAME, h->size, &p, &whole, &foreign), 0);
        CU_ASSERT_EQUAL(whole, h->foreign != NULL);
        const char *want = h->foreign && *h->foreign ? h->foreign : NULL;
        bool same = want && foreign ? strcmp(want, foreign) == 0 : want == foreign;
        if (!same)
            (void)printf("\n%zu: %s\n", i, foreign ? foreign : "it fits");
        CU_ASSERT_TRUE(same);
        if (whole && !foreign)
            check_ranges(h, &p);
        if (whole)
            patch_free(&p);
        else
            (void)close(fd);
    }
}

/* The first part of a head with numbers, and a rest of zeros whose sum is right, in a file of that size. */
static const struct {
    uint64_t name_len, ranges, units, file;
    const char *foreign; /* NULL: it is not whole */
} counts[] = {
    {10, 0, 64, 64 * PATCH_ROW, outside}, /* a row in the table for each unit */
    {10, 0, 64, 64 * PATCH_ROW - 1, NULL},
    {10, 0, UINT64_MAX / PATCH_ROW, (uint64_t)1 << 40, NULL},
    /* Of a sparse file not more is held than an edit may have. */
    {10, 0, PATCH_MAX_UNITS + 1, (uint64_t)1 << 40, "it is too large"},
    {10, PATCH_MAX_UNITS + 1, 0, (uint64_t)1 << 40, "it is too large"},
    {10, 0, (uint64_t)1 << 30, (uint64_t)1 << 40, "it is too large"},
    {10, (uint64_t)1 << 34, 0, (uint64_t)1 << 40, "it is too large"},
    {NAME_MAX, 0, 1, (uint64_t)1 << 40, outside},
    {NAME_MAX + 1, 0, 1, (uint64_t)1 << 40, named},
    {UINT32_MAX, 0, 1, (uint64_t)1 << 40, named},
};

static int write_counts(size_t i)
{
    static uint8_t zeros[1 << 10];
    CLEANUP(buf_free) struct buf b = BUF_INIT;
    uint8_t sum[8];
    const size_t n = (size_t)(8 * counts[i].units + counts[i].name_len);
    buf_str(&b, PATCH_MAGIC);
    buf_uint(&b, U, 4, false);
    buf_uint(&b, counts[i].name_len, 4, false);
    buf_uint(&b, 3 * U, 8, false);
    buf_uint(&b, 3 * U, 8, false);
    buf_uint(&b, counts[i].ranges, 8, false);
    buf_uint(&b, counts[i].units, 8, false);
    buf_uint(&b, PATCH_FIXED, 8, false);
    const uint64_t before = patch_sum(0, b.data, b.len);
    buf_uint(&b, before, 8, false);
    int fd = memfd_create("journal", MFD_CLOEXEC);
    CU_ASSERT_EQUAL(pwrite(fd, b.data, b.len, 0), (ssize_t)b.len);
    if (n <= sizeof(zeros)) {
        put_u64(sum, patch_sum(before, zeros, n), false);
        CU_ASSERT_EQUAL(pwrite(fd, sum, 8, (off_t)(PATCH_FIXED + n)), 8);
    }
    CU_ASSERT_EQUAL(ftruncate(fd, (off_t)counts[i].file), 0);
    return fd;
}

static void test_counts(void)
{
    for (size_t i = 0; i < COUNT(counts); i++) {
        struct patch p = PATCH_INIT;
        bool whole = false;
        const char *foreign = NULL;
        int fd = write_counts(i);
        CU_ASSERT_EQUAL(patch_load(&sys_libc, fd, NAME, 3 * U, &p, &whole, &foreign), 0);
        CU_ASSERT_EQUAL(whole, counts[i].foreign != NULL);
        CU_ASSERT_STRING_EQUAL(foreign ? foreign : "", counts[i].foreign ? counts[i].foreign : "");
        if (whole)
            patch_free(&p);
        else
            (void)close(fd);
    }
}

/* Files that are too short for the first part of a head, for its rest, or for the table. */
static void test_short(void)
{
    int fd = write_head(&heads[0]);
    const off_t size = lseek(fd, 0, SEEK_END);
    static uint8_t bytes[3 * U];
    CU_ASSERT_TRUE_FATAL(size > (off_t)(2 * U) && size < (off_t)sizeof(bytes));
    CU_ASSERT_EQUAL(pread(fd, bytes, (size_t)size, 0), size);
    for (off_t n = 0; n < size; n = n == PATCH_FIXED + 60 ? (off_t)(2 * U - 10) : n + 1) {
        struct patch p;
        bool whole = true;
        const char *foreign = "?";
        int part = memfd_create("part", MFD_CLOEXEC);
        CU_ASSERT_EQUAL(pwrite(part, bytes, (size_t)n, 0), n);
        CU_ASSERT_EQUAL(patch_load(&sys_libc, part, NAME, 3 * U + 100, &p, &whole, &foreign), 0);
        CU_ASSERT_FALSE(whole);
        CU_ASSERT_PTR_NULL(foreign);
        (void)close(part);
    }
    (void)close(fd);
}

/* A row for each stretch: its first unit, its place in the model, its bytes, those of before, and its place in the
 * journal. */
static const struct {
    uint64_t no, at;
    size_t n, old_n, units;
    uint64_t src;
} stretches[] = {
    {0, 0, U, U, 1, 9 * U},
    {1, 2 * U, S, S, PATCH_UNITS, U},
    {1 + PATCH_UNITS, 2 * U + S, U, U, 1, U + S},
    {2 + PATCH_UNITS, 40 * U, S, 5 * U + 3, PATCH_UNITS, 99 * U},
    {2 + 2 * PATCH_UNITS, 40 * U + S, 1, 0, 1, 99 * U + S},
};

static int seen_stretches;

static int see(void *arg, struct patch_stretch *u)
{
    const int i = seen_stretches++;
    CU_ASSERT_TRUE(u->no == stretches[i].no && u->at == stretches[i].at);
    CU_ASSERT_TRUE(u->n == stretches[i].n && u->old_n == stretches[i].old_n);
    CU_ASSERT_EQUAL(u->units, stretches[i].units);
    CU_ASSERT_EQUAL(u->src, stretches[i].src);
    return i == *(int *)arg ? 7 : 0;
}

static void test_stretches(void)
{
    struct patch_range range[] = {{.lo = 0, .n = U, .src = 9 * U},
                                  {.lo = 2 * U, .n = S + U, .src = U},
                                  {.lo = 40 * U, .n = S + 1, .src = 99 * U}};
    struct patch p = {.range = range, .n_range = 3, .before = 45 * U + 3};
    int stop = -1;
    patch_number(&p);
    CU_ASSERT_EQUAL(p.units, 3 + 2 * PATCH_UNITS);
    CU_ASSERT_EQUAL(p.stretches, COUNT(stretches));
    CU_ASSERT_EQUAL(patch_each(&p, see, &stop), 0);
    CU_ASSERT_EQUAL(seen_stretches, COUNT(stretches));
    seen_stretches = 0;
    stop = 2;
    CU_ASSERT_EQUAL(patch_each(&p, see, &stop), 7);
    CU_ASSERT_EQUAL(seen_stretches, 3);
    /* The rest of the head: ranges, sums, the name, its own sum. */
    CU_ASSERT_EQUAL(patch_rest_bytes(&p, 10), 3 * 24 + p.units * 8 + 10 + 8);
}

static CU_TestInfo tests[] = {
    {"heads that are taken, and those that are not", test_heads},
    {"numbers in the first part of a head", test_counts},
    {"files that are too short", test_short},
    {"stretches of ranges", test_stretches},
    CU_TEST_INFO_NULL,
};

CU_MAIN("patch head", tests)

/* SPDX-License-Identifier: MIT */
/* model/imatrix: both formats of importance matrices, and files that are refused. */
#include "cu_test.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/bytes.h"
#include "build_gguf.h"
#include "model/imatrix.h"

/* Parse a file. Returns NULL if it is refused; the message must then contain `why`. */
static struct imatrix *parse(const void *bytes, size_t n, const char *why)
{
    const struct source s = source_mem(bytes, n);
    struct imatrix *m = NULL;
    struct err e = {0};
    const int r = imatrix_parse(&s, "it", &m, &e);
    CU_ASSERT_EQUAL(r == 0, why == NULL);
    CU_ASSERT_TRUE(r == 0 || (r == e.code && (r == -EBADMSG || r == -ENODATA)));
    CU_SAYS(!why || strstr(e.msg, why), "want '%s', is '%s'", why, e.msg);
    return m;
}

static void add(struct build *b, const char *name, uint64_t n, const float *v)
{
    CLEANUP(buf_free) struct buf bytes = BUF_INIT;
    for (uint64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, v + i, sizeof(bits));
        buf_uint(&bytes, bits, 4, b->fmt.big);
    }
    build_tensor(b, name, 0, &n, 1, bytes.data, bytes.len);
}

static struct imatrix *finish(struct build *b, const char *why)
{
    size_t n;
    uint8_t *image = build_finish(b, &n);
    struct imatrix *m = parse(image, n, why);
    if (!why) /* no truncated file is accepted */
        for (size_t i = 0; i < n - 31; i++) {
            const struct source s = source_mem(image, i);
            struct imatrix *part = NULL;
            CU_ASSERT_TRUE(imatrix_parse(&s, "it", &part, NULL) < 0);
        }
    free(image);
    return m;
}

static void has(const struct imatrix *m, const char *name, uint64_t n, const float *v)
{
    const struct imatrix_row *r = imatrix_find(m, name, strlen(name));
    CU_ASSERT_PTR_NOT_NULL_FATAL(r);
    CU_ASSERT_EQUAL_FATAL(r->n, n);
    CU_ASSERT_EQUAL(memcmp(r->of, v, n * sizeof(float)), 0);
}

TEST("GGUF files of either byte order are read")
{
    static const float sums[] = {8, 0, 2, 4, 6, 8}, one = 2, three[] = {2, 0, 4};
    for (unsigned big = 0; big < 2; big++) {
        struct build b = build_of(3, big);
        build_text(&b, "general.type=imatrix|imatrix.chunk_count:u32=7");
        add(&b, "a.counts", 1, &one);
        add(&b, "a.in_sum2", 6, sums);
        add(&b, "e.in_sum2", 6, sums);
        add(&b, "e.counts", 3, three);
        add(&b, "other", 1, &one);
        struct imatrix *m = finish(&b, NULL);
        CU_ASSERT_PTR_NOT_NULL_FATAL(m);
        CU_ASSERT_EQUAL(m->n, 2);
        has(m, "a", 6, (const float[]){4, 0, 1, 2, 3, 4});
        has(m, "e", 6, (const float[]){4, 0, 1, 1, 1.5f, 2}); /* expert 1 saw no tokens */
        CU_ASSERT_PTR_NULL(imatrix_find(m, "other", 5));
        CU_ASSERT_PTR_NULL(imatrix_find(NULL, "a", 1));
        imatrix_free(m);
    }
}

TEST("bad GGUF files are refused")
{
    static const float ok[] = {1, 2, 3, 4}, bad[] = {NAN, INFINITY, -1, -INFINITY, 0x1p63f};
    static const struct {
        const char *tensors, *why;
    } rows[] = {
        {">a.in_sum2 F32 4", "'a.in_sum2': has no matching tensor '....counts'"},
        {">a.counts F32 4", "'a.counts': has no matching tensor '....in_sum2'"},
        {">a.in_sum2 F32 4|>a.counts F32 3", "4 sums and 3 counts"},
        {">a.in_sum2 F32 0|>a.counts F32 1", "0 sums and 1 counts"},
        {">a.in_sum2 F32 4|>a.counts F32 0", "4 sums and 0 counts"},
        {">a.in_sum2 F16 1|>a.counts F32 1", "not a pair of F32"},
        {">a.in_sum2 F32 4|>a.counts F16 1", "not a pair of F32"},
        {">a.in_sum2 F32 9223372036854775808 16", "a.in_sum2"},
        {">a.in_sum2 F32 4|>a.counts F32 1|>a.in_sum2 F32 4|>a.counts F32 1", "a.in_sum2"},
        {">a F32 4", "is not an importance matrix"},
    };
    struct build b;
    for (size_t i = 0; i < 5; i++) {
        const float sums[4] = {1, 2, 3, bad[i]};
        const bool fine = i == 4; /* 2^63 is as valid as any other count */
        b = build_of(3, false);
        add(&b, "a.in_sum2", 4, ok);
        add(&b, "a.counts", 1, &bad[i]);
        imatrix_free(finish(&b, fine ? NULL : "'a.in_sum2': count 0 is"));
        b = build_of(3, false);
        add(&b, "a.in_sum2", 4, sums);
        add(&b, "a.counts", 1, ok);
        imatrix_free(finish(&b, fine ? NULL : "'a.in_sum2': number 3 is"));
    }
    for (size_t i = 0; i < COUNT(rows); i++) {
        b = build_of(3, false);
        build_text(&b, rows[i].tensors);
        (void)finish(&b, rows[i].why);
    }
}

static void put_row(struct buf *b, const char *name, uint32_t calls, uint32_t n, const float *v)
{
    buf_uint(b, name ? strlen(name) : 65536, 4, false);
    buf_str(b, name ? name : "");
    buf_uint(b, calls, 4, false);
    buf_uint(b, n, 4, false);
    for (uint32_t i = 0; i < n && v; i++) {
        uint32_t bits;
        memcpy(&bits, v + i, sizeof(bits));
        buf_uint(b, bits, 4, false);
    }
}

TEST("files in the older list format are read")
{
    static const float v[] = {2, 4, 6};
    CLEANUP(buf_free) struct buf b = BUF_INIT;
    buf_uint(&b, 2, 4, false);
    put_row(&b, "a", 2, 3, v);
    put_row(&b, "b", 0, 3, v);
    for (size_t i = 0; i < b.len; i++)
        imatrix_free(parse(b.data, i, i < 4 ? "too short" : "the file ends in"));
    struct imatrix *m = parse(b.data, b.len, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(m);
    has(m, "a", 3, (const float[]){1, 2, 3});
    has(m, "b", 3, v);
    imatrix_free(m);
    buf_uint(&b, 9, 4, false);
    m = parse(b.data, b.len, NULL);
    CU_ASSERT_TRUE(m && m->n == 2);
    imatrix_free(m);
}

TEST("bad lists are refused")
{
    static const float v[] = {2, NAN, 6}, ok[] = {1};
    static const struct {
        uint32_t entries;
        const char *name;
        uint32_t n;
        const float *v;
        const char *why;
    } rows[] = {
        {0, "a", 1, ok, "the number of tensors is 0"},
        {UINT32_MAX, "a", 1, ok, "the number of tensors is -1"},
        {1, "", 1, ok, "the length of a name is 0"},
        {1, "a", 0, ok, "a number of columns is 0"},
        {1, NULL, 0, NULL, "a name has 65536 bytes"},
        {1, "a", 0x7fffffff, NULL, "the file ends in importances"},
        {1, "a", 0x80000000, NULL, "a number of columns is -"},
        {1, "a\n", 3, v, "'a\\x0a': number 1 is nan"},
        {3, "a", 1, ok, "the file ends in"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        CLEANUP(buf_free) struct buf b = BUF_INIT;
        buf_uint(&b, rows[i].entries, 4, false);
        for (uint32_t k = 0; k < (rows[i].entries < 3 ? rows[i].entries : 1) || k < 1; k++)
            put_row(&b, rows[i].name, 1, rows[i].n, rows[i].v);
        (void)parse(b.data, b.len, rows[i].why);
    }
}

TEST("rows fit tensors whose dimensions match")
{
    float of[12] = {0};
    const struct imatrix_row row = {.of = of, .n = 12};
    static const struct {
        uint32_t n_dims;
        uint64_t dims[4];
        uint64_t matrix; /* 0: the shape is refused */
    } rows[] = {{1, {12}, 12},      {2, {12, 5}, 60}, {3, {4, 5, 3}, 20}, {4, {2, 1, 3, 2}, 2},
                {3, {12, 5, 2}, 0}, {2, {4, 3}, 0},   {0, {0}, 0},        {2, {0, 5}, 0}};
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct quant_importances imp = {0};
        struct err e = {0};
        const int r = imatrix_fit(&row, rows[i].n_dims, rows[i].dims, &imp, &e);
        CU_ASSERT_EQUAL(r, rows[i].matrix ? 0 : -EINVAL);
        CU_ASSERT_EQUAL(imp.matrix, rows[i].matrix);
        CU_ASSERT_TRUE(r || (imp.of == of && imp.columns == rows[i].dims[0] && imp.first == 0));
        CU_ASSERT_TRUE(r == 0 || strstr(e.msg, "has 12 columns"));
    }
}

TEST("files are opened, or refused with a reason")
{
    struct imatrix *m = NULL;
    struct err e = {0};
    char path[64];
    struct buf b = BUF_INIT;
    buf_uint(&b, 1, 4, false);
    put_row(&b, "a", 2, 1, (const float[]){2});
    const int fd = memfd_create("matrix", MFD_CLOEXEC);
    CU_ASSERT_EQUAL(write(fd, b.data, b.len), (ssize_t)b.len);
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    CU_ASSERT_EQUAL(imatrix_open("/no/such\x01/matrix", &m, &e), -ENOENT);
    CU_ASSERT_EQUAL(imatrix_open("/tmp", &m, &e), -EISDIR);
    CU_ASSERT_EQUAL(imatrix_open("/proc/self/exe", &m, &e), -EBADMSG);
    CU_ASSERT_PTR_NULL(m);
    CU_ASSERT_EQUAL_FATAL(imatrix_open(path, &m, &e), 0);
    CU_ASSERT_EQUAL(m->n, 1);
    CU_ASSERT_EQUAL(memcmp(m->path.data, path, m->path.len), 0);
    imatrix_free(m);
    buf_free(&b);
    (void)close(fd);
}

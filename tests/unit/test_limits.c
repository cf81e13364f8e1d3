/* SPDX-License-Identifier: MIT */
/* gguf_parse: the cost of parsing a file. */
#include "cu_main.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "alloc.h"
#include "base/bytes.h"
#include "build_gguf.h"
#include "gguf/gguf.h"

/* Parse with fresh counters. *calls: allocations; *peak: maximum number of bytes allocated at
 * once. */
static int parse(const void *image, size_t n, struct gguf **ret, unsigned *calls, size_t *peak)
{
    struct source s = source_mem(image, n);
    struct err e = {0};
    *ret = NULL;
    alloc_count();
    int r = gguf_parse(&s, 0, ret, &e);
    *calls = alloc_calls();
    *peak = alloc_peak();
    if (r < 0 && !strstr(e.msg, " at byte "))
        CU_FAIL("an error without a place");
    return r;
}

/* ---- many names ---- */

static void test_many_keys(void)
{
    enum { N = 200000 };
    struct build b;
    struct gguf *g;
    size_t n, peak;
    unsigned calls;
    char key[16];
    build_init(&b, 3, false);
    for (uint32_t i = 0; i < N; i++) {
        (void)snprintf(key, sizeof(key), "key.%u", i);
        build_u32(&b, key, i);
    }
    uint8_t *image = build_finish(&b, &n);
    CU_ASSERT_EQUAL_FATAL(parse(image, n, &g, &calls, &peak), 0);
    CU_ASSERT_TRUE(calls < 64);
    CU_ASSERT_EQUAL(g->n_kv, N);
    uint32_t wrong = 0;
    for (uint32_t i = 0; i < N; i++) {
        (void)snprintf(key, sizeof(key), "key.%u", i);
        wrong += gguf_find_key(g, key, strlen(key)) != i;
    }
    CU_ASSERT_EQUAL(wrong, 0);
    gguf_free(g);
    /* If the first and the last key have the same name, the message names both. */
    uint8_t *last = image + n - 4 - 4 - strlen("key.199999");
    memcpy(last, "key.199998", 10);
    CU_ASSERT_EQUAL(parse(image, n, &g, &calls, &peak), -EBADMSG);
    CU_ASSERT_PTR_NULL(g);
    free(image);
}

/* ---- memory depends on the file, not on its claims ---- */

/* Whatever number overwrites part of a 1 MiB image, the parser allocates no more memory than the
 * file's size justifies. */
static void test_claims(void)
{
    static const struct {
        uint32_t at;
        uint64_t value;
    } row[] = {
        {8, UINT64_MAX},        {8, 1ull << 40},  {8, 50000},       {16, UINT64_MAX},
        {16, 1ull << 32},       {16, 100000},     {24, 1ull << 30}, {24, UINT64_MAX},
        {24, 1000000},          {45, 1ull << 30}, {45, UINT64_MAX}, {45, 1ull << 60},
        {45, (1ull << 61) + 1}, {45, 130000},
    };
    struct build b;
    size_t n, peak;
    unsigned calls;
    build_init(&b, 3, false);
    build_array(&b, "k.str", GGUF_STRING, 1); /* count at 45 */
    build_item_str(&b, "");
    buf_zero(&b.keys, 1 << 20);
    uint8_t *image = build_finish(&b, &n);
    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        struct gguf *g;
        uint64_t was = get_u64(image + row[i].at, false);
        put_u64(image + row[i].at, row[i].value, false);
        (void)parse(image, n, &g, &calls, &peak);
        CU_ASSERT_TRUE(peak < 8 * n);
        gguf_free(g);
        put_u64(image + row[i].at, was, false);
    }
    free(image);
}

/* Read from a 1 TiB file that contains only zeros after a count. */
static int read_counts(const struct source *s, uint64_t off, void *dst, size_t n)
{
    memset(dst, 0, n);
    for (size_t i = 0; i < n && off + i < 24; i++)
        ((uint8_t *)dst)[i] = ((const uint8_t *)s->mem)[off + i];
    return 0;
}

static void test_too_many(void)
{
    for (size_t at = 8; at <= 16; at += 8) {
        uint8_t head[24] = "GGUF\3";
        struct source s = {.size = (uint64_t)1 << 40, .read = read_counts, .mem = head, .fd = -1};
        struct gguf *g = NULL;
        struct err e = {0};
        put_u64(head + at, GGUF_MAX_ITEMS + 1, false);
        CU_ASSERT_EQUAL(gguf_parse(&s, 0, &g, &e), -EFBIG);
        CU_ASSERT_STRING_EQUAL(e.msg, at == 8 ? "number of tensors at byte 8: 16777217 is over the "
                                                "limit of 16777216"
                                              : "number of keys at byte 16: 16777217 is over the "
                                                "limit of 16777216");
        /* The limit itself is accepted; parsing then fails at the second entry. */
        put_u64(head + at, GGUF_MAX_ITEMS, false);
        CU_ASSERT_EQUAL(gguf_parse(&s, 0, &g, &e), -EBADMSG);
        CU_ASSERT_PTR_NOT_NULL(strstr(e.msg, at == 8 ? "tensor 1" : "key 0"));
        CU_ASSERT_PTR_NULL(g);
    }
}

static CU_TestInfo tests[] = {
    {"200,000 keys are found, and duplicate names are refused", test_many_keys},
    {"false claims in a file cost no memory", test_claims},
    {"more keys or tensors than the limit are refused", test_too_many},
    CU_TEST_INFO_NULL,
};

CU_MAIN("limits", tests)

/* SPDX-License-Identifier: MIT */
/* edit/plan: files that cannot be edited, and bytes that are not a valid value. */
#include "cu_main.h"

#include <errno.h>
#include <stdlib.h>

#include "base/bytes.h"
#include "build_gguf.h"
#include "changes.h"
#include "edit/plan.h"

enum { F32 = 0, I8 = 24, UNKNOWN = 200 };

static void put_regular(struct build *b)
{
    build_tensor(b, "one", F32, (uint64_t[]){5}, 1, NULL, 20);
    build_tensor(b, "two", I8, (uint64_t[]){3, 7}, 2, NULL, 21);
    build_tensor(b, "whole", F32, (uint64_t[]){64, 2}, 2, NULL, 512);
    build_tensor(b, "last", I8, (uint64_t[]){1}, 1, NULL, 1);
}

static int refuse(struct build *b, const char *op, const void *value, size_t n, unsigned flags,
                  size_t cut)
{
    struct edit_options o = EDIT_OPTIONS_INIT;
    struct edit_plan p = EDIT_PLAN_INIT;
    struct err e = {0};
    CLEANUP(edit_change_free) struct edit_change c;
    size_t size;
    uint8_t *bytes = build_finish(b, &size);
    struct source s = source_mem(bytes, size - cut);
    struct gguf *g = NULL;
    CU_ASSERT_EQUAL_FATAL(gguf_parse(&s, flags, &g, NULL), 0);
    uint32_t type = *op == 's' ? GGUF_STRING : *op == 'a' ? GGUF_ARRAY : GGUF_U32;
    edit_change_init(&c, &(struct edit_base){.g = g});
    CU_ASSERT_EQUAL(set_bytes(&c, "key", 3, type, value, n, EDIT_LAST, NULL), 0);
    int r = edit_plan_make(&c, &o, &p, &e);
    CU_ASSERT_EQUAL(e.code, r);
    CU_ASSERT_EQUAL(e.msg[0] != '\0', r < 0);
    CU_ASSERT_PTR_NULL(r < 0 ? p.head.data : NULL);
    edit_plan_free(&p);
    gguf_free(g);
    free(bytes);
    return r;
}

static void test_refused_files(void)
{
    struct build b;
    build_init(&b, 1, false);
    CU_ASSERT_EQUAL(refuse(&b, "u", "abcd", 4, 0, 0), -EROFS);
    build_init(&b, 2, false);
    b.fmt.nul = true;
    build_str(&b, "x", "y");
    CU_ASSERT_EQUAL(refuse(&b, "u", "abcd", 4, 0, 0), -EROFS);
    build_init(&b, 3, false);
    build_raw(&b, "key\0x", 5, GGUF_U32, "abcd", 4); /* the new key equals this one up to a NUL */
    CU_ASSERT_EQUAL(refuse(&b, "u", "abcd", 4, 0, 0), -EINVAL);
    build_init(&b, 3, false);
    put_regular(&b);
    CU_ASSERT_EQUAL(refuse(&b, "u", "abcd", 4, GGUF_PARTIAL, 32), -EROFS);
    build_init(&b, 3, false); /* a tensor of unknown type that begins where the file ends */
    build_tensor_at(&b, "empty", UNKNOWN, (uint64_t[]){8}, 1, 32, NULL, 0);
    build_tensor_at(&b, "full", F32, (uint64_t[]){8}, 1, 0, NULL, 32);
    CU_ASSERT_EQUAL(refuse(&b, "u", "abcd", 4, 0, 0), -EROFS);
    build_init(&b, 3, false); /* a tensor of unknown type without elements */
    build_tensor(&b, "none", UNKNOWN, (uint64_t[]){0}, 1, NULL, 0);
    put_regular(&b);
    CU_ASSERT_EQUAL(refuse(&b, "u", "abcd", 4, 0, 0), 0);
    build_init(&b, 3, false);
    put_regular(&b);
    CU_ASSERT_EQUAL(refuse(&b, "u", "abcd", 4, 0, 0), 0);
}

/* Bytes other than exactly one value of the type are refused, even if they could be read as
 * something else. */
static void test_refused_values(void)
{
    static const uint8_t text[] = {3, 0, 0, 0, 0, 0, 0, 0, 'a', 'b', 'c', 0, 0, 0};
    static const uint8_t list[] = {4, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 9, 9, 9, 9};
    static const uint8_t wrong[] = {99, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 9, 9, 9, 9};
    /* A u32, then a key "q" with a value. */
    static const uint8_t two[] = {1, 2, 3, 4, 1, 0, 0, 0, 0, 0, 0, 0, 'q', 4, 0, 0, 0, 5, 6, 7, 8};
    static const struct {
        const char *op;
        const void *value;
        size_t n;
        int code;
    } cases[] = {
        {"u", "abcd", 4, 0},      {"u", "abc", 3, -EINVAL}, {"u", "abcde", 5, -EINVAL},
        {"u", "", 0, -EINVAL},    {"s", text, 11, 0},       {"s", text, 10, -EINVAL},
        {"s", text, 12, -EINVAL}, {"s", text, 7, -EINVAL},  {"a", list, 16, 0},
        {"a", list, 12, -EINVAL}, {"a", list, 15, -EINVAL}, {"a", wrong, 16, -EINVAL},
        {"u", two, 4, 0},         {"u", two, 21, -EINVAL},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        for (int more = 0; more < 4; more++) {
            struct build b;
            build_init(&b, 3, false);
            build_u32(&b, "key", 1);
            if (more % 2) /* a value that is too short would swallow the bytes of this key */
                build_str(&b, "z", "zzzzzzzzzzzzzzzzzzzz");
            if (more < 2)
                put_regular(&b);
            CU_ASSERT_EQUAL(refuse(&b, cases[i].op, cases[i].value, cases[i].n, 0, 0),
                            cases[i].code);
        }
}

static void test_large_header(void)
{
    struct build b;
    size_t n;
    struct gguf *g = NULL;
    struct err e = {0};
    const struct edit_options o = {.reserve = 65536};
    CLEANUP(edit_change_free) struct edit_change c;
    CLEANUP(edit_plan_free) struct edit_plan p = EDIT_PLAN_INIT;
    build_init(&b, 3, false);
    put_regular(&b);
    uint8_t *bytes = build_finish(&b, &n);
    struct source s = source_mem(bytes, n);
    CU_ASSERT_EQUAL_FATAL(gguf_parse(&s, 0, &g, NULL), 0);
    struct buf value = {.data = malloc(1), .len = GGUF_MAX_HEADER - 65536};
    struct edit_value *v = edit_value_make(GGUF_STRING, &value);
    edit_change_init(&c, &(struct edit_base){.g = g});
    CU_ASSERT_EQUAL(edit_set(&c, "large", 5, v, EDIT_LAST, NULL), 0);
    CU_ASSERT_EQUAL(edit_plan_make(&c, &o, &p, &e), -EFBIG);
    CU_ASSERT_STRING_EQUAL(e.msg, "the header would be over 4294967296 bytes");
    edit_value_unref(v);
    gguf_free(g);
    free(bytes);
}

static CU_TestInfo tests[] = {
    {"a header that becomes too large with its reserve is refused", test_large_header},
    {"files that cannot be edited are refused", test_refused_files},
    {"bytes that are not a value are refused", test_refused_values},
    CU_TEST_INFO_NULL,
};

CU_MAIN("plan_refuse", tests)

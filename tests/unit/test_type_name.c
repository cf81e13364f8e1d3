/* SPDX-License-Identifier: MIT */
/* text/text.h: names of types with inner arrays, and texts parsed with such names. */
#include "alloc.h"
#include "cu_main.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gguf/gguf.h"
#include "text/text.h"

static const struct gguf_format v3 = {.version = 3, .len_width = 8};
static const struct gguf_format v3_big = {.version = 3, .len_width = 8, .big = true};

static int parse(const struct gguf_format *fmt, const char *type, const char *text,
                 const struct gguf_value *old, struct buf *payload, struct err *e)
{
    struct type_name t;
    CU_ASSERT_TRUE_FATAL(type_name_get(type, strlen(type), &t));
    return text_parse(fmt, &t, (const uint8_t *)text, strlen(text), old, payload, e);
}

static bool name_is(const struct gguf_value *v, const char *name)
{
    CLEANUP(buf_free) struct buf got = BUF_INIT;
    type_name_put(v, &got);
    bool same = got.len == strlen(name) && memcmp(got.data, name, got.len) == 0;
    if (!same)
        (void)printf("\n%.*s, not %s\n", (int)got.len, (const char *)got.data, name);
    return same;
}

/* Types, texts parsed with them, and the names of the resulting types. */
static const struct {
    const char *type, *text, *name;
} rows[] = {
    {"u8", "7", "u8"},
    {"string", "x", "string"},
    {"array[i16]", "1\n2\n", "array[i16]"},
    {"array[array]", "", "array[array]"},
    {"array[array[u8]]", "", "array[array]"},
    {"array[array]", "[1]\n[2]\n", "array[array[u32]]"},
    {"array[array[u8]]", "[1]\n[2]\n[]\n", "array[array[u8]]"},
    {"array[array[u8],array[u8]]", "[1]\n[2]\n", "array[array[u8]]"},
    {"array[array[f64]]", "[1]\n[2.5]\n", "array[array[f64]]"},
    {"array[array[i32]*2,array[string]]", "[1]\n[2]\n[\"a\"]\n",
     "array[array[i32]*2,array[string]]"},
    {"array[array[i32]*2,array[string]]", "[1]\n[2]\n[\"a\"]\n[\"b\"]\n",
     "array[array[i32]*2,array[string]*2]"},
    {"array[array[i32]*5,array[string]]", "[1]\n", "array[array[i32]]"},
    {"array[array[array[i8]]]", "[[1],[2]]\n[[]]\n", "array[array[array[i8]]]"},
    {"array[array[array[i8],array[u64]],array[bool]]", "[[1],[2]]\n[true]\n",
     "array[array[array[i8],array[u64]],array[bool]]"},
    {"array[array[array]]", "[[1],[\"x\"]]\n", "array[array[array[u32],array[string]]]"},
    {"array[array[array]]", "[]\n", "array[array[array]]"},
    {"array[array[array[array[i8]*2,array[u64]]],array[bool]*2,array[array]]",
     "[[[1],[2],[3],[4]],[[5]]]\n[true]\n[false]\n[[1.5]]\n[[\"x\"]]\n",
     "array[array[array[array[i8]*2,array[u64]*2],array[array[i8]]],array[bool]*2,"
     "array[array[f32]],array[array[string]]]"},
};

static void test_rows(void)
{
    for (size_t i = 0; i < 2 * sizeof(rows) / sizeof(rows[0]); i++) {
        const struct gguf_format *fmt = i & 1 ? &v3_big : &v3;
        CLEANUP(buf_free) struct buf payload = BUF_INIT, text = BUF_INIT, again = BUF_INIT;
        struct err e = {0};
        int r = parse(fmt, rows[i / 2].type, rows[i / 2].text, NULL, &payload, &e);
        if (r < 0)
            (void)printf("\n%s: %s\n", rows[i / 2].type, e.msg);
        CU_ASSERT_EQUAL_FATAL(r, 0);
        struct type_name t;
        CU_ASSERT_TRUE(type_name_get(rows[i / 2].type, strlen(rows[i / 2].type), &t));
        struct gguf_value v = gguf_value_at(fmt, t.type, payload.data);
        CU_ASSERT_TRUE(name_is(&v, rows[i / 2].name));
        /* Parsed with that name, the text gives the same bytes. */
        text_value(&text, &v);
        buf_char(&text, '\0');
        CU_ASSERT_EQUAL(parse(fmt, rows[i / 2].name, (char *)text.data, NULL, &again, &e), 0);
        CU_ASSERT_EQUAL(again.len, payload.len);
        CU_ASSERT_TRUE(payload.len == 0 || memcmp(again.data, payload.data, payload.len) == 0);
    }
}

static void test_no_names(void)
{
    static const char *const names[] = {
        "",
        "array",
        "array[]",
        "array[u8",
        "array[u9]",
        "u8]",
        "array[u8]]",
        "array[array[]]",
        "array[array[u8],]",
        "array[array[u8],u8]",
        "array[array[u8]*]",
        "array[array[u8]*0]",
        "array[array[u8]*-1]",
        "array[array[u8]*99999999999]",
        "array[array[u8]array[u8]]",
        "array[,array[u8]]",
        "array[u8,u8]",
        "array[array[array[array[array[array[array[array[array[u8]]]]]]]]]",
        "]array[u8]",
        "array[]]u8[]",
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        struct type_name t;
        bool found = type_name_get(names[i], strlen(names[i]), &t);
        if (found)
            (void)printf("\n%s\n", names[i]);
        CU_ASSERT_FALSE(found);
    }
}

/* Values that do not fit a given inner type are refused. If no inner type is given, it is
 * inferred. */
static void test_refused(void)
{
    CLEANUP(buf_free) struct buf payload = BUF_INIT;
    struct err e = {0};
    CU_ASSERT_EQUAL(parse(&v3, "array[array[u8]]", "[1]\n[256]\n", NULL, &payload, &e), -ERANGE);
    CU_ASSERT_PTR_NOT_NULL(strstr(e.msg, "line 2"));
    CU_ASSERT_EQUAL(parse(&v3, "array[array[u8]]", "[\"a\"]\n", NULL, &payload, &e), -EINVAL);
    CU_ASSERT_EQUAL(parse(&v3, "array[array[string]]", "[1]\n", NULL, &payload, &e), -EINVAL);
    CU_ASSERT_EQUAL(parse(&v3, "array[array[array[u8]]]", "[1]\n", NULL, &payload, &e), -EINVAL);
    CU_ASSERT_EQUAL(payload.len, 0);
    CU_ASSERT_EQUAL(parse(&v3, "array[array]", "[256]\n", NULL, &payload, &e), 0);
}

/* A given type applies even if the old value has another one. If the types are the same, the bytes
 * of the old value are kept. */
static void test_old(void)
{
    CLEANUP(buf_free) struct buf old = BUF_INIT, other = BUF_INIT, kept = BUF_INIT;
    CU_ASSERT_EQUAL(parse(&v3, "array[array[bool]]", "[true]\n", NULL, &old, NULL), 0);
    old.data[old.len - 1] = 9; /* this byte also means true */
    struct gguf_value v = gguf_value_at(&v3, GGUF_ARRAY, old.data);
    CU_ASSERT_EQUAL(parse(&v3, "array[array[bool]]", "[true]\n", &v, &kept, NULL), 0);
    CU_ASSERT_TRUE(kept.len == old.len && memcmp(kept.data, old.data, old.len) == 0);
    CU_ASSERT_EQUAL(parse(&v3, "array[array[u8]]", "[1]\n", NULL, &other, NULL), 0);
    struct gguf_value w = gguf_value_at(&v3, GGUF_ARRAY, other.data);
    buf_free(&kept);
    CU_ASSERT_EQUAL(parse(&v3, "array[array[u16]]", "[1]\n", &w, &kept, NULL), 0);
    struct gguf_value now = gguf_value_at(&v3, GGUF_ARRAY, kept.data);
    CU_ASSERT_TRUE(name_is(&now, "array[array[u16]]"));
}

/* A name that would be too long omits the inner types. */
static void test_long(void)
{
    CLEANUP(buf_free) struct buf text = BUF_INIT, payload = BUF_INIT;
    for (int i = 0; i < 10000; i++)
        buf_str(&text, i % 2 ? "[1]\n" : "[\"x\"]\n");
    buf_char(&text, '\0');
    CU_ASSERT_EQUAL(parse(&v3, "array[array]", (char *)text.data, NULL, &payload, NULL), 0);
    struct gguf_value v = gguf_value_at(&v3, GGUF_ARRAY, payload.data);
    CU_ASSERT_TRUE(name_is(&v, "array[array]"));
}

/* "array[array[array[bool],array[u8],...]]": 18 KB. */
static void long_name(struct buf *out)
{
    buf_str(out, "array[array[");
    for (unsigned k = 0; k < 1600; k++)
        buf_str(out, k % 2 ? ",array[u8]" : &",array[bool]"[k == 0]);
    buf_str(out, "]]");
    buf_char(out, '\0');
}

/* Two different inner types like this would make the name too long, but equal ones are named only
 * once. */
static void test_long_and_equal(void)
{
    CLEANUP(buf_free) struct buf name = BUF_INIT, text = BUF_INIT, payload = BUF_INIT;
    long_name(&name);
    for (unsigned i = 0; i < 3; i++) {
        buf_char(&text, '[');
        for (unsigned k = 0; k < 1600; k++)
            buf_str(&text, k % 2 ? ",[7]" : &",[true]"[k == 0]);
        buf_str(&text, "]\n");
    }
    buf_char(&text, '\0');
    CU_ASSERT_EQUAL(parse(&v3, (char *)name.data, (char *)text.data, NULL, &payload, NULL), 0);
    struct gguf_value v = gguf_value_at(&v3, GGUF_ARRAY, payload.data);
    CU_ASSERT_TRUE(name_is(&v, (char *)name.data));
}

/* Naming many inner arrays requires only a few allocations. */
static void check_memory(const char *line)
{
    CLEANUP(buf_free) struct buf text = BUF_INIT, payload = BUF_INIT, name = BUF_INIT;
    for (int i = 0; i < 1000; i++)
        buf_str(&text, line);
    buf_char(&text, '\0');
    CU_ASSERT_EQUAL(parse(&v3, "array[array]", (char *)text.data, NULL, &payload, NULL), 0);
    struct gguf_value v = gguf_value_at(&v3, GGUF_ARRAY, payload.data);
    alloc_count();
    type_name_put(&v, &name);
    CU_ASSERT_TRUE(alloc_calls() < 8);
}

static void test_memory(void)
{
    check_memory("[1]\n");
    check_memory("[]\n");
    check_memory("[[1],[\"x\"],[\"x\"]]\n");
    check_memory("[[[1]],[]]\n");
}

static CU_TestInfo tests[] = {
    {"types are parsed, printed and named", test_rows},
    {"names that are not types are refused", test_no_names},
    {"values that do not fit a given inner type are refused", test_refused},
    {"a given type overrides that of the old value", test_old},
    {"a name that would be too long omits the inner types", test_long},
    {"equal long inner types are named once", test_long_and_equal},
    {"an allocation for a name fails", test_memory},
    CU_TEST_INFO_NULL,
};

CU_MAIN("type_name", tests)

/* SPDX-License-Identifier: MIT */
/* text/text with random values and texts, and with prefixes of texts. */
#include "cu_main.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "text/text.h"

static const struct gguf_format v3 = {.version = 3, .len_width = 8};
static const struct gguf_format v2_big = {.version = 2, .len_width = 8, .big = true};
static const struct gguf_format *const formats[] = {&v3, &v2_big};
enum { FORMATS = 2 };

static void same(const struct buf *got, const struct buf *want, const char *what)
{
    bool ok =
        got->len == want->len && (want->len == 0 || memcmp(got->data, want->data, want->len) == 0);
    CU_ASSERT_TRUE(ok);
    if (!ok)
        (void)fprintf(stderr, "%s differs\n", what);
}

/* State of xorshift64, which returns the same numbers in every run. */
static uint64_t state;

static uint64_t rnd(uint64_t below)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (state >> 11) % below;
}

static void random_number(struct buf *b, const struct gguf_format *fmt, uint32_t type)
{
    uint64_t bits = rnd(1ull << 32) << 32 | rnd(1ull << 32);
    buf_uint(b, type == GGUF_BOOL ? bits % 3 : bits, gguf_types[type].width, fmt->big);
}

static void random_string(struct buf *b, const struct gguf_format *fmt)
{
    static const char *const piece[] = {
        "a",    "\"",           "\\", "\n",       "\xc3\xa9",         "\xff",
        "\x01", "\xed\xa0\x80", " ",  "ordinary", "\xf0\x9f\x98\x80", "\xe4\xb8"};
    CLEANUP(buf_free) struct buf s = BUF_INIT;
    for (uint64_t i = rnd(6); i > 0; i--)
        buf_str(&s, piece[rnd(12)]);
    buf_uint(b, s.len, 8, fmt->big);
    buf_add(b, s.data, s.len);
}

/* True once an inner array of f64 was made. If its text is parsed without the old value, it becomes
 * f32. */
static bool inner_f64;

static void random_value(struct buf *b, const struct gguf_format *fmt, uint32_t type, int depth);

static void random_array(struct buf *b, const struct gguf_format *fmt, uint32_t elem, int depth)
{
    uint64_t count = rnd(5);
    inner_f64 |= depth > 1 && elem == GGUF_F64;
    buf_uint(b, elem, 4, fmt->big);
    buf_uint(b, count, 8, fmt->big);
    for (; count > 0; count--)
        random_value(b, fmt, elem, depth);
}

static void random_value(struct buf *b, const struct gguf_format *fmt, uint32_t type, int depth)
{
    if (type == GGUF_STRING)
        random_string(b, fmt);
    else if (type == GGUF_ARRAY) /* the innermost arrays do not contain arrays */
        random_array(b, fmt, depth < 3 ? (uint32_t)rnd(GGUF_VALUE_TYPES) : (uint32_t)GGUF_I16,
                     depth + 1);
    else
        random_number(b, fmt, type);
}

/* Check that no prefix of an accepted text is refused early. */
static void hopeful(const struct gguf_value *v, const struct buf *text)
{
    for (size_t n = 0; n <= text->len; n++)
        if (text_prefix_check(v->type, v->elem, text->data, n) != 0)
            CU_FAIL("the beginning of a good text is refused");
}

/* Check that a value's text written over the value gives the same bytes, and that the text alone
 * gives a value with the same text. */
static void round_trip(const struct gguf_value *v, const struct buf *payload)
{
    CLEANUP(buf_free) struct buf text = BUF_INIT;
    CLEANUP(buf_free) struct buf got = BUF_INIT;
    CLEANUP(buf_free) struct buf again = BUF_INIT;
    CLEANUP(buf_free) struct buf anew = BUF_INIT;
    text_value(&text, v);
    hopeful(v, &text);
    CU_ASSERT_EQUAL(text_parse(v->fmt, &(struct type_name){.type = v->type, .elem = v->elem},
                               text.data, text.len, v, &got, NULL),
                    0);
    same(&got, payload, "round trip");
    int r = text_parse(v->fmt, &(struct type_name){.type = v->type, .elem = v->elem}, text.data,
                       text.len, NULL, &anew, NULL);
    CU_ASSERT_TRUE(r == 0 || (r == -EILSEQ && v->type == GGUF_STRING));
    if (r < 0)
        return;
    struct gguf_value w = gguf_value_at(v->fmt, v->type, anew.data);
    CU_ASSERT_PTR_EQUAL(gguf_value_end(&w), anew.data + anew.len);
    text_value(&again, &w);
    if (!inner_f64)
        same(&again, &text, "text anew");
}

static void test_random_round_trip(void)
{
    state = 0x243f6a8885a308d3;
    for (int i = 0; i < 6000; i++) {
        CLEANUP(buf_free) struct buf payload = BUF_INIT;
        const struct gguf_format *fmt = formats[i % FORMATS];
        uint32_t type = (uint32_t)i / 2 % GGUF_VALUE_TYPES;
        inner_f64 = false;
        random_value(&payload, fmt, i % 3 ? type : (uint32_t)GGUF_ARRAY, 0);
        struct gguf_value v = gguf_value_at(fmt, i % 3 ? type : (uint32_t)GGUF_ARRAY, payload.data);
        round_trip(&v, &payload);
    }
}

static void mutate(struct buf *text)
{
    static const char bytes[] = "[],\"\\u- \n\r0123e.tn\x80\xff";
    for (uint64_t i = 1 + rnd(3); i > 0 && text->len; i--)
        text->data[rnd(text->len)] = (uint8_t)bytes[rnd(sizeof(bytes) - 1)];
}

/* Damaged texts are refused with a message, or give a value whose text is stable. */
static void test_random_damage(void)
{
    state = 0x13198a2e03707344;
    for (int i = 0; i < 6000; i++) {
        CLEANUP(buf_free) struct buf payload = BUF_INIT;
        CLEANUP(buf_free) struct buf text = BUF_INIT;
        CLEANUP(buf_free) struct buf got = BUF_INIT;
        struct err e = {0};
        inner_f64 = false;
        random_value(&payload, &v3, GGUF_ARRAY, 0);
        struct gguf_value v = gguf_value_at(&v3, GGUF_ARRAY, payload.data);
        text_value(&text, &v);
        mutate(&text);
        int r = text_parse(&v3, &(struct type_name){.type = GGUF_ARRAY, .elem = v.elem}, text.data,
                           text.len, &v, &got, &e);
        if (r < 0) {
            CU_ASSERT_EQUAL(got.len, 0);
            CU_ASSERT_EQUAL(strncmp(e.msg, "line ", 5), 0);
            continue;
        }
        hopeful(&v, &text);
        struct gguf_value w = gguf_value_at(&v3, GGUF_ARRAY, got.data);
        round_trip(&w, &got);
    }
}

static void hopeless(uint32_t type, uint32_t elem, const char *text, int code)
{
    int r = text_prefix_check(type, elem, (const uint8_t *)text, strlen(text));
    CU_ASSERT_EQUAL(r, code);
    if (r != code)
        (void)fprintf(stderr, "'%s': %d\n", text, r);
}

static void test_prefix(void)
{
    hopeless(GGUF_U32, 0, "abc", -EINVAL);
    hopeless(GGUF_U32, 0, "12x", -EINVAL);
    hopeless(GGUF_U32, 0, "1.", -EINVAL);
    hopeless(GGUF_U32, 0, "1 2", -EINVAL);
    hopeless(GGUF_U32, 0, "- ", -EINVAL);
    hopeless(GGUF_U32, 0, "-1", -ERANGE);
    hopeless(GGUF_U8, 0, "300", -ERANGE);
    hopeless(GGUF_U8, 0, "256\n", -ERANGE);
    hopeless(GGUF_F32, 0, "1.5x", -EINVAL);
    hopeless(GGUF_F32, 0, "0x", -EINVAL);
    hopeless(GGUF_F32, 0, "inx", -EINVAL);
    hopeless(GGUF_F32, 0, "1e ", -EINVAL);
    hopeless(GGUF_F32, 0, "1e39\n", -ERANGE);
    hopeless(GGUF_BOOL, 0, "yes", -EINVAL);
    hopeless(GGUF_BOOL, 0, "tru\n", -EINVAL);
    hopeless(GGUF_BOOL, 0, "truex", -EINVAL);
    hopeless(GGUF_ARRAY, GGUF_I32, "abc", -EINVAL);
    hopeless(GGUF_ARRAY, GGUF_I32, "1\r\nx", 0); /* only the first line is examined */
    hopeless(GGUF_ARRAY, GGUF_U8, "300\n1\n", -ERANGE);
    hopeless(GGUF_ARRAY, GGUF_STRING, "abc", -EINVAL);
    hopeless(GGUF_ARRAY, GGUF_ARRAY, "1", -EINVAL);
}

static void test_prefix_hope(void)
{
    static const char *const numbers[] = {"", " ", "\n", "-", "+", " 12", "4294967295 \r\n\n"};
    static const char *const floats[] = {
        "-",  ".",  "1.",     "1e",   "1e-",
        "na", "-i", "infini", "1e99", "9999999999999999999999999999999999999999"};
    static const char *const bools[] = {"", "t", "tru", " f", "true\n", "false \n"};
    static const char *const arrays[] = {"", " \n", "[", "[1", "1\n2\n3", "-"};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        hopeless(GGUF_U32, 0, numbers[i], 0);
    for (size_t i = 0; i < sizeof(floats) / sizeof(floats[0]); i++)
        hopeless(GGUF_F32, 0, floats[i], 0);
    for (size_t i = 0; i < sizeof(bools) / sizeof(bools[0]); i++)
        hopeless(GGUF_BOOL, 0, bools[i], 0);
    for (size_t i = 0; i < sizeof(arrays) / sizeof(arrays[0]); i++)
        hopeless(GGUF_ARRAY, GGUF_I32, arrays[i], 0);
    hopeless(GGUF_STRING, 0, "\xff", 0);
    hopeless(GGUF_ARRAY, GGUF_STRING, "[\"", 0);
}

/* Each write checks the beginning of the text. Only the first 4096 bytes of a long text (here,
 * blanks) are read; the rest is inaccessible. */
static void test_long_beginning(void)
{
    const struct {
        uint32_t type, elem;
    } rows[] = {{GGUF_U32, 0},
                {GGUF_F32, 0},
                {GGUF_BOOL, 0},
                {GGUF_ARRAY, GGUF_U8},
                {GGUF_ARRAY, GGUF_STRING},
                {GGUF_ARRAY, GGUF_ARRAY}};
    size_t n = 1 << 20, page = (size_t)sysconf(_SC_PAGESIZE);
    uint8_t *text = mmap(NULL, n, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CU_ASSERT_FATAL(text != MAP_FAILED);
    CU_ASSERT_EQUAL_FATAL(mprotect(text, page, PROT_READ | PROT_WRITE), 0);
    memset(text, ' ', page);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        CU_ASSERT_EQUAL(text_prefix_check(rows[i].type, rows[i].elem, text, n), 0);
    /* The first line does not end. */
    memset(text, '1', page);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        (void)text_prefix_check(rows[i].type, rows[i].elem, text, n);
    /* An error near the beginning is found. */
    text[4000] = 'x';
    memset(text, ' ', 4000);
    CU_ASSERT_EQUAL(text_prefix_check(GGUF_ARRAY, GGUF_STRING, text, n), -EINVAL);
    CU_ASSERT_EQUAL(text_prefix_check(GGUF_U32, 0, text, 4001), -EINVAL);
    (void)munmap(text, n);
}

static CU_TestInfo tests[] = {
    {"random values survive a round trip", test_random_round_trip},
    {"randomly damaged text is refused or stable", test_random_damage},
    {"prefixes that cannot become valid are refused", test_prefix},
    {"prefixes that can become valid are not refused", test_prefix_hope},
    {"a long prefix is not read completely", test_long_beginning},
    CU_TEST_INFO_NULL,
};

CU_MAIN("text_round", tests)

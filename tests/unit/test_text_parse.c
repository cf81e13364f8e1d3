/* SPDX-License-Identifier: MIT */
/* tree/text_parse: metadata values from text. */
#include "cu_main.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "gguf/gguf.h"
#include "text/text.h"

static const struct gguf_format v3 = {.version = 3, .len_width = 8};
static const struct gguf_format v2_big = {.version = 2, .len_width = 8, .big = true};
static const struct gguf_format *const formats[] = {&v3, &v2_big};
enum { FORMATS = 2 };

/* Build a payload from parts: 1, 2 and 4 are numbers of that many bytes (unsigned), 8 is a number
 * of eight bytes (uint64_t), s is a string (const char *), and a begins an array (element type and
 * count, both unsigned). */
static void vput(struct buf *b, const struct gguf_format *fmt, const char *parts, va_list ap)
{
    for (; *parts; parts++) {
        if (*parts == 's') {
            const char *s = va_arg(ap, const char *);
            buf_uint(b, strlen(s), 8, fmt->big);
            buf_str(b, s);
        } else if (*parts == 'a') {
            buf_uint(b, va_arg(ap, unsigned), 4, fmt->big);
            buf_uint(b, va_arg(ap, unsigned), 8, fmt->big);
        } else if (*parts == '8')
            buf_uint(b, va_arg(ap, uint64_t), 8, fmt->big);
        else
            buf_uint(b, va_arg(ap, unsigned), (size_t)(*parts - '0'), fmt->big);
    }
}

static void put(struct buf *b, const struct gguf_format *fmt, const char *parts, ...)
{
    va_list ap;
    va_start(ap, parts);
    vput(b, fmt, parts, ap);
    va_end(ap);
}

static int parse(const struct gguf_format *fmt, uint32_t type, uint32_t elem, const char *text,
                 const struct gguf_value *old, struct buf *payload, struct err *e)
{
    return text_parse(fmt, type, elem, (const uint8_t *)text, strlen(text), old, payload, e);
}

static void same(const struct buf *got, const struct buf *want, const char *text)
{
    bool ok = got->len == want->len && memcmp(got->data, want->data, want->len) == 0;
    CU_ASSERT_TRUE(ok);
    if (!ok)
        (void)fprintf(stderr, "wrong bytes for '%s'\n", text);
}

/* Check that the text gives these parts in both byte orders. */
static void gives(uint32_t type, uint32_t elem, const char *text, const char *parts, ...)
{
    for (int i = 0; i < FORMATS; i++) {
        CLEANUP(buf_free) struct buf want = BUF_INIT, got = BUF_INIT;
        struct err e = {0};
        va_list ap;
        va_start(ap, parts);
        vput(&want, formats[i], parts, ap);
        va_end(ap);
        CU_ASSERT_EQUAL(parse(formats[i], type, elem, text, NULL, &got, &e), 0);
        CU_ASSERT_STRING_EQUAL(e.msg, "");
        same(&got, &want, text);
        buf_free(&want);
    }
}

/* Check that the text is refused with this message, and that the buffer keeps its earlier
 * content. */
static void refuses(uint32_t type, uint32_t elem, const char *text, int code, const char *line)
{
    CLEANUP(buf_free) struct buf b = BUF_INIT;
    struct err e = {0};
    buf_str(&b, "before");
    CU_ASSERT_EQUAL(parse(&v3, type, elem, text, NULL, &b, &e), code);
    CU_ASSERT_EQUAL(e.code, code);
    CU_ASSERT_STRING_EQUAL(e.msg, line);
    if (strcmp(e.msg, line) != 0)
        (void)fprintf(stderr, "'%s': %s\n", text, e.msg);
    CU_ASSERT_EQUAL(b.len, 6);
    CU_ASSERT_EQUAL(memcmp(b.data, "before", 6), 0);
    CU_ASSERT_EQUAL(parse(&v3, type, elem, text, NULL, &b, NULL), code);
}

typedef void (*putter)(struct buf *b, const struct gguf_format *fmt);

/* Check that the text gives `want` when written over the value `was`. */
static void changes(uint32_t type, uint32_t elem, putter was, const char *text, putter want)
{
    for (int i = 0; i < FORMATS; i++) {
        CLEANUP(buf_free) struct buf a = BUF_INIT;
        CLEANUP(buf_free) struct buf b = BUF_INIT;
        CLEANUP(buf_free) struct buf got = BUF_INIT;
        was(&a, formats[i]);
        want(&b, formats[i]);
        struct gguf_value old = gguf_value_at(formats[i], type, a.data);
        CU_ASSERT_EQUAL(parse(formats[i], type, elem, text, &old, &got, NULL), 0);
        same(&got, &b, text);
    }
}

static void test_scalars(void)
{
    gives(GGUF_U8, 0, "255\n", "1", 255u);
    gives(GGUF_I8, 0, "-1\n", "1", 255u);
    gives(GGUF_U16, 0, "258\n", "2", 258u);
    gives(GGUF_I16, 0, "-2\n", "2", 0xfffeu);
    gives(GGUF_U32, 0, "8192\n", "4", 8192u);
    gives(GGUF_I32, 0, "-3\n", "4", 0xfffffffdu);
    gives(GGUF_F32, 0, "10000\n", "4", 0x461c4000u);
    gives(GGUF_BOOL, 0, "true\n", "1", 1u);
    gives(GGUF_U64, 0, "18446744073709551615\n", "8", UINT64_MAX);
    gives(GGUF_I64, 0, "-9223372036854775808\n", "8", (uint64_t)1 << 63);
    gives(GGUF_F64, 0, "0.1\n", "8", (uint64_t)0x3fb999999999999a);
}

static void test_scalar_errors(void)
{
    refuses(GGUF_U32, 0, "abc\n", -EINVAL, "'abc' is not an integer");
    refuses(GGUF_U32, 0, "", -EINVAL, "'' is not an integer");
    refuses(GGUF_U32, 0, "1\n2\n", -EINVAL, "'1\\x0a2' is not an integer");
    refuses(GGUF_U8, 0, "256\n", -ERANGE, "256 is outside the range of u8");
    refuses(GGUF_U64, 0, "-1\n", -ERANGE, "-1 is outside the range of u64");
    refuses(GGUF_F32, 0, "\x1b[1m\n", -EINVAL, "'\\x1b[1m' is not a number");
    refuses(GGUF_F32, 0, "1e39\n", -ERANGE, "1e39 is outside the range of f32");
    refuses(GGUF_BOOL, 0, "1\n", -EINVAL, "'1' is not true or false");
    refuses(GGUF_STRING, 0, "ab\xff\n", -EILSEQ, "byte 2 (0xff) is not valid UTF-8");
    refuses(GGUF_STRING, 0, "\xed\xa0\x80", -EILSEQ, "byte 0 (0xed) is not valid UTF-8");
}

static void test_strings(void)
{
    gives(GGUF_STRING, 0, "", "s", "");
    gives(GGUF_STRING, 0, "\n", "s", "");
    gives(GGUF_STRING, 0, "\n\n", "s", "\n");
    gives(GGUF_STRING, 0, "a", "s", "a");
    gives(GGUF_STRING, 0, "a\n", "s", "a");
    gives(GGUF_STRING, 0, "a\r\n", "s", "a\r");
    gives(GGUF_STRING, 0, " {{ x }}\n  y\n\n", "s", " {{ x }}\n  y\n");
    gives(GGUF_STRING, 0, "\xe4\xb8\xad\xf0\x9f\x98\x80\n", "s", "\xe4\xb8\xad\xf0\x9f\x98\x80");
}

/* A text of 1 GiB and two bytes, all of them inaccessible, is refused before it is read. */
static void test_too_big(void)
{
    size_t n = ((size_t)1 << 30) + 2;
    void *text = mmap(NULL, n, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CU_ASSERT_FATAL(text != MAP_FAILED);
    struct buf b = BUF_INIT;
    struct err e = {0};
    CU_ASSERT_EQUAL(text_parse(&v3, GGUF_STRING, 0, text, n, NULL, &b, &e), -EFBIG);
    CU_ASSERT_STRING_EQUAL(e.msg, "the value is over 1 GiB");
    CU_ASSERT_EQUAL(text_parse(&v3, GGUF_ARRAY, GGUF_U8, text, n, NULL, &b, &e), -EFBIG);
    CU_ASSERT_EQUAL(b.len, 0);
    (void)munmap(text, n);
}

static void test_array_forms(void)
{
    gives(GGUF_ARRAY, GGUF_I32, "1\n-2\n3\n", "a444", GGUF_I32, 3u, 1u, 0xfffffffeu, 3u);
    gives(GGUF_ARRAY, GGUF_I32, "1\r\n -2 \r\n3\r\n\r\n \n", "a444", GGUF_I32, 3u, 1u, 0xfffffffeu,
          3u);
    gives(GGUF_ARRAY, GGUF_I32, "[1, -2,3]", "a444", GGUF_I32, 3u, 1u, 0xfffffffeu, 3u);
    gives(GGUF_ARRAY, GGUF_I32, "\n [\n  1,\r\n  -2\n , 3]\n\n", "a444", GGUF_I32, 3u, 1u,
          0xfffffffeu, 3u);
    gives(GGUF_ARRAY, GGUF_U8, "7", "a1", GGUF_U8, 1u, 7u);
    gives(GGUF_ARRAY, GGUF_U64, "", "a", GGUF_U64, 0u);
    gives(GGUF_ARRAY, GGUF_U64, "\n\n", "a", GGUF_U64, 0u);
    gives(GGUF_ARRAY, GGUF_STRING, " [ ]\n", "a", GGUF_STRING, 0u);
    gives(GGUF_ARRAY, GGUF_STRING, "\"en\"\n\"fr\"\n", "ass", GGUF_STRING, 2u, "en", "fr");
    gives(GGUF_ARRAY, GGUF_STRING, "[\"en\", \"[1]\"]", "ass", GGUF_STRING, 2u, "en", "[1]");
    gives(GGUF_ARRAY, GGUF_BOOL, "true\nfalse\n", "a11", GGUF_BOOL, 2u, 1u, 0u);
    gives(GGUF_ARRAY, GGUF_F32, "NaN\nInfinity\n-Infinity\nnan\ninf\n-inf\n1e-05\n-0\n",
          "a44444444", GGUF_F32, 8u, 0x7fc00000u, 0x7f800000u, 0xff800000u, 0x7fc00000u,
          0x7f800000u, 0xff800000u, 0x3727c5acu, 0x80000000u);
    gives(GGUF_ARRAY, GGUF_F64, "0.1", "a8", GGUF_F64, 1u, (uint64_t)0x3fb999999999999a);
}

static void test_array_errors(void)
{
    refuses(GGUF_ARRAY, GGUF_I32, "1\n2\nabc\n", -EINVAL, "line 3: 'abc' is not an integer");
    refuses(GGUF_ARRAY, GGUF_I32, "1\n\n2\n", -EINVAL, "line 2: the line is empty");
    refuses(GGUF_ARRAY, GGUF_I32, "1 2\n", -EINVAL,
            "line 1: the end of the line is expected at '2\\x0a'");
    refuses(GGUF_ARRAY, GGUF_I32, "1,\n", -EINVAL,
            "line 1: the end of the line is expected at ',\\x0a'");
    refuses(GGUF_ARRAY, GGUF_I32, "1\n3000000000\n", -ERANGE,
            "line 2: 3000000000 is outside the range of i32");
    refuses(GGUF_ARRAY, GGUF_I32, "\"1\"\n", -EINVAL,
            "line 1: a number or bool is expected at '\"1\"\\x0a'");
    refuses(GGUF_ARRAY, GGUF_I32, "[1, 2", -EINVAL, "line 1: ',' or ']' is expected");
    refuses(GGUF_ARRAY, GGUF_I32, "[1,\n2,]", -EINVAL, "line 2: a value is expected at ']'");
    refuses(GGUF_ARRAY, GGUF_I32, "[1 2]", -EINVAL, "line 1: ',' or ']' is expected at '2]'");
    refuses(GGUF_ARRAY, GGUF_I32, "[1] 2\n", -EINVAL, "line 1: text follows the array");
    refuses(GGUF_ARRAY, GGUF_I32, "[[1]]\n", -EINVAL,
            "line 1: a number or bool is expected at '[1]]\\x0a'");
    refuses(GGUF_ARRAY, GGUF_I32, "[", -EINVAL, "line 1: a number or bool is expected");
    refuses(GGUF_ARRAY, GGUF_STRING, "en\n", -EINVAL,
            "line 1: a string in double quotes is expected");
    refuses(GGUF_ARRAY, GGUF_STRING, "\"a\"\n\"b\n", -EINVAL,
            "line 2: the string is not terminated");
    refuses(GGUF_ARRAY, GGUF_STRING, "\"a", -EINVAL, "line 1: the string is not terminated");
    refuses(GGUF_ARRAY, GGUF_STRING, "\"a\\", -EINVAL, "line 1: the string is not terminated");
    refuses(GGUF_ARRAY, GGUF_STRING, "\"\t\"", -EINVAL,
            "line 1: byte 0x09 in a string needs an escape");
    refuses(GGUF_ARRAY, GGUF_STRING, "\"\xff\"", -EILSEQ,
            "line 1: byte 0xff in a string is not valid UTF-8");
    refuses(GGUF_ARRAY, GGUF_STRING, "\"\\x\"", -EINVAL, "line 1: '\\x' is not an escape");
    refuses(GGUF_ARRAY, GGUF_STRING, "\"\\u12\"", -EINVAL, "line 1: \\u needs four hex digits");
    refuses(GGUF_ARRAY, GGUF_STRING, "\"\\ud83d\"", -EINVAL,
            "line 1: \\ud83d is half of a surrogate pair");
    refuses(GGUF_ARRAY, GGUF_STRING, "\"\\ud83d\\ud83d\"", -EINVAL,
            "line 1: \\ud83d is half of a surrogate pair");
    refuses(GGUF_ARRAY, GGUF_STRING, "\"\\udc7f\"", -EINVAL,
            "line 1: \\udc7f is half of a surrogate pair");
    refuses(GGUF_ARRAY, GGUF_STRING, "\"\\udd00\"", -EINVAL,
            "line 1: \\udd00 is half of a surrogate pair");
}

static void test_escapes(void)
{
    gives(GGUF_ARRAY, GGUF_STRING, "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "as", GGUF_STRING, 1u,
          "\"\\/\b\f\n\r\t");
    gives(GGUF_ARRAY, GGUF_STRING, "\"\\u0041\\u00e9\\u4E2D\\uD83D\\uDE00\"", "as", GGUF_STRING, 1u,
          "A\xc3\xa9\xe4\xb8\xad\xf0\x9f\x98\x80");
    gives(GGUF_ARRAY, GGUF_STRING, "\"\\udcff\\uDC80x\"", "as", GGUF_STRING, 1u, "\xff\x80x");
    gives(GGUF_ARRAY, GGUF_STRING, "\"\\ud800\\udc00\\udbff\\udfff\"", "as", GGUF_STRING, 1u,
          "\xf0\x90\x80\x80\xf4\x8f\xbf\xbf");
    gives(GGUF_ARRAY, GGUF_STRING, "\"\\uffff\\u07ff\\u0800\"", "as", GGUF_STRING, 1u,
          "\xef\xbf\xbf\xdf\xbf\xe0\xa0\x80");
    gives(GGUF_ARRAY, GGUF_STRING, "\"\\u0000\"", "a81", GGUF_STRING, 1u, (uint64_t)1, 0u);
}

static void odd_bool(struct buf *b, const struct gguf_format *fmt)
{
    put(b, fmt, "1", 2u);
}

static void no_bool(struct buf *b, const struct gguf_format *fmt)
{
    put(b, fmt, "1", 0u);
}

static void odd_nan(struct buf *b, const struct gguf_format *fmt)
{
    put(b, fmt, "4", 0xff800123u);
}

static void odd_string(struct buf *b, const struct gguf_format *fmt)
{
    put(b, fmt, "s", "a\xff\n");
}

static void cut_string(struct buf *b, const struct gguf_format *fmt)
{
    put(b, fmt, "s", "a");
}

static void two_lines(struct buf *b, const struct gguf_format *fmt)
{
    put(b, fmt, "s", "a\n");
}

static void test_unchanged(void)
{
    changes(GGUF_BOOL, 0, odd_bool, "true\n", odd_bool);
    changes(GGUF_BOOL, 0, odd_bool, " true", odd_bool);
    changes(GGUF_BOOL, 0, odd_bool, "false\n", no_bool);
    changes(GGUF_F32, 0, odd_nan, "nan\n", odd_nan);
    changes(GGUF_F32, 0, odd_nan, "nan\r\n", odd_nan);
    changes(GGUF_STRING, 0, odd_string, "a\xff\n\n", odd_string);
    changes(GGUF_STRING, 0, odd_string, "a", cut_string);
    changes(GGUF_STRING, 0, cut_string, "a\n", cut_string);
    changes(GGUF_STRING, 0, two_lines, "a\n", cut_string); /* equals the value, but not its text */
    changes(GGUF_STRING, 0, two_lines, "a\n\n", two_lines);
}

/* The text `nan` keeps the bits of an old NaN but not those of an old infinity. Other texts replace
 * an old NaN. */
static void test_nans(void)
{
    static const struct {
        uint32_t type;
        uint64_t was;
        const char *text;
        uint64_t want;
    } rows[] = {
        {GGUF_F32, 0x3fc00000, "2.5", 0x40200000},
        {GGUF_F32, 0x7f800001, "nan", 0x7f800001},
        {GGUF_F32, 0xff800001, "nan", 0xff800001},
        {GGUF_F32, 0x7f800000, "nan", 0x7fc00000},
        {GGUF_F32, 0x7fc00001, "inf", 0x7f800000},
        {GGUF_F32, 0x7fc00001, "-inf", 0xff800000},
        {GGUF_F32, 0x7fc00001, "-1", 0xbf800000},
        {GGUF_F64, 0x3ff8000000000000, "2.5", 0x4004000000000000},
        {GGUF_F64, 0x7ff0000000000001, "nan", 0x7ff0000000000001},
        {GGUF_F64, 0xfff0000000000001, "nan", 0xfff0000000000001},
        {GGUF_F64, 0x7ff0000000000000, "nan", 0x7ff8000000000000},
        {GGUF_F64, 0x7ff8000000000001, "inf", 0x7ff0000000000000},
        {GGUF_F64, 0x7ff8000000000001, "-inf", 0xfff0000000000000},
        {GGUF_F64, 0x7ff8000000000001, "-1", 0xbff0000000000000},
    };
    for (size_t i = 0; i < FORMATS * sizeof(rows) / sizeof(rows[0]); i++) {
        const struct gguf_format *fmt = formats[i % FORMATS];
        CLEANUP(buf_free) struct buf a = BUF_INIT, b = BUF_INIT, got = BUF_INIT;
        const unsigned width = rows[i / FORMATS].type == GGUF_F32 ? 4 : 8;
        buf_uint(&a, rows[i / FORMATS].was, width, fmt->big);
        buf_uint(&b, rows[i / FORMATS].want, width, fmt->big);
        struct gguf_value old = gguf_value_at(fmt, rows[i / FORMATS].type, a.data);
        const char *text = rows[i / FORMATS].text;
        CU_ASSERT_EQUAL(parse(fmt, rows[i / FORMATS].type, 0, text, &old, &got, NULL), 0);
        same(&got, &b, text);
    }
}

static void odd_array(struct buf *b, const struct gguf_format *fmt)
{
    put(b, fmt, "a444", GGUF_F32, 3u, 0x3f800000u, 0x7fc0beefu, 0xffc00000u);
}

static void odd_array_edited(struct buf *b, const struct gguf_format *fmt)
{
    put(b, fmt, "a4444", GGUF_F32, 4u, 0x40000000u, 0x7fc0beefu, 0x3f800000u, 0x7fc00000u);
}

static void bools(struct buf *b, const struct gguf_format *fmt)
{
    put(b, fmt, "a111", GGUF_BOOL, 3u, 255u, 1u, 3u);
}

static void bools_edited(struct buf *b, const struct gguf_format *fmt)
{
    put(b, fmt, "a111", GGUF_BOOL, 3u, 255u, 0u, 3u);
}

static void test_array_unchanged(void)
{
    changes(GGUF_ARRAY, GGUF_F32, odd_array, "1\nNaN\nNaN\n", odd_array);
    changes(GGUF_ARRAY, GGUF_F32, odd_array, "2\nNaN\n1\nNaN\n", odd_array_edited);
    changes(GGUF_ARRAY, GGUF_BOOL, bools, "[true, false, true]", bools_edited);
}

/* [[1, 2] u8, [nan] f64, [[true 5]], [] i16] */
static void nested(struct buf *b, const struct gguf_format *fmt)
{
    put(b, fmt, "aa11a8aa1a", GGUF_ARRAY, 4u, GGUF_U8, 2u, 1u, 2u, GGUF_F64, 1u,
        (uint64_t)0xfff8000000000007, GGUF_ARRAY, 1u, GGUF_BOOL, 1u, 5u, GGUF_I16, 0u);
}

static void test_nested(void)
{
    static const char *const other[] = {"", "[1, 2]\n[NaN]\n[[true]]\n[1]\n", "[1, 2]\n"};
    changes(GGUF_ARRAY, GGUF_ARRAY, nested, "[1, 2]\n[NaN]\n[[true]]\n[]\n", nested);
    CLEANUP(buf_free) struct buf b = BUF_INIT, got = BUF_INIT;
    nested(&b, &v3);
    const struct gguf_value old = gguf_value_at(&v3, GGUF_ARRAY, b.data);
    for (size_t i = 0; i < sizeof(other) / sizeof(other[0]); i++)
        CU_ASSERT_EQUAL(parse(&v3, GGUF_ARRAY, GGUF_ARRAY, other[i], &old, &got, NULL),
                        -EOPNOTSUPP);
    CU_ASSERT_EQUAL(parse(&v3, GGUF_ARRAY, GGUF_ARRAY, "[1]\n", NULL, &got, NULL), -EOPNOTSUPP);
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

static uint32_t random_elem(void)
{
    uint32_t elem = (uint32_t)rnd(GGUF_VALUE_TYPES);
    return elem == GGUF_ARRAY ? (uint32_t)GGUF_I16 : elem;
}

static void random_value(struct buf *b, const struct gguf_format *fmt, uint32_t type)
{
    if (type == GGUF_STRING) {
        random_string(b, fmt);
    } else if (type == GGUF_ARRAY) {
        const uint32_t elem = random_elem();
        uint64_t count = rnd(5);
        buf_uint(b, elem, 4, fmt->big);
        buf_uint(b, count, 8, fmt->big);
        for (; count > 0; count--)
            random_value(b, fmt, elem);
    } else {
        random_number(b, fmt, type);
    }
}

/* Check that a value's text written over the value gives the same bytes, and that the text alone
 * gives a value with the same text. */
static void round_trip(const struct gguf_value *v, const struct buf *payload)
{
    CLEANUP(buf_free) struct buf text = BUF_INIT, got = BUF_INIT, again = BUF_INIT, anew = BUF_INIT;
    text_value(&text, v);
    CU_ASSERT_EQUAL(text_parse(v->fmt, v->type, v->elem, text.data, text.len, v, &got, NULL), 0);
    same(&got, payload, "round trip");
    int r = text_parse(v->fmt, v->type, v->elem, text.data, text.len, NULL, &anew, NULL);
    CU_ASSERT_TRUE(r == 0 || (r == -EILSEQ && v->type == GGUF_STRING));
    if (r < 0)
        return;
    struct gguf_value w = gguf_value_at(v->fmt, v->type, anew.data);
    CU_ASSERT_PTR_EQUAL(gguf_value_end(&w), anew.data + anew.len);
    text_value(&again, &w);
    same(&again, &text, "text anew");
}

static void test_random_round_trip(void)
{
    state = 0x243f6a8885a308d3;
    for (int i = 0; i < 6000; i++) {
        CLEANUP(buf_free) struct buf payload = BUF_INIT;
        const struct gguf_format *fmt = formats[i % FORMATS];
        uint32_t type = i % 3 ? (uint32_t)i / 2 % GGUF_VALUE_TYPES : (uint32_t)GGUF_ARRAY;
        random_value(&payload, fmt, type);
        struct gguf_value v = gguf_value_at(fmt, type, payload.data);
        round_trip(&v, &payload);
    }
}

static void test_retype(void)
{
    CLEANUP(buf_free) struct buf a = BUF_INIT;
    CLEANUP(buf_free) struct buf got = BUF_INIT;
    CLEANUP(buf_free) struct buf want = BUF_INIT;
    put(&a, &v3, "a11", GGUF_U8, 2u, 1u, 2u);
    put(&want, &v3, "a88", GGUF_U64, 2u, (uint64_t)1, (uint64_t)2);
    struct gguf_value old = gguf_value_at(&v3, GGUF_ARRAY, a.data);
    CU_ASSERT_EQUAL(parse(&v3, GGUF_ARRAY, GGUF_U64, "1\n2\n", &old, &got, NULL), 0);
    same(&got, &want, "1 2");
}

static CU_TestInfo tests[] = {
    {"numbers and bools are parsed in both byte orders", test_scalars},
    {"text that is not a number or is too large is refused", test_scalar_errors},
    {"one newline at the end of a string is dropped", test_strings},
    {"text over 1 GiB is refused", test_too_big},
    {"arrays are parsed from lines and from JSON", test_array_forms},
    {"an error in an array names the line", test_array_errors},
    {"escapes in JSON strings are decoded", test_escapes},
    {"writing back the text shown changes no byte", test_unchanged},
    {"a NaN keeps the bits of an old NaN", test_nans},
    {"unchanged elements keep their bytes", test_array_unchanged},
    {"an array of arrays takes no other text than its own", test_nested},
    {"random values survive a round trip", test_random_round_trip},
    {"an old value of a different type is ignored", test_retype},
    CU_TEST_INFO_NULL,
};

CU_MAIN("text_parse", tests)

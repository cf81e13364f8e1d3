/* SPDX-License-Identifier: MIT */
/* text, gguf/value: metadata values as text and JSON, and back; names of files; names of keys, and the
 * types of standardized ones. */
#include "cu_test.h"

#include <cJSON.h>
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/buf.h"
#include "base/bytes.h"
#include "base/err.h"
#include "build_gguf.h"
#include "gguf/value.h"
#include "soak.h"
#include "text/json.h"
#include "text/name.h"
#include "text/number.h"
#include "text/text.h"

static const struct gguf_format v3 = {.version = 3, .len_width = 8};
static const struct gguf_format v2_big = {.version = 2, .len_width = 8, .big = true};
static const struct gguf_format v1_nul = {.version = 1, .len_width = 4, .nul = true};
static const struct gguf_format v1_draft = {.version = 1, .len_width = 4, .draft = true};
/* The first two can be written. */
static const struct gguf_format *const formats[] = {&v3, &v2_big, &v1_nul, &v1_draft};
enum { WRITABLE = 2 };

/* Check that two texts or payloads are equal. */
static void same(const struct buf *got, const void *want, size_t n, const char *what)
{
    bool is = got->len == n && (n == 0 || memcmp(got->data, want, n) == 0);
    CU_SAYS(is, "'%s': '%.*s'\n", what, (int)got->len, buf_text(got));
}

/* ---- values as text, and the text as values ---- */

/* A value's text, written over the value, gives the same bytes. The text alone gives a value with
 * the same text, unless it is no UTF-8 or has inner arrays. */
static void round_trip(const struct gguf_value *v, const struct buf *payload)
{
    CLEANUP(buf_free)
    struct buf text = BUF_INIT, over = BUF_INIT, again = BUF_INIT, anew = BUF_INIT;
    text_value(&text, v);
    CU_ASSERT_EQUAL(text_parse(v->fmt, v->type, v->elem, text.data, text.len, v, &over, NULL), 0);
    same(&over, payload->data, payload->len, "written over the value");
    int r = text_parse(v->fmt, v->type, v->elem, text.data, text.len, NULL, &anew, NULL);
    CU_ASSERT_TRUE(r == 0 || (r == -EILSEQ && v->type == GGUF_STRING) ||
                   (r == -EOPNOTSUPP && v->type == GGUF_ARRAY && v->elem == GGUF_ARRAY));
    if (r < 0)
        return;
    struct gguf_value w = gguf_value_at(v->fmt, v->type, anew.data);
    CU_ASSERT_PTR_EQUAL(gguf_value_end(&w), anew.data + anew.len);
    text_value(&again, &w);
    same(&again, text.data, text.len, "written anew");
}

static void check_written(void (*write)(struct buf *out, const struct gguf_value *v),
                          const struct gguf_value *v, const char *want)
{
    CLEANUP(buf_free) struct buf out = BUF_INIT;
    struct buf size = BUF_MEASURE;
    write(&out, v);
    write(&size, v);
    CU_ASSERT_EQUAL(buf_error(&out), 0);
    CU_ASSERT_EQUAL(size.len, out.len);
    same(&out, want, strlen(want), want);
}

/* Type, value, and how it is shown. */
static const struct {
    const char *type, *value, *text, *json;
} shown[] = {
    // clang-format off
    {"u8", "255", "255\n", "255"}, {"i8", "0x80", "-128\n", "-128"},
    {"u16", "65535", "65535\n", "65535"}, {"i16", "0x8000", "-32768\n", "-32768"},
    {"u32", "4294967295", "4294967295\n", "4294967295"}, {"i32", "-1", "-1\n", "-1"},
    {"u64", "-1", "18446744073709551615\n", "18446744073709551615"}, {"u64", "0", "0\n", "0"},
    {"i64", "0x8000000000000000", "-9223372036854775808\n", "-9223372036854775808"},
    {"i64", "0x7fffffffffffffff", "9223372036854775807\n", "9223372036854775807"},
    {"bool", "0", "false\n", "false"}, {"bool", "1", "true\n", "true"}, {"bool", "2", "true\n", "true"},
    {"f32", "0x3dcccccd", "0.1\n", "0.1"}, {"f32", "0x80000000", "-0\n", "-0"},
    {"f32", "0x7fc00001", "nan\n", "\"NaN\""}, {"f32", "0xff800123", "nan\n", "\"NaN\""},
    {"f32", "0x7f800000", "inf\n", "\"Infinity\""}, {"f32", "0xff800000", "-inf\n", "\"-Infinity\""},
    {"f64", "0xfff0000000000000", "-inf\n", "\"-Infinity\""},
    {"f32", "0x3eaaaaab", "0.33333334\n", "0.33333334"}, {"f32", "0x461c4000", "10000\n", "10000"},
    {"f32", "0x3727c5ac", "1e-05\n", "1e-05"}, {"f32", "0x38d1b717", "0.0001\n", "0.0001"},
    {"f32", "0x7f7fffff", "3.4028235e+38\n", "3.4028235e+38"}, {"f32", "1", "1e-45\n", "1e-45"},
    {"f32", "0x80000001", "-1e-45\n", "-1e-45"}, {"f32", "3", "4e-45\n", "4e-45"},
    {"f32", "0x007fffff", "1.1754942e-38\n", "1.1754942e-38"}, {"f32", "0x4b800000", "16777216\n", "16777216"},
    {"f32", "0x4e800000", "1073741800\n", "1073741800"}, {"f32", "0x5a0e1bca", "1e+16\n", "1e+16"},
    {"f32", "0x5a0e1bc9", "9999999000000000\n", "9999999000000000"}, {"f32", "0xc2f6e979", "-123.456\n", "-123.456"},
    {"f64", "0x3fb999999999999a", "0.1\n", "0.1"}, {"f64", "1", "5e-324\n", "5e-324"},
    {"f64", "0x3fd3333333333334", "0.30000000000000004\n", "0.30000000000000004"},
    {"f64", "0x7fefffffffffffff", "1.7976931348623157e+308\n", "1.7976931348623157e+308"},
    {"f64", "0x4341c37937e08000", "1e+16\n", "1e+16"}, {"f64", "0x4341c37937e07fff", "9999999999999998\n", "9999999999999998"},
    {"f64", "0x44b52d02c7e14af6", "1e+23\n", "1e+23"},
    /* a power of two, nearer to ...752e-289, which does not read back */
    {"f64", "0x420000000000000", "8.209073602596753e-289\n", "8.209073602596753e-289"}, {"f64", "0x400921fb54442d18", "3.141592653589793\n", "3.141592653589793"},
    {"string", "", "\n", "\"\""}, {"string", "a\n", "a\n\n", "\"a\\n\""},
    {"string", "a\"b\\c/d", "a\"b\\c/d\n", "\"a\\\"b\\\\c/d\""},
    {"string", "\b\f\n\r\t\x01\x1f\x7f", "\b\f\n\r\t\x01\x1f\x7f\n", "\"\\b\\f\\n\\r\\t\\u0001\\u001f\\u007f\""},
    {"string", "h\xc3\xa9 \xe4\xb8\xad\xf0\x9f\x98\x80", "h\xc3\xa9 \xe4\xb8\xad\xf0\x9f\x98\x80\n", "\"h\xc3\xa9 \xe4\xb8\xad\xf0\x9f\x98\x80\""},
    /* no UTF-8: a byte, cut short, a surrogate, overlong */
    {"string", "\xff", "\xff\n", "\"\\udcff\""}, {"string", "a\xe4\xb8", "a\xe4\xb8\n", "\"a\\udce4\\udcb8\""},
    {"string", "\xed\xa0\x80", "\xed\xa0\x80\n", "\"\\udced\\udca0\\udc80\""},
    {"string", "\xc0\x80z", "\xc0\x80z\n", "\"\\udcc0\\udc80z\""},
    {"array", "string[]", "", "[]"},
    {"array", "f32[0x7fc00000,0x7f800000,0xff800000,0x3727c5ac,0x80000000]", "NaN\nInfinity\n-Infinity\n1e-05\n-0\n",
     "[\"NaN\", \"Infinity\", \"-Infinity\", 1e-05, -0]"},
    {"array", "string[en,,a\nb\xff,^]", "\"en\"\n\"\"\n\"a\\nb\\udcff\"\n\"\\u0000\"\n", "[\"en\", \"\", \"a\\nb\\udcff\", \"\\u0000\"]"},
    {"array", "bool[255,1,0]", "true\ntrue\nfalse\n", "[true, true, false]"},
    {"array", "array[u8[1,2],f64[],array[string[x,y],bool[2]]]", "[1, 2]\n[]\n[[\"x\", \"y\"], [true]]\n",
     "[[1, 2], [], [[\"x\", \"y\"], [true]]]"},
    // clang-format on
};

TEST("values are shown as text and JSON, and the text gives the same bytes")
{
    for (size_t i = 0; i < COUNT(shown); i++)
        for (size_t f = 0; f < COUNT(formats); f++) {
            CLEANUP(buf_free) struct buf payload = BUF_INIT;
            const char *name = shown[i].type;
            const uint32_t type = build_type(&name);
            (void)build_value(&payload, formats[f], type, shown[i].value, "");
            struct gguf_value v = gguf_value_at(formats[f], type, payload.data);
            CU_ASSERT_PTR_EQUAL(gguf_value_end(&v), payload.data + payload.len);
            check_written(text_value, &v, shown[i].text);
            check_written(json_value, &v, shown[i].json);
            if (f < WRITABLE)
                round_trip(&v, &payload);
        }
}

/* The scan for escapes reads eight bytes at a time, and must find one at any position. */
TEST("a byte that needs an escape is found at any position")
{
    static const struct {
        char byte;
        const char *escape;
    } row[] = {{'"', "\\\""},       {'\\', "\\\\"},      {'\n', "\\n"},       {'\x1f', "\\u001f"},
               {'\x01', "\\u0001"}, {'\xff', "\\udcff"}, {'\x80', "\\udc80"}, {'\xc3', "\\udcc3"}};
    for (size_t k = 0; k < COUNT(row); k++)
        for (int at = 0; at < 20; at++) {
            char s[21] = "                    ", want[64];
            CLEANUP(buf_free) struct buf b = BUF_INIT;
            s[at] = row[k].byte;
            (void)snprintf(want, sizeof(want), "\"%*s%s%*s\"", at, "", row[k].escape, 19 - at, "");
            (void)build_value(&b, &v3, GGUF_STRING, s, "");
            struct gguf_value v = gguf_value_at(&v3, GGUF_STRING, b.data);
            check_written(json_value, &v, want);
        }
}

/* One string holds every character of Unicode's first plane, except NUL and surrogates, and some
 * beyond it. Another program reads the JSON, which has no control or hidden characters. */
TEST("every character survives a round trip")
{
    CLEANUP(buf_free) struct buf text = BUF_INIT, payload = BUF_INIT, out = BUF_INIT;
    for (uint32_t c = 1; c < 0x11000; c++) {
        if (c >= 0xd800 && c <= 0xdfff)
            continue;
        uint8_t s[4] = {(uint8_t)(0xf0 | c >> 18), (uint8_t)(0x80 | (c >> 12 & 0x3f)),
                        (uint8_t)(0x80 | (c >> 6 & 0x3f)), (uint8_t)(0x80 | (c & 0x3f))};
        size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
        static const uint8_t lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
        s[4 - n] = (uint8_t)(n == 1 ? c : lead[n] | c >> 6 * (n - 1));
        buf_add(&text, s + 4 - n, n);
    }
    buf_uint(&payload, text.len, 8, false);
    buf_add(&payload, text.data, text.len);
    buf_char(&text, '\0');
    struct gguf_value v = gguf_value_at(&v3, GGUF_STRING, payload.data);
    json_value(&out, &v);
    CU_ASSERT_EQUAL_FATAL(buf_error(&out), 0);
    for (size_t i = 0; i < out.len; i++)
        CU_ASSERT_TRUE_FATAL(out.data[i] >= 0x20 && utf8_hidden(out.data + i, out.len - i) == 0);
    cJSON *json = cJSON_ParseWithLength(buf_text(&out), out.len);
    CU_ASSERT_PTR_NOT_NULL_FATAL(json);
    CU_ASSERT_STRING_EQUAL(cJSON_GetStringValue(json), buf_text(&text));
    cJSON_Delete(json);
}

/* ---- text that a program writes ---- */

/* Type (or element type of an array), text, and the value that it gives. */
static const struct {
    const char *type, *text, *value;
} taken[] = {
    // clang-format off
    {"u8", "0", "0"}, {"u8", "255\n", "255"}, {"u8", "+7", "7"}, {"u8", " \t\r\n 007 \r\n\n", "7"}, {"u8", "-0", "0"},
    {"i8", "-128", "0x80"}, {"i8", "127", "127"}, {"u16", "65535", "65535"}, {"i16", "-32768", "0x8000"},
    {"i16", "32767", "32767"}, {"u32", "4294967295", "0xffffffff"}, {"i32", "-2147483648", "0x80000000"},
    {"i32", "2147483647", "0x7fffffff"}, {"u64", "18446744073709551615", "-1"},
    {"u64", "9007199254740993", "9007199254740993"}, /* no double can hold this */
    {"i64", "-9223372036854775808", "0x8000000000000000"}, {"i64", "9223372036854775807", "0x7fffffffffffffff"},
    {"u64", "000000000000000000000000000000001", "1"}, {"bool", "true", "1"}, {"bool", "false\n", "0"},
    {"f32", "0", "0"}, {"f32", "-0", "0x80000000"}, {"f32", "1", "0x3f800000"}, {"f32", ".5", "0x3f000000"},
    {"f32", "5.", "0x40a00000"}, {"f32", "+1e-05", "0x3727c5ac"}, {"f32", "1E5", "0x47c35000"},
    {"f32", "3.4028235e+38", "0x7f7fffff"}, {"f32", "1e-45", "1"}, {"f32", "1e-60", "0"},
    {"f32", "-1e-99999999999999999999", "0x80000000"},
    /* just above halfway to the next float, and exactly halfway: via f64, the first would be rounded twice */
    {"f32", "1.00000005960464477539062500000000000000000001", "0x3f800001"},
    {"f32", "1.000000059604644775390625", "0x3f800000"},
    {"f32", "nan", "0x7fc00000"}, {"f32", "-NaN", "0xffc00000"}, {"f32", "inf", "0x7f800000"},
    {"f32", "-Infinity", "0xff800000"}, {"f32", "+INF", "0x7f800000"},
    {"f64", "0.1", "0x3fb999999999999a"}, {"f64", "nan", "0x7ff8000000000000"}, {"f64", "-inf", "0xfff0000000000000"},
    {"f64", "5e-324", "1"}, {"f64", "1.7976931348623157e308", "0x7fefffffffffffff"},
    {"f64", "9007199254740993", "0x4340000000000000"}, {"f64", "0e999999999999999999999999999999", "0"},
    /* one newline at the end of a string is not part of it */
    {"string", "", ""}, {"string", "\n", ""}, {"string", "\n\n", "\n"}, {"string", "a", "a"}, {"string", "a\n", "a"},
    {"string", "a\r\n", "a\r"}, {"string", " {{ x }}\n  y\n\n", " {{ x }}\n  y\n"},
    {"array[i32]", "1\n-2\n3\n", "i32[1,-2,3]"}, {"array[i32]", "1\r\n -2 \r\n3\r\n\r\n \n", "i32[1,-2,3]"},
    {"array[i32]", "[1, -2,3]", "i32[1,-2,3]"}, {"array[i32]", "\n [\n  1,\r\n  -2\n , 3]\n\n", "i32[1,-2,3]"},
    {"array[u8]", "7", "u8[7]"}, {"array[u64]", "", "u64[]"}, {"array[u64]", "\n\n", "u64[]"},
    {"array[string]", " [ ]\n", "string[]"}, {"array[string]", "\"en\"\n\"fr\"\n", "string[en,fr]"},
    {"array[string]", "[\"en\", \"(1)\"]", "string[en,(1)]"}, {"array[bool]", "true\nfalse\n", "bool[1,0]"},
    {"array[f32]", "NaN\nInfinity\n-Infinity\nnan\ninf\n-inf\n1e-05\n-0\n",
     "f32[0x7fc00000,0x7f800000,0xff800000,0x7fc00000,0x7f800000,0xff800000,0x3727c5ac,0x80000000]"},
    {"array[string]", "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0000\"", "string[\"\\/\b\f\n\r\t^]"},
    {"array[string]", "\"\\u0041\\u00e9\\u4E2D\\uD83D\\uDE00\"", "string[A\xc3\xa9\xe4\xb8\xad\xf0\x9f\x98\x80]"},
    {"array[string]", "\"\\udcff\\uDC80x\"", "string[\xff\x80x]"}, /* bytes that are no UTF-8 */
    {"array[string]", "\"\\ud800\\udc00\\udbff\\udfff\"", "string[\xf0\x90\x80\x80\xf4\x8f\xbf\xbf]"},
    {"array[string]", "\"\\uffff\\u07ff\\u0800\"", "string[\xef\xbf\xbf\xdf\xbf\xe0\xa0\x80]"},
    // clang-format on
};

/* Type, text, the error, and words of its message. */
static const struct {
    const char *type, *text;
    int code;
    const char *words;
} refused[] = {
    // clang-format off
    {"u8", "256\n", -ERANGE, "256 is outside the range of u8"}, {"u8", "-1", -ERANGE, ""}, {"i8", "128", -ERANGE, ""},
    {"i8", "-129", -ERANGE, ""}, {"u16", "65536", -ERANGE, ""}, {"i16", "32768", -ERANGE, ""},
    {"u32", "4294967296", -ERANGE, ""}, {"i32", "2147483648", -ERANGE, ""}, {"i32", "-2147483649", -ERANGE, ""},
    {"u64", "18446744073709551616", -ERANGE, ""}, {"i64", "9223372036854775808", -ERANGE, ""},
    {"i64", "-9223372036854775809", -ERANGE, ""}, {"u64", "99999999999999999999999999999999", -ERANGE, ""},
    {"u32", "abc\n", -EINVAL, "'abc' is not an integer"}, {"u32", "1\n2\n", -EINVAL, "'1\\x0a2'"},
    {"u32", "", -EINVAL, ""}, {"u32", "-", -EINVAL, ""}, {"u32", "+", -EINVAL, ""}, {"u32", "1.0", -EINVAL, ""},
    {"u32", "1e3", -EINVAL, ""}, {"u32", "0x10", -EINVAL, ""}, {"u32", "1 2", -EINVAL, ""}, {"u32", "--1", -EINVAL, ""},
    {"u32", "99999999999999999999999x", -EINVAL, ""}, {"u32", "true", -EINVAL, ""},
    {"f32", "3.5e38", -ERANGE, ""}, {"f32", "-1e39", -ERANGE, ""}, {"f64", "1e309", -ERANGE, ""},
    {"f64", "1e99999999999999999999999999", -ERANGE, ""}, {"f32", "\x1b[1m\n", -EINVAL, "'\\x1b[1m' is not a number"},
    {"f32", "0x1p3", -EINVAL, ""}, {"f32", "", -EINVAL, ""}, {"f32", ".", -EINVAL, ""}, {"f32", "1e", -EINVAL, ""},
    {"f32", "1e+", -EINVAL, ""}, {"f32", "e5", -EINVAL, ""}, {"f32", "1,5", -EINVAL, ""}, {"f32", "1.5f", -EINVAL, ""},
    {"f32", "nan(1)", -EINVAL, ""}, {"f32", "infinit", -EINVAL, ""}, {"f32", "1.2.3", -EINVAL, ""}, {"f32", "1e5.0", -EINVAL, ""},
    {"bool", "1\n", -EINVAL, "is not true or false"}, {"bool", "True", -EINVAL, ""}, {"bool", "", -EINVAL, ""},
    {"bool", "truee", -EINVAL, ""}, {"bool", "fals", -EINVAL, ""},
    {"string", "ab\xff\n", -EILSEQ, "byte 2 (0xff)"}, {"string", "\xed\xa0\x80", -EILSEQ, "byte 0 (0xed)"},
    {"array[i32]", "1\n2\nabc\n", -EINVAL, "line 3: 'abc'"}, {"array[i32]", "1\n\n2\n", -EINVAL, "line 2"},
    {"array[i32]", "1 2\n", -EINVAL, "line 1"}, {"array[i32]", "1,\n", -EINVAL, "line 1"},
    {"array[i32]", "1\n3000000000\n", -ERANGE, "line 2"}, {"array[i32]", "\"1\"\n", -EINVAL, "line 1"},
    {"array[i32]", "[1, 2", -EINVAL, "line 1"}, {"array[i32]", "[1,\n2,]", -EINVAL, "line 2"},
    {"array[i32]", "[1 2]", -EINVAL, "line 1"}, {"array[i32]", "[1] 2\n", -EINVAL, "line 1"},
    {"array[i32]", "[[1]]\n", -EINVAL, "line 1"}, {"array[i32]", "[", -EINVAL, "line 1"},
    {"array[string]", "en\n", -EINVAL, "line 1"}, {"array[string]", "\"a\"\n\"b\n", -EINVAL, "line 2"},
    {"array[string]", "\"a", -EINVAL, "line 1"}, {"array[string]", "\"a\\", -EINVAL, "line 1"},
    {"array[string]", "\"\t\"", -EINVAL, "byte 0x09"}, {"array[string]", "\"\xff\"", -EILSEQ, "byte 0xff"},
    {"array[string]", "\"\\x\"", -EINVAL, "'\\x'"}, {"array[string]", "\"\\u12\"", -EINVAL, "line 1"},
    {"array[string]", "\"\\ud83d\"", -EINVAL, "surrogate"}, {"array[string]", "\"\\ud83d\\ud83d\"", -EINVAL, "surrogate"},
    {"array[string]", "\"\\udc7f\"", -EINVAL, "surrogate"}, {"array[string]", "\"\\udd00\"", -EINVAL, "surrogate"},
    {"array[array]", "[1]\n", -EOPNOTSUPP, ""},
    // clang-format on
};

/* Split the name of a type, as in the tables. */
static uint32_t type_of(const char *name, uint32_t *elem)
{
    char part[16];
    const uint32_t type = build_type(&name);
    *elem = 0;
    if (type == GGUF_ARRAY) {
        (void)snprintf(part, sizeof(part), "%.*s", (int)strlen(name) - 2, name + 1);
        const char *p = part;
        *elem = build_type(&p);
    }
    return type;
}

static int parse(const struct gguf_format *fmt, const char *type, const char *text,
                 const struct gguf_value *old, struct buf *payload, struct err *e)
{
    uint32_t elem, id = type_of(type, &elem);
    return text_parse(fmt, id, elem, (const uint8_t *)text, strlen(text), old, payload, e);
}

TEST("texts are parsed in both byte orders")
{
    for (size_t i = 0; i < WRITABLE * COUNT(taken); i++) {
        const struct gguf_format *fmt = formats[i % WRITABLE];
        CLEANUP(buf_free) struct buf got = BUF_INIT, want = BUF_INIT;
        uint32_t elem, type = type_of(taken[i / 2].type, &elem);
        (void)build_value(&want, fmt, type, taken[i / 2].value, "");
        CU_ASSERT_EQUAL(parse(fmt, taken[i / 2].type, taken[i / 2].text, NULL, &got, NULL), 0);
        same(&got, want.data, want.len, taken[i / 2].text);
    }
}

/* A refusal leaves the earlier content of the buffer. */
TEST("text that is no value of the type is refused, and the line named")
{
    for (size_t i = 0; i < COUNT(refused); i++) {
        CLEANUP(buf_free) struct buf b = BUF_INIT;
        struct err e = {0};
        buf_str(&b, "before");
        int r = parse(&v3, refused[i].type, refused[i].text, NULL, &b, &e);
        CU_SAYS(r == refused[i].code && e.code == r && strstr(e.msg, refused[i].words),
                "'%s': %d, %s", refused[i].text, r, e.msg);
        same(&b, "before", 6, refused[i].text);
    }
}

/* A float's text is longer than the buffer for ordinary numbers; a text of 1 GiB and two bytes, all
 * of them inaccessible, is refused before it is read. */
TEST("floats may be of any length, texts up to 1 GiB")
{
    CLEANUP(buf_free) struct buf b = BUF_INIT;
    char s[1000];
    (void)snprintf(s, sizeof(s), "1%0400d", 0);
    CU_ASSERT_EQUAL(parse(&v3, "f64", s, NULL, &b, NULL), -ERANGE);
    (void)snprintf(s, sizeof(s), "0.%0400d1e401", 0);
    CU_ASSERT_EQUAL(parse(&v3, "f32", s, NULL, &b, NULL), 0);
    same(&b, "\0\0\x80\x3f", 4, "1");
    const size_t n = ((size_t)1 << 30) + 2;
    void *text = mmap(NULL, n, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CU_ASSERT_FATAL(text != MAP_FAILED);
    CU_ASSERT_EQUAL(text_parse(&v3, GGUF_STRING, 0, text, n, NULL, &b, NULL), -EFBIG);
    CU_ASSERT_EQUAL(text_parse(&v3, GGUF_ARRAY, GGUF_U8, text, n, NULL, &b, NULL), -EFBIG);
    (void)munmap(text, n);
}

/* Type, the value that a key has, the text that is written, and the value then. What equals the
 * text that is shown keeps its bytes; `nan` keeps the bits of an old NaN, not those of an old
 * infinity. */
static const struct {
    const char *type, *was, *text, *value;
} changes[] = {
    // clang-format off
    {"bool", "2", " true", "2"}, {"bool", "2", "false\n", "0"},
    {"f32", "0x3fc00000", "2.5", "0x40200000"}, {"f32", "0xff800001", "nan\r\n", "0xff800001"},
    {"f32", "0x7f800000", "nan", "0x7fc00000"}, {"f32", "0x7fc00001", "inf", "0x7f800000"},
    {"f32", "0x7fc00001", "-inf", "0xff800000"}, {"f32", "0x7fc00001", "-1", "0xbf800000"},
    {"f64", "0xfff0000000000001", "nan", "0xfff0000000000001"}, {"f64", "0x7ff0000000000000", "nan", "0x7ff8000000000000"},
    {"f64", "0x7ff8000000000001", "-1", "0xbff0000000000000"},
    {"string", "a\xff\n", "a", "a"}, {"string", "a", "a\n", "a"}, {"string", "a\n", "a\n", "a"}, {"string", "a\n", "a\n\n", "a\n"},
    {"array[f32]", "f32[0x3f800000,0x7fc0beef,0xffc00000]", "2\nNaN\n1\nNaN\n", "f32[0x40000000,0x7fc0beef,0x3f800000,0x7fc00000]"},
    {"array[bool]", "bool[255,1,3]", "[true, false, true]", "bool[255,0,3]"},
    {"array[u64]", "u8[1,2]", "1\n2\n", "u64[1,2]"}, /* a value of another type */
    // clang-format on
};

TEST("what is not changed keeps its bytes")
{
    for (size_t i = 0; i < WRITABLE * COUNT(changes); i++) {
        const struct gguf_format *fmt = formats[i % WRITABLE];
        CLEANUP(buf_free) struct buf was = BUF_INIT, got = BUF_INIT, want = BUF_INIT;
        uint32_t elem, type = type_of(changes[i / 2].type, &elem);
        (void)build_value(&was, fmt, type, changes[i / 2].was, "");
        (void)build_value(&want, fmt, type, changes[i / 2].value, "");
        const struct gguf_value old = gguf_value_at(fmt, type, was.data);
        CU_ASSERT_EQUAL(parse(fmt, changes[i / 2].type, changes[i / 2].text, &old, &got, NULL), 0);
        same(&got, want.data, want.len, changes[i / 2].text);
    }
}

/* ---- the type of a new key ---- */

static const struct {
    const char *key, *text, *type;
} inferred[] = {
    // clang-format off
    {"k", "true\n", "bool"}, {"k", "false", "bool"}, {"k", " 5 \r\n", "u32"}, {"k", "0", "u32"},
    {"k", "-0", "f32"}, /* no integer type has this value */
    {"k", "4294967295\n", "u32"}, {"k", "-1\n", "i32"}, {"k", "-2147483648\n", "i32"}, {"k", "4294967296\n", "u64"},
    {"k", "18446744073709551615\n", "u64"}, {"k", "-2147483649\n", "i64"}, {"k", "18446744073709551616\n", "string"},
    {"k", "-9223372036854775809\n", "string"}, {"k", "1.5\n", "f32"}, {"k", "1e3\n", "f32"}, {"k", "-inf\n", "f32"},
    {"k", "3.4028235e38\n", "f32"}, {"k", "1e39\n", "f64"},
    {"k", "", "string"}, {"k", "\n", "string"}, {"k", "hello\n", "string"}, {"k", "True\n", "string"}, {"k", "1.0.0\n", "string"},
    {"k", "0x10\n", "string"}, {"k", "1\n2\n", "string"}, {"k", "\"quoted\"\n", "string"}, {"k", "[not json\n", "string"},
    {"k", "[1, 2] and more\n", "string"}, {"k", "[1, \"x\"]\n", "string"}, {"k", "[true, 1]\n", "string"}, {"k", "[null]\n", "string"},
    {"k", "[18446744073709551615, -1]\n", "string"}, {"k", "[18446744073709551616]\n", "string"}, {"k", "[1,]\n", "string"},
    {"k", "[[[[[[[[[1]]]]]]]]]\n", "string"}, {"k", "[[1], [2]]\n", "string"},
    {"k", "[1, 2]\n", "array[u32]"}, {"k", "[1, -2]\n", "array[i32]"}, {"k", "[4294967295, 4294967296]", "array[u64]"},
    {"k", "[4294967295, -1]", "array[i64]"}, {"k", "[1.5]\n", "array[f32]"}, {"k", "[1, 2.5, NaN]\n", "array[f32]"},
    {"k", "[1, 2.5, 1e39]\n", "array[f64]"}, {"k", "[\n  \"en\",\n  \"fr\"\n]\n", "array[string]"}, {"k", "[true]\n", "array[bool]"},
    {"k", "[]\n", "array[string]"}, {"k", "[-0, 1]\n", "array[f32]"}, {"k", "[-0, -1e39]\n", "array[f64]"},
    /* standardized keys; what does not fit is refused later */
    {"general.name", "5\n", "string"}, {"llama.rope.freq_base", "10000\n", "f32"}, {"llama.context_length", "8192\n", "u32"},
    {"llama.context_length", "4294967296\n", "u64"}, {"llama.context_length", "-1\n", "u32"}, {"llama.context_length", "abc\n", "u32"},
    {"llama.attention.key_length", "4294967296\n", "u32"}, {"llama.attention.head_count_kv", "8\n", "u32"},
    {"llama.attention.head_count_kv", "[8, 8]\n", "array[i32]"}, {"llama.attention.head_count_kv", "8\n4\n", "array[i32]"},
    {"gemma3.attention.sliding_window_pattern", "[true, false]\n", "array[bool]"}, {"tokenizer.ggml.tokens", "\"a\"\n", "array[string]"},
    // clang-format on
};

TEST("a new key gets its type from its text or from the standard")
{
    for (size_t i = 0; i < COUNT(inferred); i++) {
        const char *text = inferred[i].text, *key = inferred[i].key;
        uint32_t elem = 0, got_elem = 0, got = 0, want = type_of(inferred[i].type, &elem);
        text_new_type(key_find(key, strlen(key)), (const uint8_t *)text, strlen(text), &got,
                      &got_elem);
        CU_SAYS(got == want, "%s '%s': type %u\n", key, text, got);
        CU_ASSERT_TRUE(want != GGUF_ARRAY || got_elem == elem);
    }
}

/* ---- names of types ---- */

/* Each row is an array of arrays: 'a' begins an array of that many, 'b' and 's' are empty arrays of
 * u8 and strings. */
TEST("arrays of arrays name the type that all inner arrays have")
{
    static const struct {
        const char *parts, *name;
    } rows[] = {
        {"0", "array[array]"},
        {"1b", "array[array[u8]]"},
        {"3bbb", "array[array[u8]]"},
        {"2bs", "array[array]"},
        {"22bb1b", "array[array[array[u8]]]"},
        {"22bb1s", "array[array]"},
        {"12bs", "array[array[array]]"},
        {"2b1b", "array[array]"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        CLEANUP(buf_free) struct buf b = BUF_INIT, name = BUF_INIT;
        for (const char *p = rows[i].parts; *p; p++) {
            const bool leaf = *p == 'b' || *p == 's';
            const uint32_t elem = *p == 'b'   ? GGUF_U8
                                  : *p == 's' ? (uint32_t)GGUF_STRING
                                              : (uint32_t)GGUF_ARRAY;
            buf_uint(&b, elem, 4, false);
            buf_uint(&b, leaf ? 0 : (uint64_t)(*p - '0'), 8, false);
        }
        const struct gguf_value v = gguf_value_at(&v3, GGUF_ARRAY, b.data);
        type_name_put(&v, &name);
        buf_char(&name, '\0');
        CU_ASSERT_STRING_EQUAL((char *)name.data, rows[i].name);
    }
}

/* ---- random values ---- */

static uint64_t state = 0x243f6a8885a308d3;

static void random_value(struct buf *b, const struct gguf_format *fmt, uint32_t type)
{
    static const char *const piece[] = {
        "a",    "\"",           "\\", "\n",       "\xc3\xa9",         "\xff",
        "\x01", "\xed\xa0\x80", " ",  "ordinary", "\xf0\x9f\x98\x80", "\xe4\xb8"};
    const uint64_t bits =
        (uint64_t)soak_draw(&state, UINT32_MAX) << 32 | soak_draw(&state, UINT32_MAX);
    if (type == GGUF_STRING) {
        CLEANUP(buf_free) struct buf s = BUF_INIT;
        for (unsigned i = soak_draw(&state, 6); i > 0; i--)
            buf_str(&s, piece[soak_draw(&state, COUNT(piece))]);
        buf_uint(b, s.len, 8, fmt->big);
        buf_add(b, s.data, s.len);
    } else if (type == GGUF_ARRAY) {
        uint32_t elem = soak_draw(&state, GGUF_VALUE_TYPES), count = soak_draw(&state, 5);
        elem = elem == GGUF_ARRAY ? (uint32_t)GGUF_I16 : elem;
        buf_uint(b, elem, 4, fmt->big);
        buf_uint(b, count, 8, fmt->big);
        for (; count > 0; count--)
            random_value(b, fmt, elem);
    } else {
        buf_uint(b, type == GGUF_BOOL ? bits % 3 : bits, gguf_types[type].width, fmt->big);
    }
}

TEST("random values survive a round trip")
{
    for (uint32_t i = 0; i < 6000; i++) {
        CLEANUP(buf_free) struct buf payload = BUF_INIT;
        const uint32_t type = i % 3 ? i / 2 % GGUF_VALUE_TYPES : (uint32_t)GGUF_ARRAY;
        random_value(&payload, formats[i % WRITABLE], type);
        struct gguf_value v = gguf_value_at(formats[i % WRITABLE], type, payload.data);
        round_trip(&v, &payload);
    }
}

/* The text of a float reads back as its bits, and no text with fewer digits does. */
TEST("random floats have the shortest text that reads back")
{
    for (int i = 0; i < 60000; i++) {
        const uint64_t bits =
            (uint64_t)soak_draw(&state, UINT32_MAX) << 32 | soak_draw(&state, UINT32_MAX);
        const bool wide = i % 4 == 0;
        float f;
        double d;
        CLEANUP(buf_free) struct buf b = BUF_INIT;
        memcpy(&f, &bits, sizeof(f));
        memcpy(&d, &bits, sizeof(d));
        if (!(wide ? isfinite(d) : isfinite(f)) || (wide ? d : (double)f) == 0)
            continue;
        text_float(&b, wide ? d : (double)f, !wide, &float_names_text);
        buf_char(&b, '\0');
        const char *text = buf_text(&b);
        CU_ASSERT_TRUE_FATAL(wide ? strtod(text, NULL) == d : strtof(text, NULL) == f);
        int digits = 0, zeros = 0;
        for (const char *p = text; *p && *p != 'e'; p++)
            if (*p >= '0' && *p <= '9' && (digits || *p != '0')) {
                digits++;
                zeros = *p == '0' ? zeros + 1 : 0;
            }
        char less[64];
        if (digits - zeros > 1) {
            (void)snprintf(less, sizeof(less), "%.*e", digits - zeros - 2, wide ? d : (double)f);
            CU_ASSERT_FALSE_FATAL(wide ? strtod(less, NULL) == d : strtof(less, NULL) == f);
        }
    }
}

/* ==== names of files ==== */

static void encodes(const void *name, size_t n, const char *file)
{
    char got[TREE_NAME_MAX + 1], back[TREE_NAME_MAX + 1];
    size_t len = 12345;
    CU_ASSERT_EQUAL(name_encode(name, n, got), strlen(file));
    CU_ASSERT_STRING_EQUAL(got, file);
    CU_ASSERT_EQUAL_FATAL(name_decode(file, back, &len), 0);
    CU_ASSERT_EQUAL(len, n);
    CU_ASSERT_EQUAL(memcmp(back, name, n), 0);
}

TEST("examples are encoded and decoded")
{
    encodes("general.architecture", 20, "general.architecture");
    encodes("blk.0.attn_q.weight", 19, "blk.0.attn_q.weight");
    encodes("a%b", 3, "a%25b");
    encodes("a/b", 3, "a%2Fb");
    encodes("\0", 1, "%00");
    encodes("a\0", 2, "a%00");
    encodes("\x01\x1f \x7f\x80\xff", 6, "%01%1F %7F\x80\xff");
    encodes("\n", 1, "%0A");
    encodes(".", 1, "%2E");
    encodes("..", 2, "%2E%2E");
    encodes("...", 3, "...");
    encodes(".a", 2, ".a");
    encodes("a.", 2, "a.");
    encodes("", 0, "%");
    encodes("%", 1, "%25");
    encodes("%~", 2, "%25~");
    encodes("%41", 3, "%2541");
    encodes("h\xc3\xa9llo \xe4\xb8\xad", 10, "h\xc3\xa9llo \xe4\xb8\xad");
    encodes("\xff\xfe", 2, "\xff\xfe");
    encodes("\\ ~'\"$*?:;|<>", 13, "\\ ~'\"$*?:;|<>");
}

/* Set a name to n bytes: c at `at`, 'a' elsewhere. */
static void fill(char *name, size_t n, size_t at, char c)
{
    memset(name, 'a', n);
    if (at < n)
        name[at] = c;
}

static bool is_cut(const char *file, size_t keep)
{
    char back[TREE_NAME_MAX + 1];
    size_t n = strlen(file), len = 12345;
    bool cut = n == keep + 18 && memcmp(file + keep, "%~", 2) == 0 &&
               strspn(file + keep + 2, "0123456789abcdef") == 16;
    return cut && name_decode(file, back, &len) == -ENAMETOOLONG && len == 12345;
}

TEST("a name over 255 bytes is truncated and hashed")
{
    char name[400], file[TREE_NAME_MAX + 1];
    fill(name, 255, SIZE_MAX, 0);
    CU_ASSERT_EQUAL(name_encode(name, 255, file), 255);
    CU_ASSERT_EQUAL(memcmp(file, name, 255), 0);
    fill(name, 256, SIZE_MAX, 0);
    CU_ASSERT_EQUAL(name_encode(name, 256, file), 255);
    CU_ASSERT_TRUE(is_cut(file, 237));
    CU_ASSERT_EQUAL(memcmp(file, name, 237), 0);
    /* 253 bytes, one of them escaped, make 255; 254 would be too many. */
    fill(name, 254, 100, '/');
    CU_ASSERT_EQUAL(name_encode(name, 253, file), 255);
    CU_ASSERT_FALSE(is_cut(file, 237));
    CU_ASSERT_EQUAL(name_encode(name, 254, file), 255);
    CU_ASSERT_TRUE(is_cut(file, 237));
    CU_ASSERT_EQUAL(memcmp(file + 100, "%2Faa", 5), 0);
}

/* An escape that does not fit before the mark is omitted entirely. */
TEST("an escape is never split")
{
    char name[400], file[TREE_NAME_MAX + 1];
    for (size_t at = 230; at < 240; at++) {
        fill(name, 300, at, '%');
        size_t keep = at <= 234 ? 237 : at < 237 ? at : 237;
        CU_ASSERT_EQUAL(name_encode(name, 300, file), keep + 18);
        CU_ASSERT_TRUE(is_cut(file, keep));
        CU_ASSERT_EQUAL(memchr(file, '%', keep) != NULL, at <= 234);
    }
    memset(name, 1, sizeof(name)); /* every byte is escaped: 79 escapes take 237 bytes */
    CU_ASSERT_EQUAL(name_encode(name, 85, file), 255);
    CU_ASSERT_FALSE(is_cut(file, 237));
    CU_ASSERT_EQUAL(name_encode(name, 86, file), 255);
    CU_ASSERT_TRUE(is_cut(file, 237));
}

TEST("the hash covers the whole name and is fixed")
{
    char name[400], a[TREE_NAME_MAX + 1], b[TREE_NAME_MAX + 1];
    fill(name, 300, SIZE_MAX, 0);
    (void)name_encode(name, 300, a);
    CU_ASSERT_STRING_EQUAL(a + 237, "%~96f84d96b9cfcfc7");
    name[299] = 'b';
    (void)name_encode(name, 300, b);
    CU_ASSERT_STRING_NOT_EQUAL(a, b);
    name[299] = 'a';
    (void)name_encode(name, 301, b);
    CU_ASSERT_STRING_NOT_EQUAL(a, b);
    CU_ASSERT_EQUAL(memcmp(a, b, 237), 0);
}

TEST("all bytes survive a round trip")
{
    /* bytes drawn often */
    static const char special[] = {'%', '/', '.', '\0', '~', '2', 'E', 0x7f, 0x1f, (char)0xff};
    char name[64], file[TREE_NAME_MAX + 1], back[TREE_NAME_MAX + 1];
    for (int i = 0; i < 50000; i++) {
        size_t n = soak_draw(&state, 20), len = 12345;
        for (size_t k = 0; k < n; k++)
            name[k] = soak_draw(&state, 2) ? special[soak_draw(&state, sizeof(special))]
                                           : (char)soak_draw(&state, 256);
        size_t made = name_encode(name, n, file);
        bool ok = made == strlen(file) && made > 0 && !strchr(file, '/') &&
                  strcmp(file, ".") != 0 && strcmp(file, "..") != 0 &&
                  name_decode(file, back, &len) == 0 && len == n && memcmp(back, name, n) == 0;
        CU_ASSERT_TRUE_FATAL(ok);
    }
}

/* A file name with a needless escape, or that cannot be a file's, is not the name of anything. */
TEST("a name with a needless escape is not found")
{
    static const char *const files[] = {"%41", "%2e", "%2Ea", ".%2E", "..",  "a/b", "\x7f",
                                        "%FF", "",    "%%",   "a%",   "%G0", "%~"};
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        char back[TREE_NAME_MAX + 1];
        size_t len = 12345;
        CU_ASSERT_EQUAL(name_decode(files[i], back, &len), -ENOENT);
        CU_ASSERT_EQUAL(len, 12345);
    }
}

/* ==== names of keys ==== */

static const struct key_row *find(const char *key)
{
    return key_find(key, strlen(key));
}

TEST("standardized keys have standard types")
{
    static const struct {
        const char *key;
        int type; /* -1: not standardized */
        uint32_t elem;
    } rows[] = {
        {"general.architecture", GGUF_STRING, 0},
        {"general.alignment", GGUF_U32, 0},
        {"general.tags", GGUF_ARRAY, GGUF_STRING},
        {"general.base_model.17.repo_url", GGUF_STRING, 0},
        {"llama.context_length", GGUF_U32, 0},
        {"gpt-oss.attention.head_count_kv", GGUF_U32, GGUF_I32},
        {"qwen2.rope.freq_base", GGUF_F32, 0},
        {"qwen2.rope.scaling.finetuned", GGUF_BOOL, 0},
        {"rwkv7.wkv.head_size", GGUF_U32, 0},
        {"tokenizer.ggml.tokens", GGUF_ARRAY, GGUF_STRING},
        {"tokenizer.ggml.scores", GGUF_ARRAY, GGUF_F32},
        {"tokenizer.ggml.token_type", GGUF_ARRAY, GGUF_I32},
        {"tokenizer.chat_template", GGUF_STRING, 0},
        {"tokenizer.chat_template.tool_use", GGUF_STRING, 0},
        {"split.count", GGUF_U16, 0},
        {"split.tensors.count", GGUF_I32, 0},
        {"clip.vision.image_mean", GGUF_ARRAY, GGUF_F32},
        {"my.key", -1, 0},
        {"general", -1, 0},
        {"general.block_count", -1, 0}, /* "general" is not an architecture */
        {"tokenizer.vocab_size", -1, 0},
        {"llama.context_length.x", -1, 0},
        {"llama.context_lengt", -1, 0},
        {".context_length", -1, 0},
        {"general.base_model.x.name", -1, 0},
        {"general.base_model..name", -1, 0},
        {"tokenizer.chat_template.", -1, 0},
        {"", -1, 0},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        const struct key_row *row = find(rows[i].key);
        CU_ASSERT_EQUAL(row ? (int)row->type : -1, rows[i].type);
        CU_ASSERT_TRUE(!row || row->elem == rows[i].elem);
    }
}

TEST("a row accepts only its types")
{
    const struct key_row *count = find("llama.block_count"),
                         *heads = find("x.attention.head_count"),
                         *tokens = find("tokenizer.ggml.tokens");
    CU_ASSERT_FALSE(key_type_fits(count, GGUF_U64, 0));
    CU_ASSERT_FALSE(key_type_fits(count, GGUF_I32, 0));
    CU_ASSERT_FALSE(key_type_fits(count, GGUF_ARRAY, GGUF_I32));
    CU_ASSERT_TRUE(key_type_fits(heads, GGUF_U32, 0));
    /* In per-layer arrays, llama.cpp refuses every integer type but these two. */
    for (uint32_t elem = 0; elem < GGUF_VALUE_TYPES; elem++) {
        const bool fits = elem == GGUF_U32 || elem == GGUF_I32;
        CU_ASSERT_EQUAL(key_type_fits(heads, GGUF_ARRAY, elem), fits);
        CU_ASSERT_EQUAL(key_type_fits(find("x.attention.recurrent_layers"), GGUF_ARRAY, elem),
                        fits || elem == GGUF_BOOL);
        CU_ASSERT_EQUAL(key_type_fits(find("x.swiglu_clamp_exp"), GGUF_ARRAY, elem),
                        elem == GGUF_F32);
    }
    CU_ASSERT_FALSE(key_type_fits(tokens, GGUF_STRING, 0));
    CU_ASSERT_FALSE(key_type_fits(tokens, GGUF_ARRAY, GGUF_I32));
}

TEST("only valid key names are accepted")
{
    static const char *const lower_snake[] = {"general.name", "a", "a.0._b"},
                             *const valid[] = {"gpt-oss.block_count",
                                               "tokenizer.chat_template.toolUse"},
                             *const invalid[] = {"",    ".",   ".a",      "a.",   "a..b",     "a b",
                                                 "a/b", "a\n", "a.b:u32", "a.b~", "a\xc3\xa9"};
    for (size_t i = 0; i < COUNT(lower_snake); i++)
        CU_ASSERT_TRUE(key_lower_snake(lower_snake[i], strlen(lower_snake[i])));
    for (size_t i = 0; i < COUNT(valid); i++) {
        CU_ASSERT_TRUE(key_valid(valid[i], strlen(valid[i])));
        CU_ASSERT_FALSE(key_lower_snake(valid[i], strlen(valid[i])));
    }
    for (size_t i = 0; i < COUNT(invalid); i++)
        CU_ASSERT_FALSE(key_valid(invalid[i], strlen(invalid[i])));
    CU_ASSERT_FALSE(key_valid("a\0b", 3));
    /* A key that is too long is not standardized, even if its beginning is. */
    CLEANUP(free_it) char *key = malloc(KEY_MAX + 1);
    memset(key, 'k', KEY_MAX + 1);
    (void)memcpy(key, "tokenizer.chat_template.", 24);
    CU_ASSERT_TRUE(key_valid(key, KEY_MAX) && key_find(key, KEY_MAX));
    CU_ASSERT_FALSE(key_valid(key, KEY_MAX + 1) || key_find(key, KEY_MAX + 1));
}

/* SPDX-License-Identifier: MIT */
/* text/text and text/json: metadata values as text. */
#include "cu_main.h"

#include <cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/json.h"
#include "text/text.h"
#include "gguf/value.h"
#include "base/err.h"

static const struct gguf_format v3 = {.version = 3, .len_width = 8};
static const struct gguf_format v2_big = {.version = 2, .len_width = 8, .big = true};
static const struct gguf_format v1_nul = {.version = 1, .len_width = 4, .nul = true};
static const struct gguf_format *const formats[] = {&v3, &v2_big, &v1_nul};
enum { FORMATS = 3 };

typedef void (*writer)(struct buf *out, const struct gguf_value *v);

static void put_string(struct buf *b, const struct gguf_format *fmt, const char *s, size_t n)
{
    buf_uint(b, n + fmt->nul, fmt->len_width, fmt->big);
    buf_add(b, s, n);
    buf_zero(b, fmt->nul);
}

static void put_array(struct buf *b, const struct gguf_format *fmt, uint32_t elem, uint64_t count)
{
    buf_uint(b, elem, 4, fmt->big);
    buf_uint(b, count, fmt->len_width, fmt->big);
}

/* Return the NUL-terminated output of `write` for the value in `payload`, and check that the
 * measured size is the same. The caller frees it. */
static char *written(writer write, const struct gguf_format *fmt, uint32_t type,
                     const struct buf *payload)
{
    struct gguf_value v = gguf_value_at(fmt, type, payload->data);
    struct buf out = BUF_INIT, size = BUF_MEASURE;
    write(&out, &v);
    write(&size, &v);
    CU_ASSERT_EQUAL(buf_error(&out), 0);
    CU_ASSERT_EQUAL(size.len, out.len);
    CU_ASSERT_PTR_EQUAL(gguf_value_end(&v), payload->data + payload->len);
    buf_char(&out, '\0');
    return (char *)buf_steal(&out);
}

/* Check the text of the payload, and free the payload. */
static void expect(writer write, const struct gguf_format *fmt, uint32_t type, struct buf *payload,
                   const char *want)
{
    char *got = written(write, fmt, type, payload);
    CU_ASSERT_STRING_EQUAL(got, want);
    free(got);
    buf_free(payload);
}

static void number_is(uint32_t type, uint64_t bits, const char *text, const char *json)
{
    for (int i = 0; i < FORMATS; i++) {
        struct buf b = BUF_INIT, c = BUF_INIT;
        buf_uint(&b, bits, gguf_types[type].width, formats[i]->big);
        buf_uint(&c, bits, gguf_types[type].width, formats[i]->big);
        expect(text_value, formats[i], type, &b, text);
        expect(json_value, formats[i], type, &c, json);
    }
}

static void test_numbers(void)
{
    number_is(GGUF_U8, 255, "255\n", "255");
    number_is(GGUF_I8, 0x80, "-128\n", "-128");
    number_is(GGUF_U16, 65535, "65535\n", "65535");
    number_is(GGUF_I16, 0x8000, "-32768\n", "-32768");
    number_is(GGUF_U32, 4294967295, "4294967295\n", "4294967295");
    number_is(GGUF_I32, 0xffffffff, "-1\n", "-1");
    number_is(GGUF_U64, UINT64_MAX, "18446744073709551615\n", "18446744073709551615");
    number_is(GGUF_I64, 1ull << 63, "-9223372036854775808\n", "-9223372036854775808");
    number_is(GGUF_F32, 0x3dcccccd, "0.1\n", "0.1");
    number_is(GGUF_F64, 0x3fb999999999999a, "0.1\n", "0.1");
    number_is(GGUF_F32, 0x80000000, "-0\n", "-0");
    number_is(GGUF_F32, 0x7fc00001, "nan\n", "\"NaN\"");
    number_is(GGUF_F32, 0x7f800000, "inf\n", "\"Infinity\"");
    number_is(GGUF_F64, 0xfff0000000000000, "-inf\n", "\"-Infinity\"");
    number_is(GGUF_BOOL, 0, "false\n", "false");
    number_is(GGUF_BOOL, 1, "true\n", "true");
    number_is(GGUF_BOOL, 2, "true\n", "true");
}

static void string_is(const char *s, size_t n, const char *text, const char *json)
{
    for (int i = 0; i < FORMATS; i++) {
        struct buf b = BUF_INIT, c = BUF_INIT;
        put_string(&b, formats[i], s, n);
        put_string(&c, formats[i], s, n);
        expect(text_value, formats[i], GGUF_STRING, &b, text);
        expect(json_value, formats[i], GGUF_STRING, &c, json);
    }
}

static void test_strings(void)
{
    string_is("", 0, "\n", "\"\"");
    string_is("a\n", 2, "a\n\n", "\"a\\n\"");
    string_is("a\"b\\c/d", 7, "a\"b\\c/d\n", "\"a\\\"b\\\\c/d\"");
    string_is("\b\f\n\r\t\x01\x1f\x7f", 8, "\b\f\n\r\t\x01\x1f\x7f\n",
              "\"\\b\\f\\n\\r\\t\\u0001\\u001f\\u007f\"");
    string_is("h\xc3\xa9llo \xe4\xb8\xad\xf0\x9f\x98\x80", 14,
              "h\xc3\xa9llo \xe4\xb8\xad\xf0\x9f\x98\x80\n",
              "\"h\xc3\xa9llo \xe4\xb8\xad\xf0\x9f\x98\x80\"");
    string_is("\xff", 1, "\xff\n", "\"\\udcff\"");
    string_is("a\xe4\xb8", 3, "a\xe4\xb8\n", "\"a\\udce4\\udcb8\"");             /* truncated */
    string_is("\xed\xa0\x80", 3, "\xed\xa0\x80\n", "\"\\udced\\udca0\\udc80\""); /* a surrogate */
    string_is("\xc0\x80z", 3, "\xc0\x80z\n", "\"\\udcc0\\udc80z\"");             /* overlong */
}

static void test_nul_byte(void)
{
    struct buf b = BUF_INIT;
    put_string(&b, &v3, "a\0b", 3);
    expect(json_value, &v3, GGUF_STRING, &b, "\"a\\u0000b\"");
}

/* The scan reads eight bytes at a time and must find an escape at any of these positions. */
static void test_escape_anywhere(void)
{
    static const struct {
        char byte;
        const char *escape;
    } row[] = {{'"', "\\\""},       {'\\', "\\\\"},      {'\n', "\\n"},       {'\x1f', "\\u001f"},
               {'\x01', "\\u0001"}, {'\xff', "\\udcff"}, {'\x80', "\\udc80"}, {'\xc3', "\\udcc3"}};
    for (size_t k = 0; k < sizeof(row) / sizeof(row[0]); k++)
        for (int at = 0; at < 20; at++) {
            char s[20], want[64];
            memset(s, ' ', sizeof(s)); /* the lowest byte not escaped */
            s[at] = row[k].byte;
            (void)snprintf(want, sizeof(want), "\"%*s%s%*s\"", at, "", row[k].escape, 19 - at, "");
            struct buf b = BUF_INIT;
            put_string(&b, &v3, s, sizeof(s));
            expect(json_value, &v3, GGUF_STRING, &b, want);
        }
}

static void put_f32s(struct buf *b, const struct gguf_format *fmt)
{
    put_array(b, fmt, GGUF_F32, 5);
    buf_uint(b, 0x7fc00000, 4, fmt->big);
    buf_uint(b, 0x7f800000, 4, fmt->big);
    buf_uint(b, 0xff800000, 4, fmt->big);
    buf_uint(b, 0x3727c5ac, 4, fmt->big);
    buf_uint(b, 0x80000000, 4, fmt->big);
}

static void put_strings(struct buf *b, const struct gguf_format *fmt)
{
    put_array(b, fmt, GGUF_STRING, 3);
    put_string(b, fmt, "en", 2);
    put_string(b, fmt, "", 0);
    put_string(b, fmt, "a\nb\xff", 4);
}

/* Put [[1, 2], [], [["x", "y"], [true]]]. */
static void put_nested(struct buf *b, const struct gguf_format *fmt)
{
    put_array(b, fmt, GGUF_ARRAY, 3);
    put_array(b, fmt, GGUF_U8, 2);
    buf_add(b, "\x01\x02", 2);
    put_array(b, fmt, GGUF_F64, 0);
    put_array(b, fmt, GGUF_ARRAY, 2);
    put_array(b, fmt, GGUF_STRING, 2);
    put_string(b, fmt, "x", 1);
    put_string(b, fmt, "y", 1);
    put_array(b, fmt, GGUF_BOOL, 1);
    buf_char(b, 2);
}

static void put_empty(struct buf *b, const struct gguf_format *fmt)
{
    put_array(b, fmt, GGUF_STRING, 0);
}

static void array_is(void (*put)(struct buf *b, const struct gguf_format *fmt), const char *text,
                     const char *json)
{
    for (int i = 0; i < FORMATS; i++) {
        struct buf b = BUF_INIT, c = BUF_INIT;
        put(&b, formats[i]);
        put(&c, formats[i]);
        expect(text_value, formats[i], GGUF_ARRAY, &b, text);
        expect(json_value, formats[i], GGUF_ARRAY, &c, json);
    }
}

static void test_arrays(void)
{
    array_is(put_empty, "", "[]");
    array_is(put_f32s, "NaN\nInfinity\n-Infinity\n1e-05\n-0\n",
             "[\"NaN\", \"Infinity\", \"-Infinity\", 1e-05, -0]");
    array_is(put_strings, "\"en\"\n\"\"\n\"a\\nb\\udcff\"\n", "[\"en\", \"\", \"a\\nb\\udcff\"]");
    array_is(put_nested, "[1, 2]\n[]\n[[\"x\", \"y\"], [true]]\n",
             "[[1, 2], [], [[\"x\", \"y\"], [true]]]");
}

enum { NONE = GGUF_VALUE_TYPES }; /* element type of anything but an array */

static void is(uint32_t type, uint32_t elem, uint32_t want, uint32_t want_elem, const char *text)
{
    CU_ASSERT_EQUAL(type, want);
    if (want == GGUF_ARRAY)
        CU_ASSERT_EQUAL(elem, want_elem);
    if (type != want || (want == GGUF_ARRAY && elem != want_elem))
        (void)fprintf(stderr, "'%s': type %u, elem %u\n", text, type, elem);
}

static void infers(const char *text, uint32_t want, uint32_t want_elem)
{
    uint32_t type = NONE, elem = NONE;
    text_new_type(NULL, (const uint8_t *)text, strlen(text), &type, &elem);
    is(type, elem, want, want_elem, text);
}

static void key_gives(const char *key, const char *text, uint32_t want, uint32_t want_elem)
{
    uint32_t type = NONE, elem = NONE;
    const struct key_row *row = key_find(key, strlen(key));
    text_new_type(row, (const uint8_t *)text, strlen(text), &type, &elem);
    is(type, elem, want, want_elem, text);
}

static void test_infer_scalars(void)
{
    infers("true\n", GGUF_BOOL, NONE);
    infers("false", GGUF_BOOL, NONE);
    infers(" 5 \r\n", GGUF_U32, NONE);
    infers("-0", GGUF_F32, NONE); /* no integer type has this value */
    infers("0", GGUF_U32, NONE);
    infers("4294967295\n", GGUF_U32, NONE);
    infers("-1\n", GGUF_I32, NONE);
    infers("-2147483648\n", GGUF_I32, NONE);
    infers("4294967296\n", GGUF_U64, NONE);
    infers("18446744073709551615\n", GGUF_U64, NONE);
    infers("-2147483649\n", GGUF_I64, NONE);
    infers("18446744073709551616\n", GGUF_STRING, NONE);
    infers("-9223372036854775809\n", GGUF_STRING, NONE);
    infers("1.5\n", GGUF_F32, NONE);
    infers("1e3\n", GGUF_F32, NONE);
    infers("-inf\n", GGUF_F32, NONE);
    infers("NaN\n", GGUF_F32, NONE);
    infers("3.4028235e38\n", GGUF_F32, NONE);
    infers("1e39\n", GGUF_F64, NONE);
}

static void test_infer_strings(void)
{
    infers("", GGUF_STRING, NONE);
    infers("\n", GGUF_STRING, NONE);
    infers("hello\n", GGUF_STRING, NONE);
    infers("True\n", GGUF_STRING, NONE);
    infers("1.0.0\n", GGUF_STRING, NONE);
    infers("0x10\n", GGUF_STRING, NONE);
    infers("1\n2\n", GGUF_STRING, NONE);
    infers("\"quoted\"\n", GGUF_STRING, NONE);
    infers("[not json\n", GGUF_STRING, NONE);
    infers("[1, 2] and more\n", GGUF_STRING, NONE);
    infers("[1, \"x\"]\n", GGUF_STRING, NONE);
    infers("[true, 1]\n", GGUF_STRING, NONE);
    infers("[null]\n", GGUF_STRING, NONE);
    infers("[18446744073709551615, -1]\n", GGUF_STRING, NONE);
    infers("[18446744073709551616]\n", GGUF_STRING, NONE);
    infers("[1,]\n", GGUF_STRING, NONE);
    infers("[[[[[[[[1]]]]]]]]\n", GGUF_STRING, NONE); /* with the array itself, 9 levels */
    infers("[[[[[[[[[1]]]]]]]]]\n", GGUF_STRING, NONE);
    infers("[[1, \"x\"]]\n", GGUF_STRING, NONE);
    infers("[[1], [[2], [3, true]]]\n", GGUF_STRING, NONE);
    infers("[[1], [18446744073709551616]]\n", GGUF_STRING, NONE);
    infers("[-0, 18446744073709551616]\n", GGUF_STRING, NONE);
}

static void test_infer_arrays(void)
{
    infers("[1, 2]\n", GGUF_ARRAY, GGUF_U32);
    infers("[1, -2]\n", GGUF_ARRAY, GGUF_I32);
    infers("[4294967295, 4294967296]", GGUF_ARRAY, GGUF_U64);
    infers("[4294967295, -1]", GGUF_ARRAY, GGUF_I64);
    infers("[1.5]\n", GGUF_ARRAY, GGUF_F32);
    infers("[1, 2.5, NaN]\n", GGUF_ARRAY, GGUF_F32);
    infers("[1, 2.5, 1e39]\n", GGUF_ARRAY, GGUF_F64);
    infers("[\n  \"en\",\n  \"fr\"\n]\n", GGUF_ARRAY, GGUF_STRING);
    infers("[true]\n", GGUF_ARRAY, GGUF_BOOL);
    infers("[[1], [2]]\n", GGUF_STRING, NONE);
    infers("[]\n", GGUF_ARRAY, GGUF_STRING);
    infers("[-0, 1]\n", GGUF_ARRAY, GGUF_F32);
    infers("[-0, -1e39]\n", GGUF_ARRAY, GGUF_F64);
}

static void test_infer_keys(void)
{
    key_gives("my.key", "5\n", GGUF_U32, NONE);
    key_gives("general.name", "5\n", GGUF_STRING, NONE);
    key_gives("llama.rope.freq_base", "10000\n", GGUF_F32, NONE);
    key_gives("llama.context_length", "8192\n", GGUF_U32, NONE);
    key_gives("llama.context_length", "4294967296\n", GGUF_U64, NONE);
    key_gives("llama.context_length", "-1\n", GGUF_U32, NONE);  /* refused later: ERANGE */
    key_gives("llama.context_length", "abc\n", GGUF_U32, NONE); /* refused later: EINVAL */
    key_gives("llama.context_length", "[1]\n", GGUF_U32, NONE);
    key_gives("llama.attention.key_length", "4294967296\n", GGUF_U32, NONE);
    key_gives("llama.attention.head_count_kv", "8\n", GGUF_U32, NONE);
    key_gives("llama.attention.head_count_kv", "[8, 8]\n", GGUF_ARRAY, GGUF_I32);
    key_gives("llama.attention.head_count_kv", "8\n4\n", GGUF_ARRAY, GGUF_I32);
    key_gives("gemma3.attention.sliding_window_pattern", "[true, false]\n", GGUF_ARRAY, GGUF_BOOL);
    key_gives("tokenizer.ggml.tokens", "\"a\"\n", GGUF_ARRAY, GGUF_STRING);
}

/* Render the value whose bytes are in `payload`, parse the JSON, and free the payload. Never
 * returns NULL. */
static cJSON *read_back(uint32_t type, struct buf *payload)
{
    struct buf out = BUF_INIT;
    struct gguf_value v = gguf_value_at(&v3, type, payload->data);
    json_value(&out, &v);
    CU_ASSERT_EQUAL_FATAL(buf_error(&out), 0);
    for (size_t i = 0; i < out.len; i++) /* the text has no control or hidden characters */
        CU_ASSERT_TRUE_FATAL(out.data[i] >= 0x20 && utf8_hidden(out.data + i, out.len - i) == 0);
    const char *end = NULL;
    cJSON *json = cJSON_ParseWithLengthOpts((const char *)out.data, out.len, &end, 0);
    CU_ASSERT_PTR_NOT_NULL_FATAL(json);
    CU_ASSERT_PTR_EQUAL(end, (const char *)out.data + out.len);
    buf_free(&out);
    buf_free(payload);
    return json;
}

static void put_counted(struct buf *b, const char *s, size_t n)
{
    buf_uint(b, n, 8, false);
    buf_add(b, s, n);
}

/* One string holds every character of Unicode's first plane, except NUL and surrogates, and some
 * beyond it. */
static void test_every_character(void)
{
    struct buf text = BUF_INIT, payload = BUF_INIT;
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
    put_counted(&payload, (const char *)text.data, text.len);
    buf_char(&text, '\0');
    cJSON *json = read_back(GGUF_STRING, &payload);
    CU_ASSERT_STRING_EQUAL(cJSON_GetStringValue(json), (const char *)text.data);
    cJSON_Delete(json);
    buf_free(&text);
}

static CU_TestInfo tests[] = {
    {"numbers and bools are printed in both byte orders", test_numbers},
    {"strings are verbatim in texts and escaped in JSON", test_strings},
    {"a NUL byte is escaped", test_nul_byte},
    {"a byte that needs an escape is found at any position", test_escape_anywhere},
    {"arrays are printed as lines, and whole in JSON", test_arrays},
    {"bools and numbers are recognised", test_infer_scalars},
    {"any other text is a string", test_infer_strings},
    {"arrays of values of one kind are recognised", test_infer_arrays},
    {"standardized keys get their standard types", test_infer_keys},
    {"every character survives a round trip", test_every_character},
    CU_TEST_INFO_NULL,
};

CU_MAIN("text", tests)

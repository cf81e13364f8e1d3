/* SPDX-License-Identifier: MIT */
/* tree/text_infer: the type of a new value. */
#include "cu_main.h"

#include <stdio.h>
#include <string.h>

#include "gguf/value.h"
#include "text/text.h"

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

static void test_scalars(void)
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

static void test_strings(void)
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

static void test_arrays(void)
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

static void test_keys(void)
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

static CU_TestInfo tests[] = {
    {"bools and numbers are recognised", test_scalars},
    {"any other text is a string", test_strings},
    {"arrays of values of one kind are recognised", test_arrays},
    {"standardized keys get their standard types", test_keys},
    CU_TEST_INFO_NULL,
};

CU_MAIN("text_infer", tests)

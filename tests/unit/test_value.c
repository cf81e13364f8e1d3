/* SPDX-License-Identifier: MIT */
/* gguf/value: stored values, in every version and byte order. */
#include "cu_main.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "gguf/value.h"

static const struct gguf_format v3 = {.version = 3, .len_width = 8};
static const struct gguf_format v3_big = {.version = 3, .len_width = 8, .big = true};
static const struct gguf_format v1 = {.version = 1, .len_width = 4};
static const struct gguf_format v1_draft = {.version = 1, .len_width = 4, .draft = true};
static const struct gguf_format v2_nul = {.version = 2, .len_width = 8, .nul = true};
static const struct gguf_format *const formats[] = {&v3, &v3_big, &v1, &v1_draft, &v2_nul};
enum { FORMATS = sizeof(formats) / sizeof(formats[0]) };

static void put_string(struct buf *b, const struct gguf_format *fmt, const char *s, size_t n)
{
    buf_uint(b, n + fmt->nul, fmt->len_width, fmt->big);
    buf_add(b, s, n);
    buf_zero(b, fmt->nul);
}

static void put_array(struct buf *b, const struct gguf_format *fmt, uint32_t elem, uint64_t count)
{
    if (fmt->draft)
        buf_uint(b, count, 4, fmt->big);
    buf_uint(b, elem, 4, fmt->big);
    if (!fmt->draft)
        buf_uint(b, count, fmt->len_width, fmt->big);
}

static void test_table(void)
{
    static const struct {
        const char *name;
        unsigned width;
        enum gguf_kind kind;
    } want[GGUF_VALUE_TYPES] = {
        {"u8", 1, GGUF_KIND_UINT},     {"i8", 1, GGUF_KIND_INT},    {"u16", 2, GGUF_KIND_UINT},
        {"i16", 2, GGUF_KIND_INT},     {"u32", 4, GGUF_KIND_UINT},  {"i32", 4, GGUF_KIND_INT},
        {"f32", 4, GGUF_KIND_FLOAT},   {"bool", 1, GGUF_KIND_BOOL}, {"string", 0, GGUF_KIND_STRING},
        {"array", 0, GGUF_KIND_ARRAY}, {"u64", 8, GGUF_KIND_UINT},  {"i64", 8, GGUF_KIND_INT},
        {"f64", 8, GGUF_KIND_FLOAT},
    };
    CU_ASSERT_EQUAL(GGUF_VALUE_TYPES, 13);
    for (int i = 0; i < GGUF_VALUE_TYPES; i++) {
        CU_ASSERT_STRING_EQUAL(gguf_types[i].name, want[i].name);
        CU_ASSERT_EQUAL(gguf_types[i].width, want[i].width);
        CU_ASSERT_EQUAL(gguf_types[i].kind, want[i].kind);
    }
}

/* Store the value with these bits at an odd address, as can occur in files. */
static struct gguf_value number(uint8_t *room, const struct gguf_format *fmt, uint32_t type,
                                uint64_t bits)
{
    struct buf b = BUF_INIT;
    buf_uint(&b, bits, gguf_types[type].width, fmt->big);
    memcpy(room + 1, b.data, b.len);
    buf_free(&b);
    return gguf_value_at(fmt, type, room + 1);
}

static void test_integers(void)
{
    static const struct {
        uint32_t type;
        uint64_t bits;
        uint64_t u;
        int64_t i; /* value, for signed types */
    } row[] = {
        {GGUF_U8, 0xff, 255, 0},
        {GGUF_I8, 0x80, 0, -128},
        {GGUF_I8, 0x7f, 0, 127},
        {GGUF_U16, 0xfffe, 65534, 0},
        {GGUF_I16, 0x8000, 0, -32768},
        {GGUF_U32, 0xffffffff, 4294967295, 0},
        {GGUF_I32, 0x80000000, 0, -2147483648LL},
        {GGUF_I32, 0x7fffffff, 0, 2147483647},
        {GGUF_U64, UINT64_MAX, UINT64_MAX, 0},
        {GGUF_I64, 1ull << 63, 0, INT64_MIN},
        {GGUF_I64, INT64_MAX, 0, INT64_MAX},
        {GGUF_BOOL, 0, 0, 0},
        {GGUF_BOOL, 1, 1, 0},
        {GGUF_BOOL, 0x80, 0x80, 0},
    };
    uint8_t room[9];
    for (size_t k = 0; k < sizeof(row) / sizeof(row[0]); k++)
        for (int f = 0; f < FORMATS; f++) {
            struct gguf_value v = number(room, formats[f], row[k].type, row[k].bits);
            CU_ASSERT_EQUAL(v.type, row[k].type);
            CU_ASSERT_EQUAL(v.len, gguf_types[row[k].type].width);
            CU_ASSERT_PTR_EQUAL(gguf_value_end(&v), room + 1 + v.len);
            if (gguf_types[row[k].type].kind == GGUF_KIND_INT)
                CU_ASSERT_EQUAL(gguf_int(&v), row[k].i)
            else
                CU_ASSERT_EQUAL(gguf_uint(&v), row[k].u);
        }
}

static void test_floats(void)
{
    uint8_t room[9];
    for (int f = 0; f < FORMATS; f++) {
        struct gguf_value v = number(room, formats[f], GGUF_F32, 0xc0490fdb);
        CU_ASSERT_EQUAL(gguf_float(&v), (double)-3.14159274101257324f);
        v = number(room, formats[f], GGUF_F32, 1); /* the smallest subnormal, exact in double */
        CU_ASSERT_EQUAL(gguf_float(&v), 0x1p-149);
        v = number(room, formats[f], GGUF_F64, 0x7fefffffffffffff);
        CU_ASSERT_EQUAL(gguf_float(&v), 0x1.fffffffffffffp1023);
        v = number(room, formats[f], GGUF_F64, 0xfff0000000000000);
        CU_ASSERT_EQUAL(gguf_float(&v), -INFINITY);
        v = number(room, formats[f], GGUF_F32, 0x7fc00001);
        CU_ASSERT_TRUE(isnan(gguf_float(&v)));
    }
}

static void test_strings(void)
{
    for (int f = 0; f < FORMATS; f++) {
        struct buf b = BUF_INIT;
        put_string(&b, formats[f], "a\0b", 3);
        size_t first = b.len;
        put_string(&b, formats[f], "", 0);
        struct gguf_value v = gguf_value_at(formats[f], GGUF_STRING, b.data);
        CU_ASSERT_EQUAL(v.len, 3);
        CU_ASSERT_EQUAL(memcmp(v.data, "a\0b", 3), 0);
        CU_ASSERT_PTR_EQUAL(gguf_value_end(&v), b.data + first);
        v = gguf_value_at(formats[f], GGUF_STRING, b.data + first);
        CU_ASSERT_EQUAL(v.len, 0);
        CU_ASSERT_PTR_EQUAL(gguf_value_end(&v), b.data + b.len);
        buf_free(&b);
    }
}

/* Put [["x", ""], [], [7]] and another byte. */
static void put_nested(struct buf *b, const struct gguf_format *fmt)
{
    put_array(b, fmt, GGUF_ARRAY, 3);
    put_array(b, fmt, GGUF_STRING, 2);
    put_string(b, fmt, "x", 1);
    put_string(b, fmt, "", 0);
    put_array(b, fmt, GGUF_STRING, 0);
    put_array(b, fmt, GGUF_U8, 1);
    buf_char(b, 7);
    buf_char(b, '!');
}

static void test_walk_nested(void)
{
    static const uint64_t counts[] = {2, 0, 1};
    static const uint8_t elems[] = {GGUF_STRING, GGUF_STRING, GGUF_U8};
    for (int f = 0; f < FORMATS; f++) {
        struct buf b = BUF_INIT;
        put_nested(&b, formats[f]);
        struct gguf_value v = gguf_value_at(formats[f], GGUF_ARRAY, b.data), item, inner;
        struct gguf_walk w = gguf_walk(&v);
        for (int i = 0; i < 3; i++) {
            CU_ASSERT_TRUE_FATAL(gguf_next(&w, &item));
            CU_ASSERT_EQUAL(item.type, GGUF_ARRAY);
            CU_ASSERT_EQUAL(item.count, counts[i]);
            CU_ASSERT_EQUAL(item.elem, elems[i]);
        }
        CU_ASSERT_FALSE(gguf_next(&w, &inner));
        w = gguf_walk(&item);
        CU_ASSERT_TRUE_FATAL(gguf_next(&w, &inner));
        CU_ASSERT_EQUAL(gguf_uint(&inner), 7);
        CU_ASSERT_EQUAL(*gguf_value_end(&v), '!');
        buf_free(&b);
    }
}

static const struct key_row *find(const char *key)
{
    return key_find(key, strlen(key));
}

static void type_is(const char *key, uint32_t type, uint32_t elem)
{
    const struct key_row *row = find(key);
    CU_ASSERT_PTR_NOT_NULL_FATAL(row);
    CU_ASSERT_EQUAL(row->type, type);
    CU_ASSERT_EQUAL(row->elem, elem);
}

static void test_types(void)
{
    type_is("general.architecture", GGUF_STRING, 0);
    type_is("general.alignment", GGUF_U32, 0);
    type_is("general.tags", GGUF_ARRAY, GGUF_STRING);
    type_is("general.base_model.0.name", GGUF_STRING, 0);
    type_is("general.base_model.17.repo_url", GGUF_STRING, 0);
    type_is("llama.context_length", GGUF_U32, 0);
    type_is("gpt-oss.attention.head_count_kv", GGUF_U32, GGUF_I32);
    type_is("qwen2.rope.freq_base", GGUF_F32, 0);
    type_is("qwen2.rope.scaling.finetuned", GGUF_BOOL, 0);
    type_is("mamba.ssm.conv_kernel", GGUF_U32, 0);
    type_is("rwkv7.wkv.head_size", GGUF_U32, 0);
    type_is("whisper.encoder.mels_count", GGUF_U32, 0);
    type_is("tokenizer.ggml.tokens", GGUF_ARRAY, GGUF_STRING);
    type_is("tokenizer.ggml.scores", GGUF_ARRAY, GGUF_F32);
    type_is("tokenizer.ggml.token_type", GGUF_ARRAY, GGUF_I32);
    type_is("tokenizer.ggml.add_bos_token", GGUF_BOOL, 0);
    type_is("tokenizer.chat_template", GGUF_STRING, 0);
    type_is("tokenizer.chat_template.tool_use", GGUF_STRING, 0);
    type_is("split.count", GGUF_U16, 0);
    type_is("split.tensors.count", GGUF_I32, 0);
    type_is("clip.vision.image_mean", GGUF_ARRAY, GGUF_F32);
}

static void test_unknown(void)
{
    CU_ASSERT_PTR_NULL(find("my.key"));
    CU_ASSERT_PTR_NULL(find("general"));
    CU_ASSERT_PTR_NULL(find("general.block_count")); /* "general" is not an architecture */
    CU_ASSERT_PTR_NULL(find("tokenizer.vocab_size"));
    CU_ASSERT_PTR_NULL(find("llama.context_length.x"));
    CU_ASSERT_PTR_NULL(find("llama.context_lengt"));
    CU_ASSERT_PTR_NULL(find(".context_length"));
    CU_ASSERT_PTR_NULL(find("general.base_model.x.name"));
    CU_ASSERT_PTR_NULL(find("general.base_model..name"));
    CU_ASSERT_PTR_NULL(find("tokenizer.chat_template."));
    CU_ASSERT_PTR_NULL(find(""));
}

static void test_fits(void)
{
    const struct key_row *count = find("llama.block_count"),
                         *heads = find("x.attention.head_count");
    const struct key_row *rank = find("llama.attention.q_lora_rank");
    const struct key_row *tokens = find("tokenizer.ggml.tokens");
    CU_ASSERT_FALSE(key_type_fits(count, GGUF_U64, 0));
    CU_ASSERT_FALSE(key_type_fits(count, GGUF_I32, 0));
    CU_ASSERT_FALSE(key_type_fits(count, GGUF_ARRAY, GGUF_I32));
    CU_ASSERT_TRUE(key_type_fits(heads, GGUF_U32, 0));
    /* In per-layer arrays, llama.cpp refuses every integer type but these two. */
    for (uint32_t elem = 0; elem < GGUF_VALUE_TYPES; elem++) {
        const bool taken = elem == GGUF_U32 || elem == GGUF_I32;
        CU_ASSERT_EQUAL(key_type_fits(heads, GGUF_ARRAY, elem), taken);
        CU_ASSERT_EQUAL(key_type_fits(find("x.attention.recurrent_layers"), GGUF_ARRAY, elem),
                        taken || elem == GGUF_BOOL);
        CU_ASSERT_EQUAL(key_type_fits(find("x.swiglu_clamp_exp"), GGUF_ARRAY, elem),
                        elem == GGUF_F32);
    }
    CU_ASSERT_FALSE(key_type_fits(rank, GGUF_U64, 0));
    CU_ASSERT_FALSE(key_type_fits(tokens, GGUF_STRING, 0));
    CU_ASSERT_FALSE(key_type_fits(tokens, GGUF_ARRAY, GGUF_I32));
}

static void syntax(const char *key, bool valid, bool lower_snake)
{
    CU_ASSERT_EQUAL(key_valid(key, strlen(key)), valid);
    CU_ASSERT_EQUAL(key_lower_snake(key, strlen(key)), lower_snake);
}

static void test_syntax(void)
{
    syntax("general.name", true, true);
    syntax("a", true, true);
    syntax("a.0._b", true, true);
    syntax("gpt-oss.block_count", true, false);
    syntax("tokenizer.chat_template.toolUse", true, false);
    syntax("", false, false);
    syntax(".", false, false);
    syntax(".a", false, false);
    syntax("a.", false, false);
    syntax("a..b", false, false);
    syntax("a b", false, false);
    syntax("a/b", false, false);
    syntax("a.b:u32", false, false);
    syntax("a.b~", false, false);
    syntax("a\n", false, false);
    syntax("a\xc3\xa9", false, false);
    CU_ASSERT_FALSE(key_valid("a\0b", 3));
}

static void test_length(void)
{
    char *key = malloc(KEY_MAX + 1);
    CU_ASSERT_PTR_NOT_NULL_FATAL(key);
    memset(key, 'k', KEY_MAX + 1);
    CU_ASSERT_TRUE(key_valid(key, KEY_MAX));
    CU_ASSERT_FALSE(key_valid(key, KEY_MAX + 1));
    /* A longer key is not standardized, even if its beginning is. */
    (void)memcpy(key, "tokenizer.chat_template.", 24);
    CU_ASSERT_PTR_NOT_NULL(key_find(key, KEY_MAX));
    CU_ASSERT_PTR_NULL(key_find(key, KEY_MAX + 1));
    free(key);
}

static CU_TestInfo tests[] = {
    {"the table of value types agrees with the specification", test_table},
    {"integers have their limits in every format", test_integers},
    {"floats are read exactly", test_floats},
    {"strings are read, also with a counted NUL", test_strings},
    {"nested arrays are walked and skipped", test_walk_nested},
    {"standardized keys have standard types", test_types},
    {"other keys have no standard type", test_unknown},
    {"a row accepts only its types", test_fits},
    {"only valid key names are accepted", test_syntax},
    {"the length of a key is limited", test_length},
    CU_TEST_INFO_NULL,
};

CU_MAIN("value", tests)

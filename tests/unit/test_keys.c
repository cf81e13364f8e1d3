/* SPDX-License-Identifier: MIT */
/* edit/keys: the syntax of keys and the table of standardized keys. */
#include "cu_main.h"

#include <stdlib.h>
#include <string.h>

#include "gguf/value.h"

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
    {"standardized keys have standard types", test_types},
    {"other keys have no standard type", test_unknown},
    {"a row accepts only its types", test_fits},
    {"only valid key names are accepted", test_syntax},
    {"the length of a key is limited", test_length},
    CU_TEST_INFO_NULL,
};

CU_MAIN("keys", tests)

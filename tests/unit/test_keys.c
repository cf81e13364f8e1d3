/* SPDX-License-Identifier: MIT */
/* gguf/value: names of keys, and the types of standardized ones. */
#include "cu_test.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/bytes.h"
#include "gguf/value.h"

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
        const bool taken = elem == GGUF_U32 || elem == GGUF_I32;
        CU_ASSERT_EQUAL(key_type_fits(heads, GGUF_ARRAY, elem), taken);
        CU_ASSERT_EQUAL(key_type_fits(find("x.attention.recurrent_layers"), GGUF_ARRAY, elem),
                        taken || elem == GGUF_BOOL);
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

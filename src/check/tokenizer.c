/* SPDX-License-Identifier: MIT */
/* Rules about the tokenizer that readers make of the keys. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "check/needs.h"
#include "model/facts.h"

static const char models[] =
    "llama gpt2 bert t5 rwkv plamo2 gemma4 hybriddna whitespace no_vocab none";

/* What llama.cpp of August 2026 knows as tokenizer.ggml.pre. */
// clang-format off
static const char pres[] =
    "a.x-4.0 afmoe bailingmoe bailingmoe2 bloom chameleon chatglm-bpe codeshell cohere2moe "
    "command-r dbrx deepseek-coder deepseek-llm deepseek-r1-qwen deepseek-v3 default exaone "
    "exaone-moe exaone4 f2llmv2 falcon falcon-h1 falcon3 gemma4 gigachat glm4 gpt-2 gpt-4o "
    "gpt3-finnish granite-docling granite-embed-multi-311m granite-embed-multi-97m grok-2 "
    "hunyuan hunyuan-dense hy_v4 jais jais-2 jina-de jina-es jina-v1-en jina-v2-code "
    "jina-v2-de jina-v2-es jina-v5-nano joyai-llm kanana2 kimi-k2 kormo laguna lfm2 llada-moe "
    "llama-bpe llama-v3 llama3 llama4 megrez mellum mellum2 midm-2.0 minerva-7b minicpm5 "
    "minimax-m2 modern-bert mpt olmo phi-2 pixtral poro-chat qwen2 qwen35 refact roberta-bpe "
    "sarvam-moe seed-coder smaug-bpe smollm solar-open spark2_5 stablelm2 starcoder superbpe "
    "talkie tekken tiny_aya trillion ufakzeka viking whitespace youtu";
// clang-format on

static void check_pre(struct checker *c, struct text pre)
{
    char shown[SHOW_MAX];
    if (pre.at && pre.len && !needs_list(pres, pre) &&
        needs_know(fact_text(c->g, "general.architecture")))
        report(c, CHECK_ERROR, "key 'tokenizer.ggml.pre'",
               "'%s' is not a pre-tokenizer that is known", show(shown, pre.at, pre.len));
}

static int by_text(const void *a, const void *b)
{
    const struct text *x = a, *y = b;
    int r = memcmp(x->at, y->at, x->len < y->len ? x->len : y->len);
    return r ? r : (x->len > y->len) - (x->len < y->len);
}

/* llama.cpp ends itself where two tokens are the same. */
static int check_twice(struct checker *c, const struct gguf_value *tokens)
{
    struct text *list = tokens->count < SIZE_MAX / sizeof(*list)
                            ? malloc((size_t)tokens->count * sizeof(*list) + 1)
                            : NULL;
    struct gguf_value item;
    char shown[SHOW_MAX];
    size_t n = 0;
    uint64_t twice = 0;
    if (!list)
        return -ENOMEM;
    for (struct gguf_walk w = gguf_walk(tokens); gguf_next(&w, &item);)
        list[n++] = (struct text){(const char *)item.data, (size_t)item.len};
    qsort(list, n, sizeof(*list), by_text);
    for (size_t i = n; i-- > 1;)
        if (by_text(&list[i - 1], &list[i]) == 0 && ++twice)
            (void)show(shown, list[i].at, list[i].len);
    if (twice)
        report(c, CHECK_ERROR, "key 'tokenizer.ggml.tokens'",
               "%" PRIu64 " tokens are there twice, one is '%s'", twice, shown);
    free(list);
    return 0;
}

static int rule_tokenizer(struct checker *c)
{
    static const char model_key[] = "tokenizer.ggml.model";
    struct text model = fact_text(c->g, model_key);
    struct gguf_value tokens, merges;
    char shown[SHOW_MAX];
    bool has = fact_value(c->g, "tokenizer.ggml.tokens", &tokens);
    if (fact_later_shard(c->g) || !fact_is_model(c->g))
        return 0;
    if (!model.at && (has || needs_know(fact_text(c->g, "general.architecture"))))
        report(c, CHECK_ERROR, "metadata", "the required key %s is missing", model_key);
    uint64_t rows;
    if (needs_list("bert nomic-bert nomic-bert-moe jina-bert-v3",
                   fact_text(c->g, "general.architecture")) &&
        (!fact_uint(c->g, "tokenizer.ggml.token_type_count", &rows) || rows == 0))
        report(c, CHECK_ERROR, "metadata", "tokenizer.ggml.token_type_count is missing, or 0");
    if (text_is(model, "no_vocab") && !fact_arch_uint(c->g, "vocab_size", &rows))
        report(c, CHECK_ERROR, "metadata", "without a vocabulary the key vocab_size is required");
    if (!model.at || text_is(model, "no_vocab") || text_is(model, "none"))
        return 0;
    if (!needs_list(models, model))
        report(c, CHECK_ERROR, "key 'tokenizer.ggml.model'",
               "'%s' is not a tokenizer that is known", show(shown, model.at, model.len));
    else if (!has && !text_is(model, "rwkv"))
        report(c, CHECK_ERROR, "metadata", "the required key tokenizer.ggml.tokens is missing");
    if (text_is(model, "gpt2")) {
        check_pre(c, fact_text(c->g, "tokenizer.ggml.pre"));
        if (!fact_value(c->g, "tokenizer.ggml.merges", &merges) &&
            !text_is(fact_text(c->g, "tokenizer.ggml.pre"), "kimi-k2"))
            report(c, CHECK_ERROR, "metadata", "the required key tokenizer.ggml.merges is missing");
    }
    return has && tokens.type == GGUF_ARRAY && tokens.elem == GGUF_STRING ? check_twice(c, &tokens)
                                                                          : 0;
}

const struct rule tokenizer_rules[] = {
    {"tokenizer", rule_tokenizer, CHECK_WHOLE},
    {0},
};

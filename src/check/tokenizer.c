/* SPDX-License-Identifier: MIT */
/* Rules about the tokenizer that readers build from the keys, its tokens, and chat templates. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/count.h"
#include "check/needs.h"
#include "model/facts.h"

static const char models[] =
    "llama gpt2 bert t5 rwkv plamo2 gemma4 hybriddna whitespace no_vocab none";

/* The values of tokenizer.ggml.pre that llama.cpp knew in August 2026. */
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
    if (pre.at && pre.len && !needs_list(pres, pre) && needs_know(c->arch))
        report(c, CHECK_ERROR, "key 'tokenizer.ggml.pre'",
               "'%s' is not a pre-tokenizer that is known", show(shown, pre.at, pre.len));
}

static int by_text(const void *a, const void *b)
{
    const struct text *x = a, *y = b;
    int r = memcmp(x->at, y->at, x->len < y->len ? x->len : y->len);
    return r ? r : (x->len > y->len) - (x->len < y->len);
}

/* llama.cpp aborts if two tokens are equal. */
static void check_twice(struct checker *c, const struct gguf_value *tokens)
{
    struct text *list = tokens->count < SIZE_MAX / sizeof(*list)
                            ? malloc((size_t)tokens->count * sizeof(*list) + 1)
                            : NULL;
    struct gguf_value item;
    char shown[SHOW_MAX];
    size_t n = 0;
    uint64_t twice = 0;
    c->error = list ? 0 : -ENOMEM;
    if (!list)
        return;
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
}

static void rule_tokenizer(struct checker *c)
{
    static const char model_key[] = "tokenizer.ggml.model";
    struct text model = fact_text(c->g, model_key);
    struct gguf_value tokens, merges;
    char shown[SHOW_MAX];
    bool has = fact_value(c->g, "tokenizer.ggml.tokens", &tokens);
    if (fact_later_shard(c->g) || !fact_is_model(c->g))
        return;
    if (!model.at && (has || needs_know(c->arch)))
        report(c, CHECK_ERROR, "metadata", "the required key %s is missing", model_key);
    uint64_t rows;
    if (needs_list("bert nomic-bert nomic-bert-moe jina-bert-v3", c->arch) &&
        (!fact_uint(c->g, "tokenizer.ggml.token_type_count", &rows) || rows == 0))
        report(c, CHECK_ERROR, "metadata", "tokenizer.ggml.token_type_count is missing, or 0");
    if (text_is(model, "no_vocab") && !fact_arch_uint(c->g, "vocab_size", &rows))
        report(c, CHECK_ERROR, "metadata", "without a vocabulary the key vocab_size is required");
    if (!model.at || text_is(model, "no_vocab") || text_is(model, "none"))
        return;
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
    if (has && tokens.type == GGUF_ARRAY && tokens.elem == GGUF_STRING)
        check_twice(c, &tokens);
}

static void rule_tokens(struct checker *c)
{
    static const char *const arrays[] = {"tokenizer.ggml.scores", "tokenizer.ggml.token_type"};
    struct gguf_value tokens, v;
    bool has = fact_value(c->g, "tokenizer.ggml.tokens", &tokens) && tokens.type == GGUF_ARRAY;
    if (text_is(fact_text(c->g, "tokenizer.ggml.model"), "no_vocab"))
        return;
    for (size_t i = 0; i < COUNT(arrays); i++) {
        if (!fact_value(c->g, arrays[i], &v) || v.type != GGUF_ARRAY)
            continue;
        uint32_t key = gguf_find_key(c->g, arrays[i], strlen(arrays[i]));
        if (!has)
            report_key(c, CHECK_ERROR, key, "tokenizer.ggml.tokens is missing");
        else if (v.count != tokens.count)
            report_key(c, v.count < tokens.count ? CHECK_ERROR : CHECK_WARNING, key,
                       "%" PRIu64 " elements for %" PRIu64 " tokens", v.count, tokens.count);
    }
}

/* Types are 1 normal, 2 unknown, 3 control, 4 user defined, 5 unused, 6 byte; writers also use
 * 0. */
static void rule_token_types(struct checker *c)
{
    struct gguf_value v, item;
    uint64_t n = 0, type;
    if (!fact_value(c->g, "tokenizer.ggml.token_type", &v) || v.type != GGUF_ARRAY)
        return;
    if (gguf_types[v.elem].kind != GGUF_KIND_INT && gguf_types[v.elem].kind != GGUF_KIND_UINT)
        return;
    for (struct gguf_walk w = gguf_walk(&v); gguf_next(&w, &item);)
        n += !fact_value_uint(&item, &type) || type > 6;
    if (n)
        report(c, CHECK_WARNING, "key 'tokenizer.ggml.token_type'",
               "%" PRIu64 " elements are not a token type (1 to 6)", n);
}

static void rule_token_ids(struct checker *c, struct text key, const struct gguf_value *v)
{
    uint64_t tokens, id;
    if (text_begins(key, "tokenizer.ggml.") && text_ends(key, "_token_id") &&
        fact_value_uint(v, &id) && fact_vocabulary(c->g, &tokens) && id >= tokens &&
        id != UINT32_MAX) /* llama.cpp writes this for a missing token */
        report_key(c, CHECK_WARNING, c->at,
                   "token %" PRIu64 " is not in the vocabulary of %" PRIu64, id, tokens);
}

static void rule_vocabulary(struct checker *c)
{
    static const char *const a_row_each[] = {"token_embd.weight", "output.weight"};
    uint64_t tokens, declared;
    struct gguf_value v;
    if (!fact_value(c->g, "tokenizer.ggml.tokens", &v) || v.type != GGUF_ARRAY)
        return;
    tokens = v.count;
    if (fact_arch_uint(c->g, "vocab_size", &declared) && declared != tokens)
        report_key(c, CHECK_WARNING, fact_arch_key(c->g, "vocab_size"),
                   "%" PRIu64 ", but there are %" PRIu64 " tokens", declared, tokens);
    for (size_t k = 0; k < sizeof(a_row_each) / sizeof(a_row_each[0]); k++) {
        uint32_t i = gguf_find_tensor(c->g, a_row_each[k], strlen(a_row_each[k]));
        if (i == UINT32_MAX || c->g->tensor[i].n_dims != 2)
            continue;
        uint64_t rows = gguf_dim(c->g, &c->g->tensor[i], 1);
        if (rows != tokens && !needs_apply(c->g))
            report_tensor(c, CHECK_ERROR, i, "%" PRIu64 " rows for %" PRIu64 " tokens", rows,
                          tokens);
    }
}

const struct rule tokenizer_rules[] = {
    {"tokenizer", CHECK_WHOLE, .whole = rule_tokenizer},
    {"tokenizer-arrays", CHECK_WHOLE, .whole = rule_tokens},
    {"token-types", CHECK_WHOLE, .whole = rule_token_types},
    {"token-ids", CHECK_WHOLE, .key = rule_token_ids},
    {"vocabulary", CHECK_WHOLE, .whole = rule_vocabulary},
    {0},
};

/* ---- chat templates, which are read but never run ---- */

enum { DEPTH_MOST = 64, TOKENS_MOST = 64, TOKEN_LEN = 64 };
/* Maximum number of templates whose tokens are looked up, because each takes a walk over the
 * vocabulary. */
enum { WALKS_MOST = 32 };

/* A chat template under examination. */
struct looked {
    struct checker *c;
    uint32_t key;     /* number of its key */
    struct text left; /* rest of the text */
    struct text open[DEPTH_MOST];
    size_t depth;
};

static void skip(struct text *t, size_t n)
{
    t->at += n;
    t->len -= n;
}

/* Move past the next `end`; in code, past the next one outside quotes. Returns false if there is
 * none. */
static bool skip_to(struct text *t, const char *end, bool code)
{
    for (char quote = 0; t->len; skip(t, 1)) {
        if (!quote && text_begins(*t, end)) {
            skip(t, strlen(end));
            return true;
        }
        if (code && quote && t->at[0] == '\\' && t->len > 1)
            skip(t, 1);
        else if (code && (t->at[0] == '\'' || t->at[0] == '"'))
            quote = quote == t->at[0] ? 0 : quote ? quote : t->at[0];
    }
    return false;
}

static struct text first_word(struct text t)
{
    while (t.len && strchr("-+ \t\r\n", t.at[0]))
        skip(&t, 1);
    size_t n = 0;
    while (n < t.len && t.at[n] >= 'a' && t.at[n] <= 'z')
        n++;
    return (struct text){t.at, n};
}

/* True for "{% if x %}" and other tags that need a matching end. */
static bool opens(struct text word, struct text code)
{
    static const char *const blocks[] = {"if",     "for",   "macro", "call",
                                         "filter", "block", "raw",   "generation"};
    for (size_t i = 0; i < COUNT(blocks); i++)
        if (text_is(word, blocks[i]))
            return true;
    return text_is(word, "set") && !memchr(code.at, '=', code.len);
}

static void statement(struct looked *l, struct text code)
{
    struct text word = first_word(code);
    if (opens(word, code)) {
        if (l->depth < DEPTH_MOST)
            l->open[l->depth] = word;
        l->depth++;
    } else if (text_begins(word, "end")) {
        struct text of = {word.at + 3, word.len - 3};
        bool fits = l->depth > 0 && (l->depth > DEPTH_MOST ||
                                     (l->open[l->depth - 1].len == of.len &&
                                      memcmp(l->open[l->depth - 1].at, of.at, of.len) == 0));
        if (!fits)
            report_key(l->c, CHECK_ERROR, l->key, "{%% %.*s %%} ends nothing", (int)word.len,
                       word.at);
        l->depth -= l->depth > 0;
    }
}

static void look_at_blocks(struct looked *l)
{
    static const char *const pairs[][2] = {{"{%", "%}"}, {"{{", "}}"}, {"{#", "#}"}};
    while (l->left.len) {
        size_t kind = 0;
        while (kind < COUNT(pairs) && !text_begins(l->left, pairs[kind][0]))
            kind++;
        if (kind == COUNT(pairs)) {
            skip(&l->left, 1);
            continue;
        }
        skip(&l->left, 2);
        struct text code = l->left;
        if (!skip_to(&l->left, pairs[kind][1], kind < 2)) {
            report_key(l->c, CHECK_ERROR, l->key, "%s without %s", pairs[kind][0], pairs[kind][1]);
            return;
        }
        code.len -= l->left.len + 2;
        if (kind == 0)
            statement(l, code);
    }
    if (l->depth)
        report_key(l->c, CHECK_ERROR, l->key, "%zu of its blocks have no end", l->depth);
}

/* Return the length of a "<|im_end|>" at the beginning of the text, or 0. */
static size_t token_here(struct text t)
{
    size_t n = 2;
    if (!text_begins(t, "<|"))
        return 0;
    while (n < t.len && n < TOKEN_LEN && t.at[n] != '|' && t.at[n] > ' ' &&
           !strchr("'\"<{}", t.at[n]))
        n++;
    return n > 2 && n + 1 < t.len && t.at[n] == '|' && t.at[n + 1] == '>' ? n + 2 : 0;
}

/* Report special tokens that the vocabulary lacks, after one walk over it. */
static void look_at_tokens(struct looked *l, struct text t, const struct gguf_value *tokens)
{
    struct text found[TOKENS_MOST];
    bool known[TOKENS_MOST] = {false};
    char shown[SHOW_MAX];
    struct gguf_value item;
    size_t n = 0;
    for (size_t len; t.len && n < TOKENS_MOST; skip(&t, len ? len : 1)) {
        len = token_here(t);
        size_t i = 0;
        while (i < n && !(found[i].len == len && memcmp(found[i].at, t.at, len) == 0))
            i++;
        if (len && i == n)
            found[n++] = (struct text){t.at, len};
    }
    for (struct gguf_walk w = gguf_walk(tokens); n && gguf_next(&w, &item);)
        for (size_t i = 0; item.len > 2 && item.data[0] == '<' && i < n; i++)
            known[i] |= found[i].len == item.len && memcmp(found[i].at, item.data, item.len) == 0;
    for (size_t i = 0; i < n; i++)
        if (!known[i])
            report_key(l->c, CHECK_WARNING, l->key, "writes %s, which is not a token",
                       show(shown, found[i].at, found[i].len));
}

static bool writes(struct text t, const void *what, size_t n)
{
    return n > 0 && memmem(t.at, t.len, what, n);
}

/* Look for the end of a turn: the variable, a token that the model names, or a token that llama.cpp
 * recognises by its text. */
static void look_at_end(struct looked *l, struct text t, const struct gguf_value *tokens)
{
    static const char *const known[] = {"eos_token",
                                        "<|eot_id|>",
                                        "<|im_end|>",
                                        "<|end|>",
                                        "<end_of_turn>",
                                        "<|endoftext|>",
                                        "<|eom_id|>",
                                        "<EOT>",
                                        "<turn|>",
                                        "<|return|>",
                                        "<end_of_utterance>",
                                        "\xef\xbd\x9c"
                                        "end\xe2\x96\x81of\xe2\x96\x81sentence"};
    static const char *const named[] = {"tokenizer.ggml.eos_token_id",
                                        "tokenizer.ggml.eot_token_id",
                                        "tokenizer.ggml.eom_token_id"};
    struct gguf_value item;
    uint64_t id[COUNT(named)], at = 0;
    bool any = false;
    for (size_t i = 0; i < COUNT(known); i++)
        if (writes(t, known[i], strlen(known[i])))
            return;
    for (size_t i = 0; i < COUNT(named); i++)
        any |= fact_uint(l->c->g, named[i], &id[i]) || (id[i] = UINT64_MAX, false);
    for (struct gguf_walk w = gguf_walk(tokens); any && gguf_next(&w, &item); at++)
        for (size_t i = 0; i < COUNT(named); i++)
            if (id[i] == at && writes(t, item.data, (size_t)item.len))
                return;
    if (any)
        report_key(l->c, CHECK_WARNING, l->key, "never writes a token that ends a turn");
}

static void rule_templates(struct checker *c)
{
    static const char name[] = "tokenizer.chat_template";
    struct gguf_value tokens;
    unsigned walks = fact_value(c->g, "tokenizer.ggml.tokens", &tokens) &&
                             tokens.type == GGUF_ARRAY && tokens.elem == GGUF_STRING
                         ? WALKS_MOST
                         : 0;
    for (uint32_t i = 0; i < c->g->n_kv; i++) {
        const struct gguf_kv *kv = &c->g->kv[i];
        const struct text key = {gguf_key(c->g, kv), kv->key_len};
        const struct gguf_value v = gguf_value(c->g, kv);
        const struct text t = {(const char *)v.data, (size_t)v.len};
        if (v.type != GGUF_STRING || !text_begins(key, name) ||
            (key.len > strlen(name) && key.at[strlen(name)] != '.'))
            continue;
        struct looked l = {.c = c, .key = i, .left = t};
        look_at_blocks(&l);
        if (walks == 0)
            continue;
        walks--;
        look_at_tokens(&l, t, &tokens);
        look_at_end(&l, t, &tokens);
    }
}

const struct rule template_rules[] = {
    {"chat-template", CHECK_WHOLE, .whole = rule_templates},
    {0},
};

/* SPDX-License-Identifier: MIT */
/* Rules about keys that must agree with each other or with the tensors. */
#include <inttypes.h>
#include <string.h>

#include "base/count.h"
#include "model/facts.h"
#include "check/needs.h"
#include "gguf/keys.h"

static int rule_tokens(struct checker *c)
{
    static const char *const arrays[] = {"tokenizer.ggml.scores", "tokenizer.ggml.token_type"};
    char where[WHERE_MAX];
    struct gguf_value tokens, v;
    bool has = fact_value(c->g, "tokenizer.ggml.tokens", &tokens) && tokens.type == GGUF_ARRAY;
    if (text_is(fact_text(c->g, "tokenizer.ggml.model"), "no_vocab"))
        return 0;
    for (size_t i = 0; i < COUNT(arrays); i++) {
        if (!fact_value(c->g, arrays[i], &v) || v.type != GGUF_ARRAY)
            continue;
        (void)where_key(c->g, gguf_find_key(c->g, arrays[i], strlen(arrays[i])), where);
        if (!has)
            report(c, CHECK_ERROR, where, "tokenizer.ggml.tokens is missing");
        else if (v.count != tokens.count)
            report(c, v.count < tokens.count ? CHECK_ERROR : CHECK_WARNING, where,
                   "%" PRIu64 " elements for %" PRIu64 " tokens", v.count, tokens.count);
    }
    return 0;
}

/* 1 normal, 2 unknown, 3 control, 4 user defined, 5 unused, 6 byte; writers also use 0. */
static int rule_token_types(struct checker *c)
{
    struct gguf_value v, item;
    uint64_t n = 0, type;
    if (!fact_value(c->g, "tokenizer.ggml.token_type", &v) || v.type != GGUF_ARRAY)
        return 0;
    if (gguf_types[v.elem].kind != GGUF_KIND_INT && gguf_types[v.elem].kind != GGUF_KIND_UINT)
        return 0;
    for (struct gguf_walk w = gguf_walk(&v); gguf_next(&w, &item);)
        n += !fact_value_uint(&item, &type) || type > 6;
    if (n)
        report(c, CHECK_WARNING, "key 'tokenizer.ggml.token_type'",
               "%" PRIu64 " elements are not a token type (1 to 6)", n);
    return 0;
}

static bool ends_with(const char *s, size_t n, const char *end)
{
    return n >= strlen(end) && memcmp(s + n - strlen(end), end, strlen(end)) == 0;
}

static int rule_token_ids(struct checker *c)
{
    static const char begin[] = "tokenizer.ggml.";
    char where[WHERE_MAX];
    uint64_t tokens, id;
    if (!fact_vocabulary(c->g, &tokens))
        return 0;
    for (uint32_t i = 0; i < c->g->n_kv; i++) {
        const struct gguf_kv *kv = &c->g->kv[i];
        const char *key = gguf_key(c->g, kv);
        struct gguf_value v = gguf_value(c->g, kv);
        if (kv->key_len > strlen(begin) && memcmp(key, begin, strlen(begin)) == 0 &&
            ends_with(key, kv->key_len, "_token_id") && fact_value_uint(&v, &id) && id >= tokens &&
            id != UINT32_MAX) /* llama.cpp saves those that are absent so */
            report(c, CHECK_WARNING, where_key(c->g, i, where),
                   "token %" PRIu64 " is not in the vocabulary of %" PRIu64, id, tokens);
    }
    return 0;
}

static int rule_vocabulary(struct checker *c)
{
    static const char *const a_row_each[] = {"token_embd.weight", "output.weight"};
    char where[WHERE_MAX];
    uint64_t tokens, declared;
    struct gguf_value v;
    if (!fact_value(c->g, "tokenizer.ggml.tokens", &v) || v.type != GGUF_ARRAY)
        return 0;
    tokens = v.count;
    if (fact_arch_uint(c->g, "vocab_size", &declared) && declared != tokens)
        report(c, CHECK_WARNING, where_key(c->g, fact_arch_key(c->g, "vocab_size"), where),
               "%" PRIu64 ", but there are %" PRIu64 " tokens", declared, tokens);
    for (size_t k = 0; k < sizeof(a_row_each) / sizeof(a_row_each[0]); k++) {
        uint32_t i = gguf_find_tensor(c->g, a_row_each[k], strlen(a_row_each[k]));
        if (i == UINT32_MAX || c->g->tensor[i].n_dims != 2)
            continue;
        uint64_t rows = gguf_dim(c->g, &c->g->tensor[i], 1);
        if (rows != tokens && !needs_apply(c->g))
            report(c, CHECK_ERROR, where_tensor(c->g, i, where),
                   "%" PRIu64 " rows for %" PRIu64 " tokens", rows, tokens);
    }
    return 0;
}

/* ---- heads ---- */

/* The next element of an array with a number for each layer, or the number for all layers. */
static bool layer_value(const struct gguf_value *v, struct gguf_walk *w, uint64_t *ret)
{
    struct gguf_value item = *v;
    if (v->type == GGUF_ARRAY && !gguf_next(w, &item))
        return false;
    return item.type != GGUF_ARRAY && fact_value_uint(&item, ret);
}

static void heads_of_layers(struct checker *c, uint32_t heads_key, uint32_t kv_key)
{
    struct gguf_value h = gguf_value(c->g, &c->g->kv[heads_key]);
    struct gguf_value k = gguf_value(c->g, &c->g->kv[kv_key]);
    struct gguf_walk hw = {0}, kw = {0};
    char where[WHERE_MAX];
    uint64_t heads, kv, n = 1;
    if (h.type == GGUF_ARRAY) {
        hw = gguf_walk(&h);
        n = h.count;
    }
    if (k.type == GGUF_ARRAY) {
        kw = gguf_walk(&k);
        n = n > k.count ? n : k.count;
    }
    for (uint64_t i = 0; i < n; i++) {
        if (!layer_value(&h, &hw, &heads) || !layer_value(&k, &kw, &kv))
            return;
        if (heads && kv && heads % kv)
            report(c, CHECK_ERROR, where_key(c->g, kv_key, where),
                   "%" PRIu64 " heads cannot share %" PRIu64 " KV heads%s", heads, kv,
                   n > 1 ? ", in a layer" : "");
    }
}

static int rule_heads(struct checker *c)
{
    char where[WHERE_MAX];
    uint64_t heads, width, length;
    uint32_t key = fact_arch_key(c->g, "attention.head_count");
    uint32_t kv = fact_arch_key(c->g, "attention.head_count_kv");
    if (key == UINT32_MAX)
        return 0;
    bool one = fact_arch_uint(c->g, "attention.head_count", &heads) && heads > 0;
    bool own = fact_arch_uint(c->g, "attention.key_length", &length);
    if (one && !own && fact_arch_uint(c->g, "embedding_length", &width) && width % heads)
        report(c, CHECK_ERROR, where_key(c->g, key, where),
               "%" PRIu64 " heads do not divide %" PRIu64 ", and attention.key_length is missing",
               heads, width);
    if (kv != UINT32_MAX)
        heads_of_layers(c, key, kv);
    return 0;
}

static int rule_per_layer(struct checker *c)
{
    char where[WHERE_MAX];
    uint64_t blocks;
    struct key_index index;
    key_index(&index);
    if (!fact_arch_uint(c->g, "block_count", &blocks))
        return 0;
    for (uint32_t i = 0; i < c->g->n_kv; i++) {
        const struct gguf_kv *kv = &c->g->kv[i];
        struct gguf_value v = gguf_value(c->g, kv);
        if (v.type != GGUF_ARRAY || v.count == blocks)
            continue;
        const struct key_row *row = key_index_find(&index, gguf_key(c->g, kv), kv->key_len);
        if (row && row->flags & KEY_PER_LAYER && row->elem != GGUF_F32)
            report(c, CHECK_ERROR, where_key(c->g, i, where),
                   "%" PRIu64 " elements for %" PRIu64 " blocks", v.count, blocks);
    }
    return 0;
}

/* ---- values that readers refuse ---- */

static void check_experts(struct checker *c)
{
    char where[WHERE_MAX];
    uint64_t all = 0, used = 0, groups = 0;
    (void)fact_arch_uint(c->g, "expert_count", &all);
    if (fact_arch_uint(c->g, "expert_used_count", &used) && (used > all || (all && used == 0)))
        report(c, CHECK_ERROR, where_key(c->g, fact_arch_key(c->g, "expert_used_count"), where),
               "%" PRIu64 " of %" PRIu64 " experts", used, all);
    else if (all && fact_arch_key(c->g, "expert_used_count") == UINT32_MAX)
        report(c, CHECK_ERROR, "metadata",
               "of %" PRIu64 " experts no key expert_used_count says how many are used", all);
    if (fact_arch_uint(c->g, "expert_group_count", &groups) && groups && (all == 0 || all % groups))
        report(c, CHECK_ERROR, where_key(c->g, fact_arch_key(c->g, "expert_group_count"), where),
               "%" PRIu64 " groups of %" PRIu64 " experts", groups, all);
}

/* These architectures turn all of a head, as readers check. */
static void check_turned(struct checker *c)
{
    static const char archs[] = "llama llama-embed deci falcon baichuan";
    char where[WHERE_MAX];
    uint64_t turned, heads, width, length = 0;
    if (!needs_list(archs, fact_text(c->g, "general.architecture")) ||
        !fact_arch_uint(c->g, "rope.dimension_count", &turned))
        return;
    if (!fact_arch_uint(c->g, "attention.key_length", &length) &&
        fact_arch_uint(c->g, "attention.head_count", &heads) && heads &&
        fact_arch_uint(c->g, "embedding_length", &width) && width % heads == 0)
        length = width / heads;
    if (length && turned != length)
        report(c, CHECK_ERROR, where_key(c->g, fact_arch_key(c->g, "rope.dimension_count"), where),
               "%" PRIu64 ", but a head has %" PRIu64, turned, length);
}

/* Readers of these want four, for what is not text. */
static void check_sections(struct checker *c)
{
    static const char archs[] =
        "ernie4_5 ernie4_5-moe glm-dsa glm4 qwen2vl qwen3tts qwen3vl qwen3vlmoe qwen35 qwen35moe";
    char where[WHERE_MAX];
    uint32_t key = fact_arch_key(c->g, "rope.dimension_sections");
    if (key == UINT32_MAX || !needs_list(archs, fact_text(c->g, "general.architecture")))
        return;
    struct gguf_value v = gguf_value(c->g, &c->g->kv[key]);
    if (v.type == GGUF_ARRAY && v.count != 4)
        report(c, CHECK_ERROR, where_key(c->g, key, where), "%" PRIu64 " elements, not 4", v.count);
}

static int rule_values(struct checker *c)
{
    char where[WHERE_MAX], shown[SHOW_MAX];
    uint32_t key = fact_arch_key(c->g, "rope.scaling.type");
    struct gguf_value v = {0};
    if (!fact_is_model(c->g))
        return 0;
    if (key != UINT32_MAX)
        v = gguf_value(c->g, &c->g->kv[key]);
    struct text type = {(const char *)v.data, (size_t)v.len};
    if (v.type == GGUF_STRING && !needs_list("none linear yarn longrope", type))
        report(c, CHECK_ERROR, where_key(c->g, key, where), "'%s' is not a scaling that is known",
               show(shown, type.at, type.len));
    uint64_t interval;
    if (fact_arch_uint(c->g, "full_attention_interval", &interval) && interval == 0)
        report(c, CHECK_ERROR,
               where_key(c->g, fact_arch_key(c->g, "full_attention_interval"), where), "is 0");
    check_experts(c);
    check_turned(c);
    check_sections(c);
    return 0;
}

const struct rule model_rules[] = {
    {"tokenizer-arrays", rule_tokens, CHECK_WHOLE},
    {"token-types", rule_token_types, CHECK_WHOLE},
    {"token-ids", rule_token_ids, CHECK_WHOLE},
    {"vocabulary", rule_vocabulary, CHECK_WHOLE},
    {"heads", rule_heads, CHECK_WHOLE},
    {"key-value", rule_values, CHECK_WHOLE},
    {"per-layer", rule_per_layer, CHECK_WHOLE},
    {0},
};

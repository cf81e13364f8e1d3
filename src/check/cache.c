/* SPDX-License-Identifier: MIT */
/* The size of a model's key-value cache: see cache.h. */
#include "check/cache.h"

#include "base/bytes.h"
#include "check/needs.h"
#include "model/facts.h"

enum { LAYERS_MOST = 65536 };

/* Sources of each layer's facts: indices of keys, or UINT32_MAX if the model lacks the key. */
struct layers {
    const struct gguf *g;
    uint32_t heads, recurrent, windows;
    uint64_t count, kept; /* layer `kept` and later ones use another layer's cache */
    /* One in `interval` layers has attention; the others are recurrent. 0: all have attention. */
    uint64_t interval;
    uint64_t period, window;
    bool first, latent;
    uint64_t key, value, key_window, value_window; /* lengths of heads */
};

/* Return a key's value, or the default that readers assume. */
static uint64_t key_or(const struct gguf *g, const char *key, uint64_t otherwise)
{
    uint64_t n;
    return fact_arch_uint(g, key, &n) ? n : otherwise;
}

static bool lengths(struct layers *l)
{
    uint64_t width, heads, share = 0;
    uint32_t key = fact_arch_key(l->g, "attention.head_count");
    if (fact_arch_uint(l->g, "embedding_length", &width) && fact_layer_uint(l->g, key, 0, &heads) &&
        heads)
        share = width / heads;
    l->key = key_or(l->g, "attention.key_length", share);
    l->value = key_or(l->g, "attention.value_length", share);
    l->key_window = key_or(l->g, "attention.key_length_swa", l->key);
    l->value_window = key_or(l->g, "attention.value_length_swa", l->value);
    l->latent = key_or(l->g, "attention.key_length_mla", 0) > 0;
    if (l->latent) /* the indexer that selects tokens has its own keys */
        l->key += key_or(l->g, "attention.indexer.key_length", 0);
    return l->key && l->value;
}

static void windows(struct layers *l, struct text arch)
{
    uint64_t period;
    l->windows = fact_arch_key(l->g, "attention.sliding_window_pattern");
    const struct need_window *p = needs_window(arch);
    if (p) {
        l->window = key_or(l->g, "attention.sliding_window", p->length);
        l->period =
            fact_arch_uint(l->g, "attention.sliding_window_pattern", &period) ? period : p->period;
        l->first = p->first;
    }
    if (l->windows != UINT32_MAX && l->g->kv[l->windows].type == GGUF_ARRAY)
        l->window = key_or(l->g, "attention.sliding_window", 0);
    else
        l->windows = UINT32_MAX;
}

static bool find_layers(const struct gguf *g, struct layers *l)
{
    struct text arch = fact_text(g, "general.architecture");
    uint64_t n;
    *l = (struct layers){.g = g};
    l->heads = fact_arch_key(g, "attention.head_count_kv");
    if (l->heads == UINT32_MAX)
        l->heads = fact_arch_key(g, "attention.head_count");
    bool named = needs_listed("recurrent-by-key", arch);
    l->recurrent = named ? fact_arch_key(g, "attention.recurrent_layers") : UINT32_MAX;
    if (needs_listed("without-cache", arch) || l->heads == UINT32_MAX ||
        !fact_arch_uint(g, "block_count", &l->count) || l->count > LAYERS_MOST || !lengths(l))
        return false;
    n = key_or(g, "nextn_predict_layers", 0);
    l->count -= n < l->count ? n : 0;
    n = key_or(g, "attention.shared_kv_layers", 0);
    l->kept = n < l->count ? l->count - n : l->count;
    l->interval = named ? key_or(g, "full_attention_interval", 4) : 0;
    windows(l, arch);
    return true;
}

static bool is_recurrent(const struct layers *l, uint64_t i)
{
    uint64_t n;
    if (l->recurrent != UINT32_MAX)
        return fact_layer_uint(l->g, l->recurrent, i, &n) && n;
    return l->interval && (i + 1) % l->interval != 0;
}

static bool has_window(const struct layers *l, uint64_t i)
{
    uint64_t n;
    if (l->window == 0)
        return false;
    if (l->windows != UINT32_MAX)
        return fact_layer_uint(l->g, l->windows, i, &n) && n;
    return l->period > 1 && i % l->period != (l->first ? 0 : l->period - 1);
}

/* Add the bytes that a token occupies in one layer. */
static bool add_layer(const struct layers *l, uint64_t i, uint64_t *ret)
{
    bool window = has_window(l, i);
    uint64_t heads, n = window ? l->key_window : l->key;
    uint64_t value = l->latent ? 0 : window ? l->value_window : l->value;
    return fact_layer_uint(l->g, l->heads, i, &heads) && add_u64(n, value, &n) &&
           mul_u64(n, heads, &n) && mul_u64(n, 2, &n) && add_u64(*ret, n, ret);
}

bool cache_of(const struct gguf *g, struct cache *ret)
{
    struct layers l;
    uint64_t full = 0, window = 0, context;
    if (!find_layers(g, &l))
        return false;
    for (uint64_t i = 0; i < l.kept; i++)
        if (!is_recurrent(&l, i) && !add_layer(&l, i, has_window(&l, i) ? &window : &full))
            return false;
    *ret = (struct cache){0};
    if (!add_u64(full, window, &ret->token) || ret->token == 0)
        return false;
    struct text arch = fact_text(g, "general.architecture");
    bool vague = needs_listed("layers-unclear", arch) && l.windows == UINT32_MAX;
    if (vague || !fact_arch_uint(g, "context_length", &context) || !mul_u64(full, context, &full) ||
        !mul_u64(window, min_u64(context, l.window), &window) ||
        !add_u64(full, window, &ret->whole))
        ret->whole = 0;
    return true;
}

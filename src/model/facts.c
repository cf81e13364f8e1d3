/* SPDX-License-Identifier: MIT */
/* Reads facts about a model: see facts.h. */
#include "model/facts.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"

bool fact_value(const struct gguf *g, const char *key, struct gguf_value *ret)
{
    uint32_t i = gguf_find_key(g, key, strlen(key));
    if (i == UINT32_MAX)
        return false;
    *ret = gguf_value(g, &g->kv[i]);
    return true;
}

struct text fact_text(const struct gguf *g, const char *key)
{
    struct gguf_value v;
    if (!fact_value(g, key, &v) || v.type != GGUF_STRING)
        return (struct text){NULL, 0};
    return (struct text){(const char *)v.data, (size_t)v.len};
}

bool fact_value_uint(const struct gguf_value *v, uint64_t *ret)
{
    unsigned kind = gguf_types[v->type].kind;
    if (kind != GGUF_KIND_UINT && (kind != GGUF_KIND_INT || gguf_int(v) < 0))
        return false;
    *ret = kind == GGUF_KIND_UINT ? gguf_uint(v) : (uint64_t)gguf_int(v);
    return true;
}

bool fact_uint(const struct gguf *g, const char *key, uint64_t *ret)
{
    struct gguf_value v;
    return fact_value(g, key, &v) && fact_value_uint(&v, ret);
}

uint32_t fact_arch_key(const struct gguf *g, const char *name)
{
    char key[256];
    struct text arch = fact_text(g, "general.architecture");
    size_t n = strlen(name);
    if (!arch.at || arch.len + 1 + n > sizeof(key))
        return UINT32_MAX;
    memcpy(key, arch.at, arch.len);
    key[arch.len] = '.';
    memcpy(key + arch.len + 1, name, n);
    return gguf_find_key(g, key, arch.len + 1 + n);
}

bool fact_arch_uint(const struct gguf *g, const char *name, uint64_t *ret)
{
    uint32_t i = fact_arch_key(g, name);
    if (i == UINT32_MAX)
        return false;
    struct gguf_value v = gguf_value(g, &g->kv[i]);
    return fact_value_uint(&v, ret);
}

bool fact_layer_uint(const struct gguf *g, uint32_t key, uint64_t layer, uint64_t *ret)
{
    if (key == UINT32_MAX)
        return false;
    struct gguf_value v = gguf_value(g, &g->kv[key]);
    if (v.type == GGUF_ARRAY) {
        unsigned width = gguf_types[v.elem].width;
        if (width == 0 || layer >= v.count)
            return false;
        v = gguf_value_at(v.fmt, v.elem, v.data + layer * width);
    }
    if (v.type != GGUF_BOOL)
        return fact_value_uint(&v, ret);
    *ret = gguf_uint(&v);
    return true;
}

bool fact_vocabulary(const struct gguf *g, uint64_t *ret)
{
    struct gguf_value v;
    if (!fact_value(g, "tokenizer.ggml.tokens", &v) || v.type != GGUF_ARRAY)
        return fact_arch_uint(g, "vocab_size", ret);
    *ret = v.count;
    return true;
}

bool fact_shard(const struct gguf *g)
{
    uint64_t count;
    return fact_uint(g, "split.count", &count) && count > 1;
}

bool fact_later_shard(const struct gguf *g)
{
    uint64_t no;
    return fact_shard(g) && fact_uint(g, "split.no", &no) && no > 0;
}

bool fact_is_model(const struct gguf *g)
{
    struct text type = fact_text(g, "general.type");
    return !type.at || text_is(type, "model");
}

struct params fact_params(const struct gguf *g)
{
    struct params p = {0};
    uint64_t expert = 0;
    for (uint32_t i = 0; i < g->n_tensors; i++) {
        const struct gguf_tensor *t = &g->tensor[i];
        p.total += t->n_elem;
        if (memmem(gguf_name(g, t), t->name_len, "_exps.", 6)) /* a stack of all experts */
            expert += t->n_elem;
    }
    if (!expert || !fact_arch_uint(g, "expert_count", &p.experts))
        p.experts = 0;
    p.one = p.experts ? p.total - expert + expert / p.experts : p.total;
    return p;
}

void fact_count_label(uint64_t n, char dst[SIZE_LABEL_MAX])
{
    static const char unit[] = "KMBTQ";
    double v = (double)n / 1e3;
    size_t u = 0;
    for (; v >= 999.5 && u < sizeof(unit) - 2; u++)
        v /= 1e3;
    int digits = v >= 9.95 ? 0 : v >= 0.995 ? 1 : 2;
    int len = snprintf(dst, SIZE_LABEL_MAX - 1, "%.*f", digits, v);
    while (digits && dst[len - 1] == '0')
        len--;
    len -= dst[len - 1] == '.';
    dst[len] = unit[u];
    dst[len + 1] = '\0';
}

void fact_size_label(const struct params *p, char dst[SIZE_LABEL_MAX])
{
    char one[SIZE_LABEL_MAX];
    fact_count_label(p->one, one);
    if (p->experts)
        (void)snprintf(dst, SIZE_LABEL_MAX, "%" PRIu64 "x%.20s", p->experts, one);
    else
        (void)strcpy(dst, one);
}

static int by_bytes(const void *a, const void *b)
{
    const struct share *x = a, *y = b;
    if (x->bytes != y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

static size_t add_share(struct share *s, size_t n, const struct gguf_tensor *t)
{
    size_t i = 0;
    while (i < n && s[i].id != t->stored_id)
        i++;
    if (i == SHARES_MAX)
        return n;
    if (i == n)
        s[n++] = (struct share){.id = t->stored_id, .first = t};
    s[i].tensors++;
    s[i].bytes += t->nbytes;
    return n;
}

size_t fact_shares(const struct gguf *g, struct share dst[SHARES_MAX])
{
    size_t n = 0;
    for (uint32_t i = 0; i < g->n_tensors; i++)
        n = add_share(dst, n, &g->tensor[i]);
    qsort(dst, n, sizeof(dst[0]), by_bytes);
    return n;
}

/*
 * The names of general.file_type's values, as numbered by llama.cpp. Missing numbers are retired or
 * were never used.
 */
const char *fact_file_type(const struct gguf *g)
{
    static const char *const name[] = {
        [0] = "F32",      [1] = "F16",      [2] = "Q4_0",    [3] = "Q4_1",    [7] = "Q8_0",
        [8] = "Q5_0",     [9] = "Q5_1",     [10] = "Q2_K",   [11] = "Q3_K_S", [12] = "Q3_K_M",
        [13] = "Q3_K_L",  [14] = "Q4_K_S",  [15] = "Q4_K_M", [16] = "Q5_K_S", [17] = "Q5_K_M",
        [18] = "Q6_K",    [19] = "IQ2_XXS", [20] = "IQ2_XS", [21] = "Q2_K_S", [22] = "IQ3_XS",
        [23] = "IQ3_XXS", [24] = "IQ1_S",   [25] = "IQ4_NL", [26] = "IQ3_S",  [27] = "IQ3_M",
        [28] = "IQ2_S",   [29] = "IQ2_M",   [30] = "IQ4_XS", [31] = "IQ1_M",  [32] = "BF16",
        [36] = "TQ1_0",   [37] = "TQ2_0",   [38] = "MXFP4",  [39] = "NVFP4",  [40] = "Q1_0",
        [41] = "Q2_0",
    };
    uint64_t id;
    return fact_uint(g, "general.file_type", &id) && id < COUNT(name) ? name[id] : NULL;
}

void fact_type_name(const struct gguf_tensor *t, struct buf *out)
{
    const struct quant_type *type = gguf_type(t);
    if (type && type->block_len)
        buf_str(out, type->name);
    else
        buf_printf(out, "unknown:%" PRIu32, t->stored_id);
}

void fact_shape(const struct gguf *g, const struct gguf_tensor *t, const char *between,
                struct buf *out)
{
    for (uint32_t i = t->n_dims; i-- > 0;)
        buf_printf(out, "%" PRIu64 "%s", gguf_dim(g, t, i), i ? between : "");
}

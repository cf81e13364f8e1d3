/* SPDX-License-Identifier: MIT */
/* Reads facts about a model: see facts.h. */
#include "model/facts.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "quant/types.h"

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

static int by_share(const void *a, const void *b)
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
    qsort(dst, n, sizeof(dst[0]), by_share);
    return n;
}

/*
 * The values of general.file_type, as numbered by llama.cpp: name, and the type of most matrices.
 * Missing numbers are retired or were never used.
 */
struct file_type {
    const char *name;
    uint8_t type;
};

static const struct file_type *file_type(const struct gguf *g)
{
    static const struct file_type row[] = {
        [0] = {"F32", F32_ID},          [1] = {"F16", F16_ID},
        [2] = {"Q4_0", Q4_0_ID},        [3] = {"Q4_1", Q4_1_ID},
        [7] = {"Q8_0", Q8_0_ID},        [8] = {"Q5_0", Q5_0_ID},
        [9] = {"Q5_1", Q5_1_ID},        [10] = {"Q2_K", Q2_K_ID},
        [11] = {"Q3_K_S", Q3_K_ID},     [12] = {"Q3_K_M", Q3_K_ID},
        [13] = {"Q3_K_L", Q3_K_ID},     [14] = {"Q4_K_S", Q4_K_ID},
        [15] = {"Q4_K_M", Q4_K_ID},     [16] = {"Q5_K_S", Q5_K_ID},
        [17] = {"Q5_K_M", Q5_K_ID},     [18] = {"Q6_K", Q6_K_ID},
        [19] = {"IQ2_XXS", IQ2_XXS_ID}, [20] = {"IQ2_XS", IQ2_XS_ID},
        [21] = {"Q2_K_S", Q2_K_ID},     [22] = {"IQ3_XS", IQ3_S_ID},
        [23] = {"IQ3_XXS", IQ3_XXS_ID}, [24] = {"IQ1_S", IQ1_S_ID},
        [25] = {"IQ4_NL", IQ4_NL_ID},   [26] = {"IQ3_S", IQ3_S_ID},
        [27] = {"IQ3_M", IQ3_S_ID},     [28] = {"IQ2_S", IQ2_XS_ID},
        [29] = {"IQ2_M", IQ2_S_ID},     [30] = {"IQ4_XS", IQ4_XS_ID},
        [31] = {"IQ1_M", IQ1_M_ID},     [32] = {"BF16", BF16_ID},
        [36] = {"TQ1_0", TQ1_0_ID},     [37] = {"TQ2_0", TQ2_0_ID},
        [38] = {"MXFP4", MXFP4_ID},     [39] = {"NVFP4", NVFP4_ID},
        [40] = {"Q1_0", Q1_0_ID},       [41] = {"Q2_0", Q2_0_ID},
    };
    uint64_t id;
    return fact_uint(g, "general.file_type", &id) && id < COUNT(row) && row[id].name ? &row[id]
                                                                                     : NULL;
}

const char *fact_file_type(const struct gguf *g)
{
    const struct file_type *row = file_type(g);
    return row ? row->name : NULL;
}

/*
 * Mixes have matrices of many types, and a type whose blocks are longer than a row is replaced by
 * another one. So a block type is contradicted only if no matrix of a block has it, and one that is
 * not, only if no matrix has it or most bytes are quantised.
 */
bool fact_file_type_fits(const struct gguf *g)
{
    const struct file_type *row = file_type(g);
    uint64_t matrices = 0, fit = 0, blocks = 0, fit_blocks = 0;
    double plain = 0, quantised = 0;
    if (!row || fact_shard(g))
        return true;
    const uint32_t length = quant_find(row->type)->block_len;
    for (uint32_t i = 0; i < g->n_tensors; i++) {
        const struct gguf_tensor *t = &g->tensor[i];
        const struct quant_type *type = gguf_type(t);
        if (t->n_dims < 2 || gguf_dim(g, t, 1) < 2)
            continue;
        const bool block = memmem(gguf_name(g, t), t->name_len, "blk.", 4);
        const bool other = t->type_id != F32_ID && gguf_dim(g, t, 0) % length;
        const bool as_told = t->type_id == row->type || other;
        matrices++;
        fit += as_told;
        blocks += block;
        fit_blocks += block && as_told;
        *(type && type->block_len == 1 ? &plain : &quantised) += (double)t->nbytes;
    }
    if (length == 1)
        return matrices == 0 || (fit && quantised <= plain);
    return matrices == 0 || (blocks ? fit_blocks : fit);
}

void fact_encoding(const struct gguf *g, struct buf *out)
{
    struct share share[SHARES_MAX];
    const char *says = fact_file_type(g);
    if (says && fact_file_type_fits(g))
        buf_str(out, says);
    else if (fact_shares(g, share))
        fact_type_name(share[0].first, out);
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

void fact_index(const struct gguf *g, const struct gguf_tensor *t, uint64_t at, const char *between,
                struct buf *out)
{
    uint64_t index[GGUF_MAX_DIMS] = {0};
    for (uint32_t i = 0; i < t->n_dims; at /= gguf_dim(g, t, i++))
        index[i] = at % gguf_dim(g, t, i);
    for (uint32_t i = t->n_dims; i-- > 0;)
        buf_printf(out, "%" PRIu64 "%s", index[i], i ? between : "");
}

/* SPDX-License-Identifier: MIT */
/* Rules about each key and its value, about required keys, and about keys that must agree. */
#include "gguf/value.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/count.h"
#include "base/utf8.h"
#include "model/facts.h"
#include "check/filename.h"
#include "check/needs.h"
#include "model/snapshot.h"

static void rule_key_syntax(struct checker *c, struct text key, const struct gguf_value *v)
{
    (void)v;
    /* "gpt-oss", "bitnet-b1.58": the name of the architecture cannot be changed */
    const bool own = c->arch.len && key.len > c->arch.len + 1 &&
                     memcmp(key.at, c->arch.at, c->arch.len) == 0 && key.at[c->arch.len] == '.';
    const size_t skip = own ? c->arch.len + 1 : 0;
    if (key_lower_snake(key.at + skip, key.len - skip))
        return;
    if (key_valid(key.at, key.len))
        report_key(c, CHECK_WARNING, c->at, "is not lower_snake_case");
    else if (key.len > KEY_MAX)
        report_key(c, CHECK_ERROR, c->at, "a key of %zu bytes, at most %d are allowed", key.len,
                   KEY_MAX);
    else
        report_key(c, CHECK_ERROR, c->at, "is not a key: ASCII segments with single dots between");
}

static const char *wanted_type(const struct key_row *row, char dst[64])
{
    const char *name = gguf_types[row->type].name, *elem = gguf_types[row->elem].name;
    if (row->type == GGUF_ARRAY)
        (void)snprintf(dst, 64, "array[%s]", elem);
    else
        (void)snprintf(dst, 64, "%s%s%s%s%s", name, row->flags & KEY_SIGN ? " or i32" : "",
                       row->flags & KEY_PER_LAYER ? ", or array[" : "",
                       row->flags & KEY_PER_LAYER ? elem : "",
                       row->flags & KEY_PER_LAYER ? "]" : "");
    return dst;
}

static void rule_key_type(struct checker *c, struct text key, const struct gguf_value *v)
{
    char name[GGUF_TYPE_NAME_MAX], want[64];
    const struct key_row *row = key_index_find(c->index, key.at, key.len);
    if (row && !key_type_fits(row, v->type, v->elem))
        report_key(c, CHECK_ERROR, c->at, "is %s, must be %s", gguf_type_name(v, name),
                   wanted_type(row, want));
}

/* ---- values ---- */

/* Count the values in v, at any depth, for which fn returns true. */
static uint64_t count_values(const struct gguf_value *v, bool (*fn)(const struct gguf_value *v))
{
    struct gguf_value item;
    uint64_t n = 0;
    if (v->type != GGUF_ARRAY)
        return fn(v);
    if (v->elem != GGUF_STRING && v->elem != GGUF_BOOL && v->elem != GGUF_ARRAY)
        return 0;
    for (struct gguf_walk w = gguf_walk(v); gguf_next(&w, &item);)
        n += count_values(&item, fn);
    return n;
}

static bool not_utf8(const struct gguf_value *v)
{
    if (v->type != GGUF_STRING)
        return false;
    for (uint64_t i = 0, n; i < v->len; i += n)
        if ((n = utf8_len(v->data + i, (size_t)(v->len - i))) == 0)
            return true;
    return false;
}

static bool other_bool(const struct gguf_value *v)
{
    return v->type == GGUF_BOOL && v->data[0] > 1;
}

/* Tokens may contain any bytes; all other text is meant for people. */
static void rule_utf8(struct checker *c, struct text key, const struct gguf_value *v)
{
    const uint64_t n = count_values(v, not_utf8);
    if (n && v->type == GGUF_ARRAY)
        report_key(c, text_begins(key, "tokenizer.") ? CHECK_NOTE : CHECK_WARNING, c->at,
                   "%" PRIu64 " strings are not UTF-8", n);
    else if (n)
        report_key(c, CHECK_WARNING, c->at, "the text is not UTF-8");
}

static void rule_bool(struct checker *c, struct text key, const struct gguf_value *v)
{
    const uint64_t n = count_values(v, other_bool);
    (void)key;
    if (n)
        report_key(c, CHECK_WARNING, c->at, "a bool is stored as 0 or 1, %" PRIu64 " %s not", n,
                   n == 1 ? "is" : "are");
}

static void rule_nested(struct checker *c, struct text key, const struct gguf_value *v)
{
    (void)key;
    if (v->type == GGUF_ARRAY && v->elem == GGUF_ARRAY)
        report_key(c, CHECK_ERROR, c->at, "an array of arrays: ggml refuses it");
}

/* ---- required keys ---- */

/* True if the model has no block_count of its own, but one under another architecture's name. */
static bool is_other(const struct gguf *g, struct text *ret)
{
    static const char end[] = ".block_count";
    if (fact_arch_key(g, end + 1) != UINT32_MAX)
        return false;
    for (uint32_t i = 0; i < g->n_kv; i++) {
        size_t n = g->kv[i].key_len, tail = strlen(end);
        *ret = (struct text){gguf_key(g, &g->kv[i]), n > tail ? n - tail : 0};
        if (ret->len && memcmp(ret->at + ret->len, end, tail) == 0 && needs_know(*ret))
            return true;
    }
    *ret = (struct text){"", 0};
    return false;
}

static void rule_architecture(struct checker *c)
{
    char shown[SHOW_MAX], others[SHOW_MAX];
    struct text other = {"", 0};
    bool unusual = false, bad = c->arch.len == 0;
    if (!c->arch.at) {
        if (!fact_later_shard(c->g) && !text_is(fact_text(c->g, "general.type"), "imatrix"))
            report(c, CHECK_ERROR, "metadata", "the required key general.architecture is missing");
        return;
    }
    for (size_t i = 0; i < c->arch.len; i++) {
        char ch = c->arch.at[i];
        bool plain = (ch >= 'a' && ch <= 'z') || (ch >= '0' && ch <= '9');
        unusual |= !plain;
        bad |= !plain && ch != '-' && ch != '_';
    }
    if (is_other(c->g, &other) || c->arch.len == 0) {
        report(c, CHECK_ERROR, "key 'general.architecture'",
               other.len ? "is '%s', but the keys are those of '%s'" : "is empty%s%s",
               show(shown, c->arch.at, c->arch.len), show(others, other.at, other.len));
        return;
    }
    /* "command-r", "gpt-oss": names with - and _ are in use, despite the specification */
    if (bad || (unusual && !needs_know(c->arch)))
        report(c, bad ? CHECK_WARNING : CHECK_NOTE, "key 'general.architecture'",
               "the specification allows only a to z and 0 to 9");
    else if (!needs_know(c->arch) && fact_is_model(c->g))
        report(c, CHECK_NOTE, "key 'general.architecture'",
               "'%s' is not known here: only general rules apply",
               show(shown, c->arch.at, c->arch.len));
}

/* A shard without its number in the name is not found by its siblings, or by readers. */
static void check_shard_name(struct checker *c, uint64_t no, uint64_t count)
{
    char tail[SPLIT_TAIL + 32];
    int n = snprintf(tail, sizeof(tail), "-%05" PRIu64 "-of-%05" PRIu64 ".gguf", no + 1, count);
    size_t len = c->file ? strlen(c->file) : 0;
    if (len == 0 || (len > (size_t)n && strcmp(c->file + len - (size_t)n, tail) == 0))
        return;
    report(c, CHECK_ERROR, "key 'split.no'",
           "the name of file %" PRIu64 " of %" PRIu64 " must end in %s", no + 1, count, tail);
}

/* If the files fit together, file.c reports further faults. */
static void rule_split(struct checker *c)
{
    static const char tensors[] = "split.tensors.count";
    uint64_t no, count;
    if (fact_shard(c->g) && !fact_later_shard(c->g) &&
        gguf_find_key(c->g, tensors, strlen(tensors)) == UINT32_MAX)
        report(c, CHECK_ERROR, "metadata",
               "the key split.tensors.count is missing: llama.cpp refuses the model");
    if (c->shards)
        return;
    bool has_no = fact_uint(c->g, "split.no", &no), has = fact_uint(c->g, "split.count", &count);
    if (has_no != has)
        report(c, CHECK_ERROR, "metadata", "only one of split.no and split.count exists");
    else if (has && count > 0 && no >= count)
        report(c, CHECK_ERROR, "key 'split.no'",
               "%" PRIu64 " is not below split.count, which is %" PRIu64, no, count);
    else if (has && count > 1)
        check_shard_name(c, no, count);
}

/* ---- keys that must agree with each other, or with tensors ---- */

/* Return the next element of a per-layer array, or the one number for all layers. */
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
            report_key(c, CHECK_ERROR, kv_key,
                       "%" PRIu64 " heads cannot share %" PRIu64 " KV heads%s", heads, kv,
                       n > 1 ? ", in a layer" : "");
    }
}

static void rule_heads(struct checker *c)
{
    uint64_t heads, width, length;
    uint32_t key = fact_arch_key(c->g, "attention.head_count");
    uint32_t kv = fact_arch_key(c->g, "attention.head_count_kv");
    if (key == UINT32_MAX)
        return;
    bool one = fact_arch_uint(c->g, "attention.head_count", &heads) && heads > 0;
    bool own = fact_arch_uint(c->g, "attention.key_length", &length);
    if (one && !own && fact_arch_uint(c->g, "embedding_length", &width) && width % heads)
        report_key(c, CHECK_ERROR, key,
                   "%" PRIu64 " heads do not divide %" PRIu64
                   ", and attention.key_length is missing",
                   heads, width);
    if (kv != UINT32_MAX)
        heads_of_layers(c, key, kv);
}

static void rule_per_layer(struct checker *c, struct text key, const struct gguf_value *v)
{
    uint64_t blocks;
    if (v->type != GGUF_ARRAY || !fact_arch_uint(c->g, "block_count", &blocks) ||
        v->count == blocks)
        return;
    const struct key_row *row = key_index_find(c->index, key.at, key.len);
    if (row && row->flags & KEY_PER_LAYER && row->elem != GGUF_F32)
        report_key(c, CHECK_ERROR, c->at, "%" PRIu64 " elements for %" PRIu64 " blocks", v->count,
                   blocks);
}

/* ---- values that readers refuse ---- */

static void check_experts(struct checker *c)
{
    uint64_t all = 0, used = 0, groups = 0;
    (void)fact_arch_uint(c->g, "expert_count", &all);
    if (fact_arch_uint(c->g, "expert_used_count", &used) && (used > all || (all && used == 0)))
        report_key(c, CHECK_ERROR, fact_arch_key(c->g, "expert_used_count"),
                   "%" PRIu64 " of %" PRIu64 " experts", used, all);
    else if (all && fact_arch_key(c->g, "expert_used_count") == UINT32_MAX)
        report(c, CHECK_ERROR, "metadata",
               "of %" PRIu64 " experts no key expert_used_count says how many are used", all);
    if (fact_arch_uint(c->g, "expert_group_count", &groups) && groups && (all == 0 || all % groups))
        report_key(c, CHECK_ERROR, fact_arch_key(c->g, "expert_group_count"),
                   "%" PRIu64 " groups of %" PRIu64 " experts", groups, all);
}

/* These architectures rotate the whole head, and readers check it. */
static void check_turned(struct checker *c)
{
    static const char archs[] = "llama llama-embed deci falcon baichuan";
    uint64_t turned, heads, width, length = 0;
    if (!needs_list(archs, c->arch) || !fact_arch_uint(c->g, "rope.dimension_count", &turned))
        return;
    if (!fact_arch_uint(c->g, "attention.key_length", &length) &&
        fact_arch_uint(c->g, "attention.head_count", &heads) && heads &&
        fact_arch_uint(c->g, "embedding_length", &width) && width % heads == 0)
        length = width / heads;
    if (length && turned != length)
        report_key(c, CHECK_ERROR, fact_arch_key(c->g, "rope.dimension_count"),
                   "%" PRIu64 ", but a head has %" PRIu64, turned, length);
}

/* Readers of these architectures require four sections, for input other than text. */
static void check_sections(struct checker *c)
{
    static const char archs[] =
        "ernie4_5 ernie4_5-moe glm-dsa glm4 qwen2vl qwen3tts qwen3vl qwen3vlmoe qwen35 qwen35moe";
    uint32_t key = fact_arch_key(c->g, "rope.dimension_sections");
    if (key == UINT32_MAX || !needs_list(archs, c->arch))
        return;
    struct gguf_value v = gguf_value(c->g, &c->g->kv[key]);
    if (v.type == GGUF_ARRAY && v.count != 4)
        report_key(c, CHECK_ERROR, key, "%" PRIu64 " elements, not 4", v.count);
}

static void rule_values(struct checker *c)
{
    char shown[SHOW_MAX];
    uint32_t key = fact_arch_key(c->g, "rope.scaling.type");
    struct gguf_value v = {0};
    if (!fact_is_model(c->g))
        return;
    if (key != UINT32_MAX)
        v = gguf_value(c->g, &c->g->kv[key]);
    struct text type = {(const char *)v.data, (size_t)v.len};
    if (v.type == GGUF_STRING && !needs_list("none linear yarn longrope", type))
        report_key(c, CHECK_ERROR, key, "'%s' is not a scaling that is known",
                   show(shown, type.at, type.len));
    uint64_t interval;
    if (fact_arch_uint(c->g, "full_attention_interval", &interval) && interval == 0)
        report_key(c, CHECK_ERROR, fact_arch_key(c->g, "full_attention_interval"), "is 0");
    check_experts(c);
    check_turned(c);
    check_sections(c);
}

const struct rule keys_rules[] = {
    {"key-syntax", CHECK_FILE, .key = rule_key_syntax},
    {"key-type", CHECK_FILE, .key = rule_key_type},
    {"utf8", CHECK_FILE, .key = rule_utf8},
    {"bool", CHECK_FILE, .key = rule_bool},
    {"nested", CHECK_FILE, .key = rule_nested},
    {"architecture", CHECK_WHOLE, .whole = rule_architecture},
    {"required", CHECK_WHOLE, .whole = rule_required},
    {"split", CHECK_FILE, .whole = rule_split},
    {0},
};

/* Applied after the rules about the tokenizer. */
const struct rule model_rules[] = {
    {"heads", CHECK_WHOLE, .whole = rule_heads},
    {"key-value", CHECK_WHOLE, .whole = rule_values},
    {"per-layer", CHECK_WHOLE, .key = rule_per_layer},
    {0},
};

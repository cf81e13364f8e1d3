/* SPDX-License-Identifier: MIT */
/* Rules about each key and its value, and about the keys that are required. */
#include "gguf/keys.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/count.h"
#include "base/utf8.h"
#include "model/facts.h"
#include "check/filename.h"
#include "check/needs.h"
#include "model/split.h"

static int rule_key_syntax(struct checker *c)
{
    char where[WHERE_MAX];
    struct text arch = fact_text(c->g, "general.architecture");
    for (uint32_t i = 0; i < c->g->n_kv; i++) {
        const char *key = gguf_key(c->g, &c->g->kv[i]);
        size_t n = c->g->kv[i].key_len;
        /* "gpt-oss", "bitnet-b1.58": the architecture's name is what it is. */
        size_t skip = arch.len && n > arch.len + 1 && memcmp(key, arch.at, arch.len) == 0 &&
                              key[arch.len] == '.'
                          ? arch.len + 1
                          : 0;
        if (key_lower_snake(key + skip, n - skip))
            continue;
        (void)where_key(c->g, i, where);
        if (key_valid(key, n))
            report(c, CHECK_WARNING, where, "is not lower_snake_case");
        else if (n > KEY_MAX)
            report(c, CHECK_ERROR, where, "a key of %zu bytes, at most %d are allowed", n, KEY_MAX);
        else
            report(c, CHECK_ERROR, where, "is not a key: ASCII segments with single dots between");
    }
    return 0;
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

static int rule_key_type(struct checker *c)
{
    char where[WHERE_MAX], name[GGUF_TYPE_NAME_MAX], want[64];
    struct key_index index;
    key_index(&index);
    for (uint32_t i = 0; i < c->g->n_kv; i++) {
        const struct gguf_kv *kv = &c->g->kv[i];
        const struct key_row *row = key_index_find(&index, gguf_key(c->g, kv), kv->key_len);
        struct gguf_value v = gguf_value(c->g, kv);
        if (row && !key_type_fits(row, v.type, v.elem))
            report(c, CHECK_ERROR, where_key(c->g, i, where), "is %s, must be %s",
                   gguf_type_name(&v, name), wanted_type(row, want));
    }
    return 0;
}

/* ---- values ---- */

/* Counts the values in v, at any depth, for which fn returns true. */
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

/* Tokens may be any bytes; all other text is read by people. */
static int rule_utf8(struct checker *c)
{
    static const char tokenizer[] = "tokenizer.";
    char where[WHERE_MAX];
    for (uint32_t i = 0; i < c->g->n_kv; i++) {
        const struct gguf_kv *kv = &c->g->kv[i];
        struct gguf_value v = gguf_value(c->g, kv);
        uint64_t n = count_values(&v, not_utf8);
        bool tokens = v.type == GGUF_ARRAY && kv->key_len > strlen(tokenizer) &&
                      memcmp(gguf_key(c->g, kv), tokenizer, strlen(tokenizer)) == 0;
        if (n && v.type == GGUF_ARRAY)
            report(c, tokens ? CHECK_NOTE : CHECK_WARNING, where_key(c->g, i, where),
                   "%" PRIu64 " strings are not UTF-8", n);
        else if (n)
            report(c, CHECK_WARNING, where_key(c->g, i, where), "the text is not UTF-8");
    }
    return 0;
}

static int rule_bool(struct checker *c)
{
    char where[WHERE_MAX];
    for (uint32_t i = 0; i < c->g->n_kv; i++) {
        struct gguf_value v = gguf_value(c->g, &c->g->kv[i]);
        uint64_t n = count_values(&v, other_bool);
        if (n)
            report(c, CHECK_WARNING, where_key(c->g, i, where),
                   "a bool is stored as 0 or 1, %" PRIu64 " %s not", n, n == 1 ? "is" : "are");
    }
    return 0;
}

static int rule_nested(struct checker *c)
{
    char where[WHERE_MAX];
    for (uint32_t i = 0; i < c->g->n_kv; i++) {
        struct gguf_value v = gguf_value(c->g, &c->g->kv[i]);
        if (v.type == GGUF_ARRAY && v.elem == GGUF_ARRAY)
            report(c, CHECK_ERROR, where_key(c->g, i, where),
                   "an array of arrays: ggml refuses it");
    }
    return 0;
}

/* ---- required keys ---- */

/* True if the model has no block_count, but that of an architecture by another name. */
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

static int rule_architecture(struct checker *c)
{
    struct text arch = fact_text(c->g, "general.architecture");
    char shown[SHOW_MAX], others[SHOW_MAX];
    struct text other = {"", 0};
    bool unusual = false, bad = arch.len == 0;
    if (!arch.at) {
        if (!fact_later_shard(c->g) && !text_is(fact_text(c->g, "general.type"), "imatrix"))
            report(c, CHECK_ERROR, "metadata", "the required key general.architecture is missing");
        return 0;
    }
    for (size_t i = 0; i < arch.len; i++) {
        char ch = arch.at[i];
        bool plain = (ch >= 'a' && ch <= 'z') || (ch >= '0' && ch <= '9');
        unusual |= !plain;
        bad |= !plain && ch != '-' && ch != '_';
    }
    if (is_other(c->g, &other) || arch.len == 0) {
        report(c, CHECK_ERROR, "key 'general.architecture'",
               other.len ? "is '%s', but the keys are those of '%s'" : "is empty%s%s",
               show(shown, arch.at, arch.len), show(others, other.at, other.len));
        return 0;
    }
    /* "command-r", "gpt-oss": names with - and _ are in use, against the specification. */
    if (bad || (unusual && !needs_know(arch)))
        report(c, bad ? CHECK_WARNING : CHECK_NOTE, "key 'general.architecture'",
               "the specification allows only a to z and 0 to 9");
    else if (!needs_know(arch) && fact_is_model(c->g))
        report(c, CHECK_NOTE, "key 'general.architecture'",
               "'%s' is not known here: only general rules apply", show(shown, arch.at, arch.len));
    return 0;
}

/* From the specification's chapters, of architectures that llama.cpp does not load. */
static const struct need_key specified[] = {
    {"context_length", "gptj", NULL},
    {"embedding_length", "gptj rwkv", NULL},
    {"block_count", "gptj rwkv", NULL},
    {"rope.dimension_count", "gptj", NULL},
    {"attention.head_count", "gptj", NULL},
    {"attention.layer_norm_epsilon", "gptj", NULL},
    {"architecture_version", "rwkv", NULL},
    {"feed_forward_length", "rwkv", NULL},
    {"encoder.context_length", "whisper", NULL},
    {"encoder.embedding_length", "whisper", NULL},
    {"encoder.block_count", "whisper", NULL},
    {"encoder.mels_count", "whisper", NULL},
    {"encoder.attention.head_count", "whisper", NULL},
    {"decoder.context_length", "whisper", NULL},
    {"decoder.embedding_length", "whisper", NULL},
    {"decoder.block_count", "whisper", NULL},
    {"decoder.attention.head_count", "whisper", NULL},
};

/* The rank of a matrix that is not there. */
static bool is_needless(const struct gguf *g, const struct need_key *row)
{
    char name[96];
    if (!row->unless)
        return false;
    (void)snprintf(name, sizeof(name), "blk.%" PRIu64 ".%s.weight", needs_first_block(g),
                   row->unless);
    return gguf_find_tensor(g, name, strlen(name)) != UINT32_MAX;
}

static void require(struct checker *c, const struct need_key *row, size_t n, bool known)
{
    char shown[SHOW_MAX];
    struct text arch = fact_text(c->g, "general.architecture");
    for (; n-- > 0; row++) {
        bool but = row->archs[0] == '!';
        if ((but ? known && !needs_list(row->archs, arch) : needs_list(row->archs, arch)) &&
            fact_arch_key(c->g, row->key) == UINT32_MAX && !is_needless(c->g, row))
            report(c, CHECK_ERROR, "metadata", "the required key %s.%s is missing",
                   show(shown, arch.at, arch.len), row->key);
    }
}

static int rule_required(struct checker *c)
{
    if (fact_later_shard(c->g) || !fact_is_model(c->g))
        return 0;
    require(c, need_keys, need_keys_len, needs_know(fact_text(c->g, "general.architecture")));
    require(c, specified, COUNT(specified), false);
    return 0;
}

/* A shard is not found by the others if its number is not in its name, and no reader finds these. */
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

/* If the files fit together, file.c reports more about them. */
static int rule_split(struct checker *c)
{
    static const char tensors[] = "split.tensors.count";
    uint64_t no, count;
    if (fact_shard(c->g) && !fact_later_shard(c->g) &&
        gguf_find_key(c->g, tensors, strlen(tensors)) == UINT32_MAX)
        report(c, CHECK_ERROR, "metadata",
               "the key split.tensors.count is missing: llama.cpp refuses the model");
    if (c->shards)
        return 0;
    bool has_no = fact_uint(c->g, "split.no", &no), has = fact_uint(c->g, "split.count", &count);
    if (has_no != has)
        report(c, CHECK_ERROR, "metadata", "only one of split.no and split.count exists");
    else if (has && count > 0 && no >= count)
        report(c, CHECK_ERROR, "key 'split.no'",
               "%" PRIu64 " is not below split.count, which is %" PRIu64, no, count);
    else if (has && count > 1)
        check_shard_name(c, no, count);
    return 0;
}

const struct rule keys_rules[] = {
    {"key-syntax", rule_key_syntax, CHECK_FILE},
    {"key-type", rule_key_type, CHECK_FILE},
    {"utf8", rule_utf8, CHECK_FILE},
    {"bool", rule_bool, CHECK_FILE},
    {"nested", rule_nested, CHECK_FILE},
    {"architecture", rule_architecture, CHECK_WHOLE},
    {"required", rule_required, CHECK_WHOLE},
    {"split", rule_split, CHECK_FILE},
    {0},
};

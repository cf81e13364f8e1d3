/* SPDX-License-Identifier: MIT */
/* Rules about each key and its value, about required keys and keys that must agree, about the
 * tokenizer that readers build from the keys, and about chat templates. */
#include "gguf/value.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/err.h"
#include "base/buf.h"
#include "base/hash.h"
#include "model/facts.h"
#include "check/needs.h"

static void rule_key_syntax(struct checker *c, struct text key, const struct gguf_value *v)
{
    (void)v;
    /* do not check the architecture's own name, which may be "gpt-oss" or "bitnet-b1.58" */
    const bool own = c->arch.len && key.len > c->arch.len + 1 &&
                     memcmp(key.at, c->arch.at, c->arch.len) == 0 && key.at[c->arch.len] == '.';
    const size_t skip = own ? c->arch.len + 1 : 0;
    if (key_lower_snake(key.at + skip, key.len - skip))
        return;
    if (key_valid(key.at, key.len))
        report(c, CHECK_WARNING, at_key(c, c->at), "is not lower_snake_case");
    else if (key.len > KEY_MAX)
        report(c, CHECK_ERROR, at_key(c, c->at),
               "the key is %zu bytes long; at most %d are allowed", key.len, KEY_MAX);
    else
        report(c, CHECK_ERROR, at_key(c, c->at),
               "is not a valid key: must be ASCII segments separated by single dots");
}

/* True for a key that llama.cpp does not read when it loads a model: a wrong type makes only other
 * readers fail. */
static bool is_unread(const struct checker *c, struct text key)
{
    static const char read[] =
        "general.architecture general.name general.file_type general.alignment";
    return needs_unread(c->arch, key) || text_begins(key, "quantize.") ||
           text_begins(key, "tokenizer.chat_template") ||
           (text_begins(key, "general.") && !needs_list(read, key));
}

static void rule_key_type(struct checker *c, struct text key, const struct gguf_value *v)
{
    char name[GGUF_TYPE_NAME_MAX], want[64];
    const struct key_row *row = key_find(key.at, key.len);
    if (!row || key_type_fits(row, v->type, v->elem))
        return;
    const char *elem = gguf_types[row->elem].name;
    const bool per_layer = row->flags & KEY_PER_LAYER;
    if (row->type == GGUF_ARRAY)
        (void)snprintf(want, sizeof(want), "array[%s%s]", elem,
                       row->flags & KEY_SIGN ? " or u32" : "");
    else
        (void)snprintf(want, sizeof(want), "%s%s%s%s%s", gguf_types[row->type].name,
                       row->flags & KEY_SIGN ? " or i32" : "", per_layer ? ", or array[" : "",
                       per_layer ? elem : "", per_layer ? "]" : "");
    report(c, is_unread(c, key) ? CHECK_WARNING : CHECK_ERROR, at_key(c, c->at),
           "is %s, must be %s", gguf_type_name(v, name), want);
}

/* Number of unknown keys that are compared with the table, which takes a while for each. */
enum { SLIPS_MOST = 64 };

/* How many letters of a slip may be wrong. */
enum { SLIP_LETTERS = 2 };

/* Offer the keys of the table that begin with `prefix`, without it. */
static struct nearest nearest_key(struct text rest, const char *prefix)
{
    struct nearest near = nearest_to(rest.at, rest.len);
    const size_t skip = strlen(prefix);
    for (size_t i = 0; i < key_table_len; i++) {
        const char *pattern = key_table[i].pattern;
        if (strncmp(pattern, prefix, skip) == 0 && !strchr(pattern, '{'))
            nearest_offer(&near, pattern + skip, strlen(pattern + skip), i);
    }
    return near;
}

/* A key with a wrong name has no effect, and readers do not refuse it. */
static void rule_slip(struct checker *c)
{
    char shown[SHOW_MAX];
    unsigned slips = 0;
    for (uint32_t i = 0; i < c->g->n_kv && slips < SLIPS_MOST; i++) {
        const struct text key = gguf_name_of(c->g, true, i);
        const bool general = text_begins(key, "general.");
        const size_t skip = general ? strlen("general.") : c->arch.len + 1;
        const bool own = c->arch.len && key.len > skip && key.at[c->arch.len] == '.' &&
                         memcmp(key.at, c->arch.at, c->arch.len) == 0;
        if ((!general && !own) || key_find(key.at, key.len))
            continue;
        slips++;
        const char *prefix = general ? "general." : "[arch].";
        const struct nearest near =
            nearest_key((struct text){key.at + skip, key.len - skip}, prefix);
        if (near.found && near.distance <= SLIP_LETTERS)
            report(c, CHECK_WARNING, at_key(c, i), "is unknown to readers: %s.%s is probably meant",
                   general ? "general" : show(shown, c->arch.at, c->arch.len),
                   key_table[near.which].pattern + strlen(prefix));
    }
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
    return v->type == GGUF_STRING && utf8_run(v->data, (size_t)v->len) < v->len;
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
        report(c, text_begins(key, "tokenizer.") ? CHECK_NOTE : CHECK_WARNING, at_key(c, c->at),
               "%" PRIu64 " strings are not UTF-8", n);
    else if (n)
        report(c, CHECK_WARNING, at_key(c, c->at), "the text is not UTF-8");
}

static void rule_bool(struct checker *c, struct text key, const struct gguf_value *v)
{
    const uint64_t n = count_values(v, other_bool);
    (void)key;
    if (n)
        report(c, CHECK_WARNING, at_key(c, c->at),
               "a bool must be stored as 0 or 1; %" PRIu64 " %s not", n, n == 1 ? "is" : "are");
}

static void rule_nested(struct checker *c, struct text key, const struct gguf_value *v)
{
    (void)key;
    if (v->type == GGUF_ARRAY && v->elem == GGUF_ARRAY)
        report(c, CHECK_ERROR, at_key(c, c->at), "an array of arrays: ggml refuses it");
}

/* ---- required keys ---- */

/* True if the model has no block_count of its own, but one under a different architecture's
 * name. */
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
    static const char plain[] = "abcdefghijklmnopqrstuvwxyz0123456789-_";
    bool bad = false;
    if (!c->arch.at) {
        if (!fact_later_shard(c->g) && !text_is(fact_text(c->g, "general.type"), "imatrix"))
            report(c, CHECK_ERROR, "metadata", "the required key general.architecture is missing");
        return;
    }
    for (size_t i = 0; i < c->arch.len; i++)
        bad |= !memchr(plain, c->arch.at[i], strlen(plain));
    if (is_other(c->g, &other) || c->arch.len == 0) {
        report(c, CHECK_ERROR, "key 'general.architecture'",
               other.len ? "is '%s', but the keys are those of '%s'" : "is empty%s%s",
               show(shown, c->arch.at, c->arch.len), show(others, other.at, other.len));
        return;
    }
    /* "command-r", "gpt-oss": names with - and _ are in use, despite the specification */
    if (bad)
        report(c, CHECK_WARNING, "key 'general.architecture'",
               "the specification allows only a to z and 0 to 9");
    else if (!needs_know(c->arch) && fact_is_model(c->g))
        report(c, CHECK_NOTE, "key 'general.architecture'",
               "unknown architecture '%s': only general rules apply",
               show(shown, c->arch.at, c->arch.len));
}

/* If c->m->shards is set, check.c checks the files together, and reports further faults. */
static void rule_split(struct checker *c)
{
    static const char tensors[] = "split.tensors.count";
    uint64_t no, count;
    if (fact_shard(c->g) && !fact_later_shard(c->g) &&
        gguf_find_key(c->g, tensors, strlen(tensors)) == UINT32_MAX)
        report(c, CHECK_ERROR, "metadata",
               "the key split.tensors.count is missing: llama.cpp refuses the model");
    if (c->m->shards)
        return;
    bool has_no = fact_uint(c->g, "split.no", &no), has = fact_uint(c->g, "split.count", &count);
    if (has_no != has)
        report(c, CHECK_ERROR, "metadata", "only one of split.no and split.count exists");
    else if (has && count > 0 && no >= count)
        report(c, CHECK_ERROR, "key 'split.no'",
               "%" PRIu64 " is not below split.count, which is %" PRIu64, no, count);
}

/* ---- keys that must agree with each other, or with tensors ---- */

static void heads_of_layers(struct checker *c, uint32_t heads_key, uint32_t kv_key)
{
    const struct gguf_kv *kvs = c->g->kv;
    const bool layers = kvs[heads_key].type == GGUF_ARRAY || kvs[kv_key].type == GGUF_ARRAY;
    uint64_t heads, kv;
    for (uint64_t i = 0; i == 0 || layers; i++) {
        if (!fact_layer_uint(c->g, heads_key, i, &heads) || !fact_layer_uint(c->g, kv_key, i, &kv))
            return;
        if (heads && kv && heads % kv)
            report(c, CHECK_ERROR, at_key(c, kv_key),
                   "%" PRIu64 " heads cannot share %" PRIu64 " KV heads%s", heads, kv,
                   layers ? " in a layer" : "");
    }
}

static void rule_heads(struct checker *c)
{
    uint64_t heads, width, length;
    uint32_t key = fact_arch_key(c->g, "attention.head_count");
    uint32_t kv = fact_arch_key(c->g, "attention.head_count_kv");
    if (key == UINT32_MAX || needs_listed("without-attention", c->arch))
        return;
    bool one = fact_arch_uint(c->g, "attention.head_count", &heads) && heads > 0;
    bool own = fact_arch_uint(c->g, "attention.key_length", &length);
    if (one && !own && fact_arch_uint(c->g, "embedding_length", &width) && width % heads)
        report(c, CHECK_ERROR, "metadata",
               "%" PRIu64 " heads do not divide embedding_length (%" PRIu64
               "); no attention.key_length",
               heads, width);
    if (kv != UINT32_MAX)
        heads_of_layers(c, key, kv);
}

static void rule_per_layer(struct checker *c, struct text key, const struct gguf_value *v)
{
    uint64_t blocks;
    if (v->type != GGUF_ARRAY || !fact_arch_uint(c->g, "block_count", &blocks) ||
        v->count == blocks || needs_unread(c->arch, key))
        return;
    const struct key_row *row = key_find(key.at, key.len);
    if (row && row->flags & KEY_PER_LAYER && row->elem != GGUF_F32)
        report(c, CHECK_ERROR, at_key(c, c->at), "%" PRIu64 " elements for %" PRIu64 " blocks",
               v->count, blocks);
}

/* ---- values that readers refuse ---- */

static void check_experts(struct checker *c)
{
    uint64_t all = 0, used = 0, groups = 0;
    (void)fact_arch_uint(c->g, "expert_count", &all);
    if (fact_arch_uint(c->g, "expert_used_count", &used) && (used > all || (all && used == 0)))
        report(c, CHECK_ERROR, at_key(c, fact_arch_key(c->g, "expert_used_count")),
               "is %" PRIu64 ", but there are %" PRIu64 " experts", used, all);
    else if (all && fact_arch_key(c->g, "expert_used_count") == UINT32_MAX)
        report(c, CHECK_ERROR, "metadata",
               "there are %" PRIu64 " experts, but the key expert_used_count is missing", all);
    if (fact_arch_uint(c->g, "expert_group_count", &groups) && groups && (all == 0 || all % groups))
        report(c, CHECK_ERROR, at_key(c, fact_arch_key(c->g, "expert_group_count")),
               "%" PRIu64 " experts cannot be divided into %" PRIu64 " equal groups", all, groups);
}

/* These architectures rotate the whole head, and readers reject a different
 * rope.dimension_count. */
static void check_turned(struct checker *c)
{
    uint64_t turned, heads, width, length = 0;
    if (!needs_listed("whole-head-rotated", c->arch) ||
        !fact_arch_uint(c->g, "rope.dimension_count", &turned))
        return;
    if (!fact_arch_uint(c->g, "attention.key_length", &length) &&
        fact_arch_uint(c->g, "attention.head_count", &heads) && heads &&
        fact_arch_uint(c->g, "embedding_length", &width) && width % heads == 0)
        length = width / heads;
    if (length && turned != length)
        report(c, CHECK_ERROR, at_key(c, fact_arch_key(c->g, "rope.dimension_count")),
               "is %" PRIu64 ", but a head has %" PRIu64 " dimensions", turned, length);
}

/* Readers of these architectures require exactly four sections. */
static void check_sections(struct checker *c)
{
    uint32_t key = fact_arch_key(c->g, "rope.dimension_sections");
    if (key == UINT32_MAX || !needs_listed("four-rope-sections", c->arch))
        return;
    struct gguf_value v = gguf_value(c->g, &c->g->kv[key]);
    if (v.type == GGUF_ARRAY && v.count != 4)
        report(c, CHECK_ERROR, at_key(c, key), "has %" PRIu64 " elements, must have 4", v.count);
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
    if (v.type == GGUF_STRING && !needs_listed("rope-scaling", type))
        report(c, CHECK_ERROR, at_key(c, key), "'%s' is not a known scaling type",
               show(shown, type.at, type.len));
    uint64_t interval;
    key = fact_arch_key(c->g, "full_attention_interval");
    if (key != UINT32_MAX && !needs_unread(c->arch, gguf_name_of(c->g, true, key)) &&
        fact_arch_uint(c->g, "full_attention_interval", &interval) && interval == 0)
        report(c, CHECK_ERROR, at_key(c, key), "is 0");
    check_experts(c);
    check_turned(c);
    check_sections(c);
}

/* ---- the tokenizer that readers build from the keys ---- */

/* A token. */
struct word {
    struct link link; /* must come first */
    struct text text;
};

/* The tokens, in their order, and those that are not empty also by their text. */
struct vocabulary {
    struct word *of; /* owned */
    size_t n;
    struct table by_text;
};

static const struct word *find_word(const struct vocabulary *v, struct text t)
{
    struct link *l = table_first(&v->by_text, hash_name(t.at, t.len));
    while (l && !text_same(((const struct word *)l)->text, t))
        l = table_next(l);
    return (const struct word *)l;
}

/* Read the tokens, none if the model has no list of texts. llama.cpp aborts if two tokens are equal,
 * but it gives each empty one a name of its own. */
static int read_vocabulary(struct checker *c, bool tell, struct vocabulary *v)
{
    struct gguf_value tokens, item;
    char shown[SHOW_MAX];
    if (!fact_value(c->g, "tokenizer.ggml.tokens", &tokens) || tokens.type != GGUF_ARRAY ||
        tokens.elem != GGUF_STRING)
        return 0;
    v->of = calloc((size_t)tokens.count + 1, sizeof(*v->of));
    if (!v->of)
        return -ENOMEM;
    for (struct gguf_walk w = gguf_walk(&tokens); gguf_next(&w, &item);) {
        struct word *word = &v->of[v->n++];
        word->text = (struct text){(const char *)item.data, (size_t)item.len};
        const struct word *first = item.len ? find_word(v, word->text) : NULL;
        if (first && tell)
            report(c, CHECK_ERROR, "key 'tokenizer.ggml.tokens'",
                   "tokens %zu and %zu are both '%s'", (size_t)(first - v->of), v->n - 1,
                   show(shown, item.data, (size_t)item.len));
        if (item.len && !first &&
            table_add(&v->by_text, &word->link, hash_name(item.data, (size_t)item.len)) < 0)
            return -ENOMEM;
    }
    return 0;
}

static void vocabulary_free(struct vocabulary *v)
{
    table_free(&v->by_text);
    free(v->of);
}

/* With the tokenizer "llama", llama.cpp needs tokens of single bytes for text without tokens of its
 * own, and aborts at the first newline if there is none for it. Merges are those of a gpt2
 * vocabulary, which has no such tokens. */
static void check_tokens(struct checker *c, bool bytes)
{
    static const char newline[] = "<0x0A>";
    CLEANUP(vocabulary_free) struct vocabulary v = {0};
    c->error = read_vocabulary(c, true, &v);
    if (c->error == 0 && v.n && bytes && !find_word(&v, (struct text){newline, strlen(newline)}) &&
        !find_word(&v, (struct text){"\n", 1}))
        report(c, CHECK_ERROR, "key 'tokenizer.ggml.model'",
               "'llama' needs a token %s; merges belong to 'gpt2'", newline);
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
    if (needs_listed("token-types", c->arch) &&
        (!fact_uint(c->g, "tokenizer.ggml.token_type_count", &rows) || rows == 0))
        report(c, CHECK_ERROR, "metadata", "tokenizer.ggml.token_type_count is missing, or 0");
    if (text_is(model, "no_vocab") && !fact_arch_uint(c->g, "vocab_size", &rows))
        report(c, CHECK_ERROR, "metadata", "without a vocabulary, the key vocab_size is required");
    if (!model.at || text_is(model, "no_vocab") || text_is(model, "none"))
        return;
    if (!needs_listed("tokenizers", model))
        report(c, CHECK_ERROR, "key 'tokenizer.ggml.model'", "'%s' is not a known tokenizer",
               show(shown, model.at, model.len));
    else if (!has && !text_is(model, "rwkv"))
        report(c, CHECK_ERROR, "metadata", "the required key tokenizer.ggml.tokens is missing");
    if (text_is(model, "gpt2")) {
        const struct text pre = fact_text(c->g, "tokenizer.ggml.pre");
        if (pre.at && pre.len && !needs_listed("pre-tokenizers", pre) && needs_know(c->arch))
            report(c, CHECK_ERROR, "key 'tokenizer.ggml.pre'", "'%s' is not a known pre-tokenizer",
                   show(shown, pre.at, pre.len));
        if (!fact_value(c->g, "tokenizer.ggml.merges", &merges) && !text_is(pre, "kimi-k2"))
            report(c, CHECK_ERROR, "metadata", "the required key tokenizer.ggml.merges is missing");
    }
    check_tokens(c, text_is(model, "llama") && fact_value(c->g, "tokenizer.ggml.merges", &merges));
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
            report(c, CHECK_ERROR, at_key(c, key), "tokenizer.ggml.tokens is missing");
        else if (v.count != tokens.count)
            report(c, v.count < tokens.count ? CHECK_ERROR : CHECK_WARNING, at_key(c, key),
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
        report(c, CHECK_WARNING, "key 'tokenizer.ggml.token_type'", "%" PRIu64 " %s (1 to 6)", n,
               n == 1 ? "element is not a token type" : "elements are not token types");
}

static void rule_token_ids(struct checker *c, struct text key, const struct gguf_value *v)
{
    uint64_t tokens, id;
    if (text_begins(key, "tokenizer.ggml.") && text_ends(key, "_token_id") &&
        fact_value_uint(v, &id) && fact_vocabulary(c->g, &tokens) && id >= tokens &&
        id != UINT32_MAX) /* llama.cpp writes this for a missing token */
        report(c, CHECK_WARNING, at_key(c, c->at),
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
        report(c, CHECK_WARNING, at_key(c, fact_arch_key(c->g, "vocab_size")),
               "is %" PRIu64 ", but there are %" PRIu64 " tokens", declared, tokens);
    for (size_t k = 0; k < COUNT(a_row_each); k++) {
        uint32_t i = gguf_find_tensor(c->g, a_row_each[k], strlen(a_row_each[k]));
        if (i == UINT32_MAX || c->g->tensor[i].n_dims != 2)
            continue;
        uint64_t rows = gguf_dim(c->g, &c->g->tensor[i], 1);
        if (rows != tokens && !needs_apply(c->g))
            report(c, CHECK_ERROR, at_tensor(c, i), "%" PRIu64 " rows for %" PRIu64 " tokens", rows,
                   tokens);
    }
}

/* ---- chat templates, which are read but never run ---- */

enum { DEPTH_MOST = 64, TOKEN_LEN = 64 };

/* A chat template under examination. */
struct chat_template {
    struct checker *c;
    uint32_t key;     /* index of its key */
    struct text left; /* the part not yet read */
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
    return needs_list("if for macro call filter block raw generation", word) ||
           (text_is(word, "set") && !memchr(code.at, '=', code.len));
}

static void statement(struct chat_template *l, struct text code)
{
    struct text word = first_word(code);
    if (opens(word, code)) {
        if (l->depth < DEPTH_MOST)
            l->open[l->depth] = word;
        l->depth++;
    } else if (text_begins(word, "end")) {
        struct text of = {word.at + 3, word.len - 3};
        if (l->depth == 0 || (l->depth <= DEPTH_MOST && !text_same(l->open[l->depth - 1], of)))
            report(l->c, CHECK_ERROR, at_key(l->c, l->key), "{%% %.*s %%} closes no block",
                   (int)word.len, word.at);
        l->depth -= l->depth > 0;
    }
}

static void look_at_blocks(struct chat_template *l)
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
            report(l->c, CHECK_ERROR, at_key(l->c, l->key), "%s without %s", pairs[kind][0],
                   pairs[kind][1]);
            return;
        }
        code.len -= l->left.len + 2;
        if (kind == 0)
            statement(l, code);
    }
    if (l->depth)
        report(l->c, CHECK_ERROR, at_key(l->c, l->key), "%zu of its blocks %s never closed",
               l->depth, l->depth == 1 ? "is" : "are");
}

/* Return the length of a token such as "<|im_end|>" at the beginning of the text, or 0. */
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

/* Report special tokens that the vocabulary lacks, each once. */
static void look_at_tokens(struct checker *c, uint32_t key, struct text t,
                           const struct vocabulary *v)
{
    char shown[SHOW_MAX];
    struct text told[CHECK_MOST + 1];
    size_t n_told = 0, i;
    for (size_t n; t.len && c->reported <= CHECK_MOST; skip(&t, n ? n : 1)) {
        n = token_here(t);
        const struct text token = {t.at, n};
        if (n == 0 || find_word(v, token))
            continue;
        for (i = 0; i < n_told && !text_same(told[i], token);)
            i++;
        if (i < n_told)
            continue;
        told[n_told++] = token;
        report(c, CHECK_WARNING, at_key(c, key), "writes %s, which is not a token",
               show(shown, t.at, n));
    }
}

static bool writes(struct text t, struct text what)
{
    return what.len > 0 && memmem(t.at, t.len, what.at, what.len);
}

/* Look for the end of a turn: the variable eos_token, a token that the model names, or a token
 * that llama.cpp recognises by its text. */
static void look_at_end(struct checker *c, uint32_t key, struct text t, const struct vocabulary *v)
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
                                        "\357\275\234end\342\226\201of\342\226\201sentence"};
    static const char *const named[] = {"tokenizer.ggml.eos_token_id",
                                        "tokenizer.ggml.eot_token_id",
                                        "tokenizer.ggml.eom_token_id"};
    uint64_t id;
    bool any = false, ends = false;
    for (size_t i = 0; i < COUNT(known) && !ends; i++)
        ends = writes(t, (struct text){known[i], strlen(known[i])});
    for (size_t i = 0; i < COUNT(named) && !ends; i++)
        if (fact_uint(c->g, named[i], &id)) {
            any = true;
            ends = id < v->n && writes(t, v->of[id].text);
        }
    if (any && !ends)
        report(c, CHECK_WARNING, at_key(c, key), "never writes a token that ends a turn");
}

static void rule_templates(struct checker *c)
{
    static const char name[] = "tokenizer.chat_template";
    CLEANUP(vocabulary_free) struct vocabulary tokens = {0};
    for (uint32_t i = 0; i < c->g->n_kv && c->error == 0; i++) {
        const struct text key = gguf_name_of(c->g, true, i);
        const struct gguf_value v = gguf_value(c->g, &c->g->kv[i]);
        const struct text t = {(const char *)v.data, (size_t)v.len};
        if (v.type != GGUF_STRING || !text_begins(key, name) ||
            (key.len > strlen(name) && key.at[strlen(name)] != '.'))
            continue;
        look_at_blocks(&(struct chat_template){.c = c, .key = i, .left = t});
        if (!tokens.of)
            c->error = read_vocabulary(c, false, &tokens);
        if (tokens.n && c->error == 0) {
            look_at_tokens(c, i, t, &tokens);
            look_at_end(c, i, t, &tokens);
        }
    }
}

const struct rule keys_rules[] = {
    {"key-syntax", CHECK_FILE, .key = rule_key_syntax},
    {"key-type", CHECK_FILE, .key = rule_key_type},
    {"key-slip", CHECK_WHOLE, .whole = rule_slip},
    {"utf8", CHECK_FILE, .key = rule_utf8},
    {"bool", CHECK_FILE, .key = rule_bool},
    {"nested", CHECK_FILE, .key = rule_nested},
    {"architecture", CHECK_WHOLE, .whole = rule_architecture},
    {"required", CHECK_WHOLE, .whole = rule_required},
    {"split", CHECK_FILE, .whole = rule_split},
    {"tokenizer", CHECK_WHOLE, .whole = rule_tokenizer},
    {"tokenizer-arrays", CHECK_WHOLE, .whole = rule_tokens},
    {"token-types", CHECK_WHOLE, .whole = rule_token_types},
    {"token-ids", CHECK_WHOLE, .key = rule_token_ids},
    {"vocabulary", CHECK_WHOLE, .whole = rule_vocabulary},
    {"heads", CHECK_WHOLE, .whole = rule_heads},
    {"key-value", CHECK_WHOLE, .whole = rule_values},
    {"per-layer", CHECK_WHOLE, .key = rule_per_layer},
    {"chat-template", CHECK_WHOLE, .whole = rule_templates},
    {0},
};

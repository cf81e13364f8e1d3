/* SPDX-License-Identifier: MIT */
/* The rule that the dimensions of tensors follow from the keys: see needs.h. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/count.h"
#include "check/needs.h"
#include "model/facts.h"

/* The letters of need_shape; the second key is that of layers with a sliding window. */
static const struct {
    char letter;
    const char *key, *window;
} letters[] = {
    {'C', "context_length", NULL},
    {'E', "embedding_length", NULL},
    {'F', "feed_forward_length", NULL},
    {'G', "attention.head_count_kv", NULL},
    {'H', "attention.head_count", NULL},
    {'K', "attention.key_length", "attention.key_length_swa"},
    {'L', "block_count", NULL},
    {'M', "moe_latent_size", NULL},
    {'P', "altup.num_inputs", NULL},
    {'R', "rope.dimension_count", "rope.dimension_count_swa"},
    {'S', "expert_shared_feed_forward_length", NULL},
    {'U', "expert_used_count", NULL},
    {'V', "attention.value_length", "attention.value_length_swa"},
    {'X', "expert_count", NULL},
    {'Y', "expert_feed_forward_length", NULL},
    {'Z', "expert_shared_count", NULL},
    {'a', "kda.head_dim", NULL},
    {'b', "attention.relative_buckets_count", NULL},
    {'c', "ssm.conv_kernel", NULL},
    {'d', "time_decay_extra_dim", NULL},
    {'e', "expert_latent_length", NULL},
    {'f', "expert_chunk_feed_forward_length", NULL},
    {'g', "ssm.group_count", NULL},
    {'h', "attention.indexer.head_count", NULL},
    {'i', "ssm.inner_size", NULL},
    {'j', "experts_per_group", NULL},
    {'k', "attention.key_length_mla", NULL},
    {'l', "shortconv.l_cache", NULL},
    {'m', "time_mix_extra_dim", NULL},
    {'n', "attention.decay_lora_rank", NULL},
    {'o', "attention.iclr_lora_rank", NULL},
    {'p', "embedding_length_per_layer_input", NULL},
    {'q', "attention.q_lora_rank", NULL},
    {'r', "attention.kv_lora_rank", NULL},
    {'s', "ssm.state_size", NULL},
    {'t', "ssm.time_step_rank", NULL},
    {'u', "attention.value_residual_mix_lora_rank", NULL},
    {'v', "attention.value_length_mla", NULL},
    {'w', "wkv.head_size", NULL},
    {'x', "attention.indexer.key_length", NULL},
    {'y', "attention.gate_lora_rank", NULL},
};

/* The model's keys, looked up once: of each letter its number in the model, UINT32_MAX: none. */
struct lengths {
    const struct gguf *g;
    struct text arch;
    uint32_t key[128], window[128];
    bool vocabulary, windows; /* layers may have a window */
    uint64_t tokens;
};

/* A tensor's layer, and whether its attention has a window. */
struct layer {
    const struct lengths *l;
    uint64_t number;
    bool window;
};

static void lengths_of(const struct gguf *g, struct lengths *l)
{
    uint64_t window;
    memset(l, 0xff, sizeof(*l));
    l->g = g;
    l->arch = fact_text(g, "general.architecture");
    l->vocabulary = text_is(fact_text(g, "tokenizer.ggml.model"), "no_vocab")
                        ? fact_arch_uint(g, "vocab_size", &l->tokens)
                        : fact_vocabulary(g, &l->tokens);
    l->windows = fact_arch_uint(g, "attention.sliding_window", &window) && window;
    for (size_t i = 0; i < COUNT(letters); i++) {
        size_t at = (unsigned char)letters[i].letter;
        l->key[at] = fact_arch_key(g, letters[i].key);
        if (letters[i].window)
            l->window[at] = fact_arch_key(g, letters[i].window);
    }
}

/* The value of a letter without the defaults of readers. */
static bool stored(const struct layer *t, char letter, uint64_t *ret)
{
    size_t at = (unsigned char)letter;
    return (t->window && fact_layer_uint(t->l->g, t->l->window[at], t->number, ret)) ||
           fact_layer_uint(t->l->g, t->l->key[at], t->number, ret);
}

/* Each head's share of the embedding, as readers count it: by the heads of the first layer. */
static bool head_length(const struct layer *t, uint64_t *ret)
{
    uint64_t width, heads;
    const struct layer first = {t->l, 0, false};
    if (!stored(&first, 'E', &width) || !stored(&first, 'H', &heads))
        return false;
    *ret = heads ? width / heads : 0;
    return true;
}

static bool quotient(const struct layer *t, char a, char b, uint64_t *ret)
{
    uint64_t x, y;
    if (!stored(t, a, &x) || !stored(t, b, &y) || y == 0)
        return false;
    *ret = x / y;
    return true;
}

static bool length(const struct layer *t, char letter, uint64_t *ret);

static bool product(const struct layer *t, char a, char b, uint64_t *ret)
{
    uint64_t x, y;
    return length(t, a, &x) && length(t, b, &y) && mul_u64(x, y, ret);
}

/* The value of a letter: its key's, else what readers take for it. False: not known. */
static bool length(const struct layer *t, char letter, uint64_t *ret)
{
    bool has = stored(t, letter, ret);
    switch (letter) {
    case 'N':
        *ret = t->l->tokens;
        return t->l->vocabulary;
    case 'T':
        return fact_uint(t->l->g, "tokenizer.ggml.token_type_count", ret);
    case 'F':
    case 'H':
    case 'X':
        *ret = has ? *ret : 0;
        return true;
    case 'G':
        return has || length(t, 'H', ret);
    case 'K':
    case 'V':
        return has || head_length(t, ret);
    case 'R':
        return has || length(t, 'K', ret);
    case 'k':
        return (has && *ret) || length(t, 'K', ret);
    case 'v':
        return (has && *ret) || length(t, 'V', ret);
    case 'Z':
        *ret = has ? *ret : 1;
        return true;
    case 'Y':
        return (has && *ret) || quotient(t, 'F', 'U', ret);
    case 'S':
        if (needs_list("qwen2moe qwen3next qwen35moe", t->l->arch))
            return (has && *ret) || length(t, 'F', ret);
        return (has && *ret) || product(t, 'Z', 'Y', ret);
    default:
        return has;
    }
}

/* ---- expressions ---- */

enum outcome { UNKNOWN, KNOWN, IMPOSSIBLE };

static bool is_factor(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* "2GV", "X/j": the number, and where it ends. */
static enum outcome product_of(const struct layer *t, const char **at, uint64_t *ret)
{
    enum outcome r = KNOWN;
    *ret = 1;
    for (bool divide = **at == '/'; is_factor((*at)[divide]); divide = **at == '/') {
        char letter = (*at)[divide];
        uint64_t n = (uint64_t)(letter - '0');
        *at += divide + 1;
        if ((letter > '9' && !length(t, letter, &n)) || (divide && n == 0))
            r = UNKNOWN;
        else if (divide)
            *ret /= n;
        else if (!mul_u64(*ret, n, ret))
            r = r == KNOWN ? IMPOSSIBLE : r;
    }
    return r;
}

/* "HK+2GV", up to a comma, "|" or the end. */
static enum outcome sum_of(const struct layer *t, const char **at, uint64_t *ret)
{
    enum outcome r = KNOWN;
    bool minus = false;
    for (*ret = 0;; (*at)++) {
        uint64_t n;
        enum outcome one = product_of(t, at, &n);
        if (one != KNOWN)
            r = r == UNKNOWN ? r : one;
        else if (minus ? *ret < n : !add_u64(*ret, n, &n))
            r = r == KNOWN ? IMPOSSIBLE : r;
        else
            *ret = minus ? *ret - n : n;
        if (**at != '+' && **at != '-')
            return r;
        minus = **at == '-';
    }
}

#define DIMS 4
struct dims {
    uint64_t dim[DIMS];
    bool known[DIMS];
    unsigned n;
};

/* One alternative: "E,HK". Returns the rest, "" or what follows "|". */
static const char *dims_of(const struct layer *t, const char *at, struct dims *d)
{
    for (d->n = 0;; at++) {
        enum outcome r = sum_of(t, &at, &d->dim[d->n]);
        d->known[d->n] = r != UNKNOWN;
        if (r == IMPOSSIBLE)
            d->dim[d->n] = UINT64_MAX;
        d->n++;
        if (*at != ',' || d->n == DIMS)
            return *at == '|' ? at + 1 : at;
    }
}

/* Dimensions of 1 at the end count as none. */
static bool fits(const struct gguf *g, const struct gguf_tensor *tensor, const struct dims *d)
{
    for (uint32_t i = 0; i < d->n || i < tensor->n_dims; i++) {
        uint64_t is = i < tensor->n_dims ? gguf_dim(g, tensor, i) : 1;
        if (i >= d->n ? is != 1 : d->known[i] && is != d->dim[i])
            return false;
    }
    return true;
}

static void tell(struct checker *c, uint32_t i, const struct dims *d)
{
    CLEANUP(buf_free) struct buf is = BUF_INIT, want = BUF_INIT;
    char where[WHERE_MAX];
    fact_shape(c->g, &c->g->tensor[i], " x ", &is);
    for (unsigned k = d->n; k-- > 0;) {
        if (d->known[k])
            buf_printf(&want, "%" PRIu64, d->dim[k]);
        else
            buf_char(&want, '?');
        buf_str(&want, k ? " x " : "");
    }
    if (!buf_error(&is) && !buf_error(&want))
        report(c, CHECK_ERROR, where_tensor(c->g, i, where), "is %.*s, keys make it %.*s",
               (int)is.len, (const char *)is.data, (int)want.len, (const char *)want.data);
}

/* ---- the rule ---- */

static int by_tensor(const void *name, const void *row)
{
    return strcmp(name, ((const struct need_shape *)row)->tensor);
}

/* The row of a tensor, NULL: none. */
static const struct need_shape *row_of(struct text arch, const char *name)
{
    const struct need_shape *row =
        bsearch(name, need_shapes, need_shapes_len, sizeof(need_shapes[0]), by_tensor);
    while (row && row > need_shapes && strcmp(row[-1].tensor, name) == 0)
        row--;
    while (row && row->archs && !needs_list(row->archs, arch))
        row = row + 1 < need_shapes + need_shapes_len && strcmp(row[1].tensor, name) == 0 ? row + 1
                                                                                          : NULL;
    return row;
}

/* Beside the weights of some types lies a scale, of stacked experts one for each. */
static const struct need_shape *scale_row(const char *name)
{
    static const struct need_shape one = {"", "1", NULL}, each = {"", "X", NULL};
    const char *last = strrchr(name, '.');
    bool scale = last && (strcmp(last, ".scale~") == 0 || strcmp(last, ".input_scale~") == 0);
    return !scale ? NULL : strstr(name, "_exps.") ? &each : &one;
}

static void check_shape(struct checker *c, const struct lengths *l, uint32_t i)
{
    const struct gguf_tensor *tensor = &c->g->tensor[i];
    struct layer t = {.l = l};
    struct dims d, first = {0};
    char name[NEED_NAME_MAX];
    const struct need_shape *row = NULL;
    if (needs_name(gguf_name(c->g, tensor), tensor->name_len, &t.number, name))
        row = strstr(name, "scale~") ? scale_row(name) : row_of(l->arch, name);
    if (!row || !row->dims[0])
        return;
    for (int window = 0; window <= l->windows; window++) {
        t.window = window;
        for (const char *at = row->dims; *at;) {
            bool begin = at == row->dims && !window;
            at = dims_of(&t, at, &d);
            if (fits(c->g, tensor, &d))
                return;
            if (begin)
                first = d;
        }
    }
    tell(c, i, &first);
}

static int rule_shape(struct checker *c)
{
    struct lengths l;
    if (!needs_apply(c->g))
        return 0;
    lengths_of(c->g, &l);
    for (uint32_t i = 0; i < c->g->n_tensors; i++)
        check_shape(c, &l, i);
    return 0;
}

const struct rule shape_rules[] = {
    {"tensor-shape", rule_shape, CHECK_WHOLE},
    {0},
};

/* SPDX-License-Identifier: MIT */
/* Rules about what must be there so that a model of a known architecture can be loaded: needs.h. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "check/needs.h"
#include "model/facts.h"

static bool ends(const char *name, size_t n, const char *tail)
{
    size_t len = strlen(tail);
    return n > len && memcmp(name + n - len, tail, len) == 0;
}

/* ---- tensors ---- */

/* One block of a model, or what is in no block. */
struct looked {
    struct checker *c;
    const char *block;
    uint64_t number;
    bool tell;        /* report what is missing */
    int experts;      /* in this block: 1 yes, 0 no, -1 not known */
    int recurrent;    /* the same */
    unsigned present; /* tensors that were looked for and are there */
};

static void full_name(const struct looked *b, const char *word, size_t n, char dst[96])
{
    int at = b->block[0] ? snprintf(dst, 96, "%s.%" PRIu64 ".", b->block, b->number) : 0;
    bool whole = ends(word, n, ".bias"), bare = word[n - 1] == '~';
    (void)snprintf(dst + at, 96 - (size_t)at, "%.*s%s", (int)(n - bare), word,
                   whole || bare ? "" : ".weight");
}

static bool is_there(const struct looked *b, const char *word, size_t n)
{
    char name[96];
    full_name(b, word, n, name);
    return gguf_find_tensor(b->c->g, name, strlen(name)) != UINT32_MAX;
}

/* Writers may join the tensors of a word to one. */
static bool is_fused(const struct looked *b, struct text word)
{
    static const char qkv[] = "attn_qkv", gate_up[] = "ffn_gate_up_exps";
    if (needs_list("attn_q attn_k attn_v", word))
        return is_there(b, qkv, strlen(qkv));
    return needs_list("ffn_gate_exps ffn_up_exps", word) && is_there(b, gate_up, strlen(gate_up));
}

/* Count, and maybe report, the words from `at` to `end`. Returns how many are missing. */
static unsigned look_words(struct looked *b, const char *at, const char *end)
{
    unsigned missing = 0;
    char name[96];
    for (size_t n; at < end; at += n + (at[n] == ' ')) {
        n = strcspn(at, " |)");
        if (n == 0)
            continue;
        struct text word = {at, n};
        if (is_there(b, at, n) || is_fused(b, word)) {
            b->present++;
            continue;
        }
        missing++;
        full_name(b, at, n, name);
        if (b->tell)
            report(b->c, CHECK_ERROR, "tensors", "the required tensor %s is missing", name);
    }
    return missing;
}

static bool has(const char *at, const char *end, const char *what)
{
    return memmem(at, (size_t)(end - at), what, strlen(what)) != NULL;
}

/* Of the alternatives from `at` to `end` the most complete one counts. */
static void look_alternatives(struct looked *b, const char *at, const char *end)
{
    const char *best = at, *best_end = at;
    unsigned most = 0, least = UINT32_MAX, before = b->present;
    bool tell = b->tell, ffn = true, all = true;
    for (const char *p = at, *q; p <= end; p = q + 1) {
        q = p + strcspn(p, "|)");
        all &= has(p, q, "_exps");
        ffn &= has(p, q, "ffn_"); /* else its layers are of other kinds too */
    }
    const int experts = ffn && !all && has(at, end, "_exps") ? b->experts : -1;
    const char *state = has(at, end, "ssm_") ? "ssm_" : "shortconv.";
    const int recurrent = has(at, end, state) ? b->recurrent : -1;
    b->tell = false;
    for (const char *p = at, *q; p <= end; p = q + 1) {
        q = p + strcspn(p, "|)");
        if ((experts >= 0 && has(p, q, "_exps") != (experts > 0)) ||
            (recurrent >= 0 && has(p, q, state) != (recurrent > 0)))
            continue;
        b->present = 0;
        unsigned missing = look_words(b, p, q);
        if (b->present > most || (b->present == most && missing < least)) {
            most = b->present;
            least = missing;
            best = p;
            best_end = q;
        }
    }
    b->tell = tell;
    b->present = before;
    (void)look_words(b, best, best_end);
}

static void look(struct looked *b, const char *spec)
{
    while (*spec) {
        size_t n = strcspn(spec, "(");
        (void)look_words(b, spec, spec + n);
        spec += n;
        if (*spec != '(')
            return;
        n = strcspn(spec, ")");
        look_alternatives(b, spec + 1, spec + n);
        spec += n + (spec[n] == ')');
        spec += *spec == ' ';
    }
}

static int experts_in(const struct gguf *g, uint64_t block)
{
    uint64_t n = 0, lead = 0;
    if (fact_arch_key(g, "interleave_moe_layer_step") != UINT32_MAX ||
        fact_arch_key(g, "moe_every_n_layers") != UINT32_MAX)
        return -1;
    (void)fact_arch_uint(g, "expert_count", &n);
    (void)fact_arch_uint(g, "leading_dense_block_count", &lead);
    return n && block >= lead;
}

/* What these read of the block's kind; others go by its tensors. */
static int recurrent_in(const struct gguf *g, uint64_t block, uint64_t count)
{
    struct text arch = fact_text(g, "general.architecture");
    uint64_t interval = 4, ahead = 0, heads;
    uint32_t key = fact_arch_key(g, "attention.head_count_kv");
    if (key == UINT32_MAX)
        key = fact_arch_key(g, "attention.head_count");
    if (needs_list("granitehybrid jamba lfm2 lfm2moe plamo2", arch))
        return fact_layer_uint(g, key, block, &heads) ? heads == 0 : -1;
    (void)fact_arch_uint(g, "full_attention_interval", &interval);
    (void)fact_arch_uint(g, "nextn_predict_layers", &ahead);
    if (!needs_list("qwen3next qwen35 qwen35moe", arch) ||
        fact_arch_key(g, "attention.recurrent_layers") != UINT32_MAX || interval == 0)
        return -1;
    return block + ahead < count && (block + 1) % interval != 0;
}

/* A block without any tensor is reported by the rule about blocks. */
static void look_blocks(struct checker *c, const struct need_tensors *row, uint64_t first,
                        uint64_t count)
{
    for (uint64_t i = first; i < count && i - first <= c->g->n_tensors; i++) {
        struct looked b = {.c = c,
                           .block = row->block,
                           .number = i,
                           .experts = experts_in(c->g, i),
                           .recurrent = recurrent_in(c->g, i, count)};
        look(&b, row->tensors);
        b.tell = true;
        if (b.present)
            look(&b, row->tensors);
    }
}

static int rule_tensors(struct checker *c)
{
    struct text arch = fact_text(c->g, "general.architecture");
    uint64_t count = 0, first = needs_first_block(c->g);
    if (!needs_apply(c->g))
        return 0;
    (void)fact_arch_uint(c->g, "block_count", &count);
    for (size_t i = 0; i < need_tensors_len; i++) {
        const struct need_tensors *row = &need_tensors[i];
        struct looked all = {.c = c, .block = "", .tell = true, .experts = -1, .recurrent = -1};
        if (!needs_list(row->archs, arch))
            continue;
        if (row->block[0])
            look_blocks(c, row, first, count);
        else if (first == 0)
            look(&all, row->tensors);
    }
    return 0;
}

const struct rule loads_rules[] = {
    {"tensor-missing", rule_tensors, CHECK_WHOLE},
    {0},
};

/* SPDX-License-Identifier: MIT */
/* The requirements of each architecture, and the rules about them: see needs.h. */
#include "check/needs.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"

/* Required tensors. "(a b|c)" lists alternatives; each can be empty. */
struct need_tensors {
    /* The blocks that need these tensors: "blk", "enc.blk", "dec.blk"; "" for the model as a
     * whole. */
    const char *block;
    const char *archs;
    const char *tensors;
};

/*
 * The dimensions that keys imply for a tensor, in file order: "E,HK+2GV". A letter is a key
 * (need_letters); adjacent letters are multiplied; "|" separates alternatives; "" means unknown. Rows
 * are sorted by tensor, with the row for all other architectures last.
 */
struct need_shape {
    const char *tensor; /* name without its block; starts with "." outside blocks */
    const char *dims;
    const char *archs; /* NULL: all other architectures */
};

/* A key without which llama.cpp refuses a model, or without which no tensor can have the right
 * shape. */
struct need_key {
    const char *key;   /* the part after the architecture */
    const char *archs; /* "! a b": all except these */
    /* A tensor of the first block whose presence makes the key unnecessary. NULL: the key is always
     * needed. */
    const char *unless;
};

/* Keys that only these architectures read, of those in the row "*", which comes first. */
struct need_read {
    const char *keys;
    const char *archs;
};

/* Words that have something in common. */
struct need_list {
    const char *name, *words;
};

/* A letter of need_shape, and its key; `window`: the key for layers with a sliding window; `otherwise`:
 * the product that readers assume if the model has none or, behind a "!", 0. */
struct need_letter {
    char letter;
    const char *key, *window, *otherwise;
};

/* Generated from needs.tsv. need_names lists every name that some architecture takes, sorted, without
 * ".weight" and the like, and with "#" for each number. */
#include "check/needs-table.inc"

bool tensor_block(const char *name, size_t n, uint64_t *number, size_t *rest)
{
    size_t i = 4;
    if (n < 7 || memcmp(name, "blk.", 4) != 0)
        return false;
    for (*number = 0; i < n && i < 22 && name[i] >= '0' && name[i] <= '9'; i++)
        *number = *number * 10 + (uint64_t)(name[i] - '0');
    *rest = i + 1;
    return i > 4 && i < n - 1 && name[i] == '.';
}

bool needs_list(const char *list, struct text word)
{
    for (size_t n; word.at && *list; list += n + (list[n] == ' ')) {
        n = strcspn(list, " ");
        if (n == word.len && memcmp(list, word.at, n) == 0)
            return true;
    }
    return false;
}

bool needs_listed(const char *name, struct text word)
{
    size_t i = 0;
    while (strcmp(need_lists[i].name, name) != 0)
        i++;
    return needs_list(need_lists[i].words, word);
}

const struct need_window *needs_window(struct text arch)
{
    for (size_t i = 0; i < COUNT(need_windows); i++)
        if (text_is(arch, need_windows[i].arch))
            return &need_windows[i];
    return NULL;
}

bool needs_know(struct text arch)
{
    for (size_t i = 0; i < COUNT(need_tensors); i++)
        if (need_tensors[i].block[0] == '\0' && needs_list(need_tensors[i].archs, arch))
            return true;
    return false;
}

bool needs_unread(struct text arch, struct text key)
{
    const size_t skip = arch.len + 1;
    if (!needs_list(need_reads[0].archs, arch) || key.len <= skip || key.at[arch.len] != '.' ||
        memcmp(key.at, arch.at, arch.len) != 0)
        return false;
    for (size_t i = 1; i < COUNT(need_reads); i++)
        if (needs_list(need_reads[i].keys, (struct text){key.at + skip, key.len - skip}))
            return !needs_list(need_reads[i].archs, arch);
    return false;
}

/* The tables do not apply to a model that has only a vocabulary, or to a shard, which has only some
 * of the tensors. */
bool needs_apply(const struct gguf *g)
{
    return g->n_tensors && !fact_shard(g) && fact_is_model(g) &&
           needs_know(fact_text(g, "general.architecture"));
}

uint64_t needs_first_block(const struct gguf *g)
{
    uint64_t count, nextn;
    static const char first[] = "blk.0.attn_norm.weight";
    if (!fact_arch_uint(g, "block_count", &count) ||
        !fact_arch_uint(g, "nextn_predict_layers", &nextn) || nextn == 0 || nextn >= count ||
        gguf_find_tensor(g, first, strlen(first)) != UINT32_MAX)
        return 0;
    return count - nextn;
}

bool needs_ahead(const struct checker *c, uint64_t block)
{
    uint64_t count, nextn;
    return needs_listed("ahead-spare", c->arch) && needs_first_block(c->g) == 0 &&
           fact_arch_uint(c->g, "block_count", &count) && block < count &&
           fact_arch_uint(c->g, "nextn_predict_layers", &nextn) && count - block <= nextn;
}

/*
 * Split a tensor's name into a name for struct need_shape, and its block: "blk.7.attn_q.weight" is
 * "attn_q" in block 7, "output.weight" is ".output". Returns false if the name is too long for the
 * table.
 */
#define NEED_NAME_MAX 80
/* Number of names shown that no architecture takes. */
enum { NAMES_MOST = 4 };
static bool needs_name(const char *name, size_t n, uint64_t *block, char dst[NEED_NAME_MAX])
{
    static const char weight[] = ".weight", bias[] = ".bias";
    size_t skip = n > 4 && (memcmp(name, "enc.", 4) == 0 || memcmp(name, "dec.", 4) == 0) ? 4 : 0;
    size_t rest;
    bool inside = tensor_block(name + skip, n - skip, block, &rest);
    if (inside) {
        name += skip + rest;
        n -= skip + rest;
    }
    if (n + 3 > NEED_NAME_MAX)
        return false;
    struct text rest_of = {name, n};
    bool weights = text_ends(rest_of, weight), none = !weights && !text_ends(rest_of, bias);
    (void)snprintf(dst, NEED_NAME_MAX, "%s%.*s%s", inside ? "" : ".",
                   (int)(weights ? n - strlen(weight) : n), name, none ? "~" : "");
    return true;
}

/* ---- required keys ---- */

/* True if the key is not needed, because the model has the tensor row->unless. */
static bool is_needless(const struct gguf *g, const struct need_key *row)
{
    char name[96];
    if (!row->unless)
        return false;
    (void)snprintf(name, sizeof(name), "blk.%" PRIu64 ".%s.weight", needs_first_block(g),
                   row->unless);
    return gguf_find_tensor(g, name, strlen(name)) != UINT32_MAX;
}

/* True for a projector that has no type, neither one for everything nor one for images or audio. */
static bool is_untyped(const struct checker *c)
{
    bool has = false;
    for (uint32_t i = 0; i < c->g->n_kv && !has; i++) {
        const struct text key = gguf_name_of(c->g, true, i);
        has = text_begins(key, "clip.") && text_ends(key, ".projector_type");
    }
    return !has && (text_is(c->arch, "clip") || text_is(fact_text(c->g, "general.type"), "mmproj"));
}

void rule_required(struct checker *c)
{
    const bool known = needs_know(c->arch);
    char shown[SHOW_MAX];
    if (fact_later_shard(c->g))
        return;
    if (is_untyped(c))
        report(c, CHECK_ERROR, "metadata", "the required key clip.projector_type is missing");
    if (!fact_is_model(c->g))
        return;
    for (size_t i = 0; i < COUNT(need_keys); i++) {
        const struct need_key *row = &need_keys[i];
        const bool but = row->archs[0] == '!', listed = needs_list(row->archs, c->arch);
        if ((but ? known && !listed : listed) && fact_arch_key(c->g, row->key) == UINT32_MAX &&
            !is_needless(c->g, row))
            report(c, CHECK_ERROR, "metadata", "the required key %s.%s is missing",
                   show(shown, c->arch.at, c->arch.len), row->key);
    }
}

/* ---- required tensors ---- */

/* One block of a model, or everything outside blocks. */
struct look {
    struct checker *c;
    const char *block;
    uint64_t number;
    bool ahead;    /* llama.cpp leaves the block out unless it has a nextn.eh_proj */
    int experts;   /* the block has experts: 1 yes, 0 no, -1 unknown */
    int recurrent; /* the block is recurrent: 1 yes, 0 no, -1 unknown */
};

/* Numbers of tensors that were looked for. */
struct tally {
    unsigned present, missing;
};

/* Write the name of the word's tensor. Returns true if the model has it. */
static bool has_tensor(const struct look *b, struct text word, char name[96])
{
    int at = b->block[0] ? snprintf(name, 96, "%s.%" PRIu64 ".", b->block, b->number) : 0;
    bool bare = word.at[word.len - 1] == '~', whole = bare || text_ends(word, ".bias");
    (void)snprintf(name + at, 96 - (size_t)at, "%.*s%s", (int)(word.len - bare), word.at,
                   whole ? "" : ".weight");
    return gguf_find_tensor(b->c->g, name, strlen(name)) != UINT32_MAX;
}

/* True if the word's tensor was fused into another tensor that the architecture takes. */
static bool is_fused(const struct look *b, struct text word)
{
    static const struct text qkv = {"attn_qkv", 8}, gate_up = {"ffn_gate_up_exps", 16};
    char name[96];
    if (needs_list("attn_q attn_k attn_v", word))
        return has_tensor(b, qkv, name);
    return needs_list("ffn_gate_exps ffn_up_exps", word) &&
           !needs_listed("experts-apart", b->c->arch) && has_tensor(b, gate_up, name);
}

/* True if llama.cpp loads the model without the word's tensor, although other readers do not. */
static bool is_lax(const struct look *b, struct text word)
{
    static const struct text projection = {"nextn.eh_proj", 13};
    char name[96];
    return b->ahead &&
           (needs_list("attn_q attn_k attn_v", word) || !has_tensor(b, projection, name));
}

/* Count the words from `at` to `end`. tell: report missing ones. */
static struct tally look_words(const struct look *b, const char *at, const char *end, bool tell)
{
    struct tally t = {0, 0};
    char name[96];
    for (size_t n; at < end; at += n + (at[n] == ' ')) {
        n = strcspn(at, " |)");
        struct text word = {at, n};
        if (n == 0)
            continue;
        const bool has = has_tensor(b, word, name) || is_fused(b, word);
        t.present += has;
        t.missing += !has;
        if (tell && !has)
            report(b->c, is_lax(b, word) ? CHECK_WARNING : CHECK_ERROR, "tensors",
                   "the required tensor %s is missing", name);
    }
    return t;
}

static bool mentions(const char *at, const char *end, const char *what)
{
    return memmem(at, (size_t)(end - at), what, strlen(what)) != NULL;
}

/* Look at the most complete of the alternatives between `at` and `end`. */
static struct tally look_alternatives(const struct look *b, const char *at, const char *end,
                                      bool tell)
{
    const char *best_at = at, *best_end = at;
    struct tally best = {0, UINT32_MAX};
    bool ffn = true, all = true;
    for (const char *p = at, *q; p <= end; p = q + 1) {
        q = p + strcspn(p, "|)");
        all &= mentions(p, q, "_exps");
        ffn &= mentions(p, q, "ffn_"); /* if false, there are other kinds of layers too */
    }
    const int experts = ffn && !all && mentions(at, end, "_exps") ? b->experts : -1;
    const char *state = mentions(at, end, "ssm_") ? "ssm_" : "shortconv.";
    const int recurrent = mentions(at, end, state) ? b->recurrent : -1;
    for (const char *p = at, *q; p <= end; p = q + 1) {
        q = p + strcspn(p, "|)");
        if ((experts >= 0 && mentions(p, q, "_exps") != (experts > 0)) ||
            (recurrent >= 0 && mentions(p, q, state) != (recurrent > 0)))
            continue;
        const struct tally t = look_words(b, p, q, false);
        if (t.present > best.present || (t.present == best.present && t.missing < best.missing)) {
            best = t;
            best_at = p;
            best_end = q;
        }
    }
    return look_words(b, best_at, best_end, tell);
}

/* Look for the tensors of a row. Returns how many of them the model has. */
static unsigned look_for(const struct look *b, const char *spec, bool tell)
{
    unsigned present = 0;
    for (size_t n;; spec += n + (spec[n] == ')')) {
        n = strcspn(spec, "(");
        present += look_words(b, spec, spec + n, tell).present;
        spec += n;
        if (!*spec)
            return present;
        n = strcspn(++spec, ")");
        present += look_alternatives(b, spec, spec + n, tell).present;
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

/* For some architectures, keys determine the kind of a block; for all others, its tensors do. */
static int recurrent_in(const struct gguf *g, uint64_t block, uint64_t count)
{
    struct text arch = fact_text(g, "general.architecture");
    uint64_t interval = 4, ahead = 0, heads;
    uint32_t key = fact_arch_key(g, "attention.head_count_kv");
    if (key == UINT32_MAX)
        key = fact_arch_key(g, "attention.head_count");
    if (needs_listed("recurrent-by-heads", arch))
        return fact_layer_uint(g, key, block, &heads) ? heads == 0 : -1;
    (void)fact_arch_uint(g, "full_attention_interval", &interval);
    (void)fact_arch_uint(g, "nextn_predict_layers", &ahead);
    if (!needs_listed("recurrent-by-interval", arch) ||
        fact_arch_key(g, "attention.recurrent_layers") != UINT32_MAX || interval == 0)
        return -1;
    return block + ahead < count && (block + 1) % interval != 0;
}

/* Blocks without tensors are left to the rule about blocks. */
static void look_blocks(struct checker *c, const struct need_tensors *row, uint64_t first,
                        uint64_t count)
{
    for (uint64_t i = first; i < count && i - first <= c->g->n_tensors; i++) {
        struct look b = {.c = c,
                         .block = row->block,
                         .number = i,
                         .ahead = needs_ahead(c, i),
                         .experts = experts_in(c->g, i),
                         .recurrent = recurrent_in(c->g, i, count)};
        if (look_for(&b, row->tensors, false))
            (void)look_for(&b, row->tensors, true);
    }
}

static void rule_tensors(struct checker *c)
{
    uint64_t count = 0, first = needs_first_block(c->g);
    if (!needs_apply(c->g))
        return;
    (void)fact_arch_uint(c->g, "block_count", &count);
    for (size_t i = 0; i < COUNT(need_tensors); i++) {
        const struct need_tensors *row = &need_tensors[i];
        struct look all = {.c = c, .block = "", .experts = -1, .recurrent = -1};
        if (!needs_list(row->archs, c->arch))
            continue;
        if (row->block[0])
            look_blocks(c, row, first, count);
        else if (first == 0)
            (void)look_for(&all, row->tensors, true);
    }
}

/* ---- the dimensions of tensors follow from the keys ---- */

/* The model's keys, looked up once: the index of each letter's key, or UINT32_MAX if it does not
 * exist. */
struct lengths {
    const struct gguf *g;
    struct text arch;
    uint32_t key[128], window[128];
    const char *otherwise[128];
    bool vocabulary, windows; /* `tokens` is known; layers can have windows */
    uint64_t tokens;
};

/* A tensor's layer, and whether its attention has a window. */
struct tensor_layer {
    const struct lengths *l;
    uint64_t number;
    bool window;
};

static void lengths_of(const struct gguf *g, struct lengths *l)
{
    uint64_t window;
    *l = (struct lengths){.g = g, .arch = fact_text(g, "general.architecture")};
    memset(l->key, 0xff, sizeof(l->key));
    l->vocabulary = text_is(fact_text(g, "tokenizer.ggml.model"), "no_vocab")
                        ? fact_arch_uint(g, "vocab_size", &l->tokens)
                        : fact_vocabulary(g, &l->tokens);
    l->windows = fact_arch_uint(g, "attention.sliding_window", &window) && window;
    for (size_t i = 0; i < COUNT(need_letters); i++) {
        size_t at = (unsigned char)need_letters[i].letter;
        l->key[at] = fact_arch_key(g, need_letters[i].key);
        l->window[at] = fact_arch_key(g, need_letters[i].window);
        l->otherwise[at] = need_letters[i].otherwise;
    }
}

static bool evaluate_product(const struct tensor_layer *t, const char **at, uint64_t *ret);

/* Get the value of a letter: the value of its key, or the default that readers assume. Returns
 * false if the value is unknown. */
static bool length(const struct tensor_layer *t, char letter, uint64_t *ret)
{
    const struct lengths *l = t->l;
    const size_t at = (unsigned char)letter;
    const uint64_t layer = letter == 'A' ? 0 : t->number;
    if (letter == 'N') {
        *ret = l->tokens;
        return l->vocabulary;
    }
    if (letter == 'T')
        return fact_uint(l->g, "tokenizer.ggml.token_type_count", ret);
    const bool like_f = letter == 'S' && needs_listed("shared-as-feed-forward", l->arch);
    const char *otherwise = like_f ? "!F" : l->otherwise[at];
    const bool has = (t->window && fact_layer_uint(l->g, l->window[at], layer, ret)) ||
                     fact_layer_uint(l->g, l->key[at], layer, ret);
    if (!otherwise || !*otherwise || (has && (*ret || *otherwise != '!')))
        return has;
    otherwise += *otherwise == '!';
    return evaluate_product(t, &otherwise, ret);
}

/* ---- expressions ---- */

static bool is_factor(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* Evaluate "2GV" or "X/j", and move *at past it. Returns false if the value is unknown. UINT64_MAX
 * stands for an impossible one, which is no tensor's. */
static bool evaluate_product(const struct tensor_layer *t, const char **at, uint64_t *ret)
{
    bool known = true;
    *ret = 1;
    for (bool divide = **at == '/'; is_factor((*at)[divide]); divide = **at == '/') {
        char letter = (*at)[divide];
        uint64_t n = (uint64_t)(letter - '0');
        *at += divide + 1;
        if ((letter > '9' && !length(t, letter, &n)) || (divide && n == 0 && letter != 'A'))
            known = false;
        else if (divide) /* without heads, readers assume a length of 0 */
            *ret = n ? *ret / n : 0;
        else if (!mul_u64(*ret, n, ret))
            *ret = UINT64_MAX;
    }
    return known;
}

/* Evaluate "HK+2GV", up to a comma, "|" or the end. */
static bool evaluate_sum(const struct tensor_layer *t, const char **at, uint64_t *ret)
{
    bool known = true, minus = false;
    for (*ret = 0;; (*at)++) {
        uint64_t n;
        known &= evaluate_product(t, at, &n);
        if (minus ? *ret < n : !add_u64(*ret, n, &n))
            *ret = UINT64_MAX;
        else
            *ret = minus ? *ret - n : n;
        if (**at != '+' && **at != '-')
            return known;
        minus = **at == '-';
    }
}

#define DIMS 4
struct dims {
    uint64_t dim[DIMS];
    bool known[DIMS];
    unsigned n;
};

/* Evaluate one alternative, "E,HK". Returns the rest: "", or the text after "|". */
static const char *need_dims_of(const struct tensor_layer *t, const char *at, struct dims *d)
{
    for (d->n = 0;; at++) {
        d->known[d->n] = evaluate_sum(t, &at, &d->dim[d->n]);
        d->n++;
        if (*at != ',' || d->n == DIMS)
            return *at == '|' ? at + 1 : at;
    }
}

/* Trailing dimensions of 1 are ignored. */
static bool dims_fit(const struct gguf *g, const struct gguf_tensor *tensor, const struct dims *d)
{
    for (uint32_t i = 0; i < d->n || i < tensor->n_dims; i++) {
        uint64_t is = i < tensor->n_dims ? gguf_dim(g, tensor, i) : 1;
        if (i >= d->n ? is != 1 : d->known[i] && is != d->dim[i])
            return false;
    }
    return true;
}

static void tell_shape(struct checker *c, uint32_t i, const struct dims *d)
{
    CLEANUP(buf_free) struct buf is = BUF_INIT, want = BUF_INIT;
    fact_shape(c->g, &c->g->tensor[i], " x ", &is);
    for (unsigned k = d->n; k-- > 0;) {
        if (d->known[k])
            buf_printf(&want, "%" PRIu64, d->dim[k]);
        else
            buf_char(&want, '?');
        buf_str(&want, k ? " x " : "");
    }
    if (!buf_error(&is) && !buf_error(&want))
        report(c, CHECK_ERROR, at_tensor(c, i), "is %.*s, keys require %.*s", (int)is.len,
               (const char *)is.data, (int)want.len, (const char *)want.data);
}

/* ---- the rule ---- */

static int by_tensor(const void *name, const void *row)
{
    return strcmp(name, ((const struct need_shape *)row)->tensor);
}

/* Return the row for a tensor, or NULL if there is none. */
static const struct need_shape *row_of(struct text arch, const char *name)
{
    const struct need_shape *row =
        bsearch(name, need_shapes, COUNT(need_shapes), sizeof(need_shapes[0]), by_tensor);
    while (row && row > need_shapes && strcmp(row[-1].tensor, name) == 0)
        row--;
    while (row && row->archs && !needs_list(row->archs, arch))
        row = row + 1 < need_shapes + COUNT(need_shapes) && strcmp(row[1].tensor, name) == 0
                  ? row + 1
                  : NULL;
    return row;
}

/* Weights of some types have a separate tensor for their scale; each stacked expert has its own
 * scale. */
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
    struct tensor_layer t = {.l = l};
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
            at = need_dims_of(&t, at, &d);
            if (dims_fit(c->g, tensor, &d))
                return;
            if (begin)
                first = d;
        }
    }
    tell_shape(c, i, &first);
}

static void rule_shape(struct checker *c)
{
    struct lengths l;
    if (!needs_apply(c->g))
        return;
    lengths_of(c->g, &l);
    for (uint32_t i = 0; i < c->g->n_tensors; i++)
        check_shape(c, &l, i);
}

/* ---- names that some architecture takes ---- */

static int by_word(const void *name, const void *row)
{
    return strcmp(name, *(const char *const *)row);
}

static bool taken(const char *name, size_t n)
{
    static const char *const ends[] = {".weight", ".bias", ".input_scale", ".scale"};
    char word[NEED_NAME_MAX];
    size_t len = 0, end = 0;
    while (end < COUNT(ends) && !text_ends((struct text){name, n}, ends[end]))
        end++;
    n -= end < COUNT(ends) ? strlen(ends[end]) : 0;
    if (n >= sizeof(word))
        return false;
    for (size_t i = 0; i < n; i++) {
        const bool begins = i > 0 && name[i - 1] == '.' && name[i] >= '0' && name[i] <= '9';
        const size_t digits = begins ? strspn(name + i, "0123456789") : 0;
        const bool number = digits && (i + digits == n || name[i + digits] == '.');
        word[len++] = number ? '#' : name[i];
        i += number ? digits - 1 : 0;
    }
    word[len] = '\0';
    return bsearch(word, need_names, COUNT(need_names), sizeof(need_names[0]), by_word) != NULL;
}

/* llama.cpp counts the tensors that it takes, and refuses a model that has more. */
static void rule_names(struct checker *c)
{
    CLEANUP(buf_free) struct buf first = BUF_INIT;
    const bool known = needs_know(c->arch);
    uint32_t n = 0;
    if (!fact_is_model(c->g) || fact_shard(c->g))
        return;
    for (uint32_t i = 0; i < c->g->n_tensors; i++) {
        const struct text name = gguf_name_of(c->g, false, i);
        if (taken(name.at, name.len) || n++ >= NAMES_MOST)
            continue;
        buf_str(&first, first.len ? ", '" : "'");
        show_all(&first, name.at, name.len);
        buf_char(&first, '\'');
    }
    if (n == 0 || buf_error(&first))
        return;
    buf_str(&first, n > NAMES_MOST ? ", ..." : "");
    report(c, known ? CHECK_ERROR : CHECK_NOTE, "tensors",
           "%" PRIu32 " of %" PRIu32 " %s a name that no architecture of llama.cpp takes: %.*s", n,
           c->g->n_tensors, n == 1 ? "has" : "have", (int)first.len, (const char *)first.data);
}

const struct rule needs_rules[] = {
    {"tensor-known", CHECK_WHOLE, .whole = rule_names},
    {"tensor-missing", CHECK_WHOLE, .whole = rule_tensors},
    {"tensor-shape", CHECK_WHOLE, .whole = rule_shape},
    {0},
};

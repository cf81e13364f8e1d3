/* SPDX-License-Identifier: MIT */
/* The rule about chat templates. It reads a template and never runs it. */
#include <string.h>

#include "base/count.h"
#include "check/rule.h"
#include "model/facts.h"

enum { DEPTH_MOST = 64, TOKENS_MOST = 64, TOKEN_LEN = 64 };

/* A template while it is looked at. */
struct looked {
    struct checker *c;
    const char *where; /* its key */
    struct text left;  /* what was not looked at yet */
    struct text open[DEPTH_MOST];
    size_t depth;
};

static bool begins(struct text t, const char *with)
{
    size_t n = strlen(with);
    return t.len >= n && memcmp(t.at, with, n) == 0;
}

static void skip(struct text *t, size_t n)
{
    t->at += n;
    t->len -= n;
}

/* Move past the next `end`, in code past one outside of quotes. False: it does not come. */
static bool skip_to(struct text *t, const char *end, bool code)
{
    for (char quote = 0; t->len; skip(t, 1)) {
        if (!quote && begins(*t, end)) {
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

/* "{% if x %}": true if an end must follow. */
static bool opens(struct text word, struct text code)
{
    static const char *const blocks[] = {"if",     "for",   "macro", "call",
                                         "filter", "block", "raw",   "generation"};
    for (size_t i = 0; i < COUNT(blocks); i++)
        if (text_is(word, blocks[i]))
            return true;
    return text_is(word, "set") && !memchr(code.at, '=', code.len);
}

static void statement(struct looked *l, struct text code)
{
    struct text word = first_word(code);
    if (opens(word, code)) {
        if (l->depth < DEPTH_MOST)
            l->open[l->depth] = word;
        l->depth++;
    } else if (begins(word, "end")) {
        struct text of = {word.at + 3, word.len - 3};
        bool fits = l->depth > 0 && (l->depth > DEPTH_MOST ||
                                     (l->open[l->depth - 1].len == of.len &&
                                      memcmp(l->open[l->depth - 1].at, of.at, of.len) == 0));
        if (!fits)
            report(l->c, CHECK_ERROR, l->where, "{%% %.*s %%} ends nothing", (int)word.len,
                   word.at);
        l->depth -= l->depth > 0;
    }
}

static void look_at_blocks(struct looked *l)
{
    static const char *const pairs[][2] = {{"{%", "%}"}, {"{{", "}}"}, {"{#", "#}"}};
    while (l->left.len) {
        size_t kind = 0;
        while (kind < COUNT(pairs) && !begins(l->left, pairs[kind][0]))
            kind++;
        if (kind == COUNT(pairs)) {
            skip(&l->left, 1);
            continue;
        }
        skip(&l->left, 2);
        struct text code = l->left;
        if (!skip_to(&l->left, pairs[kind][1], kind < 2)) {
            report(l->c, CHECK_ERROR, l->where, "%s without %s", pairs[kind][0], pairs[kind][1]);
            return;
        }
        code.len -= l->left.len + 2;
        if (kind == 0)
            statement(l, code);
    }
    if (l->depth)
        report(l->c, CHECK_ERROR, l->where, "%zu of its blocks have no end", l->depth);
}

/* "<|im_end|>" at the beginning of the text: its length, 0: none. */
static size_t token_here(struct text t)
{
    size_t n = 2;
    if (!begins(t, "<|"))
        return 0;
    while (n < t.len && n < TOKEN_LEN && t.at[n] != '|' && t.at[n] > ' ' &&
           !strchr("'\"<{}", t.at[n]))
        n++;
    return n > 2 && n + 1 < t.len && t.at[n] == '|' && t.at[n + 1] == '>' ? n + 2 : 0;
}

/* Special tokens that the vocabulary does not have: one walk over it. */
static void look_at_tokens(struct looked *l, struct text t, const struct gguf_value *tokens)
{
    struct text found[TOKENS_MOST];
    bool known[TOKENS_MOST] = {false};
    char shown[SHOW_MAX];
    struct gguf_value item;
    size_t n = 0;
    for (size_t len; t.len && n < TOKENS_MOST; skip(&t, len ? len : 1)) {
        len = token_here(t);
        size_t i = 0;
        while (i < n && !(found[i].len == len && memcmp(found[i].at, t.at, len) == 0))
            i++;
        if (len && i == n)
            found[n++] = (struct text){t.at, len};
    }
    for (struct gguf_walk w = gguf_walk(tokens); n && gguf_next(&w, &item);)
        for (size_t i = 0; item.len > 2 && item.data[0] == '<' && i < n; i++)
            known[i] |= found[i].len == item.len && memcmp(found[i].at, item.data, item.len) == 0;
    for (size_t i = 0; i < n; i++)
        if (!known[i])
            report(l->c, CHECK_WARNING, l->where, "writes %s, which is not a token",
                   show(shown, found[i].at, found[i].len));
}

static bool writes(struct text t, const void *what, size_t n)
{
    return n > 0 && memmem(t.at, t.len, what, n);
}

/* The end of a turn: the variable, a token that the model names, or one that llama.cpp takes for it by its text. */
static void look_at_end(struct looked *l, struct text t, const struct gguf_value *tokens)
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
                                        "\xef\xbd\x9c"
                                        "end\xe2\x96\x81of\xe2\x96\x81sentence"};
    static const char *const named[] = {"tokenizer.ggml.eos_token_id",
                                        "tokenizer.ggml.eot_token_id",
                                        "tokenizer.ggml.eom_token_id"};
    struct gguf_value item;
    uint64_t id[COUNT(named)], at = 0;
    bool any = false;
    for (size_t i = 0; i < COUNT(known); i++)
        if (writes(t, known[i], strlen(known[i])))
            return;
    for (size_t i = 0; i < COUNT(named); i++)
        any |= fact_uint(l->c->g, named[i], &id[i]) || (id[i] = UINT64_MAX, false);
    for (struct gguf_walk w = gguf_walk(tokens); any && gguf_next(&w, &item); at++)
        for (size_t i = 0; i < COUNT(named); i++)
            if (id[i] == at && writes(t, item.data, (size_t)item.len))
                return;
    if (any)
        report(l->c, CHECK_WARNING, l->where, "never writes a token that ends a turn");
}

static int rule_template(struct checker *c)
{
    static const char key[] = "tokenizer.chat_template";
    char where[WHERE_MAX];
    struct gguf_value tokens;
    bool has = fact_value(c->g, "tokenizer.ggml.tokens", &tokens) && tokens.type == GGUF_ARRAY &&
               tokens.elem == GGUF_STRING;
    for (uint32_t i = 0; i < c->g->n_kv; i++) {
        struct text name = {gguf_key(c->g, &c->g->kv[i]), c->g->kv[i].key_len};
        struct gguf_value v = gguf_value(c->g, &c->g->kv[i]);
        if (v.type != GGUF_STRING || !begins(name, key) ||
            (name.len > strlen(key) && name.at[strlen(key)] != '.'))
            continue;
        struct text t = {(const char *)v.data, (size_t)v.len};
        struct looked l = {.c = c, .where = where_key(c->g, i, where), .left = t};
        look_at_blocks(&l);
        if (has)
            look_at_tokens(&l, t, &tokens);
        if (has)
            look_at_end(&l, t, &tokens);
    }
    return 0;
}

const struct rule template_rules[] = {
    {"chat-template", rule_template, CHECK_WHOLE},
    {0},
};

/* SPDX-License-Identifier: MIT */
/* The facts that `info` and --info show: see summary.h. */
#include "check/fact.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/count.h"
#include "check/filename.h"
#include "check/report.h"
#include "gguf/keys.h"

/* ---- texts of the header, made safe for a terminal ---- */

static void shown_text(const struct summary *s, const struct fact *f, struct buf *out)
{
    char shown[SHOW_MAX];
    struct text t = fact_text(s->g, f->key);
    if (t.at)
        buf_str(out, show(shown, t.at, t.len));
}

static void shown_or_dash(const struct summary *s, const struct fact *f, struct buf *out)
{
    size_t before = out->len;
    shown_text(s, f, out);
    if (out->len == before)
        buf_char(out, '-');
}

/* ---- numbers ---- */

static bool arch_number(const struct summary *s, const struct fact *f, uint64_t *ret)
{
    return fact_arch_uint(s->g, f->key, ret);
}

static bool parameters(const struct summary *s, const struct fact *f, uint64_t *ret)
{
    (void)f;
    *ret = fact_params(s->g).total;
    return true;
}

/* "7.2B (7241732096)" */
static void parameters_text(const struct summary *s, const struct fact *f, struct buf *out)
{
    char count[SIZE_LABEL_MAX];
    struct params p = fact_params(s->g);
    (void)f;
    fact_size_label(&p, count);
    if (p.total < 1000)
        buf_printf(out, "%" PRIu64, p.total);
    else
        buf_printf(out, "%s (%" PRIu64 ")", count, p.total);
}

static bool size(const struct summary *s, const struct fact *f, uint64_t *ret)
{
    (void)f;
    *ret = s->g->file_size;
    return true;
}

static void whole_size_text(const struct summary *s, const struct fact *f, struct buf *out)
{
    (void)f;
    fact_size_text(out, s->g->file_size);
    buf_printf(out, " (%" PRIu64 " bytes)", s->g->file_size);
}

static bool missing(const struct summary *s, const struct fact *f, uint64_t *ret)
{
    (void)f;
    *ret = s->missing;
    return s->missing > 0;
}

static void missing_text(const struct summary *s, const struct fact *f, struct buf *out)
{
    (void)f;
    if (s->missing)
        buf_printf(out, "%" PRIu64 " bytes of data (an incomplete download)", s->missing);
}

static bool vocabulary(const struct summary *s, const struct fact *f, uint64_t *ret)
{
    (void)f;
    return fact_vocabulary(s->g, ret);
}

/* "32000 tokens, tokenizer gpt2, llama-bpe" */
static void vocabulary_text(const struct summary *s, const struct fact *f, struct buf *out)
{
    char shown[SHOW_MAX];
    uint64_t tokens;
    struct text model = fact_text(s->g, "tokenizer.ggml.model");
    struct text pre = fact_text(s->g, "tokenizer.ggml.pre");
    (void)f;
    if (!fact_vocabulary(s->g, &tokens))
        return;
    buf_printf(out, "%" PRIu64 " tokens", tokens);
    if (model.at)
        buf_printf(out, ", tokenizer %s", show(shown, model.at, model.len));
    if (pre.at)
        buf_printf(out, ", %s", show(shown, pre.at, pre.len));
}

/* "32", "32 (8 of keys and values)"; a model may have another number in each layer. */
static void heads_text(const struct summary *s, const struct fact *f, struct buf *out)
{
    uint64_t heads, kv;
    if (fact_arch_key(s->g, f->key) == UINT32_MAX)
        return;
    if (!fact_arch_uint(s->g, f->key, &heads))
        buf_str(out, "by layer");
    else
        buf_printf(out, "%" PRIu64, heads);
    if (fact_arch_uint(s->g, "attention.head_count_kv", &kv))
        buf_printf(out, " (%" PRIu64 " of keys and values)", kv);
}

static bool shards(const struct summary *s, const struct fact *f, uint64_t *ret)
{
    (void)f;
    *ret = s->shards;
    return s->shards > 0;
}

/* A number that the parser has found. */
static bool parsed_number(const struct summary *s, const struct fact *f, uint64_t *ret)
{
    const uint8_t *at = (const uint8_t *)s->g + f->at;
    *ret = get_uint(at, f->width, HOST_BIG);
    return true;
}

static bool reserve(const struct summary *s, const struct fact *f, uint64_t *ret)
{
    struct gguf_value v;
    (void)f;
    if (!fact_value(s->g, KEY_RESERVE, &v) || v.type != GGUF_STRING)
        return false;
    *ret = v.len;
    return true;
}

static void reserve_text(const struct summary *s, const struct fact *f, struct buf *out)
{
    uint64_t bytes;
    if (reserve(s, f, &bytes))
        fact_size_text(out, bytes);
    else
        buf_str(out, "none");
}

/* ---- types ---- */

static void types_text(const struct summary *s, const struct fact *f, struct buf *out)
{
    struct share share[SHARES_MAX];
    size_t n = fact_shares(s->g, share);
    double all = 0;
    (void)f;
    for (size_t i = 0; i < n; i++)
        all += (double)share[i].bytes;
    for (size_t i = 0; i < n; i++) {
        if (i)
            buf_printf(out, "\n%-*s", SUMMARY_LABEL, "");
        fact_type_name(share[i].first, out);
        buf_printf(out, "  %" PRIu64 " tensor%s, ", share[i].tensors,
                   share[i].tensors == 1 ? "" : "s");
        fact_size_text(out, share[i].bytes);
        buf_printf(out, ", %.1f%%", all > 0 ? 100 * (double)share[i].bytes / all : 0);
    }
}

static bool add_number(cJSON *to, const char *member, uint64_t n)
{
    char digits[32]; /* raw: a double would round it */
    (void)snprintf(digits, sizeof(digits), "%" PRIu64, n);
    return cJSON_AddRawToObject(to, member, digits) != NULL;
}

static bool add_share(cJSON *list, const struct share *share)
{
    CLEANUP(buf_free) struct buf name = BUF_INIT;
    cJSON *row = cJSON_CreateObject();
    if (!row || !cJSON_AddItemToArray(list, row))
        return false;
    fact_type_name(share->first, &name);
    buf_char(&name, '\0');
    return !buf_error(&name) && cJSON_AddStringToObject(row, "type", (const char *)name.data) &&
           add_number(row, "tensors", share->tensors) && add_number(row, "bytes", share->bytes);
}

static int types_json(const struct summary *s, const struct fact *f, cJSON **ret)
{
    struct share share[SHARES_MAX];
    size_t n = fact_shares(s->g, share), i = 0;
    cJSON *list = cJSON_CreateArray();
    (void)f;
    while (list && i < n && add_share(list, &share[i]))
        i++;
    if (list && i == n)
        *ret = list;
    else
        cJSON_Delete(list);
    return *ret ? 0 : -ENOMEM;
}

/* ---- the file ---- */

static void file_text(const struct summary *s, const struct fact *f, struct buf *out)
{
    char shown[SHOW_MAX];
    (void)f;
    buf_str(out, show(shown, s->file, strlen(s->file)));
}

/* The file's name taken apart by the naming convention. */
static void file_name_text(const struct summary *s, const struct fact *f, struct buf *out)
{
    char shown[SHOW_MAX];
    struct file_name name;
    const char *between = "";
    (void)f;
    if (!file_name_parse(s->file, &name))
        return;
    for (int i = 0; i < FILE_PARTS; i++)
        if (name.part[i].at) {
            buf_printf(out, "%s%s %s", between, file_part_name[i],
                       show(shown, name.part[i].at, name.part[i].len));
            between = ", ";
        }
}

static int file_name_json(const struct summary *s, const struct fact *f, cJSON **ret)
{
    (void)f;
    *ret = report_name(s->file);
    return *ret ? 0 : -ENOMEM;
}

static void format_text(const struct summary *s, const struct fact *f, struct buf *out)
{
    (void)f;
    buf_printf(out, "GGUF version %u%s, %s-endian", s->g->fmt.version,
               s->g->fmt.draft ? " (first draft)" : "", s->g->fmt.big ? "big" : "little");
}

static void byte_order(const struct summary *s, const struct fact *f, struct buf *out)
{
    (void)f;
    buf_str(out, s->g->fmt.big ? "big" : "little");
}

/* ---- the table ---- */

#define PARSED(f) parsed_number, NULL, offsetof(struct gguf, f), sizeof(((struct gguf *)0)->f)

// clang-format off
static const struct fact facts[] = {
    {"name",            NULL,             "general.name",            shown_or_dash,       NULL,        NULL, 0, 0},
    {NULL,              "name",           "general.name",            shown_text,          NULL,        NULL, 0, 0},
    {"architecture",    NULL,             "general.architecture",    shown_or_dash,       NULL,        NULL, 0, 0},
    {NULL,              "architecture",   "general.architecture",    shown_text,          NULL,        NULL, 0, 0},
    {"parameters",      "parameters",     NULL,                      parameters_text,     parameters,  NULL, 0, 0},
    {"size",            "size",           NULL,                      whole_size_text,     size,        NULL, 0, 0},
    {"missing",         "missing",        NULL,                      missing_text,        missing,     NULL, 0, 0},
    {"bits per weight", "bits_per_weight", NULL,                      fact_bits_text,      NULL,        fact_bits_json, 0, 0},
    {"file type",       "file_type",      "general.file_type",       fact_file_type_text, NULL,        NULL, 0, 0},
    {"types",           "types",          NULL,                      types_text,          NULL,        types_json, 0, 0},
    {"context length",  "context_length", "context_length",          NULL,                arch_number, NULL, 0, 0},
    {"layers",          "layers",         "block_count",             NULL,                arch_number, NULL, 0, 0},
    {"embedding",       "embedding",      "embedding_length",        NULL,                arch_number, NULL, 0, 0},
    {"feed-forward",    "feed_forward",   "feed_forward_length",     fact_layers_text,    arch_number, NULL, 0, 0},
    {"heads",           "heads",          "attention.head_count",    heads_text,          arch_number, NULL, 0, 0},
    {NULL,              "heads_kv",       "attention.head_count_kv", NULL,                arch_number, NULL, 0, 0},
    {"rope",            "rope",           NULL,                      fact_rope_text,      NULL,        NULL, 0, 0},
    {"experts",         "experts",        "expert_count",            fact_experts_text,   arch_number, NULL, 0, 0},
    {NULL,              "experts_used",   "expert_used_count",       NULL,                arch_number, NULL, 0, 0},
    {"kv cache",        "kv_cache_token", NULL,                      fact_kv_text,        fact_kv_token, NULL, 0, 0},
    {NULL,              "kv_cache_context", NULL,                      NULL,                fact_kv_context, NULL, 0, 0},
    {"vocabulary",      "vocabulary",     NULL,                      vocabulary_text,     vocabulary,  NULL, 0, 0},
    {NULL,              "tokenizer",      "tokenizer.ggml.model",    shown_text,          NULL,        NULL, 0, 0},
    {"special tokens",  "special_tokens", NULL,                      fact_special_text,   NULL,        fact_special_json, 0, 0},
    {"chat template",   "chat_template",  NULL,                      fact_template_text,  NULL,        fact_template_json, 0, 0},
    {"license",         "license",        "general.license",         shown_text,          NULL,        NULL, 0, 0},
    {"author",          "author",         "general.author",          shown_text,          NULL,        NULL, 0, 0},
    {"base model",      "base_model",     NULL,                      fact_base_models,    NULL,        NULL, 0, 0},
    {"source",          "source",         NULL,                      fact_source_text,    NULL,        NULL, 0, 0},
    {"file",            NULL,             NULL,                      file_text,           NULL,        NULL, 0, 0},
    {"file name says",  "file_name",      NULL,                      file_name_text,      NULL,        file_name_json, 0, 0},
    {"shards",          "shards",         NULL,                      NULL,                shards,      NULL, 0, 0},
    {"format",          NULL,             NULL,                      format_text,         NULL,        NULL, 0, 0},
    {NULL,             "version",        NULL,                      NULL,            PARSED(fmt.version)},
    {NULL,             "byte_order",     NULL,                      byte_order,      NULL,        NULL, 0, 0},
    {"keys",           "keys",           NULL,                      NULL,            PARSED(n_kv)},
    {"tensors",        "tensors",        NULL,                      NULL,            PARSED(n_tensors)},
    {"alignment",      "alignment",      NULL,                      NULL,            PARSED(alignment)},
    {"data offset",    "data_offset",    NULL,                      NULL,            PARSED(data_off)},
    {"reserve",        "reserve",        NULL,                      reserve_text,    reserve,     NULL, 0, 0},
};
// clang-format on

uint64_t summary_missing(const struct gguf *g)
{
    return g->data_end > g->file_size ? g->data_end - g->file_size : 0;
}

static void value_text(const struct summary *s, const struct fact *f, struct buf *out)
{
    uint64_t n;
    if (f->text)
        f->text(s, f, out);
    else if (f->number(s, f, &n))
        buf_printf(out, "%" PRIu64, n);
}

void summary_text(const struct summary *s, struct buf *out)
{
    for (size_t i = 0; i < COUNT(facts); i++) {
        char label[32];
        size_t before = out->len;
        if (!facts[i].label)
            continue;
        (void)snprintf(label, sizeof(label), "%s:", facts[i].label);
        buf_printf(out, "%-*s", SUMMARY_LABEL, label);
        size_t behind = out->len;
        value_text(s, &facts[i], out);
        if (out->len == behind)
            out->len = before; /* it has none of these */
        else
            buf_char(out, '\n');
    }
}

/* ---- JSON ---- */

static bool add_text(const struct summary *s, const struct fact *f, cJSON *to)
{
    CLEANUP(buf_free) struct buf text = BUF_INIT;
    f->text(s, f, &text);
    if (text.len == 0)
        return !buf_error(&text);
    buf_char(&text, '\0');
    return !buf_error(&text) && cJSON_AddStringToObject(to, f->member, (const char *)text.data);
}

static bool add_item(const struct summary *s, const struct fact *f, cJSON *to)
{
    cJSON *item = NULL;
    if (f->json(s, f, &item) < 0)
        return false;
    if (!item || cJSON_AddItemToObject(to, f->member, item))
        return true;
    cJSON_Delete(item);
    return false;
}

int summary_json(const struct summary *s, cJSON *object)
{
    bool ok = true;
    uint64_t n;
    for (size_t i = 0; i < COUNT(facts) && ok; i++) {
        const struct fact *f = &facts[i];
        if (!f->member)
            continue;
        if (f->json)
            ok = add_item(s, f, object);
        else if (f->number)
            ok = !f->number(s, f, &n) || add_number(object, f->member, n);
        else
            ok = add_text(s, f, object);
    }
    return ok ? 0 : -ENOMEM;
}

/* ---- a line of a table ---- */

static void params_cell(const struct summary *s, struct buf *out)
{
    char count[SIZE_LABEL_MAX];
    struct params p = fact_params(s->g);
    fact_size_label(&p, count);
    if (p.total < 1000)
        buf_printf(out, "%" PRIu64, p.total);
    else
        buf_str(out, count);
}

static void size_cell(const struct summary *s, struct buf *out)
{
    fact_size_text(out, s->g->file_size);
}

/* What the model says, else the type that has the most bytes. */
static void type_cell(const struct summary *s, struct buf *out)
{
    struct share share[SHARES_MAX];
    const char *says = fact_file_type(s->g);
    if (says)
        buf_str(out, says);
    else if (fact_shares(s->g, share))
        fact_type_name(share[0].first, out);
}

static void context_cell(const struct summary *s, struct buf *out)
{
    uint64_t n;
    if (fact_arch_uint(s->g, "context_length", &n))
        buf_printf(out, "%" PRIu64, n);
}

static void arch_cell(const struct summary *s, struct buf *out)
{
    shown_text(s, &(struct fact){.key = "general.architecture"}, out);
}

static void name_cell(const struct summary *s, struct buf *out)
{
    shown_text(s, &(struct fact){.key = "general.name"}, out);
    if (s->missing)
        buf_str(out, out->len ? " (incomplete)" : "(incomplete)");
}

static const struct {
    const char *head;
    void (*cell)(const struct summary *s, struct buf *out);
} columns[] = {
    {"ARCHITECTURE", arch_cell}, {"PARAMETERS", params_cell}, {"SIZE", size_cell},
    {"TYPE", type_cell},         {"CONTEXT", context_cell},   {"NAME", name_cell},
};

const char *summary_head(size_t i)
{
    return i < COUNT(columns) ? columns[i].head : NULL;
}

void summary_cell(const struct summary *s, size_t i, struct buf *out)
{
    size_t before = out->len;
    columns[i].cell(s, out);
    if (out->len == before)
        buf_char(out, '-');
}

/* SPDX-License-Identifier: MIT */
/* Facts shown by `info` and --info: see summary.h. */
#include "check/summary.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/sys.h"
#include "base/err.h"
#include "check/cache.h"
#include "edit/open.h"
#include "gguf/value.h"
#include "model/facts.h"
#include "text/number.h"

/* A key, and its label. */
struct named {
    const char *key, *what;
};

struct fact {
    const char *label;  /* NULL: only in JSON */
    const char *member; /* name in the JSON object; NULL: only as a line */
    /* The source, if no function is set. `key`: the key of a string or, if it begins with a dot, of
     * one of the architecture's numbers. `named`: a list of keys, ending with NULL. Otherwise, a
     * field of struct gguf or, if `own`, of struct summary, where 0 means that there is none. */
    const char *key;
    const struct named *named;
    size_t at, width;
    bool own;
    /* Writes the value, in one or more lines, or nothing if the model lacks the fact. NULL: use the
     * number. */
    void (*text)(const struct summary *s, struct buf *out);
    /* Gets the member's value if it is a number. Returns false if the model lacks the fact. */
    bool (*number)(const struct summary *s, uint64_t *ret);
    /* Writes a member whose value is neither the number nor the text, or nothing if the model lacks
     * the fact. */
    void (*json)(const struct summary *s, const char *member, struct json *j);
    /* What must be there, so that no wrong fact is shown: all keys, or all tensors too. */
    enum { ANY, KEYS, ALL } needs;
    bool bare; /* the text is already JSON */
};

static bool is_cut(const struct summary *s)
{
    return s->g->anomalies & GGUF_ANOMALY_CUT;
}

/* True if the model has what a fact needs. */
static bool has_what_it_needs(const struct summary *s, const struct fact *f)
{
    return f->needs == ANY || (!is_cut(s) && (f->needs == KEYS || !s->absent));
}

static void show_text(struct text t, struct buf *out)
{
    char shown[SHOW_MAX];
    buf_str(out, show(shown, t.at, t.len));
}

/* ---- size ---- */

void summary_size(struct buf *out, uint64_t bytes)
{
    static const char *const unit[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double v = (double)bytes;
    size_t u = 0;
    for (; v >= 1024 && u < COUNT(unit) - 1; u++)
        v /= 1024;
    buf_printf(out, u ? "%.1f %s" : "%.0f %s", v, unit[u]);
}

/* Count only the data, not the header or padding. */
static void bits_text(const struct summary *s, struct buf *out)
{
    double bytes = 0, n = 0;
    for (uint32_t i = 0; i < s->g->n_tensors; i++) {
        bytes += (double)s->g->tensor[i].nbytes;
        n += (double)s->g->tensor[i].n_elem;
    }
    if (n > 0)
        buf_printf(out, "%.2f", 8 * bytes / n);
}

/* Return the size of a mix of types from its name, such as "medium" for "Q4_K_M". */
static const char *mix_size(const char *name, size_t n)
{
    if (n < 4 || memcmp(name + n - 4, "_K_", 3) != 0)
        return NULL;
    return name[n - 1] == 'S' ? "small" : name[n - 1] == 'M' ? "medium" : "large";
}

/* True if the tensors contradict general.file_type. An incomplete list of tensors never does. */
static bool is_other_type(const struct summary *s)
{
    return !is_cut(s) && !s->absent && !fact_file_type_fits(s->g);
}

/* "Q4_K_M (mostly Q4_K, medium)"; "Q8_0 (98.9%); general.file_type says F32" */
static void file_type_text(const struct summary *s, struct buf *out)
{
    const char *name = fact_file_type(s->g);
    uint64_t id;
    if (!name) {
        if (fact_uint(s->g, "general.file_type", &id))
            buf_printf(out, "unknown (%" PRIu64 ")", id);
        return;
    }
    size_t n = strlen(name);
    const char *mix = mix_size(name, n);
    if (is_other_type(s)) {
        struct share share[SHARES_MAX];
        double all = 0;
        for (size_t i = fact_shares(s->g, share); i-- > 0;)
            all += (double)share[i].bytes;
        fact_encoding(s->g, out);
        buf_printf(out, " (%.1f%%); general.file_type says %s",
                   all > 0 ? 100 * (double)share[0].bytes / all : 0, name);
    } else if (strcmp(name, "F32") == 0)
        buf_str(out, "F32 (all of it)");
    else
        buf_printf(out, "%s (mostly %.*s%s%s)", name, (int)(n - (mix ? 2 : 0)), name,
                   mix ? ", " : "", mix ? mix : "");
}

/* Add one of the architecture's numbers, which may differ from layer to layer. */
static void add_by_layer(const struct gguf *g, const char *key, struct buf *out)
{
    uint64_t n;
    if (fact_arch_uint(g, key, &n))
        buf_printf(out, "%" PRIu64, n);
    else if (fact_arch_key(g, key) != UINT32_MAX)
        buf_str(out, "by layer");
}

/* ---- attention ---- */

/* Add "base 500000, scaling yarn": the named keys that exist. Keys that begin with a dot belong to
 * the architecture. */
static void add_named(const struct gguf *g, const struct named *part, struct buf *out)
{
    const char *between = "";
    for (; part->key; part++) {
        struct gguf_value v;
        uint32_t kv = part->key[0] == '.' ? fact_arch_key(g, part->key + 1) : UINT32_MAX;
        if (kv != UINT32_MAX)
            v = gguf_value(g, &g->kv[kv]);
        else if (part->key[0] == '.' || !fact_value(g, part->key, &v))
            continue;
        if (v.type == GGUF_ARRAY)
            continue;
        buf_printf(out, "%s%s%s", between, part->what, part->what[0] ? " " : "");
        between = ", ";
        if (v.type == GGUF_STRING)
            show_text((struct text){(const char *)v.data, (size_t)v.len}, out);
        else
            text_scalar(out, &v, &float_names_text);
    }
}

static const struct named rope[] = {
    {".rope.freq_base", "base"},
    {".rope.scaling.type", "scaling"},
    {".rope.scaling.factor", "factor"},
    {".rope.scale_linear", "linear scale"},
    {".rope.scaling.original_context_length", "original context"},
    {".rope.dimension_count", "dimensions"},
    {0},
};

static const struct named sampling[] = {
    {"general.sampling.temp", "temp"},
    {"general.sampling.top_k", "top_k"},
    {"general.sampling.top_p", "top_p"},
    {"general.sampling.min_p", "min_p"},
    {"general.sampling.xtc_probability", "xtc_probability"},
    {"general.sampling.xtc_threshold", "xtc_threshold"},
    {"general.sampling.penalty_last_n", "penalty_last_n"},
    {"general.sampling.penalty_repeat", "penalty_repeat"},
    {"general.sampling.mirostat", "mirostat"},
    {"general.sampling.mirostat_tau", "mirostat_tau"},
    {"general.sampling.mirostat_eta", "mirostat_eta"},
    {"general.sampling.sequence", "sequence"},
    {0},
};

/* "importances imatrix.gguf, of wiki.train.raw, chunks 125, entries 112" */
static const struct named quantised[] = {
    {"quantize.imatrix.file", "importances"},
    {"quantize.imatrix.dataset", "of"},
    {"quantize.imatrix.chunks_count", "chunks"},
    {"quantize.imatrix.entries_count", "entries"},
    {0},
};

/* ---- what kind of file it is ---- */

static void add_datasets(const struct gguf *g, struct buf *out)
{
    struct gguf_value v, item;
    if (!fact_value(g, "imatrix.datasets", &v) || v.type != GGUF_ARRAY || v.elem != GGUF_STRING)
        return;
    struct gguf_walk w = gguf_walk(&v);
    for (unsigned i = 0; i < 4 && gguf_next(&w, &item); i++) {
        buf_str(out, i ? ", " : " of ");
        show_text((struct text){(const char *)item.data, (size_t)item.len}, out);
    }
    if (v.count > 4)
        buf_printf(out, " and %" PRIu64 " more", v.count - 4);
}

/* Writes "adapter, lora, alpha 16" or "importance matrix of wiki.train.raw, chunks 125, chunk size
 * 512". */
static void kind_text(const struct summary *s, struct buf *out)
{
    static const struct named adapter[] = {
        {"adapter.type", ""}, {"adapter.lora.alpha", "alpha"}, {0}};
    static const struct named projector[] = {{"clip.projector_type", ""},
                                             {"clip.vision.projector_type", "vision"},
                                             {"clip.audio.projector_type", "audio"},
                                             {0}};
    static const struct named chunks[] = {
        {"imatrix.chunk_count", "chunks"}, {"imatrix.chunk_size", "chunk size"}, {0}};
    CLEANUP(buf_free) struct buf more = BUF_INIT;
    struct text type = fact_text(s->g, "general.type");
    const char *name = NULL;
    if (text_is(type, "adapter")) {
        add_named(s->g, adapter, &more);
    } else if (text_is(type, "imatrix")) {
        name = "importance matrix";
        add_named(s->g, chunks, &more);
    } else if (text_is(type, "mmproj") ||
               text_is(fact_text(s->g, "general.architecture"), "clip")) {
        name = "projector";
        add_named(s->g, projector, &more);
    } else if (!type.at) {
        name = "model";
    }
    if (name)
        buf_str(out, name);
    else
        show_text(type, out);
    add_datasets(s->g, out);
    buf_str(out, more.len ? ", " : "");
    buf_add(out, more.data, more.len);
}

/* "8, 2 used, 1 shared" */
static void experts_text(const struct summary *s, struct buf *out)
{
    uint64_t n, used;
    if (!fact_arch_uint(s->g, "expert_count", &n) || n == 0)
        return;
    buf_printf(out, "%" PRIu64, n);
    if (fact_arch_uint(s->g, "expert_used_count", &used))
        buf_printf(out, ", %" PRIu64 " used", used);
    if (fact_arch_uint(s->g, "expert_shared_count", &used))
        buf_printf(out, ", %" PRIu64 " shared", used);
}

/* ---- the cache of keys and values ---- */

static bool kv_token(const struct summary *s, uint64_t *ret)
{
    struct cache c = {0};
    bool has = cache_of(s->g, &c);
    *ret = c.token;
    return has;
}

static bool kv_context(const struct summary *s, uint64_t *ret)
{
    struct cache c = {0};
    bool has = cache_of(s->g, &c);
    *ret = c.whole;
    return has && c.whole;
}

static void kv_text(const struct summary *s, struct buf *out)
{
    uint64_t n;
    if (!kv_token(s, &n))
        return;
    summary_size(out, n);
    buf_str(out, " per token");
    if (kv_context(s, &n)) {
        buf_str(out, ", ");
        summary_size(out, n);
        buf_str(out, " at full context");
    }
    buf_str(out, " (F16)");
}

/* ---- tokens ---- */

static const struct {
    const char *name, *key;
} specials[] = {
    {"bos", "tokenizer.ggml.bos_token_id"},       {"eos", "tokenizer.ggml.eos_token_id"},
    {"eot", "tokenizer.ggml.eot_token_id"},       {"eom", "tokenizer.ggml.eom_token_id"},
    {"unk", "tokenizer.ggml.unknown_token_id"},   {"sep", "tokenizer.ggml.seperator_token_id"},
    {"sep", "tokenizer.ggml.separator_token_id"}, {"pad", "tokenizer.ggml.padding_token_id"},
    {"cls", "tokenizer.ggml.cls_token_id"},       {"mask", "tokenizer.ggml.mask_token_id"},
};

/* Get the number and the text of a special token that the model names; `at` of the text is NULL if
 * the vocabulary has no such token. */
static bool find_special(const struct gguf *g, size_t i, uint64_t *id, struct text *text)
{
    struct gguf_value v, item;
    *text = (struct text){NULL, 0};
    if (!fact_uint(g, specials[i].key, id))
        return false;
    if (!fact_value(g, "tokenizer.ggml.tokens", &v) || v.type != GGUF_ARRAY ||
        v.elem != GGUF_STRING || *id >= v.count)
        return true;
    struct gguf_walk w = gguf_walk(&v);
    for (uint64_t at = 0; at <= *id; at++)
        (void)gguf_next(&w, &item);
    *text = (struct text){(const char *)item.data, (size_t)item.len};
    return true;
}

/* "bos <s> (1), eos </s> (2)" */
static void special_text(const struct summary *s, struct buf *out)
{
    uint64_t id;
    struct text text;
    const char *between = "";
    for (size_t i = 0; i < COUNT(specials); i++) {
        if (!find_special(s->g, i, &id, &text))
            continue;
        buf_printf(out, "%s%s ", between, specials[i].name);
        show_text(text, out);
        buf_printf(out, "%s(%" PRIu64 ")", text.at ? " " : "", id);
        between = ", ";
    }
}

static void special_json(const struct summary *s, const char *member, struct json *j)
{
    uint64_t id;
    struct text text;
    char shown[SHOW_MAX];
    json_begin(j, member, "{");
    for (size_t i = 0; i < COUNT(specials); i++) {
        if (!find_special(s->g, i, &id, &text))
            continue;
        json_begin(j, specials[i].name, "{");
        buf_printf(json_item(j, "id"), "%" PRIu64, id);
        if (text.at)
            json_text(j, "text", show(shown, text.at, text.len));
        json_end(j);
    }
    json_end(j);
}

static void template_text(const struct summary *s, struct buf *out)
{
    buf_str(out, fact_text(s->g, "tokenizer.chat_template").len ? "yes" : "no");
}

static void template_json(const struct summary *s, const char *member, struct json *j)
{
    const bool has = fact_text(s->g, "tokenizer.chat_template").len;
    buf_str(json_item(j, member), has ? "true" : "false");
}

/* ---- origin ---- */

/* Maximum number of base models shown on the line. Merged models have several. */
enum { BASE_MODELS_MOST = 8 };

static void base_models(const struct summary *s, struct buf *out)
{
    char key[64];
    const char *between = "";
    for (unsigned i = 0; i < BASE_MODELS_MOST; i++) {
        (void)snprintf(key, sizeof(key), "general.base_model.%u.name", i);
        struct text name = fact_text(s->g, key);
        (void)snprintf(key, sizeof(key), "general.base_model.%u.repo_url", i);
        if (!name.at)
            name = fact_text(s->g, key);
        if (!name.at)
            continue;
        buf_str(out, between);
        between = ", ";
        show_text(name, out);
    }
}

static void source_text(const struct summary *s, struct buf *out)
{
    static const char *const key[] = {"general.source.repo_url", "general.source.url",
                                      "general.source.huggingface.repository", "general.repo_url",
                                      "general.url"};
    struct text t = {NULL, 0};
    for (size_t i = 0; i < COUNT(key) && t.len == 0; i++)
        t = fact_text(s->g, key[i]);
    show_text(t, out);
}

/* ---- numbers ---- */

static bool parameters(const struct summary *s, uint64_t *ret)
{
    *ret = fact_params(s->g).total;
    return true;
}

/* Writes "7.2B". */
static void add_params(const struct summary *s, struct buf *out)
{
    char count[SIZE_LABEL_MAX];
    struct params p = fact_params(s->g);
    fact_size_label(&p, count);
    if (p.total < 1000)
        buf_printf(out, "%" PRIu64, p.total);
    else
        buf_str(out, count);
}

/* "7.2B (7241732096)" */
static void parameters_text(const struct summary *s, struct buf *out)
{
    const uint64_t total = fact_params(s->g).total;
    add_params(s, out);
    if (total >= 1000)
        buf_printf(out, " (%" PRIu64 ")", total);
}

static void whole_size_text(const struct summary *s, struct buf *out)
{
    summary_size(out, s->g->file_size);
    if (s->g->file_size >= 1024)
        buf_printf(out, " (%" PRIu64 " bytes)", s->g->file_size);
}

static bool missing_keys(const struct summary *s, uint64_t *ret)
{
    *ret = is_cut(s) ? gguf_stated(s->g, true) - s->g->n_kv : 0;
    return is_cut(s);
}

static void missing_text(const struct summary *s, struct buf *out)
{
    uint64_t n;
    const char *between = "";
    if (missing_keys(s, &n)) {
        buf_printf(out, "the file ends in the header: %" PRIu64 " of %" PRIu64 " keys are missing",
                   n, gguf_stated(s->g, true));
        between = ", ";
    }
    if (s->absent) {
        buf_printf(out, "%s%zu of %zu files are missing", between, s->absent, s->shards);
        between = ", ";
    }
    if (s->missing)
        buf_printf(out, "%s%" PRIu64 " bytes of data (an incomplete download)", between,
                   s->missing);
}

static bool vocabulary(const struct summary *s, uint64_t *ret)
{
    return fact_vocabulary(s->g, ret);
}

/* "32000 tokens, tokenizer gpt2, llama-bpe" */
static void vocabulary_text(const struct summary *s, struct buf *out)
{
    uint64_t tokens;
    struct text model = fact_text(s->g, "tokenizer.ggml.model");
    struct text pre = fact_text(s->g, "tokenizer.ggml.pre");
    if (!fact_vocabulary(s->g, &tokens))
        return;
    buf_printf(out, "%" PRIu64 " tokens", tokens);
    buf_str(out, model.at ? ", tokenizer " : "");
    show_text(model, out);
    buf_str(out, pre.at ? ", " : "");
    show_text(pre, out);
}

/* Writes "32" or "32 (8 KV)". The numbers may differ from layer to layer. */
static void heads_text(const struct summary *s, struct buf *out)
{
    uint64_t kv;
    if (fact_arch_key(s->g, "attention.head_count") == UINT32_MAX)
        return;
    add_by_layer(s->g, "attention.head_count", out);
    if (fact_arch_uint(s->g, "attention.head_count_kv", &kv))
        buf_printf(out, " (%" PRIu64 " KV)", kv);
}

/* Get the number of keys. The reserve is internal to the file, and is not counted. */
static bool key_count(const struct summary *s, uint64_t *ret)
{
    struct gguf_value v;
    *ret = s->g->n_kv - fact_value(s->g, KEY_RESERVE, &v);
    return true;
}

static bool reserve_size(const struct summary *s, uint64_t *ret)
{
    struct gguf_value v;
    if (!fact_value(s->g, KEY_RESERVE, &v) || v.type != GGUF_STRING)
        return false;
    *ret = v.len;
    return true;
}

static void reserve_text(const struct summary *s, struct buf *out)
{
    uint64_t bytes;
    if (reserve_size(s, &bytes))
        summary_size(out, bytes);
}

/* ---- types ---- */

static void types_text(const struct summary *s, struct buf *out)
{
    CLEANUP(buf_free) struct buf lines = BUF_INIT, rows = BUF_INIT;
    struct share share[SHARES_MAX];
    size_t n = fact_shares(s->g, share);
    double all = 0;
    for (size_t i = 0; i < n; i++)
        all += (double)share[i].bytes;
    for (size_t i = 0; i < n; i++) {
        fact_type_name(share[i].first, &lines);
        buf_printf(&lines, "\t%" PRIu64 " tensor%s\t", share[i].tensors,
                   share[i].tensors == 1 ? "" : "s");
        summary_size(&lines, share[i].bytes);
        buf_printf(&lines, "\t%.1f%%\n", all > 0 ? 100 * (double)share[i].bytes / all : 0);
    }
    buf_table(&lines, "lrrr", SIZE_MAX, &rows);
    out->err = out->err ? out->err : buf_error(&rows);
    for (size_t i = 0; i + 1 < rows.len; i++)
        if (rows.data[i] == '\n')
            buf_printf(out, "\n%-*s", SUMMARY_LABEL, "");
        else
            buf_char(out, (char)rows.data[i]);
}

static void types_json(const struct summary *s, const char *member, struct json *j)
{
    struct share share[SHARES_MAX];
    const size_t n = fact_shares(s->g, share);
    json_begin(j, member, "[");
    for (size_t i = 0; i < n; i++) {
        json_begin(j, NULL, "{");
        buf_char(json_item(j, "type"), '"');
        fact_type_name(share[i].first, j->out);
        buf_char(j->out, '"');
        buf_printf(json_item(j, "tensors"), "%" PRIu64, share[i].tensors);
        buf_printf(json_item(j, "bytes"), "%" PRIu64, share[i].bytes);
        json_end(j);
    }
    json_end(j);
}

/* ---- the file ---- */

static void file_text(const struct summary *s, struct buf *out)
{
    show_text((struct text){s->file, strlen(s->file)}, out);
}

static void format_text(const struct summary *s, struct buf *out)
{
    buf_printf(out, "GGUF version %u%s, %s-endian", s->g->fmt.version,
               s->g->fmt.draft ? " (first draft)" : "", s->g->fmt.big ? "big" : "little");
}

static void byte_order(const struct summary *s, struct buf *out)
{
    buf_str(out, s->g->fmt.big ? "big" : "little");
}

/* ---- the table ---- */

#define FIELD(f) .at = offsetof(struct gguf, f), .width = sizeof(((struct gguf *)0)->f)
#define OWN(f) \
    .own = true, .at = offsetof(struct summary, f), .width = sizeof(((struct summary *)0)->f)

// clang-format off
static const struct fact facts[] = {
    {"name", "name", .key = "general.name"},
    {"architecture", "architecture", .key = "general.architecture"},
    {"type", "type", .text = kind_text},
    {"parameters", "parameters", .text = parameters_text, .number = parameters, .needs = ALL},
    {"size", "size", .text = whole_size_text, FIELD(file_size)},
    {"missing", "missing", .text = missing_text, OWN(missing)},
    {NULL, "missing_files", OWN(absent)},
    {NULL, "missing_keys", .number = missing_keys},
    {"bits per weight", "bits_per_weight", .text = bits_text, .bare = true, .needs = ALL},
    {"file type", "file_type", .text = file_type_text},
    {"types", "types", .text = types_text, .json = types_json, .needs = ALL},
    {"quantised", "quantised", .named = quantised},
    {"context length", "context_length", .key = ".context_length"},
    {"layers", "layers", .key = ".block_count"},
    {"embedding", "embedding", .key = ".embedding_length"},
    {"feed-forward", "feed_forward", .key = ".feed_forward_length"},
    {"heads", "heads", .key = ".attention.head_count", .text = heads_text},
    {NULL, "heads_kv", .key = ".attention.head_count_kv"},
    {"rope", "rope", .named = rope},
    {"experts", "experts", .key = ".expert_count", .text = experts_text},
    {NULL, "experts_used", .key = ".expert_used_count"},
    {"kv cache", "kv_cache_token", .text = kv_text, .number = kv_token, .needs = KEYS},
    {NULL, "kv_cache_context", .number = kv_context, .needs = KEYS},
    {"vocabulary", "vocabulary", .text = vocabulary_text, .number = vocabulary},
    {NULL, "tokenizer", .key = "tokenizer.ggml.model"},
    {"special tokens", "special_tokens", .text = special_text, .json = special_json},
    {"chat template", "chat_template", .text = template_text, .json = template_json, .needs = KEYS},
    {"sampling", "sampling", .named = sampling},
    {"license", "license", .key = "general.license"},
    {"author", "author", .key = "general.author"},
    {"base model", "base_model", .text = base_models},
    {"source", "source", .text = source_text},
    {"file", NULL, .text = file_text},
    {"shards", "shards", OWN(shards)},
    {"format", NULL, .text = format_text},
    {NULL, "version", FIELD(fmt.version)},
    {NULL, "byte_order", .text = byte_order},
    {"keys", "keys", .number = key_count, .needs = KEYS},
    {"tensors", "tensors", FIELD(n_tensors), .needs = ALL},
    {"alignment", "alignment", FIELD(alignment), .needs = KEYS},
    {"data offset", "data_offset", FIELD(data_off), .needs = ALL},
    {"reserve", "reserve", .text = reserve_text, .number = reserve_size, .needs = KEYS},
};
// clang-format on

static bool fact_is_number(const struct fact *f)
{
    return f->number || f->width || (f->key && f->key[0] == '.');
}

static bool fact_number(const struct summary *s, const struct fact *f, uint64_t *ret)
{
    if (f->number)
        return f->number(s, ret);
    if (f->key)
        return fact_arch_uint(s->g, f->key + 1, ret);
    *ret =
        get_uint((f->own ? (const uint8_t *)s : (const uint8_t *)s->g) + f->at, f->width, HOST_BIG);
    return *ret || !f->own;
}

static void fact_text_of(const struct summary *s, const struct fact *f, struct buf *out)
{
    uint64_t n;
    if (f->text)
        f->text(s, out);
    else if (f->named)
        add_named(s->g, f->named, out);
    else if (f->key && f->key[0] == '.')
        add_by_layer(s->g, f->key + 1, out);
    else if (f->key)
        show_text(fact_text(s->g, f->key), out);
    else if (fact_number(s, f, &n))
        buf_printf(out, "%" PRIu64, n);
}

void summary_text(const struct summary *s, struct buf *out)
{
    for (size_t i = 0; i < COUNT(facts); i++) {
        char label[32];
        size_t before = out->len;
        if (!facts[i].label || !has_what_it_needs(s, &facts[i]))
            continue;
        (void)snprintf(label, sizeof(label), "%s:", facts[i].label);
        buf_printf(out, "%-*s", SUMMARY_LABEL, label);
        size_t behind = out->len;
        fact_text_of(s, &facts[i], out);
        if (out->len == behind)
            out->len = before; /* the model has no such facts */
        else
            buf_char(out, '\n');
    }
}

/* ---- JSON ---- */

static void add_fact_text(const struct summary *s, const struct fact *f, struct json *j)
{
    CLEANUP(buf_free) struct buf text = BUF_INIT;
    fact_text_of(s, f, &text);
    if (buf_error(&text))
        j->out->err = buf_error(&text);
    else if (text.len > 0 && f->bare)
        buf_add(json_item(j, f->member), text.data, text.len);
    else if (text.len > 0)
        json_string(json_item(j, f->member), text.data, text.len);
}

void summary_json(const struct summary *s, struct json *j)
{
    uint64_t n;
    for (size_t i = 0; i < COUNT(facts); i++) {
        const struct fact *f = &facts[i];
        if (!f->member || !has_what_it_needs(s, f))
            continue;
        if (f->json)
            f->json(s, f->member, j);
        else if (!fact_is_number(f))
            add_fact_text(s, f, j);
        else if (fact_number(s, f, &n))
            buf_printf(json_item(j, f->member), "%" PRIu64, n);
    }
}

/* ---- a line of a table ---- */

void summary_row(const struct summary *s, struct buf *out)
{
    const bool cut = is_cut(s), incomplete = s->missing || s->absent || cut;
    const char *type = is_other_type(s) ? NULL : fact_file_type(s->g);
    struct buf cell[5] = {{0}};
    uint64_t n;
    show_text(fact_text(s->g, "general.architecture"), &cell[0]);
    if (!cut && !s->absent)
        add_params(s, &cell[1]);
    summary_size(&cell[2], s->g->file_size);
    buf_str(&cell[2], incomplete ? ", incomplete" : "");
    if (type)
        buf_str(&cell[3], type);
    else
        fact_encoding(s->g, &cell[3]);
    if (fact_arch_uint(s->g, "context_length", &n))
        buf_printf(&cell[4], "%" PRIu64, n);
    for (size_t i = 0; i < COUNT(cell); i++) {
        out->err = out->err ? out->err : buf_error(&cell[i]);
        buf_str(out, cell[i].len ? "\t" : "\t-");
        buf_add(out, cell[i].data, cell[i].len);
        buf_free(&cell[i]);
    }
}

/* ---- the header ---- */

uint64_t summary_missing(const struct gguf *g)
{
    return g->data_end > g->file_size ? g->data_end - g->file_size : 0;
}

/* Set the numbers of files of a model of which only the first file was opened. */
static int count_files(const struct shards *s, struct summary *ret)
{
    uint64_t count;
    if (s->n == 0 && fact_shard(ret->g) && fact_uint(ret->g, "split.count", &count)) {
        ret->shards = (size_t)count; /* the others of a pipe are not looked for */
        ret->absent = ret->shards - 1;
    }
    for (size_t i = 1; i < s->n; i++) {
        char *path = shards_path(s, i);
        if (!path)
            return -ENOMEM;
        ret->absent += access(path, F_OK) < 0;
        free(path);
    }
    return 0;
}

int summary_open(const char *path, struct summary *ret, struct err *e)
{
    struct model_whole m;
    int r = model_whole_open(path, GGUF_PARTIAL | GGUF_CUT, &m, e);
    *ret =
        (struct summary){.g = r < 0 ? NULL : m.g, .file = path_name(path), .shards = m.files.all};
    if (r == 0 && !m.files.g) {
        ret->missing = summary_missing(m.g);
        r = err_sys(e, count_files(&m.files, ret), "cannot look for files");
    }
    for (size_t i = 0; r == 0 && m.files.g && i < m.files.n; i++)
        ret->missing += summary_missing(m.files.g[i]);
    if (m.files.g)
        ret->absent = m.files.all - m.files.n;
    if (r == 0)
        m.g = NULL;
    else
        ret->g = NULL;
    model_whole_free(&m);
    return r;
}

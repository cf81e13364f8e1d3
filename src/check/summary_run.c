/* SPDX-License-Identifier: MIT */
/* Facts about running a model, and about its origin: see fact.h. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/count.h"
#include "check/cache.h"
#include "check/fact.h"
#include "model/facts.h"
#include "text/number.h"

static void show_text(struct text t, struct buf *out)
{
    char shown[SHOW_MAX];
    buf_str(out, show(shown, t.at, t.len));
}

/* ---- size ---- */

/* Of the data alone, without header and padding. False: there are no weights. */
static bool bits(const struct gguf *g, char dst[32])
{
    double bytes = 0, n = 0;
    for (uint32_t i = 0; i < g->n_tensors; i++) {
        bytes += (double)g->tensor[i].nbytes;
        n += (double)g->tensor[i].n_elem;
    }
    if (n > 0)
        (void)snprintf(dst, 32, "%.2f", 8 * bytes / n);
    return n > 0;
}

void fact_size_text(struct buf *out, uint64_t bytes)
{
    static const char *const unit[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double v = (double)bytes;
    size_t u = 0;
    for (; v >= 1024 && u < sizeof(unit) / sizeof(unit[0]) - 1; u++)
        v /= 1024;
    buf_printf(out, u ? "%.1f %s" : "%.0f %s", v, unit[u]);
}

void fact_bits_text(const struct summary *s, const struct fact *f, struct buf *out)
{
    char digits[32];
    (void)f;
    if (bits(s->g, digits))
        buf_str(out, digits);
}

int fact_bits_json(const struct summary *s, const struct fact *f, cJSON **ret)
{
    char digits[32];
    (void)f;
    if (!bits(s->g, digits))
        return 0;
    *ret = cJSON_CreateRaw(digits); /* as many digits as in the line */
    return *ret ? 0 : -ENOMEM;
}

/* Of a mix of types: the letter at the end of "Q4_K_M". */
static const char *mix_size(const char *name, size_t n)
{
    if (n < 4 || memcmp(name + n - 4, "_K_", 3) != 0)
        return NULL;
    return name[n - 1] == 'S' ? "small" : name[n - 1] == 'M' ? "medium" : "large";
}

/* "Q4_K_M (mostly Q4_K, medium)" */
void fact_file_type_text(const struct summary *s, const struct fact *f, struct buf *out)
{
    const char *name = fact_file_type(s->g);
    uint64_t id;
    if (!name) {
        if (fact_uint(s->g, f->key, &id))
            buf_printf(out, "unknown (%" PRIu64 ")", id);
        return;
    }
    size_t n = strlen(name);
    const char *mix = mix_size(name, n);
    if (strcmp(name, "F32") == 0)
        buf_str(out, "F32 (all of it)");
    else
        buf_printf(out, "%s (mostly %.*s%s%s)", name, (int)(n - (mix ? 2 : 0)), name,
                   mix ? ", " : "", mix ? mix : "");
}

void fact_layers_text(const struct summary *s, const struct fact *f, struct buf *out)
{
    uint64_t n;
    if (fact_arch_uint(s->g, f->key, &n))
        buf_printf(out, "%" PRIu64, n);
    else if (fact_arch_key(s->g, f->key) != UINT32_MAX)
        buf_str(out, "by layer");
}

/* ---- attention ---- */

/* "base 500000, scaling yarn, factor 4, original context 8192, dimensions 64" */
void fact_rope_text(const struct summary *s, const struct fact *f, struct buf *out)
{
    static const struct {
        const char *key, *what;
    } part[] = {{"rope.freq_base", "base"},
                {"rope.scaling.type", "scaling"},
                {"rope.scaling.factor", "factor"},
                {"rope.scale_linear", "linear scale"},
                {"rope.scaling.original_context_length", "original context"},
                {"rope.dimension_count", "dimensions"}};
    const char *between = "";
    (void)f;
    for (size_t i = 0; i < COUNT(part); i++) {
        uint32_t kv = fact_arch_key(s->g, part[i].key);
        if (kv == UINT32_MAX)
            continue;
        struct gguf_value v = gguf_value(s->g, &s->g->kv[kv]);
        if (v.type == GGUF_ARRAY)
            continue;
        buf_printf(out, "%s%s ", between, part[i].what);
        between = ", ";
        if (v.type == GGUF_STRING)
            show_text((struct text){(const char *)v.data, (size_t)v.len}, out);
        else
            text_scalar(out, &v, &float_names_text);
    }
}

/* "8, 2 used, 1 shared" */
void fact_experts_text(const struct summary *s, const struct fact *f, struct buf *out)
{
    uint64_t n, used;
    if (!fact_arch_uint(s->g, f->key, &n) || n == 0)
        return;
    buf_printf(out, "%" PRIu64, n);
    if (fact_arch_uint(s->g, "expert_used_count", &used))
        buf_printf(out, ", %" PRIu64 " used", used);
    if (fact_arch_uint(s->g, "expert_shared_count", &used))
        buf_printf(out, ", %" PRIu64 " shared", used);
}

bool fact_kv_token(const struct summary *s, const struct fact *f, uint64_t *ret)
{
    struct cache c;
    (void)f;
    bool has = cache_of(s->g, &c);
    *ret = has ? c.token : 0;
    return has;
}

bool fact_kv_context(const struct summary *s, const struct fact *f, uint64_t *ret)
{
    struct cache c;
    (void)f;
    bool has = cache_of(s->g, &c) && c.whole;
    *ret = has ? c.whole : 0;
    return has;
}

void fact_kv_text(const struct summary *s, const struct fact *f, struct buf *out)
{
    uint64_t n;
    if (!fact_kv_token(s, f, &n))
        return;
    fact_size_text(out, n);
    buf_str(out, " per token");
    if (fact_kv_context(s, f, &n)) {
        buf_str(out, ", ");
        fact_size_text(out, n);
        buf_str(out, " for the whole context");
    }
    buf_str(out, " (F16)");
}

/* ---- tokens ---- */

static const struct special {
    const char *name, *key;
} specials[] = {
    {"bos", "tokenizer.ggml.bos_token_id"},       {"eos", "tokenizer.ggml.eos_token_id"},
    {"eot", "tokenizer.ggml.eot_token_id"},       {"eom", "tokenizer.ggml.eom_token_id"},
    {"unk", "tokenizer.ggml.unknown_token_id"},   {"sep", "tokenizer.ggml.seperator_token_id"},
    {"sep", "tokenizer.ggml.separator_token_id"}, {"pad", "tokenizer.ggml.padding_token_id"},
    {"cls", "tokenizer.ggml.cls_token_id"},       {"mask", "tokenizer.ggml.mask_token_id"},
};

struct token {
    bool has;
    uint64_t id;
    struct text text; /* at NULL: the vocabulary has none of this number */
};

/* Ids and texts of the special tokens that the model names: one walk over the vocabulary. */
static void find_special(const struct gguf *g, struct token dst[COUNT(specials)])
{
    struct gguf_value v, item;
    uint64_t most = 0;
    for (size_t i = 0; i < COUNT(specials); i++) {
        dst[i] = (struct token){.text = {NULL, 0}};
        dst[i].has = fact_uint(g, specials[i].key, &dst[i].id);
        most = dst[i].has ? max_u64(most, dst[i].id) : most;
    }
    if (!fact_value(g, "tokenizer.ggml.tokens", &v) || v.type != GGUF_ARRAY ||
        v.elem != GGUF_STRING)
        return;
    struct gguf_walk w = gguf_walk(&v);
    for (uint64_t at = 0; at <= most && gguf_next(&w, &item); at++)
        for (size_t i = 0; i < COUNT(specials); i++)
            if (dst[i].has && dst[i].id == at)
                dst[i].text = (struct text){(const char *)item.data, (size_t)item.len};
}

/* "bos <s> (1), eos </s> (2)" */
void fact_special_text(const struct summary *s, const struct fact *f, struct buf *out)
{
    struct token token[COUNT(specials)];
    const char *between = "";
    (void)f;
    find_special(s->g, token);
    for (size_t i = 0; i < COUNT(specials); i++) {
        if (!token[i].has)
            continue;
        buf_printf(out, "%s%s ", between, specials[i].name);
        if (token[i].text.at)
            show_text(token[i].text, out);
        buf_printf(out, "%s(%" PRIu64 ")", token[i].text.at ? " " : "", token[i].id);
        between = ", ";
    }
}

static bool add_token(cJSON *to, const char *name, const struct token *t)
{
    char shown[SHOW_MAX], digits[32];
    cJSON *row = cJSON_CreateObject();
    if (!row || !cJSON_AddItemToObject(to, name, row)) {
        cJSON_Delete(row);
        return false;
    }
    (void)snprintf(digits, sizeof(digits), "%" PRIu64, t->id);
    return cJSON_AddRawToObject(row, "id", digits) &&
           (!t->text.at ||
            cJSON_AddStringToObject(row, "text", show(shown, t->text.at, t->text.len)));
}

int fact_special_json(const struct summary *s, const struct fact *f, cJSON **ret)
{
    struct token token[COUNT(specials)];
    cJSON *all = cJSON_CreateObject();
    bool ok = all != NULL, any = false;
    (void)f;
    find_special(s->g, token);
    for (size_t i = 0; i < COUNT(specials) && ok; i++) {
        if (!token[i].has || cJSON_HasObjectItem(all, specials[i].name))
            continue;
        ok = add_token(all, specials[i].name, &token[i]);
        any = true;
    }
    if (ok && any)
        *ret = all;
    else
        cJSON_Delete(all);
    return ok ? 0 : -ENOMEM;
}

static bool has_template(const struct gguf *g)
{
    return fact_text(g, "tokenizer.chat_template").len > 0;
}

void fact_template_text(const struct summary *s, const struct fact *f, struct buf *out)
{
    (void)f;
    buf_str(out, has_template(s->g) ? "yes" : "no");
}

int fact_template_json(const struct summary *s, const struct fact *f, cJSON **ret)
{
    (void)f;
    *ret = cJSON_CreateBool(has_template(s->g));
    return *ret ? 0 : -ENOMEM;
}

/* ---- origin ---- */

/* Merges have several base models; a line is for people. */
enum { BASE_MODELS_MOST = 8 };

void fact_base_models(const struct summary *s, const struct fact *f, struct buf *out)
{
    char key[64];
    const char *between = "";
    (void)f;
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

void fact_source_text(const struct summary *s, const struct fact *f, struct buf *out)
{
    static const char *const key[] = {"general.source.repo_url", "general.source.url",
                                      "general.source.huggingface.repository", "general.repo_url",
                                      "general.url"};
    struct text t = {NULL, 0};
    (void)f;
    for (size_t i = 0; i < COUNT(key) && t.len == 0; i++)
        t = fact_text(s->g, key[i]);
    if (t.len)
        show_text(t, out);
}

/* SPDX-License-Identifier: MIT */
/* The name that the convention gives a model: see filename.h. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "check/filename.h"

/* Bytes of a part: a whole file name has 255. */
enum { WORDS_LEN = 60, LABEL_LEN = 16 };

static bool is_alnum(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/*
 * Append words of letters and digits; all else becomes "-". Words that `keep` refuses are left out.
 */
static void add_words(struct buf *out, struct text t, bool (*keep)(const char *w, size_t n))
{
    size_t start = out->len;
    for (size_t i = 0, n; i < t.len; i += n ? n : 1) {
        for (n = 0; i + n < t.len && is_alnum(t.at[i + n]);)
            n++;
        if (n == 0 || !keep(t.at + i, n))
            continue;
        if (out->len - start + 1 + n > WORDS_LEN)
            return;
        if (out->len > start)
            buf_char(out, '-');
        buf_add(out, t.at + i, n);
    }
}

static bool all_digits(const char *w, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (w[i] < '0' || w[i] > '9')
            return false;
    return true;
}

/* A word that a base name can have: not "7b", which would be a size. */
static bool is_base(const char *w, size_t n)
{
    return w[0] > '9' || all_digits(w, n);
}

static bool is_any(const char *w, size_t n)
{
    (void)w;
    return n > 0;
}

static void suggest_base(const struct gguf *g, struct buf *out)
{
    static const char *const keys[] = {"general.basename", "general.name", "general.architecture"};
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]) && out->len == 0; i++)
        add_words(out, fact_text(g, keys[i]), is_base);
}

/* The model's own label, if valid; else one from the number of parameters. */
static void suggest_size(const struct gguf *g, struct buf *out)
{
    char label[SIZE_LABEL_MAX];
    struct params p = fact_params(g);
    struct text reported = fact_text(g, "general.size_label");
    uint64_t experts;
    double params;
    bool label_fits = reported.at && reported.len <= LABEL_LEN &&
                      !memchr(reported.at, '-', reported.len) &&
                      file_size_parse(reported, &experts, &params) &&
                      (p.total == 0 || fact_shard(g) || file_size_fits(reported, &p));
    if (label_fits) {
        buf_add(out, reported.at, reported.len);
    } else if (p.total) {
        fact_size_label(&p, label);
        buf_str(out, label);
    }
}

/* "1.2", "v1.2" and "V1.2" are versions. */
static void suggest_version(const struct gguf *g, struct buf *out)
{
    struct text t = fact_text(g, "general.version");
    size_t from = t.len && (t.at[0] == 'v' || t.at[0] == 'V');
    bool digit = false;
    for (size_t i = from; i < t.len; i++) {
        if (t.at[i] == '.' ? !digit : !all_digits(t.at + i, 1))
            return;
        digit = t.at[i] != '.';
    }
    if (!digit || t.len > LABEL_LEN)
        return;
    buf_char(out, 'v');
    buf_add(out, t.at + from, t.len - from);
}

/* The type with the most bytes, if general.file_type is missing. */
static void suggest_encoding(const struct gguf *g, struct buf *out)
{
    struct share s[SHARES_MAX];
    const char *type = fact_file_type(g);
    if (g->n_tensors == 0)
        return;
    if (type)
        buf_str(out, type);
    else if (fact_shares(g, s) && gguf_type(s[0].first) && gguf_type(s[0].first)->block_len)
        buf_str(out, gguf_type(s[0].first)->name);
}

static void suggest_type(const struct gguf *g, struct buf *out)
{
    uint64_t tokens;
    if (text_is(fact_text(g, "general.type"), "adapter"))
        buf_str(out, "LoRA");
    else if (g->n_tensors == 0 && !fact_shard(g) && fact_vocabulary(g, &tokens))
        buf_str(out, "vocab");
}

static void suggest_shard(const struct gguf *g, struct buf *out)
{
    uint64_t no, count;
    if (fact_shard(g) && fact_uint(g, "split.no", &no) && fact_uint(g, "split.count", &count) &&
        no < count && count <= 99999)
        buf_printf(out, "%05" PRIu64 "-of-%05" PRIu64, no + 1, count);
}

void file_part_suggest(const struct gguf *g, enum file_part part, struct buf *out)
{
    switch (part) {
    case PART_SIDECAR:
        if (text_is(fact_text(g, "general.type"), "mmproj"))
            buf_str(out, "mmproj");
        break;
    case PART_BASE:
        suggest_base(g, out);
        break;
    case PART_SIZE:
        suggest_size(g, out);
        break;
    case PART_FINETUNE:
        add_words(out, fact_text(g, "general.finetune"), is_any);
        break;
    case PART_VERSION:
        suggest_version(g, out);
        break;
    case PART_ENCODING:
        suggest_encoding(g, out);
        break;
    case PART_TYPE:
        suggest_type(g, out);
        break;
    case PART_SHARD:
        suggest_shard(g, out);
        break;
    case FILE_PARTS:
        break;
    }
}

/* Defaults for parts that neither keys nor tensors determine. */
static const char *const otherwise[FILE_PARTS] = {
    [PART_BASE] = "model", [PART_SIZE] = "0K", [PART_VERSION] = "v1.0"};

void file_name_suggest(const struct gguf *g, struct buf *out)
{
    size_t start = out->len;
    for (int i = 0; i < FILE_PARTS; i++) {
        CLEANUP(buf_free) struct buf part = BUF_INIT;
        file_part_suggest(g, (enum file_part)i, &part);
        if (part.len == 0 && otherwise[i])
            buf_str(&part, otherwise[i]);
        if (part.len && out->len > start)
            buf_char(out, '-');
        buf_add(out, part.data, part.len);
    }
    buf_str(out, ".gguf");
}

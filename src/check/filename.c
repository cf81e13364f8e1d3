/* SPDX-License-Identifier: MIT */
/* Names that follow the naming convention, and the rules about them: see filename.h. */
#include "check/filename.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "check/check.h"
#include "model/split.h"

const char *const file_part_name[FILE_PARTS] = {"Sidecar", "BaseName", "SizeLabel", "FineTune",
                                                "Version", "Encoding", "Type",      "Shard"};

/* More words than any file name of 255 bytes has. */
enum { WORDS_MOST = 256, SHARD_DIGITS = 5 };

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_alpha(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool is_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static bool is_plain(char c)
{
    return is_digit(c) || is_alpha(c) || is_blank(c);
}

static size_t span(struct text t, size_t from, bool (*is)(char))
{
    size_t n = from;
    while (n < t.len && is(t.at[n]))
        n++;
    return n - from;
}

/* ---- words ---- */

static bool is_name_word(struct text w)
{
    size_t digits = 0;
    for (; digits < w.len && (is_digit(w.at[digits]) || is_blank(w.at[digits]));)
        digits++;
    return digits == w.len || (!is_digit(w.at[0]) && span(w, 0, is_plain) == w.len);
}

static bool is_tune_word(struct text w)
{
    return span(w, 0, is_plain) == w.len;
}

/* Bytes of "12" or "1.2" at `from`, 0: no number. */
static size_t number_at(struct text w, size_t from)
{
    size_t whole = span(w, from, is_digit);
    if (whole == 0 || from + whole >= w.len || w.at[from + whole] != '.')
        return whole;
    size_t rest = span(w, from + whole + 1, is_digit);
    return rest ? whole + 1 + rest : whole;
}

/* [COUNTx]NUMBERletter */
static bool is_size_word(struct text w)
{
    size_t at = span(w, 0, is_digit);
    at = at > 0 && at < w.len && w.at[at] == 'x' && number_at(w, at + 1) ? at + 1 : 0;
    size_t n = number_at(w, at);
    return n > 0 && at + n + 1 == w.len && is_alpha(w.at[w.len - 1]);
}

/* lettersNUMBERletters, after a size: "A3B", "ContextLength4k" */
static bool is_attribute(struct text w)
{
    size_t at = span(w, 0, is_alpha), n = number_at(w, at);
    return at > 0 && n > 0 && at + n < w.len && span(w, at + n, is_alpha) == w.len - at - n;
}

static bool is_version(struct text w)
{
    if (w.len < 2 || w.at[0] != 'v')
        return false;
    for (size_t at = 1;; at++) {
        size_t n = span(w, at, is_digit);
        at += n;
        if (n == 0 || at == w.len || w.at[at] != '.')
            return n > 0 && at == w.len;
    }
}

/*
 * A version that cannot be a word of a fine tune: all that follows, even a "v2", is the encoding.
 */
static bool is_dotted_version(struct text w)
{
    return is_version(w) && memchr(w.at, '.', w.len);
}

static bool is_encoding(struct text w)
{
    if (text_begins(w, "LoRA") || text_begins(w, "vocab"))
        return false;
    for (size_t i = 0; i < w.len; i++)
        if (!is_digit(w.at[i]) && !is_alpha(w.at[i]) && w.at[i] != '_')
            return false;
    return w.len > 0;
}

static bool is_type(struct text w)
{
    return text_is(w, "LoRA") || text_is(w, "vocab");
}

static bool is_shard_number(struct text w)
{
    return w.len == SHARD_DIGITS && span(w, 0, is_digit) == SHARD_DIGITS;
}

/* ---- the name ---- */

struct words {
    struct text word[WORDS_MOST];
    size_t n;
};

static bool split(const char *name, size_t len, struct words *w)
{
    w->n = 0;
    for (size_t at = 0; at <= len && w->n < WORDS_MOST;) {
        const char *dash = memchr(name + at, '-', len - at);
        size_t n = dash ? (size_t)(dash - name) - at : len - at;
        w->word[w->n++] = (struct text){name + at, n};
        at += n + 1;
    }
    return w->n < WORDS_MOST;
}

/* Words [first, last) as one part. */
static struct text join(const struct words *w, size_t first, size_t last)
{
    if (first >= last)
        return (struct text){NULL, 0};
    const struct text *end = &w->word[last - 1];
    return (struct text){w->word[first].at, (size_t)(end->at + end->len - w->word[first].at)};
}

/*
 * Take the parts behind the version, from the end. Returns the number of words before it, 0: no
 * version.
 */
static size_t take_end(const struct words *w, struct file_name *f)
{
    size_t n = w->n;
    if (n >= 3 && is_shard_number(w->word[n - 1]) && text_is(w->word[n - 2], "of") &&
        is_shard_number(w->word[n - 3])) {
        f->part[PART_SHARD] = join(w, n - 3, n);
        n -= 3;
    }
    if (n >= 1 && is_type(w->word[n - 1]))
        f->part[PART_TYPE] = w->word[--n];
    if (n >= 2 && is_encoding(w->word[n - 1]) &&
        (!is_version(w->word[n - 1]) || is_dotted_version(w->word[n - 2])))
        f->part[PART_ENCODING] = w->word[--n];
    if (n == 0 || !is_version(w->word[n - 1]))
        return 0;
    f->part[PART_VERSION] = w->word[n - 1];
    return n - 1;
}

/* Words [from, end): base name, size label, fine tune. A size cannot be a word of a base name. */
static bool take_begin(const struct words *w, size_t from, size_t end, struct file_name *f)
{
    size_t size = from + 1;
    if (from >= end || !is_tune_word(w->word[from]))
        return false;
    while (size < end && is_name_word(w->word[size]))
        size++;
    if (size >= end || !is_size_word(w->word[size]))
        return false;
    f->part[PART_BASE] = join(w, from, size);
    size_t tune = size + 1;
    if (tune < end && is_attribute(w->word[tune]))
        tune++;
    f->part[PART_SIZE] = join(w, size, tune);
    f->part[PART_FINETUNE] = join(w, tune, end);
    for (size_t i = tune; i < end; i++)
        if (!is_tune_word(w->word[i]))
            return false;
    return tune >= end || f->part[PART_FINETUNE].len > 0;
}

bool file_name_is_hash(const char *name)
{
    if (strncmp(name, "sha256-", 7) == 0)
        name += 7;
    return strlen(name) == 64 && strspn(name, "0123456789abcdefABCDEF") == 64;
}

bool file_name_parse(const char *name, struct file_name *ret)
{
    static const char suffix[] = ".gguf";
    struct words w;
    struct file_name f = {0};
    size_t len = strlen(name);
    if (len <= strlen(suffix) || strcmp(name + len - strlen(suffix), suffix) != 0 ||
        !split(name, len - strlen(suffix), &w))
        return false;
    size_t end = take_end(&w, &f);
    bool sidecar = end > 1 && (text_is(w.word[0], "mmproj") || text_is(w.word[0], "mtp"));
    if (sidecar && take_begin(&w, 1, end, &f))
        f.part[PART_SIDECAR] = w.word[0];
    else if (!take_begin(&w, 0, end, &f))
        return false;
    *ret = f;
    return true;
}

void file_name_json(struct json *j, const char *name, const char *file)
{
    struct file_name f;
    char part[SHOW_MAX];
    if (!file_name_parse(file, &f)) {
        json_text(j, name, NULL);
        return;
    }
    json_begin(j, name, "{");
    for (int i = 0; i < FILE_PARTS; i++)
        if (f.part[i].at)
            json_text(j, file_part_name[i], show(part, f.part[i].at, f.part[i].len));
    json_end(j);
}

/* ---- the meaning of parts ---- */

static double decimal(struct text t)
{
    double v = 0, unit = 1;
    bool fraction = false;
    for (size_t i = 0; i < t.len; i++) {
        fraction |= t.at[i] == '.';
        unit *= fraction && t.at[i] != '.' ? 0.1 : 1;
        v = t.at[i] == '.' ? v : fraction ? v + unit * (t.at[i] - '0') : v * 10 + (t.at[i] - '0');
    }
    return v;
}

/* A label may have any number of digits; those that fit count. */
static uint64_t whole(struct text t)
{
    double v = decimal(t);
    return v < 0x1p64 ? (uint64_t)v : UINT64_MAX;
}

bool file_size_parse(struct text label, uint64_t *experts, double *params)
{
    static const char units[] = "KMBTQ";
    const char *dash = memchr(label.at, '-', label.len);
    struct text w = {label.at, dash ? (size_t)(dash - label.at) : label.len};
    if (!is_size_word(w))
        return false;
    const char *x = memchr(w.at, 'x', w.len - 1);
    size_t at = x ? (size_t)(x - w.at) + 1 : 0;
    const char *unit = strchr(units, w.at[w.len - 1] & ~0x20);
    if (!unit)
        return false;
    *experts = x ? whole((struct text){w.at, at - 1}) : 0;
    *params = decimal((struct text){w.at + at, w.len - 1 - at});
    for (const char *u = units; u <= unit; u++)
        *params *= 1000;
    return true;
}

/* A size label is rounded, and may or may not count embeddings: "2B" of 2.7, "8B" of 6.5 are in use. */
static bool near(double label, uint64_t params)
{
    double have = (double)params;
    return have >= label * 0.75 && have <= label * 1.4;
}

bool file_size_fits(struct text label, const struct params *p)
{
    uint64_t experts;
    double params;
    if (!file_size_parse(label, &experts, &params))
        return false;
    if (experts)
        return experts == p->experts && near(params, p->one);
    return near(params, p->total) || near(params, p->one);
}

/* ---- the name that the convention gives a model ---- */

/* Bytes of a part: a whole file name has 255. */
enum { WORDS_LEN = 60, LABEL_LEN = 16 };

/*
 * Append words of letters and digits; all else becomes "-". Words that `keep` refuses are left out.
 */
static void add_words(struct buf *out, struct text t, bool (*keep)(const char *w, size_t n))
{
    size_t start = out->len;
    for (size_t i = 0, n; i < t.len; i += n ? n : 1) {
        for (n = 0; i + n < t.len && (is_digit(t.at[i + n]) || is_alpha(t.at[i + n]));)
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

/* ---- the rules: does the name follow the convention, and agree with the model? ---- */

/*
 * Words compare without case; the caller has made "1.0" and "v1.0", "Llama 3" and "Llama-3" equal.
 */
static bool same(struct text a, const struct buf *b)
{
    return a.len == b->len && strncasecmp(a.at, (const char *)b->data, b->len) == 0;
}

/* The model's value for a part, if a name could contradict it. */
static void expected(const struct gguf *g, enum file_part part, struct buf *out)
{
    static const char *const key[FILE_PARTS] = {[PART_BASE] = "general.basename"};
    char label[SIZE_LABEL_MAX];
    struct params p = fact_params(g);
    if (part == PART_SIZE && (p.total == 0 || fact_shard(g)))
        return;
    if (part == PART_SIZE) {
        fact_size_label(&p, label);
        buf_str(out, label);
    } else if (part == PART_ENCODING) {
        buf_str(out, g->n_tensors && fact_file_type(g) ? fact_file_type(g) : "");
    } else if (!key[part] || fact_text(g, key[part]).at) {
        file_part_suggest(g, part, out);
    }
}

static bool part_fits(const struct gguf *g, enum file_part part, struct text says,
                      const struct buf *want)
{
    struct params p = fact_params(g);
    if (part == PART_SHARD) /* reported by the rule "split" */
        return !says.at || want->len > 0;
    if (want->len == 0)
        return true;
    if (part == PART_SIZE)
        return file_size_fits(says, &p);
    return says.at ? same(says, want) : part == PART_ENCODING;
}

/* People name files as they like; a name that says something wrong misleads them. */
static enum check_severity weight_of(enum file_part part)
{
    bool misleads = part == PART_SIZE || part == PART_ENCODING || part == PART_SHARD;
    return misleads ? CHECK_WARNING : CHECK_NOTE;
}

static void check_part(struct checker *c, enum file_part part, struct text says)
{
    CLEANUP(buf_free) struct buf want = BUF_INIT;
    char shown[SHOW_MAX], wanted[SHOW_MAX];
    expected(c->g, part, &want);
    if (buf_error(&want) || part_fits(c->g, part, says, &want))
        return;
    (void)show(wanted, want.data, want.len);
    if (says.at && want.len)
        report(c, weight_of(part), "file name", "its %s says '%s', the model '%s'",
               file_part_name[part], show(shown, says.at, says.len), wanted);
    else if (says.at)
        report(c, weight_of(part), "file name", "its %s says '%s', the model does not say",
               file_part_name[part], show(shown, says.at, says.len));
    else
        report(c, CHECK_NOTE, "file name", "it has no %s, the model says '%s'",
               file_part_name[part], wanted);
}

/* A shard has only a part of the parameters, and only the first one has the model's keys. */
static bool can_suggest(const struct gguf *g)
{
    return !fact_shard(g) || (!fact_later_shard(g) && fact_text(g, "general.size_label").at);
}

static const char suffix[] = ".gguf";

static void suggest(struct checker *c)
{
    CLEANUP(buf_free) struct buf name = BUF_INIT;
    char shown[SHOW_MAX];
    file_name_suggest(c->g, &name);
    if (c->shards) {
        name.len -= strlen(suffix);
        buf_printf(&name, "-00001-of-%05zu%s", c->shards, suffix);
    }
    if (buf_error(&name))
        return;
    (void)show(shown, name.data, name.len);
    report(c, CHECK_NOTE, "file name", "by convention it is %s", shown);
}

static void rule_size_label(struct checker *c)
{
    static const char key[] = "general.size_label";
    char label[SIZE_LABEL_MAX], shown[SHOW_MAX];
    struct text reported = fact_text(c->g, key);
    struct params p = fact_params(c->g);
    uint64_t experts;
    double params;
    if (!reported.at || p.total == 0 || fact_shard(c->g) || !fact_is_model(c->g) ||
        !file_size_parse(reported, &experts, &params) || file_size_fits(reported, &p))
        return;
    fact_size_label(&p, label);
    report(c, CHECK_WARNING, "key 'general.size_label'",
           "'%s', but %" PRIu64 " parameters make it '%s'", show(shown, reported.at, reported.len),
           p.total, label);
}

/* The name to check: for a split model without the number of the file, which is correct. */
static void whole_name(const struct checker *c, char dst[NAME_MAX + 1])
{
    size_t n = strlen(c->file), tail = c->shards && n > SPLIT_TAIL ? SPLIT_TAIL : 0;
    (void)snprintf(dst, NAME_MAX + 1, "%.*s%s", (int)(n - tail), c->file, tail ? suffix : "");
}

static void rule_file_name(struct checker *c)
{
    struct file_name f;
    char name[NAME_MAX + 1];
    if (!c->file || file_name_is_hash(c->file))
        return;
    whole_name(c, name);
    if (!file_name_parse(name, &f)) {
        if (can_suggest(c->g))
            suggest(c);
        else
            report(c, CHECK_NOTE, "file name", "does not follow the naming convention");
        return;
    }
    for (int i = 0; i < FILE_PARTS; i++)
        check_part(c, (enum file_part)i, f.part[i]);
    if (c->reported && can_suggest(c->g))
        suggest(c);
}

const struct rule name_rules[] = {
    {"size-label", CHECK_WHOLE, .whole = rule_size_label},
    {"file-name", CHECK_WHOLE, .whole = rule_file_name},
    {0},
};

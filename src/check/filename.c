/* SPDX-License-Identifier: MIT */
/* The naming convention, and the rules about file names: see filename.h. */
#include "check/filename.h"

#include <inttypes.h>
#include <limits.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/bytes.h"
#include "check/check.h"
#include "model/snapshot.h"
#include "text/number.h"

static bool is_alpha(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* ---- the name ---- */

/* The specification's regular expression, without the conditions that POSIX expressions cannot
 * test: see file_name_parse(). */
#define BLANK " \t-\r"
#define PLAIN "[A-Za-z0-9" BLANK "]*"
#define NUMBER "[0-9]+(\\.[0-9]+)?"
static const char convention[] = "^((mmproj|mtp)-)?"
                                 "(" PLAIN "(-([0-9" BLANK "]*|[A-Za-z" BLANK "]" PLAIN "))*)"
                                 "-(([0-9]+x)?" NUMBER "[A-Za-z](-[A-Za-z]+" NUMBER "[A-Za-z]+)?)"
                                 "(-" PLAIN "(-" PLAIN ")*)?"
                                 "-(v[0-9]+(\\.[0-9]+)*)"
                                 "(-([A-Za-z0-9_]+))?"
                                 "(-(LoRA|vocab))?"
                                 "(-([0-9]{5}-of-[0-9]{5}))?"
                                 "\\.gguf$";
/* The groups of the expression that capture parts. */
enum { SIZE = 6, FINETUNE = 11, ENCODING = 16, TYPE = 18, SHARD = 20, GROUPS };

bool file_name_is_hash(const char *name)
{
    if (strncmp(name, "sha256-", 7) == 0)
        name += 7;
    return strlen(name) == 64 && strspn(name, "0123456789abcdefABCDEF") == 64;
}

bool file_name_parse(const char *name, struct text part[FILE_PARTS])
{
    static const int group[FILE_PARTS] = {
        [PART_SIZE] = SIZE, [PART_ENCODING] = ENCODING, [PART_SHARD] = SHARD};
    regex_t pattern;
    regmatch_t m[GROUPS];
    if (!strstr(name, "-v") || regcomp(&pattern, convention, REG_EXTENDED) != 0)
        return false; /* most names have no version, and are rejected early here */
    const bool fits = regexec(&pattern, name, GROUPS, m, 0) == 0;
    regfree(&pattern);
    if (!fits || m[FINETUNE].rm_eo - m[FINETUNE].rm_so == 1) /* the group includes the dash */
        return false;
    for (size_t i = 0; i < FILE_PARTS; i++) {
        const regmatch_t *at = &m[group[i]];
        part[i] = at->rm_so < 0 ? (struct text){NULL, 0}
                                : (struct text){name + at->rm_so, (size_t)(at->rm_eo - at->rm_so)};
    }
    struct text *encoding = &part[PART_ENCODING];
    if (m[TYPE].rm_so < 0 && (text_is(*encoding, "LoRA") || text_is(*encoding, "vocab")))
        *encoding = (struct text){NULL, 0}; /* it is the type */
    return !text_begins(*encoding, "LoRA") && !text_begins(*encoding, "vocab");
}

/* ---- the meaning of parts ---- */

bool file_size_parse(struct text label, uint64_t *experts, double *params)
{
    static const char units[] = "KMBTQ";
    char word[64], *end;
    (void)snprintf(word, sizeof(word), "%.*s", (int)min_u64(label.len, sizeof(word)), label.at);
    word[strcspn(word, "-")] = '\0';
    *experts = strtoull(word, &end, 10);
    const char *number = end > word && *end == 'x' ? end + 1 : word;
    *experts = number > word ? *experts : 0;
    *params = strtod(number, &end);
    const char *unit =
        is_digit(*number) && is_alpha(*end) && !end[1] ? strchr(units, *end & ~0x20) : NULL;
    for (const char *u = units; unit && u <= unit; u++)
        *params *= 1000;
    return unit;
}

/* A size label is rounded, and may or may not count embeddings: both "2B" for 2.7 and "8B" for
 * 6.5 are in use. */
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

/* Maximum lengths of parts in bytes, so that the whole file name fits in 255 bytes. */
enum { WORDS_LEN = 60, LABEL_LEN = 16 };

/* Write words of letters and digits, joined by "-". Words that `keep` rejects are skipped; if `keep`
 * is NULL, all words are written. */
static void add_words(struct buf *out, struct text t, bool (*keep)(const char *w, size_t n))
{
    for (size_t i = 0, n; i < t.len; i += n ? n : 1) {
        for (n = 0; i + n < t.len && (is_digit(t.at[i + n]) || is_alpha(t.at[i + n]));)
            n++;
        if (n == 0 || (keep && !keep(t.at + i, n)))
            continue;
        if (out->len + 1 + n > WORDS_LEN)
            return;
        if (out->len)
            buf_char(out, '-');
        buf_add(out, t.at + i, n);
    }
}

/* True for a word that a base name may contain: not "7b", which would be a size. */
static bool is_base(const char *w, size_t n)
{
    while (n > 0 && is_digit(w[n - 1]))
        n--;
    return n == 0 || !is_digit(w[0]);
}

/* The following functions write a part of the name to an empty buf, or nothing. */

static void suggest_sidecar(const struct gguf *g, struct buf *out)
{
    if (text_is(fact_text(g, "general.type"), "mmproj"))
        buf_str(out, "mmproj");
}

static void suggest_base(const struct gguf *g, struct buf *out)
{
    static const char *const keys[] = {"general.basename", "general.name", "general.architecture"};
    for (size_t i = 0; i < COUNT(keys) && out->len == 0; i++)
        add_words(out, fact_text(g, keys[i]), is_base);
    buf_str(out, out->len ? "" : "model");
}

/* Suggest the number of parameters, as --info shows it. A model without tensors, or a shard, has only
 * its label. */
static void suggest_size(const struct gguf *g, struct buf *out)
{
    char label[SIZE_LABEL_MAX];
    const struct params p = fact_params(g);
    const struct text reported = fact_text(g, "general.size_label");
    uint64_t experts;
    double params;
    if (p.total && !fact_shard(g)) {
        fact_size_label(&p, label);
        buf_str(out, label);
    } else if (reported.at && reported.len <= LABEL_LEN &&
               !memchr(reported.at, '-', reported.len) &&
               file_size_parse(reported, &experts, &params)) {
        buf_add(out, reported.at, reported.len);
    } else {
        buf_str(out, "0K");
    }
}

static void suggest_finetune(const struct gguf *g, struct buf *out)
{
    add_words(out, fact_text(g, "general.finetune"), NULL);
}

/* The versions "1.2", "v1.2" and "V1.2" are valid. */
static void suggest_version(const struct gguf *g, struct buf *out)
{
    struct text t = fact_text(g, "general.version");
    size_t from = t.len && (t.at[0] == 'v' || t.at[0] == 'V');
    bool digit = false, good = t.len <= LABEL_LEN;
    for (size_t i = from; i < t.len; i++) {
        good &= t.at[i] == '.' ? digit : is_digit(t.at[i]);
        digit = t.at[i] != '.';
    }
    buf_str(out, good && digit ? "v" : "v1.0");
    if (good && digit)
        buf_add(out, t.at + from, t.len - from);
}

static void suggest_encoding(const struct gguf *g, struct buf *out)
{
    if (g->n_tensors)
        fact_encoding(g, out);
    if (out->len && memchr(out->data, ':', out->len)) /* unknown */
        out->len = 0;
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

void file_name_suggest(const struct gguf *g, struct buf *out)
{
    static void (*const suggest_part[])(const struct gguf *g, struct buf *out) = {
        suggest_sidecar, suggest_base,     suggest_size, suggest_finetune,
        suggest_version, suggest_encoding, suggest_type, suggest_shard};
    const size_t start = out->len;
    for (size_t i = 0; i < COUNT(suggest_part); i++) {
        CLEANUP(buf_free) struct buf part = BUF_INIT;
        suggest_part[i](g, &part);
        if (part.len && out->len > start)
            buf_char(out, '-');
        buf_add(out, part.data, part.len);
    }
    buf_str(out, ".gguf");
}

/* ---- the rules: does the name follow the convention, and agree with the model? ---- */

/* Any name is allowed, but one that states a wrong fact is misleading. Words are compared ignoring
 * case. That the number of a shard is right is checked by the rule "split". */
static void check_part(struct checker *c, enum file_part part, struct text says)
{
    static const char *const name[] = {"SizeLabel", "Encoding", "Shard"};
    CLEANUP(buf_free) struct buf want = BUF_INIT;
    char shown[SHOW_MAX], wanted[SHOW_MAX];
    const struct params p = fact_params(c->g);
    if (!says.at || (part == PART_ENCODING && !fact_file_type(c->g)) ||
        (part == PART_SIZE && (p.total == 0 || fact_shard(c->g))))
        return;
    (part == PART_SIZE    ? suggest_size
     : part == PART_SHARD ? suggest_shard
                          : suggest_encoding)(c->g, &want);
    const bool same = says.len == want.len && strncasecmp(says.at, buf_text(&want), says.len) == 0;
    if (buf_error(&want) || (part == PART_SIZE    ? file_size_fits(says, &p)
                             : part == PART_SHARD ? want.len > 0
                                                  : want.len == 0 || same))
        return;
    report(c, CHECK_WARNING, "file name",
           want.len ? "its %s says '%s', but the model says '%s'"
                    : "its %s says '%s', but the model does not say%s",
           name[part], show(shown, says.at, says.len), show(wanted, want.data, want.len));
}

/* A shard has only some of the parameters, and only the first shard has the model's keys. */
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
    if (c->m->shards) {
        name.len -= strlen(suffix);
        buf_printf(&name, "-00001-of-%05zu%s", c->m->shards, suffix);
    }
    if (buf_error(&name))
        return;
    (void)show(shown, name.data, name.len);
    report(c, CHECK_NOTE, "file name", "by convention it should be %s", shown);
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

static void rule_file_type(struct checker *c)
{
    CLEANUP(buf_free) struct buf is = BUF_INIT;
    if (fact_file_type_fits(c->g))
        return;
    fact_encoding(c->g, &is);
    if (!buf_error(&is))
        report(c, CHECK_WARNING, "key 'general.file_type'",
               "says %s, but the tensors are mostly %.*s", fact_file_type(c->g), (int)is.len,
               (const char *)is.data);
}

static void rule_file_name(struct checker *c)
{
    struct text part[FILE_PARTS];
    char name[NAME_MAX + 1];
    if (!c->m->file || file_name_is_hash(c->m->file))
        return;
    /* omit the number of a shard, because it is correct */
    const size_t n = strlen(c->m->file), tail = c->m->shards && n > SPLIT_TAIL ? SPLIT_TAIL : 0;
    (void)snprintf(name, sizeof(name), "%.*s%s", (int)(n - tail), c->m->file, tail ? suffix : "");
    const bool follows = file_name_parse(name, part);
    for (int i = 0; follows && i < FILE_PARTS; i++)
        check_part(c, (enum file_part)i, part[i]);
    if ((!follows || c->reported) && can_suggest(c->g))
        suggest(c);
    else if (!follows)
        report(c, CHECK_NOTE, "file name", "does not follow the naming convention");
}

const struct rule name_rules[] = {
    {"file-type", CHECK_WHOLE, .whole = rule_file_type},
    {"size-label", CHECK_WHOLE, .whole = rule_size_label},
    {"file-name", CHECK_WHOLE, .whole = rule_file_name},
    {0},
};

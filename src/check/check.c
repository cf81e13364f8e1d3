/* SPDX-License-Identifier: MIT */
/* The table of rules, and how findings are reported: see check.h. */
#include "check/check.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/count.h"
#include "base/path.h"
#include "check/filename.h"

const char *const check_severity_name[] = {"note", "warning", "error"};

/* In the order of application. */
static const struct rule *const lists[] = {layout_rules, keys_rules,     tokenizer_rules,
                                           model_rules,  template_rules, needs_rules,
                                           name_rules};

const char *check_any_rule_id(size_t i)
{
    static const char *const others[] = {CHECK_STRUCTURE, CHECK_VALUES, NULL};
    for (size_t k = 0; k < COUNT(lists); k++)
        for (const struct rule *rule = lists[k]; rule->id; rule++)
            if (i-- == 0)
                return rule->id;
    return others[i];
}

static void apply(struct checker *c, const struct rule *rule)
{
    c->rule = rule->id;
    c->reported = 0;
    for (c->at = 0; rule->key && c->at < c->g->n_kv; c->at++) {
        const struct gguf_kv *kv = &c->g->kv[c->at];
        struct gguf_value v = gguf_value(c->g, kv);
        rule->key(c, (struct text){gguf_key(c->g, kv), kv->key_len}, &v);
    }
    for (c->at = 0; rule->tensor && c->at < c->g->n_tensors; c->at++)
        rule->tensor(c, &c->g->tensor[c->at]);
    if (rule->whole)
        rule->whole(c);
    report_rest(c);
}

int check_rules(const struct check_model *m, check_sink *sink, void *arg)
{
    struct key_index index;
    struct checker c = {.g = m->g,
                        .index = &index,
                        .src = m->src,
                        .file = m->file,
                        .label = m->label,
                        .arch = fact_text(m->g, "general.architecture"),
                        .shards = m->shards,
                        .faults_reported = m->faults_reported,
                        .padding_left = m->padding_most ? m->padding_most : UINT64_MAX,
                        .sink = sink,
                        .arg = arg};
    key_index(&index);
    for (size_t k = 0; k < COUNT(lists); k++)
        for (const struct rule *rule = lists[k]; rule->id && c.error == 0; rule++)
            if (m->scope == CHECK_ALL || m->scope == rule->scope)
                apply(&c, rule);
    return c.error;
}

void check_tell_journal(const char *label, check_sink *sink, void *arg)
{
    report(&(struct checker){.rule = CHECK_STRUCTURE, .label = label, .sink = sink, .arg = arg},
           CHECK_WARNING, "journal", "an interrupted edit counts as written (--recover writes it)");
}

/* ---- findings ---- */

static void tell(struct checker *c, enum check_severity s, const char *where, const char *fmt,
                 va_list ap) __attribute__((format(printf, 4, 0)));

static void tell(struct checker *c, enum check_severity s, const char *where, const char *fmt,
                 va_list ap)
{
    char what[1024];
    c->last = s;
    if (c->reported++ >= CHECK_MOST)
        return;
    (void)vsnprintf(what, sizeof(what), fmt, ap);
    c->sink(c->arg, &(struct check_finding){s, c->rule, c->label, what, where});
}

void report(struct checker *c, enum check_severity s, const char *where, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    tell(c, s, where, fmt, ap);
    va_end(ap);
}

#define WHERE_MAX (SHOW_MAX + 64)

void report_key(struct checker *c, enum check_severity s, uint32_t key, const char *fmt, ...)
{
    const struct gguf_kv *kv = &c->g->kv[key];
    char name[SHOW_MAX], where[WHERE_MAX];
    va_list ap;
    (void)snprintf(where, sizeof(where), "key '%s'", show(name, gguf_key(c->g, kv), kv->key_len));
    va_start(ap, fmt);
    tell(c, s, where, fmt, ap);
    va_end(ap);
}

void report_tensor(struct checker *c, enum check_severity s, uint32_t tensor, const char *fmt, ...)
{
    const struct gguf_tensor *t = &c->g->tensor[tensor];
    char name[SHOW_MAX], where[WHERE_MAX];
    va_list ap;
    (void)snprintf(where, sizeof(where), "tensor '%s'",
                   show(name, gguf_name(c->g, t), t->name_len));
    va_start(ap, fmt);
    tell(c, s, where, fmt, ap);
    va_end(ap);
}

void report_bytes(struct checker *c, enum check_severity s, uint64_t first, uint64_t last,
                  const char *fmt, ...)
{
    char where[WHERE_MAX];
    va_list ap;
    (void)snprintf(where, sizeof(where), "bytes %" PRIu64 " to %" PRIu64, first, last - 1);
    va_start(ap, fmt);
    tell(c, s, where, fmt, ap);
    va_end(ap);
}

void report_rest(const struct checker *c)
{
    char what[64];
    if (c->reported <= CHECK_MOST)
        return;
    (void)snprintf(what, sizeof(what), "%u more of these", c->reported - CHECK_MOST);
    c->sink(c->arg, &(struct check_finding){c->last, c->rule, c->label, what, ""});
}

/* ---- as text and as JSON ---- */

void report_line(struct buf *out, const struct check_finding *f)
{
    show_all(out, f->file, strlen(f->file));
    buf_printf(out, ": %s: %s", check_severity_name[f->severity], f->what);
    if (f->where[0])
        buf_printf(out, " (%s)", f->where);
    buf_char(out, '\n');
}

void report_begin(struct report *r)
{
    *r = (struct report){.text = BUF_INIT};
    r->json.out = &r->text;
    json_begin(&r->json, NULL, "[\n");
}

void report_file(struct report *r, const char *file, size_t shards)
{
    json_begin(&r->json, NULL, "{");
    json_shown(&r->json, "file", file);
    buf_printf(json_item(&r->json, "shards"), "%zu", shards);
    file_name_json(&r->json, "name", path_name(file));
    json_begin(&r->json, "findings", "[\n");
}

void report_finding(struct report *r, const struct check_finding *f)
{
    json_begin(&r->json, NULL, "{");
    json_text(&r->json, "severity", check_severity_name[f->severity]);
    json_text(&r->json, "rule", f->rule);
    json_shown(&r->json, "file", f->file);
    json_text(&r->json, "what", f->what);
    json_text(&r->json, "where", f->where);
    json_end(&r->json);
}

void report_outcome(struct report *r, enum check_outcome outcome)
{
    static const char *const name[] = {"clean", "findings", "findings", "unusable"};
    json_end(&r->json);
    json_text(&r->json, "result", name[outcome]);
    json_end(&r->json);
}

void report_end(struct report *r)
{
    json_end(&r->json);
    buf_char(&r->text, '\n');
}

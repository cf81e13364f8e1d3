/* SPDX-License-Identifier: MIT */
/* The table of rules, and how they tell what they find: see check.h. */
#include "check/check.h"

#include <stdarg.h>
#include <stdio.h>

#include "check/rule.h"

const char *const check_severity_name[] = {"note", "warning", "error"};

// clang-format off
static const struct {
    const char *id;
    int (*run)(struct checker *c);
} rules[] = {
    /* The container */
    {"missing",              rule_missing},
    {"version",              rule_version},
    {"alignment",            rule_alignment},
    {"order",                rule_order},
    {"gaps",                 rule_gaps},
    {"tail",                 rule_tail},
    {"trailing",             rule_trailing},
    {"padding",              rule_padding},
    {"tensor-name",          rule_tensor_name},
    {"tensor-dims",          rule_tensor_dims},
    {"tensor-type",          rule_tensor_type},
    /* Keys */
    {"key-syntax",           rule_key_syntax},
    {"key-type",             rule_key_type},
    {"utf8",                 rule_utf8},
    {"bool",                 rule_bool},
    {"nested",               rule_nested},
    {"architecture",         rule_architecture},
    {"required",             rule_required},
    {"quantization-version", rule_quantization},
    {"split",                rule_split},
    /* What keys and tensors say together */
    {"tokenizer-arrays",     rule_tokens},
    {"token-types",          rule_token_types},
    {"token-ids",            rule_token_ids},
    {"vocabulary",           rule_vocabulary},
    {"heads",                rule_heads},
    {"per-layer",            rule_per_layer},
    {"blocks",               rule_blocks},
    {"tensor-known",         rule_known_name},
    {"size-label",           rule_size_label},
    {"file-name",            rule_file_name},
};
// clang-format on

#define RULES (sizeof(rules) / sizeof(rules[0]))

const char *check_rule_id(size_t i)
{
    return i < RULES ? rules[i].id : NULL;
}

void tell(struct checker *c, enum check_severity s, const char *where, const char *fmt, ...)
{
    char what[1024];
    va_list ap;
    c->last = s;
    if (c->told++ >= CHECK_MOST)
        return;
    va_start(ap, fmt);
    (void)vsnprintf(what, sizeof(what), fmt, ap);
    va_end(ap);
    c->sink(c->arg, &(struct check_finding){s, c->rule, what, where});
}

void tell_rest(const struct checker *c)
{
    char what[64];
    if (c->told <= CHECK_MOST)
        return;
    (void)snprintf(what, sizeof(what), "%u more of these", c->told - CHECK_MOST);
    c->sink(c->arg, &(struct check_finding){c->last, c->rule, what, ""});
}

int check_rules(const struct check_model *m, check_sink *sink, void *arg)
{
    struct checker c = {.g = m->g,
                        .src = m->src,
                        .file = m->file,
                        .faults_told = m->faults_told,
                        .sink = sink,
                        .arg = arg};
    int r = 0;
    for (size_t i = 0; i < RULES && r == 0; i++) {
        c.rule = rules[i].id;
        c.told = 0;
        r = rules[i].run(&c);
        tell_rest(&c);
    }
    return r;
}

const char *where_key(const struct gguf *g, uint32_t i, char dst[WHERE_MAX])
{
    char name[SHOW_MAX];
    (void)snprintf(dst, WHERE_MAX, "key '%s'",
                   show(name, gguf_key(g, &g->kv[i]), g->kv[i].key_len));
    return dst;
}

const char *where_tensor(const struct gguf *g, uint32_t i, char dst[WHERE_MAX])
{
    char name[SHOW_MAX];
    (void)snprintf(dst, WHERE_MAX, "tensor '%s'",
                   show(name, gguf_name(g, &g->tensor[i]), g->tensor[i].name_len));
    return dst;
}

const char *where_bytes(uint64_t first, uint64_t last, char dst[WHERE_MAX])
{
    (void)snprintf(dst, WHERE_MAX, "bytes %llu to %llu", (unsigned long long)first,
                   (unsigned long long)last - 1);
    return dst;
}

/* SPDX-License-Identifier: MIT */
/* The table of rules, and how findings are reported: see check.h. */
#include "check/check.h"

#include "check/rule.h"

const char *const check_severity_name[] = {"note", "warning", "error"};

// clang-format off
static const struct {
    const char *id;
    int (*run)(struct checker *c);
    enum check_scope scope; /* CHECK_FILE, CHECK_WHOLE */
} rules[] = {
    /* The container */
    {"missing",              rule_missing,      CHECK_FILE},
    {"version",              rule_version,      CHECK_FILE},
    {"alignment",            rule_alignment,    CHECK_FILE},
    {"order",                rule_order,        CHECK_FILE},
    {"gaps",                 rule_gaps,         CHECK_FILE},
    {"tail",                 rule_tail,         CHECK_FILE},
    {"trailing",             rule_trailing,     CHECK_FILE},
    {"padding",              rule_padding,      CHECK_FILE},
    {"tensor-name",          rule_tensor_name,  CHECK_FILE},
    {"tensor-dims",          rule_tensor_dims,  CHECK_FILE},
    {"tensor-type",          rule_tensor_type,  CHECK_FILE},
    /* Keys */
    {"key-syntax",           rule_key_syntax,   CHECK_FILE},
    {"key-type",             rule_key_type,     CHECK_FILE},
    {"utf8",                 rule_utf8,         CHECK_FILE},
    {"bool",                 rule_bool,         CHECK_FILE},
    {"nested",               rule_nested,       CHECK_FILE},
    {"architecture",         rule_architecture, CHECK_WHOLE},
    {"required",             rule_required,     CHECK_WHOLE},
    {"quantization-version", rule_quantization, CHECK_WHOLE},
    {"split",                rule_split,        CHECK_FILE},
    /* Keys and tensors compared */
    {"tokenizer",            rule_tokenizer,    CHECK_WHOLE},
    {"tokenizer-arrays",     rule_tokens,       CHECK_WHOLE},
    {"chat-template",        rule_template,     CHECK_WHOLE},
    {"token-types",          rule_token_types,  CHECK_WHOLE},
    {"token-ids",            rule_token_ids,    CHECK_WHOLE},
    {"vocabulary",           rule_vocabulary,   CHECK_WHOLE},
    {"heads",                rule_heads,        CHECK_WHOLE},
    {"key-value",            rule_values,       CHECK_WHOLE},
    {"per-layer",            rule_per_layer,    CHECK_WHOLE},
    {"blocks",               rule_blocks,       CHECK_WHOLE},
    {"tensor-missing",       rule_tensors,      CHECK_WHOLE},
    {"tensor-shape",         rule_shape,        CHECK_WHOLE},
    {"tensor-known",         rule_known_name,   CHECK_WHOLE},
    {"size-label",           rule_size_label,   CHECK_WHOLE},
    {"file-name",            rule_file_name,    CHECK_WHOLE},
};
// clang-format on

#define RULES (sizeof(rules) / sizeof(rules[0]))

const char *check_any_rule_id(size_t i)
{
    static const char *const others[] = {CHECK_STRUCTURE, CHECK_VALUES, NULL};
    return i < RULES ? rules[i].id : others[i - RULES];
}

int check_rules(const struct check_model *m, check_sink *sink, void *arg)
{
    struct checker c = {.g = m->g,
                        .src = m->src,
                        .file = m->file,
                        .label = m->label,
                        .shards = m->shards,
                        .faults_reported = m->faults_reported,
                        .padding_left = m->padding_most ? m->padding_most : UINT64_MAX,
                        .sink = sink,
                        .arg = arg};
    int r = 0;
    for (size_t i = 0; i < RULES && r == 0; i++) {
        if (m->scope != CHECK_ALL && m->scope != rules[i].scope)
            continue;
        c.rule = rules[i].id;
        c.reported = 0;
        r = rules[i].run(&c);
        report_rest(&c);
    }
    return r;
}

void check_tell_journal(const char *label, check_sink *sink, void *arg)
{
    report(&(struct checker){.rule = CHECK_STRUCTURE, .label = label, .sink = sink, .arg = arg},
           CHECK_WARNING, "journal", "an interrupted edit counts as written (--recover writes it)");
}

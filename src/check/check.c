/* SPDX-License-Identifier: MIT */
/* The table of rules, and how findings are reported: see check.h. */
#include "check/check.h"

#include "base/count.h"
#include "check/rule.h"

const char *const check_severity_name[] = {"note", "warning", "error"};

/* In the order in which they are applied. */
static const struct rule *const lists[] = {layout_rules,    tensors_rules, keys_rules,
                                           tokenizer_rules, model_rules,   template_rules,
                                           loads_rules,     shape_rules,   name_rules};

const char *check_any_rule_id(size_t i)
{
    static const char *const others[] = {CHECK_STRUCTURE, CHECK_VALUES, NULL};
    for (size_t k = 0; k < COUNT(lists); k++)
        for (const struct rule *rule = lists[k]; rule->id; rule++)
            if (i-- == 0)
                return rule->id;
    return others[i];
}

static int apply(struct checker *c, const struct rule *rule)
{
    c->rule = rule->id;
    c->reported = 0;
    int r = rule->run(c);
    report_rest(c);
    return r;
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
    for (size_t k = 0; k < COUNT(lists); k++)
        for (const struct rule *rule = lists[k]; rule->id && r == 0; rule++)
            if (m->scope == CHECK_ALL || m->scope == rule->scope)
                r = apply(&c, rule);
    return r;
}

void check_tell_journal(const char *label, check_sink *sink, void *arg)
{
    report(&(struct checker){.rule = CHECK_STRUCTURE, .label = label, .sink = sink, .arg = arg},
           CHECK_WARNING, "journal", "an interrupted edit counts as written (--recover writes it)");
}

/* SPDX-License-Identifier: MIT */
/* check/check: a model that follows every rule, and models that each break one rule. */
#include "cu_main.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check_rows.h"

/* Numbers of findings: of the row's rule, and of all other rules (not counting notes). */
struct told {
    const struct check_row *row;
    unsigned own, other;
    enum check_severity worst;
};

static void sink(void *arg, const struct check_finding *f)
{
    struct told *t = arg;
    CU_ASSERT_NOT_EQUAL(f->what[0], '\0');
    CU_ASSERT_PTR_NULL(strchr(f->what, '\n'));
    if (t->row->rule && strcmp(f->rule, t->row->rule) == 0) {
        t->own++;
        t->worst = f->severity > t->worst ? f->severity : t->worst;
    } else if (f->severity != CHECK_NOTE) {
        t->other++;
        (void)printf("    unexpected: %s: %s (%s)\n", f->rule, f->what, f->where);
    }
}

/* Each rule applies either to files or to models. Checking files and models separately therefore
 * reports the same findings as checking both at once, and no finding twice. */
static void in_scopes(struct check_model *m, const struct told *all)
{
    struct told file = {.row = all->row}, whole = {.row = all->row};
    m->scope = CHECK_FILE;
    CU_ASSERT_EQUAL(check_rules(m, sink, &file), 0);
    m->scope = CHECK_WHOLE;
    CU_ASSERT_EQUAL(check_rules(m, sink, &whole), 0);
    CU_ASSERT_EQUAL(file.own + whole.own, all->own);
    CU_ASSERT_TRUE(file.own == 0 || whole.own == 0);
}

static void run_row(const struct check_row *row)
{
    struct build b;
    struct told told = {.row = row};
    size_t n;
    struct gguf *g = NULL;
    build_init(&b, row->version ? row->version : 3, row->big);
    check_put_keys(&b, row->without);
    if (!row->bare)
        check_put_tensors(&b, row->lacks);
    if (row->add)
        row->add(&b);
    uint8_t *image = build_finish(&b, &n);
    struct source src = source_mem(image, n - row->cut);
    CU_ASSERT_EQUAL_FATAL(gguf_parse(&src, row->cut ? GGUF_PARTIAL : 0, &g, NULL), 0);
    struct check_model m = {.g = g, .src = &src, .file = row->file ? row->file : CHECK_GOOD_NAME};
    CU_ASSERT_EQUAL(check_rules(&m, sink, &told), 0);
    CU_ASSERT_EQUAL(told.other, 0);
    CU_ASSERT_EQUAL(told.own > 0, row->rule != NULL);
    CU_ASSERT_EQUAL(told.worst, row->severity);
    if (told.other || (told.own > 0) != (row->rule != NULL) || told.worst != row->severity)
        (void)printf("    row %d (%s)\n", (int)(row - check_rows), row->rule ? row->rule : "good");
    in_scopes(&m, &told);
    gguf_free(g);
    free(image);
}

static void test_rows(void)
{
    for (size_t i = 0; i < n_check_rows; i++)
        run_row(&check_rows[i]);
}

static bool breaks(const struct check_row *row, const char *rule)
{
    return row->rule && strcmp(row->rule, rule) == 0;
}

static bool keeps(const struct check_row *row, const char *rule)
{
    char word[64];
    (void)snprintf(word, sizeof(word), " %s ", rule);
    return row->keeps && strstr(row->keeps, word);
}

static bool any(const char *rule, bool (*is)(const struct check_row *row, const char *rule))
{
    for (size_t k = 0; k < n_check_rows; k++)
        if (is(&check_rows[k], rule))
            return true;
    (void)printf("    no row for %s\n", rule);
    return false;
}

static void test_each_rule(void)
{
    for (size_t i = 0; strcmp(check_any_rule_id(i), CHECK_STRUCTURE) != 0; i++) {
        CU_ASSERT_TRUE(any(check_any_rule_id(i), breaks));
        CU_ASSERT_TRUE(any(check_any_rule_id(i), keeps));
    }
}

static CU_TestInfo tests[] = {
    {"a good model passes, and a model that breaks a rule is reported", test_rows},
    {"every rule has a model that breaks it and one that keeps it", test_each_rule},
    CU_TEST_INFO_NULL,
};

CU_MAIN("check", tests)

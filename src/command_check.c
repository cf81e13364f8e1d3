/* SPDX-License-Identifier: MIT */
/* See command_check.h. */
#include "command_check.h"
#include "base/when.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/nearest.h"
#include "check/report.h"
#include "shelf/models.h"

struct check {
    struct check_options opt;
    const char **ignore; /* owned: opt.ignore, which points into: */
    char *words;         /* owned */
    bool json;
    struct report report;           /* with --json */
    bool bar;                       /* a progress bar is drawn */
    struct timespec drawn;          /* when it was last drawn */
    const struct model_path *model; /* the one that is being checked */
};

/* ---- options ---- */

static bool is_rule(const char *id)
{
    const char *other;
    for (size_t i = 0; (other = check_any_rule_id(i)); i++)
        if (strcmp(id, other) == 0)
            return true;
    return false;
}

static int unknown_rule(const char *word)
{
    char shown[SHOW_MAX];
    const char *other;
    struct nearest near = nearest_to(word, strlen(word));
    for (size_t i = 0; (other = check_any_rule_id(i)); i++)
        nearest_offer(&near, other, strlen(other), i);
    (void)fprintf(stderr, "ggufs: --check: unknown rule '%s'", show(shown, word, strlen(word)));
    if (near.found)
        (void)fprintf(stderr, ", did you mean '%s'?", check_any_rule_id(near.which));
    (void)fputs(" (see ggufs --help)\n", stderr);
    return -1;
}

/* The rules in all --ignore=RULE[,RULE]. */
static int parse_ignore(struct check *c, const struct command_args *a)
{
    CLEANUP(buf_free) struct buf all = BUF_INIT;
    size_t cap = 0;
    for (size_t i = 0; i < a->n_options; i++)
        if (a->option[i].id == OPTION_IGNORE)
            buf_printf(&all, "%s,", a->option[i].value);
    buf_char(&all, '\0');
    if (buf_error(&all))
        return buf_error(&all);
    c->words = (char *)buf_steal(&all);
    for (char *word = c->words, *end; (end = strchr(word, ',')); word = end + 1) {
        *end = '\0';
        if (*word && !is_rule(word))
            return unknown_rule(word);
        if (array_grow((void *)&c->ignore, &cap, c->opt.n_ignore, sizeof(char *)) < 0)
            return -1;
        c->ignore[c->opt.n_ignore++] = word;
        c->opt.ignore = c->ignore;
    }
    return 0;
}

/* ---- the progress bar, on a terminal ---- */

static const int bar_width = 40; /* of the string in draw_bar() */

static void clear_bar(struct check *c)
{
    if (c->bar)
        (void)fputs("\r\033[K", stderr);
    c->bar = false;
}

static void draw_bar(void *arg, uint64_t done, uint64_t total)
{
    struct check *c = arg;
    struct timespec now = when_now();
    double since =
        (double)(now.tv_sec - c->drawn.tv_sec) + 1e-9 * (double)(now.tv_nsec - c->drawn.tv_nsec);
    if (total == 0 || (c->drawn.tv_sec && since < 0.1))
        return;
    c->drawn = now;
    c->bar = true;
    double part = (double)done / (double)total;
    int full = (int)(part * (double)bar_width);
    (void)fprintf(stderr, "\r[%.*s%*s] %3.0f%% of %.1f GB", full,
                  "########################################", bar_width - full, "", 100 * part,
                  (double)total / 1e9);
    (void)fflush(stderr);
}

/* ---- findings ---- */

/* Of a split model in a store: the name of the file in the folder that the store's names make. */
static void add_label(const struct model_path *m, const char *file, struct buf *out)
{
    const char *slash = strrchr(m->label, '/'), *name = strrchr(file, '/');
    if (m->shards && slash && name) {
        buf_add(out, m->label, (size_t)(slash - m->label));
        buf_str(out, name);
    } else {
        buf_str(out, m->label);
    }
    buf_char(out, '\0');
}

static void sink(void *arg, const struct check_finding *found)
{
    struct check *c = arg;
    CLEANUP(buf_free) struct buf line = BUF_INIT;
    CLEANUP(buf_free) struct buf label = BUF_INIT;
    struct check_finding relabelled = *found;
    const struct check_finding *f = &relabelled;
    if (c->model->label && !c->model->error) {
        add_label(c->model, found->file, &label);
        relabelled.file = buf_error(&label) ? found->file : (const char *)label.data;
    }
    clear_bar(c);
    if (c->json) {
        report_finding(&c->report, f);
        return;
    }
    report_line(&line, f);
    command_print(&line);
}

/* ---- models ---- */

static enum check_outcome check_model(struct check *c, const struct model_path *m)
{
    struct check_finding f = {CHECK_ERROR, CHECK_STRUCTURE, model_label(m), m->why,
                              m->label ? "store" : "directory"};
    enum check_outcome outcome = CHECK_UNUSABLE;
    c->model = m;
    if (c->json)
        report_file(&c->report, model_label(m), m->shards);
    if (m->error) {
        sink(c, &f);
    } else {
        outcome = check_file(m->path, &c->opt, sink, c);
    }
    clear_bar(c);
    if (c->json)
        report_outcome(&c->report, outcome);
    return outcome;
}

static enum check_outcome check_all(struct check *c, const struct command_args *a)
{
    enum check_outcome worst = CHECK_CLEAN;
    struct models m = MODELS_INIT;
    int r = 0;
    for (int i = 0; i < a->n && r == 0; i++)
        r = models_add(&m, a->operand[i]);
    report_begin(&c->report);
    for (size_t i = 0; i < m.n && r == 0; i++) {
        enum check_outcome outcome = check_model(c, &m.model[i]);
        worst = outcome > worst ? outcome : worst;
    }
    report_end(&c->report);
    if (r == 0 && c->json)
        r = buf_error(&c->report.text);
    if (r < 0)
        (void)fputs("ggufs: no memory\n", stderr);
    else if (c->json)
        command_print(&c->report.text);
    models_free(&m);
    buf_free(&c->report.text);
    return r < 0 ? CHECK_UNUSABLE : worst;
}

int command_check(const struct command_args *a)
{
    struct check c = {.opt.values = a->value != NULL, .json = command_has(a, OPTION_JSON)};
    enum check_outcome outcome = CHECK_UNUSABLE;
    c.opt.arg = &c;
    c.opt.progress = isatty(STDERR_FILENO) ? draw_bar : NULL;
    if (parse_ignore(&c, a) == 0)
        outcome = check_all(&c, a);
    free((void *)c.ignore);
    free(c.words);
    if (fflush(stdout) != 0) {
        (void)fputs("ggufs: cannot write the findings\n", stderr);
        return 2;
    }
    if (outcome == CHECK_WARNINGS)
        return command_has(a, OPTION_STRICT);
    return outcome == CHECK_ERRORS ? 1 : outcome == CHECK_UNUSABLE ? 2 : 0;
}

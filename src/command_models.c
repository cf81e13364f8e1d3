/* SPDX-License-Identifier: MIT */
/* Commands that inspect models: see command_models.h. */
#include "command_models.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/nearest.h"
#include "base/path.h"
#include "base/when.h"
#include "check/file.h"
#include "check/summary.h"
#include "shelf/models.h"
#include "text/table.h"

/* All models that the operands name. */
static int find_models(const struct command_args *a, struct models *ret)
{
    int r = 0;
    *ret = MODELS_INIT;
    for (int i = 0; i < a->n && r == 0; i++)
        r = models_add(ret, a->operand[i]);
    return r;
}

static void add_shown(struct buf *out, const char *text)
{
    show_all(out, text, strlen(text));
}

/* ---- --info ---- */

static int open_model(const struct model_path *m, struct header *h, struct summary *s,
                      struct err *e)
{
    int r = m->error ? err_set(e, m->error, "%s", m->why) : header_open(m->path, h, e);
    if (r == 0)
        *s = (struct summary){h->g, path_name(m->path), h->shards, h->missing};
    return r;
}

/* If there are several models, each text begins with the path. */
static int print_text(const struct models *all, size_t i, struct buf *out)
{
    struct header h = {0};
    struct summary s;
    struct err e = {0};
    const char *label = model_label(&all->model[i]);
    int r = open_model(&all->model[i], &h, &s, &e);
    if (r < 0)
        (void)command_failed(label, e.msg, 1);
    if (r == 0 && all->n > 1) {
        buf_str(out, i ? "\n" : "");
        add_shown(out, label);
        buf_str(out, ":\n");
    }
    if (r == 0)
        summary_text(&s, out);
    header_free(&h);
    return r;
}

/* Longer names push the rest of their lines to the right; everything else fits a terminal of 100 columns. */
enum { NAME_MOST = 40 };

/* The name without the given directory, if the operand is one. */
static const char *short_label(const struct model_path *m, const char *folder)
{
    const char *label = model_label(m);
    size_t n = folder ? strlen(folder) : 0;
    while (n > 1 && folder[n - 1] == '/')
        n--;
    if (n == 0 || strncmp(label, folder, n) != 0 || label[n] != '/' || label[n + 1] == '\0')
        return label;
    return label + n + 1;
}

static int add_row(const struct model_path *m, const char *folder, struct buf *lines)
{
    struct header h = {0};
    struct summary s;
    struct err e = {0};
    int r = open_model(m, &h, &s, &e);
    add_shown(lines, short_label(m, folder));
    if (m->tags) { /* "llama3.1:8b, latest" */
        lines->len -= strlen(strrchr(m->label, '/'));
        buf_str(lines, ", ");
        add_shown(lines, m->tags);
    }
    if (r < 0)
        buf_printf(lines, "\terror: %s", e.msg);
    for (size_t i = 0; r == 0 && summary_head(i); i++) {
        buf_char(lines, '\t');
        summary_cell(&s, i, lines);
    }
    buf_char(lines, '\n');
    header_free(&h);
    return r;
}

static int table(const struct models *all, const char *folder, struct buf *out)
{
    CLEANUP(buf_free) struct buf lines = BUF_INIT;
    int r = 0;
    buf_str(&lines, "MODEL");
    for (size_t i = 0; summary_head(i); i++)
        buf_printf(&lines, "\t%s", summary_head(i));
    buf_char(&lines, '\n');
    for (size_t i = 0; i < all->n; i++)
        r |= add_row(&all->model[i], folder, &lines);
    if (!buf_error(&lines))
        text_table(&lines, "llrrlr", NAME_MOST, out);
    return buf_error(&lines) ? buf_error(&lines) : r;
}

/* Add the object of a model. -errno: it has the reason why the model cannot be read. */
static int add_json(struct json *j, const struct model_path *m)
{
    struct header h = {0};
    struct summary s;
    struct err e = {0};
    json_begin(j, NULL, "{");
    json_shown(j, "file", model_label(m));
    const int r = open_model(m, &h, &s, &e);
    if (r < 0)
        json_text(j, "error", e.msg);
    else
        summary_json(&s, j);
    json_end(j);
    header_free(&h);
    return r;
}

static int json(const struct models *all, struct buf *out)
{
    struct json j = {.out = out};
    int r = 0;
    json_begin(&j, NULL, "[\n");
    for (size_t i = 0; i < all->n; i++)
        r |= add_json(&j, &all->model[i]);
    json_end(&j);
    buf_char(out, '\n');
    return r;
}

int command_info(const struct command_args *a)
{
    CLEANUP(buf_free) struct buf out = BUF_INIT;
    struct models all;
    int r = find_models(a, &all), bad = 0;
    if (r == 0 && command_has(a, OPTION_JSON))
        bad = json(&all, &out);
    else if (r == 0 && all.folders)
        bad = table(&all, a->n == 1 ? a->operand[0] : NULL, &out);
    else
        for (size_t i = 0; r == 0 && i < all.n; i++) {
            bad |= print_text(&all, i, &out);
            command_print(&out);
            out.len = 0;
        }
    models_free(&all);
    if (r == 0)
        r = buf_error(&out);
    if (r < 0)
        return command_failed(NULL, "no memory", 1);
    command_print(&out);
    return bad < 0;
}

/* ---- --check ---- */

struct check {
    struct check_options opt;
    bool json;
    struct report report;           /* with --json */
    bool bar;                       /* a progress bar is drawn */
    struct timespec drawn;          /* when it was last drawn */
    const struct model_path *model; /* the one that is being checked */
};

/* Report it if no rule has this name. */
static int check_rule(const char *word, size_t n)
{
    char shown[SHOW_MAX];
    const char *other;
    struct nearest near = nearest_to(word, n);
    for (size_t i = 0; (other = check_any_rule_id(i)); i++) {
        if (strlen(other) == n && memcmp(other, word, n) == 0)
            return 0;
        nearest_offer(&near, other, strlen(other), i);
    }
    (void)fprintf(stderr, "ggufs: --check: unknown rule '%s'", show(shown, word, n));
    if (near.found)
        (void)fprintf(stderr, ", did you mean '%s'?", check_any_rule_id(near.which));
    (void)fputs(" (see ggufs --help)\n", stderr);
    return -1;
}

/* The rules in all --ignore=RULE[,RULE], as one comma-separated list. */
static int take_ignored(const struct command_args *a, struct buf *list)
{
    for (size_t i = 0; i < a->n_options; i++)
        if (a->option[i].id == OPTION_IGNORE)
            buf_printf(list, "%s,", a->option[i].value);
    buf_char(list, '\0');
    if (buf_error(list))
        return command_failed(NULL, "no memory", -1);
    for (const char *word = buf_text(list); *word;) {
        const size_t n = strcspn(word, ",");
        if (n && check_rule(word, n) < 0)
            return -1;
        word += n + 1;
    }
    return 0;
}

static const int bar_width = 40; /* of the bar in draw_bar() */

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

/* For a split model in a store: the file's name in the directory shown for the store. */
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
    struct models all;
    int r = find_models(a, &all);
    report_begin(&c->report);
    for (size_t i = 0; i < all.n && r == 0; i++) {
        enum check_outcome outcome = check_model(c, &all.model[i]);
        worst = outcome > worst ? outcome : worst;
    }
    report_end(&c->report);
    if (r == 0 && c->json)
        r = buf_error(&c->report.text);
    if (r == 0 && c->json)
        command_print(&c->report.text);
    models_free(&all);
    buf_free(&c->report.text);
    return r < 0 ? (enum check_outcome)command_failed(NULL, "no memory", CHECK_UNUSABLE) : worst;
}

int command_check(const struct command_args *a)
{
    CLEANUP(buf_free) struct buf ignored = BUF_INIT;
    struct check c = {.opt.values = a->value != NULL, .json = command_has(a, OPTION_JSON)};
    enum check_outcome outcome = CHECK_UNUSABLE;
    c.opt.arg = &c;
    c.opt.progress = isatty(STDERR_FILENO) ? draw_bar : NULL;
    if (take_ignored(a, &ignored) == 0) {
        c.opt.ignore = buf_text(&ignored);
        outcome = check_all(&c, a);
    }
    if (outcome == CHECK_WARNINGS)
        return command_has(a, OPTION_STRICT);
    return outcome == CHECK_ERRORS ? 1 : outcome == CHECK_UNUSABLE ? 2 : 0;
}

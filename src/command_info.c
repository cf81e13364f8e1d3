/* SPDX-License-Identifier: MIT */
/* See command_info.h. */
#include "command_info.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/path.h"
#include "check/header.h"
#include "check/report.h"
#include "check/summary.h"
#include "shelf/models.h"
#include "text/table.h"

static int open_model(const struct model_path *m, struct header *h, struct summary *s,
                      struct err *e)
{
    int r = m->error ? err_set(e, m->error, "%s", m->why) : header_open(m->path, h, e);
    if (r == 0)
        *s = (struct summary){h->g, path_name(m->path), h->shards, h->missing};
    return r;
}

static int print(const struct buf *text)
{
    if (buf_error(text))
        return -1;
    command_print(text);
    return 0;
}

/* ---- a text for each model ---- */

/* If there are several models, each text begins with the path. */
static int print_text(const struct models *all, size_t i)
{
    CLEANUP(buf_free) struct buf out = BUF_INIT;
    CLEANUP(buf_free) struct buf path = BUF_INIT;
    struct header h = {0};
    struct summary s;
    struct err e = {0};
    report_path(&path, model_label(&all->model[i]));
    if (open_model(&all->model[i], &h, &s, &e) < 0) {
        (void)fflush(stdout); /* keeps both streams in order */
        (void)fprintf(stderr, "ggufs: %.*s: %s\n", (int)path.len, (const char *)path.data, e.msg);
        return -1;
    }
    if (all->n > 1) {
        buf_str(&out, i ? "\n" : "");
        buf_add(&out, path.data, path.len);
        buf_str(&out, ":\n");
    }
    summary_text(&s, &out);
    header_free(&h);
    return print(&out);
}

/* ---- a table ---- */

/* Longer names push the rest of their lines to the right: all fits a terminal of 100 columns but for them. */
enum { NAME_MOST = 40 };

/* The name without the folder that was asked for, if that is one. */
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
    report_path(lines, short_label(m, folder));
    if (m->tags) { /* "llama3.1:8b, latest" */
        lines->len -= strlen(strrchr(m->label, '/'));
        buf_str(lines, ", ");
        report_path(lines, m->tags);
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

static int table(const struct models *all, const char *folder)
{
    CLEANUP(buf_free) struct buf lines = BUF_INIT, out = BUF_INIT;
    int r = 0;
    buf_str(&lines, "MODEL");
    for (size_t i = 0; summary_head(i); i++)
        buf_printf(&lines, "\t%s", summary_head(i));
    buf_char(&lines, '\n');
    for (size_t i = 0; i < all->n; i++)
        r |= add_row(&all->model[i], folder, &lines);
    if (!buf_error(&lines))
        text_table(&lines, "llrrlr", NAME_MOST, &out);
    if (buf_error(&lines) || print(&out) < 0) {
        (void)fputs("ggufs: no memory\n", stderr);
        r = -1;
    }
    return r < 0 ? -1 : 0;
}

/* ---- JSON ---- */

/* An object of a model. -errno: it has the reason why the model cannot be read. */
static int add_json(struct json *j, const struct model_path *m)
{
    struct header h = {0};
    struct summary s;
    struct err e = {0};
    json_begin(j, NULL, "{");
    report_path_json(j, "file", model_label(m));
    const int r = open_model(m, &h, &s, &e);
    if (r < 0)
        json_text(j, "error", e.msg);
    else
        summary_json(&s, j);
    json_end(j);
    header_free(&h);
    return r;
}

static int json(const struct models *all)
{
    CLEANUP(buf_free) struct buf text = BUF_INIT;
    struct json j = {.out = &text};
    int r = 0;
    json_begin(&j, NULL, "[\n");
    for (size_t i = 0; i < all->n; i++)
        r |= add_json(&j, &all->model[i]);
    json_end(&j);
    buf_char(&text, '\n');
    if (print(&text) < 0) {
        (void)fputs("ggufs: no memory\n", stderr);
        return -1;
    }
    return r;
}

int command_info(const struct command_args *a)
{
    struct models all = MODELS_INIT;
    int r = 0;
    for (int i = 0; i < a->n && r == 0; i++)
        r = models_add(&all, a->operand[i]);
    if (r < 0)
        (void)fputs("ggufs: no memory\n", stderr);
    else if (command_has(a, OPTION_JSON))
        r = json(&all);
    else if (all.folders)
        r = table(&all, a->n == 1 ? a->operand[0] : NULL);
    else
        for (size_t i = 0; i < all.n; i++)
            r = print_text(&all, i) < 0 ? -1 : r;
    models_free(&all);
    if (fflush(stdout) != 0) {
        (void)fputs("ggufs: cannot write to standard output\n", stderr);
        r = -1;
    }
    return r < 0;
}

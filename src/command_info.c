/* SPDX-License-Identifier: MIT */
/*
 * ggufs --info: see command.h. Prints a text for each model, a table for folders, or a JSON array.
 * Exit status: 0, 1 if a model could not be read, 2 misused.
 */
#include "command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check/header.h"
#include "check/report.h"
#include "check/summary.h"
#include "shelf/models.h"

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static int open_model(const struct model_path *m, struct header *h, struct summary *s,
                      struct err *e)
{
    int r = m->error ? err_set(e, m->error, "%s", m->why) : header_open(m->path, h, e);
    if (r == 0)
        *s = (struct summary){h->g, base_name(m->path), h->shards, h->missing};
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

enum { COLUMNS_MAX = 16 };

struct table {
    struct buf *cell; /* owned: rows * columns, each a text; the first column is the path */
    size_t columns, rows;
    bool *failed; /* owned: for each row; the second cell has the reason */
};

/* Columns of a terminal that a text takes: bytes that continue a character do not count. */
static size_t width(const struct buf *text)
{
    size_t n = 0;
    for (size_t i = 0; i < text->len; i++)
        n += (text->data[i] & 0xc0) != 0x80;
    return n;
}

static void fill_row(struct table *t, size_t row, const struct model_path *m)
{
    struct header h = {0};
    struct summary s;
    struct err e = {0};
    struct buf *cell = &t->cell[row * t->columns];
    report_path(&cell[0], model_label(m));
    t->failed[row] = open_model(m, &h, &s, &e) < 0;
    if (t->failed[row])
        buf_printf(&cell[1], "error: %s", e.msg);
    for (size_t i = 1; i < t->columns && !t->failed[row]; i++)
        summary_cell(&s, i - 1, &cell[i]);
    header_free(&h);
}

static void fill_head(struct table *t)
{
    buf_str(&t->cell[0], "MODEL");
    for (size_t i = 1; i < t->columns; i++)
        buf_str(&t->cell[i], summary_head(i - 1));
}

/* Columns are as wide as their widest cell; errors, which are long, span all columns. */
static void print_table(const struct table *t)
{
    size_t most[COLUMNS_MAX] = {0};
    for (size_t row = 0; row < t->rows; row++)
        for (size_t i = 0; i < t->columns && !(t->failed[row] && i); i++) {
            size_t n = width(&t->cell[row * t->columns + i]);
            most[i] = n > most[i] ? n : most[i];
        }
    for (size_t row = 0; row < t->rows; row++) {
        const struct buf *cell = &t->cell[row * t->columns];
        size_t last = t->failed[row] ? 1 : t->columns - 1;
        for (size_t i = 0; i <= last; i++) {
            command_print(&cell[i]);
            int pad = i < last ? (int)(most[i] - width(&cell[i])) + 2 : 0;
            (void)printf("%*s", pad, "");
        }
        (void)putchar('\n');
    }
}

static int table(const struct models *all)
{
    struct table t = {.columns = 1, .rows = all->n + 1};
    int r = 0;
    while (t.columns < COLUMNS_MAX && summary_head(t.columns - 1))
        t.columns++;
    t.cell = calloc(t.rows * t.columns, sizeof(*t.cell));
    t.failed = calloc(t.rows, sizeof(*t.failed));
    if (t.cell && t.failed) {
        fill_head(&t);
        for (size_t i = 0; i < all->n; i++) {
            fill_row(&t, i + 1, &all->model[i]);
            r = t.failed[i + 1] ? -1 : r;
        }
        print_table(&t);
    } else {
        (void)fputs("ggufs: no memory\n", stderr);
        r = -1;
    }
    for (size_t i = 0; t.cell && i < t.rows * t.columns; i++)
        buf_free(&t.cell[i]);
    free(t.cell);
    free(t.failed);
    return r;
}

/* ---- JSON ---- */

/*
 * Add the object of a model. 0; 1: it has the reason why the model cannot be read; -1: no memory.
 */
static int add_json(cJSON *list, const struct model_path *m)
{
    CLEANUP(buf_free) struct buf path = BUF_INIT;
    struct header h = {0};
    struct summary s;
    struct err e = {0};
    cJSON *object = cJSON_CreateObject();
    if (!object || !cJSON_AddItemToArray(list, object)) {
        cJSON_Delete(object);
        return -1;
    }
    report_path(&path, model_label(m));
    buf_char(&path, '\0');
    if (buf_error(&path) || !cJSON_AddStringToObject(object, "file", (const char *)path.data))
        return -1;
    if (open_model(m, &h, &s, &e) < 0)
        return cJSON_AddStringToObject(object, "error", e.msg) ? 1 : -1;
    int r = summary_json(&s, object);
    header_free(&h);
    return r < 0 ? -1 : 0;
}

static int json(const struct models *all)
{
    cJSON *list = cJSON_CreateArray();
    char *text = NULL;
    int r = list ? 0 : -1;
    bool failed = false;
    for (size_t i = 0; i < all->n && r >= 0; i++) {
        r = add_json(list, &all->model[i]);
        failed |= r > 0;
    }
    if (r >= 0)
        text = cJSON_Print(list);
    if (text)
        (void)printf("%s\n", text);
    else
        (void)fputs("ggufs: no memory\n", stderr);
    cJSON_free(text);
    cJSON_Delete(list);
    return text && !failed ? 0 : -1;
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
        r = table(&all);
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

/* SPDX-License-Identifier: MIT */
/* Findings as text and JSON: see report.h. */
#include "check/report.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/path.h"
#include "check/filename.h"

void report_path(struct buf *out, const char *name)
{
    show_all(out, name, strlen(name));
}

void report_line(struct buf *out, const struct check_finding *f)
{
    report_path(out, f->file);
    buf_printf(out, ": %s: %s", check_severity_name[f->severity], f->what);
    if (f->where[0])
        buf_printf(out, " (%s)", f->where);
    buf_char(out, '\n');
}

struct report {
    cJSON *files;    /* owned */
    cJSON *file;     /* the last element of files */
    cJSON *findings; /* of that */
    bool failed;     /* no memory */
};

struct report *report_new(void)
{
    struct report *r = calloc(1, sizeof(*r));
    if (r && !(r->files = cJSON_CreateArray())) {
        free(r);
        return NULL;
    }
    return r;
}

void report_free(struct report *r)
{
    if (r)
        cJSON_Delete(r->files);
    free(r);
}

static void add_text(struct report *r, cJSON *to, const char *name, const char *text)
{
    r->failed |= !cJSON_AddStringToObject(to, name, text);
}

static void add_path(struct report *r, cJSON *to, const char *path)
{
    CLEANUP(buf_free) struct buf shown = BUF_INIT;
    report_path(&shown, path);
    buf_char(&shown, '\0');
    if (buf_error(&shown))
        r->failed = true;
    else
        add_text(r, to, "file", (const char *)shown.data);
}

cJSON *report_name(const char *file)
{
    struct file_name f;
    char part[SHOW_MAX];
    if (!file_name_parse(file, &f))
        return cJSON_CreateNull();
    cJSON *name = cJSON_CreateObject();
    bool ok = name != NULL;
    for (int i = 0; i < FILE_PARTS && ok; i++)
        if (f.part[i].at)
            ok = cJSON_AddStringToObject(name, file_part_name[i],
                                         show(part, f.part[i].at, f.part[i].len)) != NULL;
    if (ok)
        return name;
    cJSON_Delete(name);
    return NULL;
}

static void add_name(struct report *r, const char *file)
{
    cJSON *name = report_name(path_name(file));
    if (name && cJSON_AddItemToObject(r->file, "name", name))
        return;
    cJSON_Delete(name);
    r->failed = true;
}

void report_file(struct report *r, const char *file, size_t shards)
{
    r->findings = NULL;
    r->file = cJSON_CreateObject();
    if (!r->file || !cJSON_AddItemToArray(r->files, r->file)) {
        r->failed = true;
        return;
    }
    add_path(r, r->file, file);
    r->failed |= !cJSON_AddNumberToObject(r->file, "shards", (double)shards);
    add_name(r, file);
    r->findings = cJSON_AddArrayToObject(r->file, "findings");
    r->failed |= !r->findings;
}

void report_finding(struct report *r, const struct check_finding *f)
{
    cJSON *row = r->findings ? cJSON_CreateObject() : NULL;
    if (!row || !cJSON_AddItemToArray(r->findings, row)) {
        r->failed = true;
        return;
    }
    add_text(r, row, "severity", check_severity_name[f->severity]);
    add_text(r, row, "rule", f->rule);
    add_path(r, row, f->file);
    add_text(r, row, "what", f->what);
    add_text(r, row, "where", f->where);
}

void report_outcome(struct report *r, enum check_outcome outcome)
{
    static const char *const name[] = {"clean", "findings", "findings", "unusable"};
    if (r->findings)
        add_text(r, r->file, "result", name[outcome]);
}

int report_json(const struct report *r, struct buf *out)
{
    char *text = r->failed ? NULL : cJSON_Print(r->files);
    if (!text)
        return -ENOMEM;
    buf_str(out, text);
    buf_char(out, '\n');
    cJSON_free(text);
    return buf_error(out);
}

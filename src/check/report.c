/* SPDX-License-Identifier: MIT */
/* Findings as text and JSON: see report.h. */
#include "check/report.h"

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

void report_path_json(struct json *j, const char *name, const char *path)
{
    CLEANUP(buf_free) struct buf shown = BUF_INIT;
    struct buf *out = json_item(j, name);
    report_path(&shown, path);
    if (buf_error(&shown))
        out->err = buf_error(&shown);
    else
        json_string(out, shown.data, shown.len);
}

void report_name_json(struct json *j, const char *name, const char *file)
{
    struct file_name f;
    char part[SHOW_MAX];
    if (!file_name_parse(file, &f)) {
        json_text(j, name, NULL);
        return;
    }
    json_begin(j, name, "{");
    for (int i = 0; i < FILE_PARTS; i++)
        if (f.part[i].at)
            json_text(j, file_part_name[i], show(part, f.part[i].at, f.part[i].len));
    json_end(j);
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
    report_path_json(&r->json, "file", file);
    buf_printf(json_item(&r->json, "shards"), "%zu", shards);
    report_name_json(&r->json, "name", path_name(file));
    json_begin(&r->json, "findings", "[\n");
}

void report_finding(struct report *r, const struct check_finding *f)
{
    json_begin(&r->json, NULL, "{");
    json_text(&r->json, "severity", check_severity_name[f->severity]);
    json_text(&r->json, "rule", f->rule);
    report_path_json(&r->json, "file", f->file);
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

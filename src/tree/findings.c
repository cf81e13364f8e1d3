/* SPDX-License-Identifier: MIT */
/* The files `info` and `check`: what --info and --check say of the model with all edits applied. See
 * files.h. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "check/report.h"
#include "check/summary.h"
#include "tree/files.h"

static void add_line(void *arg, const struct check_finding *f)
{
    report_line(arg, f);
}

/* `ls -l` waits for the findings, and the disk may be a slow network: so much of each file is read. */
#define PADDING_MOST ((uint64_t)2 << 20)

/* Rules of file number i; of a model that is not split also those of the model. */
static int check_one(const struct view *v, size_t i, const char *name, struct buf *out)
{
    const struct snapshot *snap = v->snap;
    const struct gguf *g = snapshot_file(snap, i);
    const struct mapped *file = v->store->file[i];
    /* A file that was edited is laid out by this program: nothing is looked for between its
     * tensors. */
    struct source src = {0};
    if (i > 0 && g == snap->shards->g[i] && file->map.size == g->file_size) {
        src = mapped_source(v->store->file[i]);
    } else if (i == 0 && v->file) {
        src = image_source(v->file);
        src.fd = v->file->file[0].fd;
    }
    struct check_model m = {.g = g,
                            .src = src.read ? &src : NULL,
                            .file = name,
                            .label = name,
                            .scope = snap->shards ? CHECK_FILE : CHECK_ALL,
                            .shards = snap->shards ? snap->shards->n : 0,
                            .padding_most = PADDING_MOST};
    if (i == 0 && snap->journal)
        check_tell_journal(name, add_line, out);
    return check_rules(&m, add_line, out);
}

void info_text(const struct view *v, const char *file, struct buf *out)
{
    const struct shards *s = v->snap->shards;
    uint64_t missing = 0;
    for (size_t i = 0; i < snapshot_files(v->snap); i++)
        missing += summary_missing(snapshot_file(v->snap, i));
    summary_text(&(struct summary){v->snap->gguf, file, s ? s->n : 0, missing}, out);
}

/* What kept the rules from being applied is a finding too; without memory there is no text. */
static void end(int r, const char *name, struct buf *out)
{
    char what[128];
    if (r == -ENOMEM && !out->err)
        out->err = r;
    if (r == 0 || r == -ENOMEM)
        return;
    (void)snprintf(what, sizeof(what), "cannot read: %s", strerror(-r));
    add_line(out, &(struct check_finding){CHECK_ERROR, CHECK_STRUCTURE, name, what, ""});
}

void check_text(const struct view *v, const char *file, struct buf *out)
{
    const struct shards *s = v->snap->shards;
    if (!s)
        end(check_one(v, 0, file, out), file, out);
    for (size_t i = 0; s && i < s->n; i++)
        end(check_one(v, i, s->name[i], out), s->name[i], out);
    if (s)
        end(check_rules(&(struct check_model){.g = v->snap->gguf,
                                              .file = s->name[0],
                                              .label = s->name[0],
                                              .scope = CHECK_WHOLE,
                                              .shards = s->n},
                        add_line, out),
            s->name[0], out);
}

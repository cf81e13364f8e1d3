/* SPDX-License-Identifier: MIT */
/* The files `info` and `check`: what --info and --check say of the model with all edits applied. See
 * files.h. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/sys.h"
#include "check/report.h"
#include "check/summary.h"
#include "tree/files.h"

static void add_line(void *arg, const struct check_finding *f)
{
    report_line(arg, f);
}

/*
 * A file behind its header. An edit in place may have written over what the first file has before
 * its data, so that comes from memory.
 */
struct behind {
    const struct gen *gen; /* NULL: all of it is in the file */
    int fd;
};

static int read_behind(const struct source *s, uint64_t off, void *dst, size_t n)
{
    const struct behind *b = s->mem;
    uint64_t pad = b->gen ? gen_own(b->gen)->head_len : 0;
    uint64_t data = b->gen ? pad + b->gen->pad_len : 0;
    if (off >= pad && off < data) {
        size_t k = (size_t)min_u64(n, data - off);
        memcpy(dst, b->gen->pad + (off - pad), k);
        off += k;
        n -= k;
        dst = (uint8_t *)dst + k;
    }
    return n ? sys_read_all(&sys_libc, b->fd, dst, n, off) : 0;
}

/*
 * The descriptor of the first file as it was when it was mounted, -1 if there is none any more: a
 * later one is laid out by this program, and nothing is to be looked for between its tensors.
 */
static int first_fd(const struct view *v)
{
    if (v->pin)
        return v->pin->fd;
    return v->gen->number == 0 && v->store->original ? v->store->file[0]->fd : -1;
}

/* `ls -l` waits for the findings, and the disk may be a slow network: so much of each file is read. */
#define PADDING_MOST ((uint64_t)2 << 20)

/* Rules of file number i; of a model that is not split also those of the model. */
static int check_one(const struct view *v, size_t i, const char *name, struct buf *out)
{
    const struct gen *gen = v->gen;
    const struct gguf *g = i ? gen->shards->g[i] : gen_own(gen);
    struct behind behind = {i ? NULL : gen, i ? gen->shards->file[i]->fd : first_fd(v)};
    struct source src = {
        .size = g->file_size, .read = read_behind, .mem = &behind, .fd = behind.fd};
    struct check_model m = {.g = g,
                            .src = behind.fd >= 0 ? &src : NULL,
                            .file = name,
                            .label = name,
                            .scope = gen->shards ? CHECK_FILE : CHECK_ALL,
                            .shards = gen->shards ? gen->shards->n : 0,
                            .padding_most = PADDING_MOST};
    if (i == 0 && gen->journal)
        check_tell_journal(name, add_line, out);
    return check_rules(&m, add_line, out);
}

void info_text(const struct view *v, const char *file, struct buf *out)
{
    const struct shards *s = v->gen->shards;
    uint64_t missing = summary_missing(gen_own(v->gen));
    for (size_t i = 1; s && i < s->n; i++)
        missing += summary_missing(s->g[i]);
    summary_text(&(struct summary){v->gen->gguf, file, s ? s->n : 0, missing}, out);
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
    const struct shards *s = v->gen->shards;
    if (!s)
        end(check_one(v, 0, file, out), file, out);
    for (size_t i = 0; s && i < s->n; i++)
        end(check_one(v, i, s->name[i], out), s->name[i], out);
    if (s)
        end(check_rules(&(struct check_model){.g = v->gen->gguf,
                                              .file = s->name[0],
                                              .label = s->name[0],
                                              .scope = CHECK_WHOLE,
                                              .shards = s->n},
                        add_line, out),
            s->name[0], out);
}

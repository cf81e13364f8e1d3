/* SPDX-License-Identifier: MIT */
/* A model file checked: see file.h. */
#include "check/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check/rule.h"
#include "check/scan.h"
#include "edit/recover.h"

struct job {
    const struct check_options *opt;
    check_sink *sink;
    void *arg;
    enum check_outcome outcome;
    struct checker structure; /* tells the parser's faults */
    struct edit_file file;
    struct edit_overlay overlay;
    struct source src;
    struct gguf *g;
};

/* In front of the caller's sink: the outcome follows from the findings. */
static void count(void *arg, const struct check_finding *f)
{
    struct job *j = arg;
    if (f->severity != CHECK_NOTE && j->outcome == CHECK_CLEAN)
        j->outcome = CHECK_FINDINGS;
    j->sink(j->arg, f);
}

/* A line "WHERE: WHY" becomes a finding. */
static void tell_err(struct job *j, const struct err *e)
{
    char where[sizeof(e->msg)];
    memcpy(where, e->msg, e->where);
    where[e->where] = '\0';
    tell(&j->structure, CHECK_ERROR, where, "%s", e->msg + (e->where ? e->where + 2 : 0));
}

static void on_fault(void *arg, const struct err *e)
{
    tell_err(arg, e);
}

static void unusable(struct job *j, const struct err *e)
{
    tell_err(j, e);
    j->outcome = CHECK_UNUSABLE;
}

/* ---- open ---- */

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static int open_dir(const char *real, struct err *e)
{
    size_t n = (size_t)(base_name(real) - real);
    char *dir = strndup(real, n);
    int fd = dir ? open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
    int r = dir ? -errno : -ENOMEM;
    free(dir);
    return fd >= 0 ? fd : err_set(e, r, "cannot open its folder: %s", strerror(-r));
}

static int open_file(struct job *j, const char *path, struct err *e)
{
    char *real = realpath(path, NULL);
    if (!real)
        return err_set(e, -errno, "%s", strerror(errno));
    int r = open_dir(real, e);
    if (r >= 0) {
        int dir = r;
        r = edit_file_open(&j->file, &sys_libc, dir, base_name(real), false, e);
        if (r == 0)
            r = edit_overlay(&j->file, &j->overlay, e);
        (void)close(dir);
        j->file.dir = -1;
    }
    free(real);
    return r < 0 ? r : edit_overlay_source(&j->overlay, &j->file, &j->src, e);
}

/* ---- parse ---- */

static int parse(struct job *j)
{
    struct err e = {0};
    int r = gguf_parse(&j->src, 0, &j->g, &e);
    if (r == 0)
        return 0;
    r = gguf_parse_faults(&j->src, on_fault, j, &j->g, &e);
    if (r < 0)
        tell_err(j, &e);
    tell_rest(&j->structure);
    j->outcome = CHECK_UNUSABLE;
    return r;
}

/* ---- check ---- */

static int scan_mapped(struct job *j, const struct map *map)
{
    struct scan s = {.g = j->g, .map = map, .progress = j->opt->progress, .arg = j->opt->arg};
    struct scan_result *found = calloc((size_t)j->g->n_tensors + 1, sizeof(*found));
    int r = found ? scan_run(&s, found) : -ENOMEM;
    if (r == 0)
        scan_tell(j->g, found, count, j);
    free(found);
    return r;
}

static int scan_values(struct job *j)
{
    struct map map;
    int r = map_guard_init();
    if (r == 0)
        r = map_open(&map, j->file.fd, j->src.size);
    if (r < 0)
        return r;
    quant_init();
    r = scan_mapped(j, &map);
    map_close(&map);
    return r;
}

static void apply(struct job *j, const char *name)
{
    struct check_model m = {
        .g = j->g, .src = &j->src, .file = name, .faults_told = j->outcome == CHECK_UNUSABLE};
    struct err e = {0};
    if (j->overlay.bytes.len)
        tell(
            &j->structure, CHECK_WARNING, "journal",
            "an edit was interrupted; what it was about to write is checked (--recover writes it)");
    int r = check_rules(&m, count, j);
    if (r == 0 && j->opt->values)
        r = scan_values(j);
    if (r < 0) {
        (void)err_set(&e, r, "cannot read: %s", strerror(-r));
        unusable(j, &e);
    }
}

enum check_outcome check_file(const char *path, const struct check_options *o, check_sink *sink,
                              void *arg)
{
    struct err e = {0};
    struct job j = {.opt = o, .sink = sink, .arg = arg, .file = {.fd = -1, .sys = &sys_libc}};
    j.structure = (struct checker){.rule = "structure", .sink = count, .arg = &j};
    if (open_file(&j, path, &e) < 0)
        unusable(&j, &e);
    else if (parse(&j) == 0)
        apply(&j, base_name(path));
    gguf_free(j.g);
    edit_overlay_free(&j.overlay);
    if (j.file.fd >= 0)
        edit_file_close(&j.file);
    return j.outcome;
}

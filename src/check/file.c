/* SPDX-License-Identifier: MIT */
/* Opens and checks the files of a model: see file.h. */
#include "check/file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/path.h"
#include "check/scan.h"
#include "edit/open.h"
#include "model/snapshot.h"

/* ---- the header ---- */

uint64_t header_missing(const struct gguf *g)
{
    return g->data_end > g->file_size ? g->data_end - g->file_size : 0;
}

/* Load the header of the first file and, for a split model, those of the others. */
static int load_header(const char *path, struct shards *s, struct gguf **first, struct err *e)
{
    struct model_file m;
    int r = model_find(path, &m, e);
    if (r == 0)
        r = model_parse(&m, GGUF_PARTIAL, first, e);
    model_free(&m);
    if (r < 0 && s->n) {
        char shown[SHOW_MAX];
        (void)err_prefix(e, r, "shard %s", show(shown, s->name[0], strlen(s->name[0])));
    }
    if (r == 0)
        r = s->n ? model_open_shards(s, *first, GGUF_PARTIAL, NULL, e)
                 : merge_check_single(*first, e);
    return r;
}

int header_open(const char *path, struct header *ret, struct err *e)
{
    struct shards s;
    struct gguf *g = NULL, *merged = NULL;
    char *first = NULL;
    if (shards_find(&s, path, &first) < 0)
        return err_set(e, -ENOMEM, "no memory");
    int r = load_header(first ? first : path, &s, &g, e);
    if (r == 0 && s.n)
        r = shards_merge(&s, g, &merged, e);
    if (r == 0) {
        *ret = (struct header){merged ? merged : g, s.n, header_missing(g)};
        for (size_t i = 1; i < s.n; i++)
            ret->missing += header_missing(s.g[i]);
    }
    if (r < 0 || merged)
        gguf_free(g);
    shards_free(&s);
    free(first);
    return r;
}

void header_free(struct header *h)
{
    gguf_free(h->g);
    *h = (struct header){0};
}

/* ---- a file, opened and parsed as far as possible ---- */

struct part {
    struct model_file m; /* the path is the name in findings */
    struct gguf *g;      /* owned; NULL if parsing failed */
    bool faults;         /* the parser found faults and reported them */
};

/* Report "WHERE: WHY" as an error. */
static void tell_err(struct checker *c, const struct err *e)
{
    char where[sizeof(e->msg)];
    memcpy(where, e->msg, e->where);
    where[e->where] = '\0';
    report(c, CHECK_ERROR, where, "%s", e->msg + (e->where ? e->where + 2 : 0));
}

static void on_fault(void *arg, const struct err *e)
{
    tell_err(arg, e);
}

static int parse(struct part *p, struct checker *structure, struct err *e)
{
    struct err first = {0};
    int r = model_parse(&p->m, 0, &p->g, &first);
    if (r == 0)
        return 0;
    if (!p->m.src.read) { /* opening failed */
        *e = first;
        return r;
    }
    p->faults = true;
    unsigned reported = structure->reported;
    (void)gguf_parse_faults(&p->m.src, on_fault, structure, &p->g, e);
    if (structure->reported == reported && e->code == 0) /* the medium failed, or memory ran out */
        *e = first;
    return r;
}

/*
 * Open and parse the file at `path`, following symbolic links. Each fault is reported through
 * `structure`. Returns 0 without faults, else -errno. *e holds an error that could not be reported
 * as a fault; its code is 0 if all were reported. Free *ret in either case.
 */
static int part_open(const char *path, struct checker *structure, struct part *ret, struct err *e)
{
    *ret = (struct part){0};
    int r = model_find(path, &ret->m, e);
    return r < 0 ? r : parse(ret, structure, e);
}

static void part_free(struct part *p)
{
    gguf_free(p->g);
    model_free(&p->m);
    *p = (struct part){0};
}

/* ---- a check ---- */

struct job {
    const struct check_options *opt;
    check_sink *sink;
    void *arg;
    enum check_outcome outcome;
    struct checker structure; /* reports the parser's faults */
    struct checker set;       /* reports why the files of a split model do not fit together */
    struct split split;
    struct part *part; /* owned; without a header if it is missing or unreadable */
    size_t n;
    /* Numbers of bytes scanned in earlier parts, and in all parts. */
    uint64_t before, total;
};

/* Count a finding before the caller's sink gets it: findings decide the outcome. */
static void count(void *arg, const struct check_finding *f)
{
    static const enum check_outcome outcome[] = {
        [CHECK_NOTE] = CHECK_CLEAN, [CHECK_WARNING] = CHECK_WARNINGS, [CHECK_ERROR] = CHECK_ERRORS};
    struct job *j = arg;
    if (outcome[f->severity] > j->outcome)
        j->outcome = outcome[f->severity];
    j->sink(j->arg, f);
}

static bool ignored(const struct job *j, const char *rule)
{
    for (const char *at = j->opt->ignore; at && *at; at += *at == ',') {
        const size_t n = strcspn(at, ",");
        if (n == strlen(rule) && memcmp(at, rule, n) == 0)
            return true;
        at += n;
    }
    return false;
}

/* Count a finding of a rule, which may be ignored. */
static void count_rule(void *arg, const struct check_finding *f)
{
    const struct job *j = arg;
    if (!ignored(j, f->rule))
        count(arg, f);
}

static void unusable(struct job *j, struct checker *c, const char *label, const struct err *e)
{
    c->label = label;
    if (e->code)
        tell_err(c, e);
    j->outcome = CHECK_UNUSABLE;
}

static void no_memory(struct job *j, const char *label)
{
    struct err e = {0};
    (void)err_set(&e, -ENOMEM, "no memory");
    unusable(j, &j->structure, label, &e);
}

static void cannot(struct job *j, const char *label, const char *what, int r)
{
    struct err e = {0};
    (void)err_set(&e, r, "cannot %s: %s", what, strerror(-r));
    unusable(j, &j->structure, label, &e);
}

/* ---- open all files ---- */

static void missing(struct job *j, size_t i, const char *label, const struct err *e)
{
    char where[64];
    (void)snprintf(where, sizeof(where), "shard %zu of %zu", i + 1, j->n);
    j->set.label = label;
    report(&j->set, CHECK_ERROR, where, "%s", e->msg);
    j->outcome = CHECK_UNUSABLE;
}

static void load(struct job *j, size_t i, const char *path)
{
    struct err e = {0};
    char *own = j->split.n ? split_path(&j->split, i) : strdup(path);
    if (!own) {
        no_memory(j, path);
        return;
    }
    j->structure.label = own;
    j->structure.reported = 0;
    int r = part_open(own, &j->structure, &j->part[i], &e);
    if (r == -ENOENT && j->split.n)
        missing(j, i, own, &e);
    else if (r < 0)
        unusable(j, &j->structure, own, &e);
    report_rest(&j->structure);
    if (!j->part[i].g)
        part_free(&j->part[i]);
    free(own);
}

/* ---- do they fit together? ---- */

/* Count missing files separately from files that do not fit, because many of one kind must not hide
 * the other. */
static void end_set(struct job *j, const char *path)
{
    j->set.label = path;
    report_rest(&j->set);
    j->set.reported = 0;
}

static void check_part(struct job *j, size_t i, uint64_t tensors)
{
    const struct part *p = &j->part[i];
    const struct gguf *first = j->part[0].g ? j->part[0].g : p->g;
    struct err e = {0};
    int r = merge_check(first, p->g, i, j->n, &e);
    if (r == 0 && tensors != UINT64_MAX)
        r = merge_check_total(p->g, tensors, &e);
    if (r < 0)
        unusable(j, &j->set, p->m.path, &e);
}

static void check_extra(struct job *j, const char *path)
{
    struct err e = {0};
    char *extra = split_path(&j->split, j->n);
    if (!extra) {
        no_memory(j, path);
    } else if (access(extra, F_OK) == 0) {
        (void)err_set(&e, -EBADMSG, "one shard too many: the model has %zu", j->n);
        unusable(j, &j->set, extra, &e);
    }
    free(extra);
}

/* Return the number of tensors in all files, or UINT64_MAX if a file cannot be read. */
static uint64_t count_tensors(const struct job *j)
{
    uint64_t n = 0;
    for (size_t i = 0; i < j->n; i++) {
        if (!j->part[i].g || j->part[i].faults)
            return UINT64_MAX;
        n += j->part[i].g->n_tensors;
    }
    return n;
}

static void check_set(struct job *j, const char *path)
{
    uint64_t tensors = count_tensors(j);
    for (size_t i = 0; i < j->n; i++)
        if (j->part[i].g)
            check_part(j, i, tensors);
    check_extra(j, path);
    end_set(j, path);
}

/* ---- rules ---- */

static void apply(struct job *j, const struct check_model *m)
{
    int r = check_rules(m, count_rule, j);
    if (r < 0)
        cannot(j, m->label, "read", r);
}

static void apply_file(struct job *j, const struct part *p)
{
    struct check_model m = {.g = p->g,
                            .src = &p->m.src,
                            .file = path_name(p->m.path),
                            .label = p->m.path,
                            .scope = j->split.n ? CHECK_FILE : CHECK_ALL,
                            .shards = j->split.n,
                            .faults_reported = p->faults};
    if (edit_overlay_interrupted(&p->m.overlay))
        check_tell_journal(p->m.path, count_rule, j);
    apply(j, &m);
}

/* If the files do not fit together, only the keys of the first describe the model. */
static void apply_whole(struct job *j)
{
    const struct gguf **g = calloc(j->n, sizeof(struct gguf *));
    struct gguf *merged = NULL;
    struct err e = {0};
    const struct part *first = &j->part[0];
    for (size_t i = 0; g && i < j->n && j->part[i].g; i++)
        g[i] = j->part[i].g;
    if (!g)
        no_memory(j, first->m.path);
    else if (j->outcome != CHECK_UNUSABLE && merge_shards(g, j->n, &merged, &e) < 0)
        unusable(j, &j->set, first->m.path, &e);
    apply(j, &(struct check_model){.g = merged ? merged : first->g,
                                   .file = path_name(first->m.path),
                                   .label = first->m.path,
                                   .scope = CHECK_WHOLE,
                                   .shards = merged ? j->n : 0});
    gguf_free(merged);
    free((void *)g);
}

/* ---- values ---- */

static void progress(void *arg, uint64_t done, uint64_t total)
{
    const struct job *j = arg;
    (void)total;
    j->opt->progress(j->opt->arg, j->before + done, j->total);
}

static uint64_t bytes_of(const struct part *p)
{
    struct map size = {.size = p->m.src.size};
    return scan_bytes(&(struct scan){.g = p->g, .map = &size});
}

static int scan_mapped(struct job *j, const struct part *p, const struct map *map)
{
    struct scan s = {
        .g = p->g, .map = map, .progress = j->opt->progress ? progress : NULL, .arg = j};
    struct scan_result *found = calloc((size_t)p->g->n_tensors + 1, sizeof(*found));
    int r = found ? scan_run(&s, found) : -ENOMEM;
    if (r == 0)
        scan_tell(p->g, p->m.path, found, count_rule, j);
    free(found);
    return r;
}

static void scan_part(struct job *j, const struct part *p)
{
    struct map map;
    int r = map_open(&map, p->m.file.fd, p->m.src.size);
    if (r == 0) {
        r = edit_overlay_map(&p->m.overlay, &map, NULL);
        if (r == 0)
            r = scan_mapped(j, p, &map);
        map_close(&map);
    }
    if (r < 0)
        cannot(j, p->m.path, "read", r);
    j->before += bytes_of(p);
}

static void scan_all(struct job *j, const char *path)
{
    int r = map_guard_init();
    if (r < 0) {
        cannot(j, path, "handle SIGBUS", r);
        return;
    }
    quant_init();
    for (size_t i = 0; i < j->n; i++)
        j->total += j->part[i].g ? bytes_of(&j->part[i]) : 0;
    for (size_t i = 0; i < j->n; i++)
        if (j->part[i].g)
            scan_part(j, &j->part[i]);
}

/* ---- all of it ---- */

static void check_parts(struct job *j, const char *path)
{
    for (size_t i = 0; i < j->n; i++)
        load(j, i, path);
    if (j->split.n) {
        end_set(j, path);
        check_set(j, path);
    }
    for (size_t i = 0; i < j->n; i++)
        if (j->part[i].g)
            apply_file(j, &j->part[i]);
    if (j->split.n && j->part[0].g)
        apply_whole(j);
    if (j->opt->values && !ignored(j, CHECK_VALUES))
        scan_all(j, path);
}

enum check_outcome check_file(const char *path, const struct check_options *o, check_sink *sink,
                              void *arg)
{
    struct job j = {.opt = o, .sink = sink, .arg = arg};
    j.structure = (struct checker){.rule = CHECK_STRUCTURE, .sink = count, .arg = &j};
    j.set = (struct checker){.rule = "split", .sink = count, .arg = &j};
    int r = split_find(path, &j.split);
    j.n = j.split.n ? j.split.n : 1;
    j.part = r == 0 ? calloc(j.n, sizeof(struct part)) : NULL;
    if (j.part)
        check_parts(&j, path);
    else
        no_memory(&j, path);
    for (size_t i = 0; j.part && i < j.n; i++)
        if (j.part[i].g)
            part_free(&j.part[i]);
    free(j.part);
    split_free(&j.split);
    return j.outcome;
}

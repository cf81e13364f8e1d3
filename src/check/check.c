/* SPDX-License-Identifier: MIT */
/* The table of rules, the search for NaN and infinity, and the check of a model's files: see
 * check.h. */
#include "check/check.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/sys.h"
#include "base/pool.h"
#include "edit/open.h"
#include "quant/types.h"
#include "check/needs.h"

const char *const check_severity_name[] = {"note", "warning", "error"};

/* The lists of rules, in the order in which they are applied. */
static const struct rule *const lists[] = {layout_rules, keys_rules, needs_rules, name_rules};

const char *check_any_rule_id(size_t i)
{
    static const char *const others[] = {CHECK_STRUCTURE, CHECK_VALUES, NULL};
    for (size_t k = 0; k < COUNT(lists); k++)
        for (const struct rule *rule = lists[k]; rule->id; rule++)
            if (i-- == 0)
                return rule->id;
    return others[i];
}

/* ---- findings ---- */

void report(struct checker *c, enum check_severity s, const char *where, const char *fmt, ...)
{
    char what[1024];
    va_list ap;
    c->last = s;
    if (c->reported++ >= CHECK_MOST)
        return;
    va_start(ap, fmt);
    (void)vsnprintf(what, sizeof(what), fmt, ap);
    va_end(ap);
    c->sink(c->arg, &(struct check_finding){s, c->rule, c->label, what, where});
}

const char *at_key(struct checker *c, uint32_t key)
{
    const struct gguf_kv *kv = &c->g->kv[key];
    char name[SHOW_MAX];
    (void)snprintf(c->where, sizeof(c->where), "key '%s'",
                   show(name, gguf_key(c->g, kv), kv->key_len));
    return c->where;
}

const char *at_tensor(struct checker *c, uint32_t tensor)
{
    const struct gguf_tensor *t = &c->g->tensor[tensor];
    char name[SHOW_MAX];
    (void)snprintf(c->where, sizeof(c->where), "tensor '%s'",
                   show(name, gguf_name(c->g, t), t->name_len));
    return c->where;
}

const char *at_bytes(struct checker *c, uint64_t first, uint64_t last)
{
    (void)snprintf(c->where, sizeof(c->where), "bytes %" PRIu64 " to %" PRIu64, first, last - 1);
    return c->where;
}

/* Report the number of findings omitted since the last call. */
static void report_rest(struct checker *c)
{
    char what[64];
    if (c->reported > CHECK_MOST) {
        (void)snprintf(what, sizeof(what), "%u more of these", c->reported - CHECK_MOST);
        c->sink(c->arg, &(struct check_finding){c->last, c->rule, c->label, what, ""});
    }
    c->reported = 0;
}

void report_line(struct buf *out, const struct check_finding *f)
{
    show_all(out, f->file, strlen(f->file));
    buf_printf(out, ": %s: %s", check_severity_name[f->severity], f->what);
    if (f->where[0])
        buf_printf(out, " (%s)", f->where);
    buf_char(out, '\n');
}

/* ---- rules ---- */

static void apply_rule(struct checker *c, const struct rule *rule)
{
    c->rule = rule->id;
    for (c->at = 0; rule->key && c->at < c->g->n_kv; c->at++) {
        struct gguf_value v = gguf_value(c->g, &c->g->kv[c->at]);
        rule->key(c, gguf_name_of(c->g, true, c->at), &v);
    }
    for (c->at = 0; rule->tensor && c->at < c->g->n_tensors; c->at++)
        rule->tensor(c, &c->g->tensor[c->at]);
    if (rule->whole)
        rule->whole(c);
    report_rest(c);
}

int check_rules(const struct check_model *m, check_sink *sink, void *arg)
{
    struct checker c = {.m = m,
                        .g = m->g,
                        .label = m->label,
                        .arch = fact_text(m->g, "general.architecture"),
                        .rule = CHECK_STRUCTURE,
                        .sink = sink,
                        .arg = arg};
    for (size_t k = 0; k < COUNT(lists); k++)
        for (const struct rule *rule = lists[k]; rule->id && c.error == 0; rule++)
            if (m->scope == CHECK_ALL || m->scope == rule->scope)
                apply_rule(&c, rule);
    return c.error;
}

/*
 * ---- values ----
 *
 * Tensors are scanned one after another, each on all processors, in chunks. A quick pass checks that
 * all values of a chunk are finite; only chunks that fail are counted value by value.
 */

/* Numbers of elements: multiples of every block length (QUANT_MAX_BLOCK_LEN). */
enum { CHUNK = 4 * 6144, PIECE = 12 * CHUNK };
_Static_assert(CHUNK % QUANT_MAX_BLOCK_LEN == 0, "chunks are whole blocks");

/* A thread's memory: the bytes and the values of a chunk. */
struct scan_room {
    uint8_t bytes[8 * CHUNK];
    float values[CHUNK];
};

/* A tensor being scanned. */
struct scan {
    const struct gguf_tensor *t;
    const struct quant_type *type;
    bool big;
    const struct source *src;
    struct scan_result *found; /* protected by units_lock() */
    struct scan_watch *watch;
};

/* True if all bits of the exponent are set: infinite or NaN. */
static bool bad_single(uint32_t u)
{
    return (u & 0x7f800000) == 0x7f800000;
}

static bool bad_scale(const struct quant_type *t, const uint8_t *block, bool big)
{
    const uint8_t *p = block + t->swap_at[0];
    bool bad = false;
    switch (t->scale) {
    case QUANT_HALVES:
        for (size_t i = 0; i < t->swap_count; i++)
            bad |= (get_u16(block + t->swap_at[i], big) & 0x7c00) == 0x7c00;
        return bad;
    case QUANT_SINGLE:
        return bad_single(get_u32(p, big));
    case QUANT_SPREAD: /* bits 8 to 15 of the half are in the high nibbles of the last two words */
        return (get_u16(p + 6, big) >> 12 << 12 & 0x7000) == 0x7000 &&
               (get_u16(p + 4, big) & 0xc000) == 0xc000;
    case QUANT_E8M0: /* NaN according to the OCP specification, but ggml reads it as 2^127 */
        return p[0] == 0xff;
    case QUANT_UE4M3: /* NaN, but ggml reads it as 0 */
        for (size_t i = 0; i < 4; i++)
            bad |= (p[i] & 0x7f) == 0x7f;
        return bad;
    default:
        return false;
    }
}

static void count_at(struct scan_result *r, uint64_t element, uint64_t *counter)
{
    r->first = min_u64(r->first, element);
    ++*counter;
}

/* Count what is bad in n elements, the first of which has index `at`. A bad scale may leave all values
 * finite, and a float64 may be one that only float32 cannot reach. */
static void scan_chunk(const struct scan *w, struct scan_room *m, uint64_t at, size_t n,
                       struct scan_result *f)
{
    const struct quant_type *t = w->type;
    const bool as_is = t->id == F32_ID && !w->big;
    const uint8_t *floats = as_is ? m->bytes : (const uint8_t *)m->values;
    if (!as_is)
        quant_read(&quant_f32, t, w->big, m->bytes, 0, 4 * n, m->values);
    for (size_t i = 0; t->scale && i < n; i += t->block_len)
        if (bad_scale(t, m->bytes + i / t->block_len * t->block_bytes, w->big))
            count_at(f, at + i, &f->scales);
    if (quant_all_finite(floats, n))
        return;
    for (size_t i = 0; i < n; i++) {
        const uint32_t u = get_u32(floats + 4 * i, false);
        const bool large =
            t->id == F64_ID && (get_u64(m->bytes + 8 * i, w->big) >> 52 & 0x7ff) != 0x7ff;
        if (bad_single(u) && !large)
            count_at(f, at + i, u & 0x007fffff ? &f->nan : &f->inf);
    }
}

/* True if the tensor can be scanned; otherwise records that it cannot. */
static bool scannable(const struct gguf *g, uint64_t size, const struct gguf_tensor *t,
                      struct scan_result *r)
{
    const struct quant_type *type = gguf_type(t);
    r->unread = t->n_elem && (!quant_has_values(type, g->fmt.big) ||
                              within_u64(t->off, t->nbytes, size) < t->nbytes);
    return !r->unread && t->n_elem && type->id != I8_ID && type->id != I16_ID &&
           type->id != I32_ID && type->id != I64_ID;
}

static int scan_unit(void *arg, uint64_t unit, void *room)
{
    const struct scan *w = arg;
    struct scan_room *m = room;
    struct scan_result f = {.first = UINT64_MAX}, *all = w->found;
    const uint64_t end = min_u64((unit + 1) * PIECE, w->t->n_elem);
    for (uint64_t at = unit * PIECE; at < end; at += CHUNK) {
        const size_t n = (size_t)min_u64(CHUNK, end - at),
                     bytes = n / w->type->block_len * w->type->block_bytes;
        int r = w->src->read(w->src, w->t->off + at / w->type->block_len * w->type->block_bytes,
                             m->bytes, bytes);
        if (r < 0)
            return r;
        if (is_zero(m->bytes, bytes))
            f.zeros += n;
        else
            scan_chunk(w, m, at, n, &f);
    }
    /* Add the result; the pieces may finish in any order. */
    LOCKED(units_lock());
    all->first = min_u64(all->first, f.first);
    all->zeros += f.zeros;
    all->nan += f.nan;
    all->inf += f.inf;
    all->scales += f.scales;
    return 0;
}

static void tell_scanned(void *arg, uint64_t done, uint64_t all)
{
    const struct scan *w = arg;
    const double part = (double)done / (double)all * (double)w->t->nbytes;
    w->watch->progress(w->watch->arg, w->watch->done + (uint64_t)part, w->watch->total);
}

int scan_run(const struct gguf *g, const struct source *src, struct scan_watch *watch,
             struct scan_result *found)
{
    int r = 0;
    struct scan w = {.big = g->fmt.big, .src = src, .watch = watch};
    const struct units_watch units = {.progress = watch && watch->progress ? tell_scanned : NULL,
                                      .arg = &w};
    for (uint32_t i = 0; i < g->n_tensors && r == 0; i++) {
        w.t = &g->tensor[i];
        w.type = gguf_type(w.t);
        w.found = &found[i];
        w.found->first = UINT64_MAX;
        struct units u = {.n = (w.t->n_elem - 1) / PIECE + 1,
                          .unit = scan_unit,
                          .arg = &w,
                          .room = sizeof(struct scan_room)};
        if (scannable(g, src->size, w.t, w.found))
            r = units_run(&u, &units);
        if (watch)
            watch->done += w.t->nbytes;
    }
    return r;
}

/* ---- the files of a model ---- */

/* A file, opened and parsed as far as possible. */
struct part {
    struct model_file m; /* its path is the name shown in findings */
    struct gguf *g;      /* owned; NULL if parsing failed */
    bool faults;         /* the parser found faults and reported them */
};

/* Report "WHERE: WHY" as an error. */
static void tell_err(void *checker, const struct err *e)
{
    char where[sizeof(e->msg)];
    memcpy(where, e->msg, e->where);
    where[e->where] = '\0';
    report(checker, CHECK_ERROR, where, "%s", e->msg + (e->where ? e->where + 2 : 0));
}

static int parse_part(struct part *p, struct checker *structure, struct err *e)
{
    struct err first = {0};
    int r = model_parse(&p->m, 0, &p->g, &first);
    if (r == 0)
        return 0;
    if (!p->m.src.read || sniff_part(p->m.name)) { /* opening failed, or a part of a file */
        *e = first;
        return r;
    }
    p->faults = true;
    unsigned reported = structure->reported;
    (void)gguf_parse_faults(&p->m.src, tell_err, structure, &p->g, e);
    if (structure->reported == reported && e->code == 0) /* the medium failed, or memory ran out */
        *e = first;
    return r;
}

static void part_free(struct part *p)
{
    gguf_free(p->g);
    model_free(&p->m);
    *p = (struct part){0};
}

struct checking {
    const struct check_options *opt;
    check_sink *sink;
    void *arg;
    enum check_outcome outcome;
    struct checker structure; /* reports the faults that the parser finds */
    struct checker set;       /* reports why the files of a split model do not fit together */
    struct shards split;
    struct part *part; /* owned; a missing or unreadable part has no header */
    size_t n;
    struct scan_watch watch;
};

/* Include a finding in the outcome, and pass it on to the caller's sink. */
static void count_finding(void *arg, const struct check_finding *f)
{
    struct checking *j = arg;
    /* Both enums are in the same order. */
    const enum check_outcome outcome = (enum check_outcome)f->severity;
    j->outcome = outcome > j->outcome ? outcome : j->outcome;
    j->sink(j->arg, f);
}

static bool ignored(const struct checking *j, const char *rule)
{
    return j->opt->ignore && needs_list(j->opt->ignore, (struct text){rule, strlen(rule)});
}

/* Count a finding of a rule unless the rule is ignored. */
static void count_rule(void *arg, const struct check_finding *f)
{
    const struct checking *j = arg;
    if (!ignored(j, f->rule))
        count_finding(arg, f);
}

static void unusable(struct checking *j, struct checker *c, const char *label, const struct err *e)
{
    c->label = label;
    if (e->code)
        tell_err(c, e);
    j->outcome = CHECK_UNUSABLE;
}

static void cannot(struct checking *j, const char *label, const char *what, int r)
{
    struct err e = {0};
    (void)err_set(&e, r, "cannot %s: %s", what, strerror(-r));
    unusable(j, &j->structure, label, &e);
}

static void load_part(struct checking *j, size_t i, const char *path)
{
    struct part *p = &j->part[i];
    struct err e = {0};
    char *own = shards_path(&j->split, i), where[64];
    if (!own) {
        cannot(j, path, "find its files", -ENOMEM);
        return;
    }
    j->structure.label = own;
    int r = !j->split.n && model_is_stream(own) ? model_read(own, &p->m, &e)
                                                : model_find(own, &p->m, &e);
    r = r == 0 ? parse_part(p, &j->structure, &e) : r;
    if (r == -ENOENT && j->split.n) {
        (void)snprintf(where, sizeof(where), "shard %zu of %zu", i + 1, j->n);
        j->set.label = own;
        report(&j->set, CHECK_ERROR, where, "%s", e.msg);
        j->outcome = CHECK_UNUSABLE;
    } else if (r < 0) {
        unusable(j, &j->structure, own, &e);
    }
    report_rest(&j->structure);
    if (!p->g)
        part_free(p);
    free(own);
}

/* Report why the files do not fit together. Missing files are counted separately from files that
 * do not fit, because many findings of one kind must not hide the other kind. */
static void check_set(struct checking *j, const char *path)
{
    uint64_t tensors = 0;
    bool all = true;
    j->set.label = path;
    report_rest(&j->set);
    for (size_t i = 0; i < j->n; i++) {
        all = all && j->part[i].g && !j->part[i].faults;
        tensors += all ? j->part[i].g->n_tensors : 0;
    }
    for (size_t i = 0; i < j->n; i++) {
        const struct part *p = &j->part[i];
        const struct gguf *first = j->part[0].g ? j->part[0].g : p->g;
        struct err e = {0};
        int r = p->g ? merge_check(first, p->g, i, j->n, &e) : 0;
        if (r == 0 && all)
            r = merge_check_total(p->g, tensors, &e);
        if (r < 0)
            unusable(j, &j->set, p->m.path, &e);
    }
    j->set.label = path;
    report_rest(&j->set);
}

static void apply_rules(struct checking *j, const struct check_model *m)
{
    int r = check_rules(m, count_rule, j);
    if (r < 0)
        cannot(j, m->label, "read", r);
}

static void apply_file(struct checking *j, const struct part *p)
{
    const bool unnamed = j->opt->unnamed || p->m.stream;
    apply_rules(j, &(struct check_model){.g = p->g,
                                         .src = p->m.stream ? NULL : &p->m.src,
                                         .file = unnamed ? NULL : path_name(p->m.path),
                                         .label = p->m.path,
                                         .scope = j->split.n ? CHECK_FILE : CHECK_ALL,
                                         .shards = j->split.n,
                                         .faults_reported = p->faults});
}

/* If the files do not fit together, only the keys of the first file describe the model. */
static void apply_whole(struct checking *j)
{
    const struct gguf **g = calloc(j->n, sizeof(struct gguf *));
    struct gguf *merged = NULL;
    struct err e = {0};
    const struct part *first = &j->part[0];
    for (size_t i = 0; g && i < j->n && j->part[i].g; i++)
        g[i] = j->part[i].g;
    if (!g)
        cannot(j, first->m.path, "merge its files", -ENOMEM);
    else if (j->outcome != CHECK_UNUSABLE && merge_shards(g, j->n, &merged, &e) < 0)
        unusable(j, &j->set, first->m.path, &e);
    apply_rules(j, &(struct check_model){.g = merged ? merged : first->g,
                                         .file = path_name(first->m.path),
                                         .label = first->m.path,
                                         .scope = CHECK_WHOLE,
                                         .shards = merged ? j->n : 0});
    gguf_free(merged);
    free((void *)g);
}

/* ---- their values ---- */

static void tell_values(struct checking *j, const struct part *p, const struct scan_result *found)
{
    const uint32_t n = p->g->n_tensors;
    struct checker c = {
        .g = p->g, .label = p->m.path, .rule = CHECK_VALUES, .sink = count_rule, .arg = j};
    uint32_t unread = 0;
    for (uint32_t i = 0; i < n; i++) {
        const struct scan_result *f = &found[i];
        unread += f->unread;
        if (f->zeros && f->zeros == p->g->tensor[i].n_elem &&
            !text_ends(gguf_name_of(p->g, false, i), ".bias"))
            report(&c, CHECK_WARNING, at_tensor(&c, i),
                   "every byte is zero: is this a hole that a download left?");
        if (f->nan || f->inf || f->scales)
            report(&c, CHECK_ERROR, at_tensor(&c, i),
                   "%" PRIu64 " values are NaN, %" PRIu64 " are infinite, %" PRIu64
                   " blocks have a NaN or infinite scale; the first is at element %" PRIu64,
                   f->nan, f->inf, f->scales, f->first);
    }
    report_rest(&c);
    if (unread)
        report(&c, CHECK_NOTE, "tensors",
               "%" PRIu32 " of %" PRIu32 " have no values that can be checked", unread, n);
}

static void scan_all(struct checking *j)
{
    quant_init();
    for (size_t i = 0; i < j->n; i++)
        for (uint32_t k = 0; j->part[i].g && k < j->part[i].g->n_tensors; k++)
            j->watch.total += j->part[i].g->tensor[k].nbytes;
    for (size_t i = 0; i < j->n; i++) {
        const struct part *p = &j->part[i];
        struct scan_result *found = p->g ? calloc(p->g->n_tensors + 1ul, sizeof(*found)) : NULL;
        const int r = found ? scan_run(p->g, &p->m.src, &j->watch, found) : p->g ? -ENOMEM : 0;
        if (r < 0)
            cannot(j, p->m.path, "read", r);
        else if (found)
            tell_values(j, p, found);
        free(found);
    }
}

static void check_parts(struct checking *j, const char *path)
{
    struct err e = {0};
    for (size_t i = 0; i < j->n; i++)
        load_part(j, i, path);
    if (j->split.n)
        check_set(j, path);
    else if (j->part[0].g && !j->part[0].faults && merge_check_single(j->part[0].g, &e) < 0)
        unusable(j, &j->set, j->part[0].m.path, &e);
    for (size_t i = 0; i < j->n; i++)
        if (j->part[i].g)
            apply_file(j, &j->part[i]);
    if (j->split.n && j->part[0].g)
        apply_whole(j);
    if (!j->opt->values || ignored(j, CHECK_VALUES))
        return;
    if (j->part[0].m.stream)
        cannot(j, path, "check the values of a model in a pipe", -ESPIPE);
    else
        scan_all(j);
}

enum check_outcome check_file(const char *path, const struct check_options *o, check_sink *sink,
                              void *arg)
{
    struct checking j = {.opt = o, .sink = sink, .arg = arg, .watch = {o->progress, o->arg, 0, 0}};
    j.structure = (struct checker){.rule = CHECK_STRUCTURE, .sink = count_finding, .arg = &j};
    j.set = (struct checker){.rule = "split", .sink = count_finding, .arg = &j};
    int r = shards_find(&j.split, path);
    j.n = j.split.n ? j.split.n : 1;
    j.part = r == 0 ? calloc(j.n, sizeof(struct part)) : NULL;
    if (j.part)
        check_parts(&j, path);
    else
        cannot(&j, path, "find its files", -ENOMEM);
    for (size_t i = 0; j.part && i < j.n; i++)
        if (j.part[i].g)
            part_free(&j.part[i]);
    free(j.part);
    shards_free(&j.split);
    return j.outcome;
}

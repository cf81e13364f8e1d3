/* SPDX-License-Identifier: MIT */
/*
 * Compares two models: see compare.h. The bytes of a pair are compared up to the first difference; if
 * there is one, the values are compared afterwards.
 */
#include "diff/compare.h"

#include <errno.h>
#include <fnmatch.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/pool.h"
#include "base/sys.h"
#include "derive/stats.h"
#include "text/json.h"

/* ---- the two models ---- */

int side_open(struct side *s, const char *path, const char *label, struct err *e)
{
    struct model_whole m;
    struct mapped *file = NULL;
    *s = (struct side){.label = label};
    int r = model_whole_open(path, 0, &m, e);
    const bool split = r == 0 && m.files.n;
    if (r == 0)
        r = mapped_open(m.first.file.fd, m.first.src.size, &file, e);
    if (r == 0)
        r = err_sys(e,
                    store_make(file, m.files.file,
                               (const struct gguf *const *)(split ? m.files.g : &m.g),
                               split ? m.files.n : 1, &s->store),
                    "cannot open");
    if (r == 0)
        s->g = REF(m.g);
    mapped_unref(file);
    model_whole_free(&m);
    return r;
}

void side_free(struct side *s)
{
    store_unref(s->store);
    gguf_free(s->g);
    *s = (struct side){0};
}

/* ---- pairs ---- */

static uint32_t find_named(const struct gguf *g, bool keys, struct text name)
{
    return keys ? gguf_find_key(g, name.at, name.len) : gguf_find_tensor(g, name.at, name.len);
}

/* Patterns end at a NUL, so a name is compared only up to its first NUL. */
static bool left_out(const struct diff_options *o, bool keys, struct text name)
{
    bool ret = keys && text_is(name, KEY_RESERVE);
    char *text = o->n_ignore ? strndup(name.at, name.len) : NULL;
    for (size_t i = 0; text && i < o->n_ignore && !ret; i++)
        ret = fnmatch(o->ignore[i], text, 0) == 0;
    free(text);
    return ret;
}

/* A pair that is in both models has moved if it comes, in B, behind one that it precedes in A. */
static void mark_moved(struct pairs *p)
{
    uint32_t least = PAIR_NONE;
    for (size_t i = p->n; i-- > 0;) {
        struct pair *q = &p->of[i];
        if (q->status == DIFF_SAME && q->no[1] > least)
            q->status = DIFF_MOVED;
        else if (q->status == DIFF_SAME)
            least = q->no[1];
    }
}

/* Pair by name. Compares only names and their order. */
static int pairs_make(const struct diff *d, bool keys, struct pairs *ret)
{
    const struct gguf *a = d->side[0]->g, *b = d->side[1]->g;
    const uint32_t n_a = keys ? a->n_kv : a->n_tensors, n_b = keys ? b->n_kv : b->n_tensors;
    ret->of = calloc((size_t)n_a + n_b + 1, sizeof(*ret->of));
    for (uint32_t i = 0; ret->of && i < n_a; i++) {
        const struct text name = gguf_name_of(a, keys, i);
        const uint32_t other = find_named(b, keys, name);
        if (!left_out(d->opt, keys, name))
            ret->of[ret->n++] =
                (struct pair){{i, other}, other == PAIR_NONE ? DIFF_ONLY_A : DIFF_SAME};
    }
    for (uint32_t i = 0; ret->of && i < n_b; i++) {
        const struct text name = gguf_name_of(b, keys, i);
        if (find_named(a, keys, name) == PAIR_NONE && !left_out(d->opt, keys, name))
            ret->of[ret->n++] = (struct pair){{PAIR_NONE, i}, DIFF_ONLY_B};
    }
    mark_moved(ret);
    return ret->of ? 0 : -ENOMEM;
}

static bool is_both(const struct pair *p)
{
    return p->no[0] != PAIR_NONE && p->no[1] != PAIR_NONE;
}

void pairs_count(const struct pairs *p, size_t count[DIFF_STATUSES])
{
    memset(count, 0, DIFF_STATUSES * sizeof(*count));
    for (size_t i = 0; i < p->n; i++)
        count[p->of[i].status]++;
}

/* ---- keys ---- */

/* True if both files encode the value in the same way, and the bytes are equal. */
static bool same_bytes(const struct gguf_value *a, const struct gguf_value *b)
{
    const size_t n = (size_t)(gguf_value_end(a) - a->data);
    return a->fmt->big == b->fmt->big && a->fmt->len_width == b->fmt->len_width &&
           a->fmt->nul == b->fmt->nul && a->count == b->count &&
           n == (size_t)(gguf_value_end(b) - b->data) &&
           (n == 0 || memcmp(a->data, b->data, n) == 0);
}

bool value_same(const struct gguf_value *a, const struct gguf_value *b)
{
    CLEANUP(buf_free) struct buf x = BUF_INIT, y = BUF_INIT;
    if (a->type != b->type || a->elem != b->elem)
        return false;
    if (same_bytes(a, b))
        return true;
    json_value(&x, a);
    json_value(&y, b);
    return !buf_error(&x) && x.len == y.len && !buf_error(&y) && memcmp(x.data, y.data, x.len) == 0;
}

static void compare_keys(struct diff *d)
{
    const struct gguf *a = d->side[0]->g, *b = d->side[1]->g;
    for (size_t i = 0; i < d->keys.n; i++) {
        struct pair *p = &d->keys.of[i];
        if (!is_both(p))
            continue;
        struct gguf_value x = gguf_value(a, &a->kv[p->no[0]]), y = gguf_value(b, &b->kv[p->no[1]]);
        if (!value_same(&x, &y))
            p->status = DIFF_CHANGED;
    }
}

/* ---- tensors ---- */

/* Elements decoded at a time, to fit in the first-level cache; elements and bytes per piece. */
enum { CHUNK = 6144, PIECE = 8 * CHUNK, ROOM = 8 * PIECE };
_Static_assert(CHUNK % QUANT_MAX_BLOCK_LEN == 0, "chunks are whole blocks");

/* A thread's memory: the bytes and the values of both tensors. */
struct diff_room {
    float values[2][CHUNK];
    uint8_t bytes[2][ROOM];
};

/* A pass over a pair of tensors: over their bytes, or over their values. */
struct diff_pass {
    const struct diff *d;
    const struct pair *p;
    const struct quant_type *type[2];
    struct tensor_diff *found; /* protected by units_lock() */
    bool values;
    uint64_t all, size; /* bytes (of A) or elements: of the pair, and of a unit, in whole blocks */
    uint64_t before, total; /* bytes of the pairs before this one, and of all pairs */
    _Atomic(size_t) side;   /* the side that could not be read */
};

static bool same_shape(const struct gguf *a, const struct gguf_tensor *x, const struct gguf *b,
                       const struct gguf_tensor *y)
{
    for (uint32_t i = 0; i < x->n_dims && i < y->n_dims; i++)
        if (gguf_dim(a, x, i) != gguf_dim(b, y, i))
            return false;
    return x->n_dims == y->n_dims;
}

/* Read bytes [off, off + n) of a side's tensor. Returns 0, or -EIO if the file was truncated or the
 * medium failed. */
static int read_side(struct diff_pass *w, size_t k, uint64_t off, uint64_t n, struct diff_room *m)
{
    uint64_t at;
    const struct mapped *file =
        store_mapped(w->d->side[k]->store, w->p->no[k], off, (size_t)n, &at);
    const int r = sys_read_all(&sys_libc, file->fd, m->bytes[k], (size_t)n, at);
    if (r < 0)
        atomic_store(&w->side, k);
    return r;
}

/* ---- bytes ---- */

static int compare_bytes(struct diff_pass *w, uint64_t first, uint64_t n, struct diff_room *m)
{
    lock_take(units_lock());
    const bool known = w->found->bytes;
    lock_drop(units_lock());
    if (known)
        return 0;
    for (size_t k = 0; k < 2; k++) {
        int r = read_side(w, k, first, n, m);
        if (r < 0)
            return r;
    }
    /* convert B's bytes, which are whole blocks, to A's byte order */
    if (w->d->side[0]->g->fmt.big != w->d->side[1]->g->fmt.big && w->type[0] &&
        w->type[0]->block_len)
        quant_swap(w->type[0], m->bytes[1], (size_t)n / w->type[0]->block_bytes);
    if (memcmp(m->bytes[0], m->bytes[1], (size_t)n) != 0) {
        LOCKED(units_lock());
        w->found->bytes = true;
    }
    return 0;
}

/* ---- values ---- */

static void add_pair(struct tensor_diff *d, double a, double b, uint64_t at)
{
    if (isfinite(a) && isfinite(b)) {
        double away = fabs(a - b);
        d->sum.squares_a += a * a;
        d->sum.squares_b += b * b;
        d->sum.products += a * b;
        d->sum.squares += away * away;
        d->sum.differ += away != 0;
        if (away > d->sum.max) {
            d->sum.max = away;
            d->max_at = at;
        }
        return;
    }
    d->nan[0] += isnan(a) != 0;
    d->nan[1] += isnan(b) != 0;
    d->inf[0] += isinf(a) != 0;
    d->inf[1] += isinf(b) != 0;
    d->apart += !(isnan(a) && isnan(b)) && a != b;
}

/* Add n values, the first of which is element `i` of the room and element `at` of the tensor. */
static void add_chunk(const struct diff_pass *w, struct tensor_diff *d, struct diff_room *m,
                      uint64_t i, size_t n, uint64_t at)
{
    float(*const values)[CHUNK] = m->values;
    for (size_t k = 0; k < 2; k++)
        floats_read(w->type[k], w->d->side[k]->g->fmt.big, m->bytes[k], i, n, values[k]);
    /* Only little-endian floats can be checked quickly. */
    if (HOST_BIG || !quant_all_finite((const uint8_t *)values[0], n) ||
        !quant_all_finite((const uint8_t *)values[1], n)) {
        for (size_t k = 0; k < n; k++)
            add_pair(d, (double)values[0][k], (double)values[1][k], at + k);
        return;
    }
    double before = d->sum.max;
    quant_distance(values[0], values[1], n, &d->sum);
    for (size_t k = 0; d->sum.max > before && k < n; k++)
        if (fabs((double)values[0][k] - (double)values[1][k]) == d->sum.max) {
            d->max_at = at + k;
            break;
        }
}

/* Return the offset of an element's block in the tensor's bytes. */
static uint64_t byte_of(const struct quant_type *t, uint64_t element)
{
    return element / t->block_len * t->block_bytes;
}

static void add_distance(struct tensor_diff *d, const struct tensor_diff *f)
{
    bool more = f->sum.max > d->sum.max, again = f->sum.max == d->sum.max && f->max_at < d->max_at;
    d->max_at = more || again ? f->max_at : d->max_at;
    d->sum.max = more ? f->sum.max : d->sum.max;
    d->sum.squares_a += f->sum.squares_a;
    d->sum.squares_b += f->sum.squares_b;
    d->sum.products += f->sum.products;
    d->sum.squares += f->sum.squares;
    d->sum.differ += f->sum.differ;
    for (size_t k = 0; k < 2; k++) {
        d->nan[k] += f->nan[k];
        d->inf[k] += f->inf[k];
    }
    d->apart += f->apart;
}

static int compare_values(struct diff_pass *w, uint64_t first, uint64_t n, struct diff_room *m)
{
    struct tensor_diff found = {.max_at = UINT64_MAX};
    for (size_t k = 0; k < 2; k++) {
        int r = read_side(w, k, byte_of(w->type[k], first), byte_of(w->type[k], n), m);
        if (r < 0)
            return r;
    }
    for (uint64_t i = 0; i < n; i += CHUNK)
        add_chunk(w, &found, m, i, (size_t)min_u64(CHUNK, n - i), first + i);
    LOCKED(units_lock());
    add_distance(w->found, &found);
    return 0;
}

/* ---- a pass ---- */

static int compare_unit(void *arg, uint64_t unit, void *room)
{
    struct diff_pass *w = arg;
    const uint64_t first = unit * w->size, n = min_u64(w->size, w->all - first);
    return (w->values ? compare_values : compare_bytes)(w, first, n, room);
}

static void tell_progress(void *arg, uint64_t done, uint64_t all)
{
    const struct diff_pass *w = arg;
    const double bytes = (double)pair_tensor(w->d, w->p, 0)->nbytes;
    const double part = (double)done / (double)all * bytes;
    w->d->opt->progress(w->d->opt->arg, w->before + (uint64_t)part, w->total);
}

/* Set e to a message that names the unreadable tensor. */
static int unreadable(const struct diff_pass *w, int r, struct err *e)
{
    char shown[SHOW_MAX], file[SHOW_MAX];
    const struct text name = gguf_name_of(w->d->side[0]->g, false, w->p->no[0]);
    const char *label = w->d->side[atomic_load(&w->side)]->label;
    return err_set(e, r, "%s: tensor '%s': cannot be read: %s", show(file, label, strlen(label)),
                   show(shown, name.at, name.len), strerror(-r));
}

/* Compare the bytes or the values of a pair. */
static int run_pass(struct diff_pass *w, bool values, struct err *e)
{
    const struct gguf_tensor *x = pair_tensor(w->d, w->p, 0);
    const uint64_t block = w->type[0] && w->type[0]->block_bytes ? w->type[0]->block_bytes : 1;
    const struct units_watch watch = {.progress = w->d->opt->progress ? tell_progress : NULL,
                                      .arg = w};
    struct units u = {.unit = compare_unit, .arg = w, .room = sizeof(struct diff_room)};
    w->values = values;
    w->all = values ? x->n_elem : x->nbytes;
    w->size = values ? (uint64_t)PIECE : ROOM / block * block;
    u.n = w->all / w->size + (w->all % w->size != 0);
    const int r = u.n ? units_run(&u, &watch) : 0;
    return r < 0 ? unreadable(w, r, e) : 0;
}

/* ---- all of it ---- */

double diff_error(const struct quant_distance *d)
{
    return d->squares > 0 ? sqrt(d->squares / d->squares_a) : 0;
}

double diff_cosine(const struct quant_distance *d)
{
    return d->squares_a > 0 && d->squares_b > 0
               ? d->products / sqrt(d->squares_a) / sqrt(d->squares_b)
               : (double)NAN;
}

/* True if the tensors differ by more than the tolerance. */
static bool is_changed(const struct tensor_diff *f, double tolerance)
{
    const bool within = tolerance >= 0 && f->measured && f->apart == 0 &&
                        (f->sum.differ == 0 || diff_error(&f->sum) <= tolerance);
    return (f->type || f->shape || f->bytes) && !within;
}

/* Compare the tensors of pair i. */
static int compare_pair(struct diff *d, size_t i, uint64_t before, uint64_t total, struct err *e)
{
    struct pair *p = &d->tensors.of[i];
    struct tensor_diff *f = &d->of[i];
    const struct gguf *a = d->side[0]->g, *b = d->side[1]->g;
    const struct gguf_tensor *x = pair_tensor(d, p, 0), *y = pair_tensor(d, p, 1);
    struct diff_pass w = {.d = d,
                          .p = p,
                          .type = {gguf_type(x), gguf_type(y)},
                          .found = f,
                          .before = before,
                          .total = total};
    int r = 0;
    f->max_at = UINT64_MAX;
    f->type = x->type_id != y->type_id;
    f->shape = !same_shape(a, x, b, y);
    /* The length of an unknown type is also unknown. */
    f->bytes = !f->type && !f->shape && x->nbytes != y->nbytes;
    if (!f->type && !f->shape && !f->bytes)
        r = run_pass(&w, false, e);
    f->measured = !d->opt->quick && !f->shape && (f->type || f->bytes) && x->n_elem &&
                  quant_has_values(w.type[0], a->fmt.big) &&
                  quant_has_values(w.type[1], b->fmt.big);
    if (r == 0 && f->measured)
        r = run_pass(&w, true, e);
    if (is_changed(f, d->opt->tolerance))
        p->status = DIFF_CHANGED;
    return r;
}

static int compare_tensors(struct diff *d, struct err *e)
{
    uint64_t before = 0, total = 0;
    int r = 0;
    for (size_t i = 0; i < d->tensors.n; i++)
        total += is_both(&d->tensors.of[i]) ? pair_tensor(d, &d->tensors.of[i], 0)->nbytes : 0;
    for (size_t i = 0; i < d->tensors.n && r == 0; i++)
        if (is_both(&d->tensors.of[i])) {
            r = compare_pair(d, i, before, total, e);
            before += pair_tensor(d, &d->tensors.of[i], 0)->nbytes;
        }
    return r;
}

int diff_compare(struct diff *d, struct err *e)
{
    int r = d->opt->keys ? pairs_make(d, true, &d->keys) : 0;
    if (r == 0 && d->opt->tensors)
        r = pairs_make(d, false, &d->tensors);
    if (r == 0)
        compare_keys(d);
    d->of = r == 0 ? calloc(d->tensors.n + 1, sizeof(*d->of)) : NULL;
    if (!d->of)
        return err_set(e, -ENOMEM, "no memory");
    return compare_tensors(d, e);
}

void diff_free(struct diff *d)
{
    free(d->keys.of);
    free(d->tensors.of);
    free(d->of);
}

bool diff_is_same(const struct diff *d)
{
    size_t keys[DIFF_STATUSES], tensors[DIFF_STATUSES];
    pairs_count(&d->keys, keys);
    pairs_count(&d->tensors, tensors);
    return keys[DIFF_SAME] + keys[DIFF_MOVED] == d->keys.n &&
           tensors[DIFF_SAME] + tensors[DIFF_MOVED] == d->tensors.n;
}

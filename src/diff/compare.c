/* SPDX-License-Identifier: MIT */
/*
 * Compares two models: see compare.h. Tensors are compared in two passes, each on all processors
 * (base/pool.h): over the bytes of pairs with the same type and shape, up to the first difference
 * of each; then over the values of pairs that differ.
 */
#include "diff/compare.h"

#include <errno.h>
#include <fnmatch.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/hash.h"
#include "base/pool.h"
#include "base/sys.h"
#include "derive/stats.h"
#include "gguf/value.h"
#include "quant/encode.h"

/* ---- the two models ---- */

/* Merge the headers of the files, and find the place of each tensor in them. */
static int join_files(struct side *s, struct shards *of, struct mapped *first, struct err *e)
{
    const struct gguf *const *g = (const struct gguf *const *)of->g;
    of->file[0] = mapped_ref(first);
    int r = merge_shards(g, of->n, &s->g, e);
    return r < 0 ? r : err_sys(e, store_make(of->file, g, of->n, &s->store), "cannot open");
}

static int open_files(struct side *s, struct shards *of, struct model_file *m, struct err *e)
{
    struct gguf *first = NULL;
    struct mapped *file = NULL;
    int r = model_parse(m, 0, &first, e);
    if (r == 0)
        r = mapped_open(m->file.fd, m->src.size, &file, e);
    if (r == 0 && of->n)
        r = model_open_shards(of, first, 0, NULL, e);
    if (r == 0 && of->n) {
        r = join_files(s, of, file, e);
    } else if (r == 0) {
        s->g = gguf_ref(first);
        r = err_sys(e, store_make(&file, (const struct gguf *const *)&first, 1, &s->store),
                    "cannot open");
    }
    mapped_unref(file);
    gguf_free(first);
    return r;
}

int side_open(struct side *s, const char *path, const char *label, struct err *e)
{
    struct shards of;
    struct model_file m;
    *s = (struct side){.label = label};
    char *first = shards_find(&of, path) < 0 ? NULL : shards_path(&of, 0);
    if (!first)
        return err_set(e, -ENOMEM, "no memory");
    int r = model_find(first, &m, e);
    if (r == 0)
        r = open_files(s, &of, &m, e);
    model_free(&m);
    shards_free(&of);
    free(first);
    return r;
}

void side_free(struct side *s)
{
    store_unref(s->store);
    gguf_free(s->g);
    *s = (struct side){0};
}

/* Read bytes [off, off + n) of a tensor's data. Returns 0, or -EIO if the file was truncated or the
 * medium failed. */
static int side_read(const struct side *s, uint32_t tensor, uint64_t off, void *dst, size_t n)
{
    uint64_t at;
    const struct mapped *m = store_mapped(s->store, tensor, off, n, &at);
    return sys_read_all(&sys_libc, m->fd, dst, n, at);
}

/* Skip the hole at byte `off` of the tensor, if there is one. Returns the offset of the next byte
 * that may have to be read. The bytes of a hole are zeros. */
static uint64_t side_hole(const struct side *s, uint32_t tensor, uint64_t off)
{
    uint64_t at, data;
    const struct mapped *m = store_mapped(s->store, tensor, off, 0, &at);
    int r = sys_libc.seek(&sys_libc, m->fd, at, SEEK_DATA, &data);
    if (r == -ENXIO) { /* a hole extends to the end of the file; the end must still exist */
        r = sys_libc.seek(&sys_libc, m->fd, 0, SEEK_END, &data);
        r = r == 0 && data < m->map.size ? -EIO : r;
    }
    return r == 0 && data > at ? off + (data - at) : off;
}

/* ---- pairs ---- */

struct text pair_name(const struct gguf *g, bool keys, uint32_t i)
{
    if (keys)
        return (struct text){gguf_key(g, &g->kv[i]), g->kv[i].key_len};
    return (struct text){gguf_name(g, &g->tensor[i]), g->tensor[i].name_len};
}

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

/*
 * Keep the longest run of pairs that are in both models and whose positions in B ascend. All other
 * pairs that are in both models have moved. tail[k] is the last pair of the best run of length k +
 * 1; before[i] is the pair before pair i in its run.
 */
static void mark_moved(struct pairs *p, uint32_t *tail, uint32_t *before)
{
    size_t runs = 0;
    for (uint32_t i = 0; i < p->n; i++) {
        if (p->of[i].status != DIFF_SAME)
            continue;
        size_t lo = 0, hi = runs;
        while (lo < hi) {
            size_t mid = lo + (hi - lo) / 2;
            if (p->of[tail[mid]].no[1] < p->of[i].no[1])
                lo = mid + 1;
            else
                hi = mid;
        }
        before[i] = lo ? tail[lo - 1] : PAIR_NONE;
        tail[lo] = i;
        runs = lo == runs ? runs + 1 : runs;
        p->of[i].status = DIFF_MOVED;
    }
    for (uint32_t i = runs ? tail[runs - 1] : PAIR_NONE; i != PAIR_NONE; i = before[i])
        p->of[i].status = DIFF_SAME;
}

/* Pair by name. Compares only names and their order. */
static int pairs_make(const struct diff *d, bool keys, struct pairs *ret)
{
    const struct gguf *a = d->side[0]->g, *b = d->side[1]->g;
    const uint32_t n_a = keys ? a->n_kv : a->n_tensors, n_b = keys ? b->n_kv : b->n_tensors;
    const size_t room = (size_t)n_a + n_b + 1;
    uint32_t *tail = calloc(room, sizeof(*tail)), *before = calloc(room, sizeof(*before));
    ret->of = calloc(room, sizeof(*ret->of));
    const bool ok = ret->of && tail && before;
    for (uint32_t i = 0; ok && i < n_a; i++) {
        const struct text name = pair_name(a, keys, i);
        const uint32_t other = find_named(b, keys, name);
        if (!left_out(d->opt, keys, name))
            ret->of[ret->n++] =
                (struct pair){{i, other}, other == PAIR_NONE ? DIFF_ONLY_A : DIFF_SAME};
    }
    for (uint32_t i = 0; ok && i < n_b; i++) {
        const struct text name = pair_name(b, keys, i);
        if (find_named(a, keys, name) == PAIR_NONE && !left_out(d->opt, keys, name))
            ret->of[ret->n++] = (struct pair){{PAIR_NONE, i}, DIFF_ONLY_B};
    }
    if (ok)
        mark_moved(ret, tail, before);
    free(tail);
    free(before);
    return ok ? 0 : -ENOMEM;
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

uint64_t value_bits(const struct gguf_value *v)
{
    uint64_t bits = get_uint(v->data, gguf_types[v->type].width, v->fmt->big);
    return v->type == GGUF_BOOL ? bits != 0 : bits;
}

/* True if bytes can be compared, because both files encode this value in the same way. */
static bool same_form(const struct gguf_value *a, const struct gguf_value *b)
{
    return a->fmt->big == b->fmt->big && a->fmt->len_width == b->fmt->len_width &&
           a->fmt->nul == b->fmt->nul;
}

static bool same_array(const struct gguf_value *a, const struct gguf_value *b)
{
    struct gguf_value x, y;
    if (a->elem != b->elem || a->count != b->count)
        return false;
    if (same_form(a, b)) {
        size_t n = (size_t)(gguf_value_end(a) - a->data);
        if (n == (size_t)(gguf_value_end(b) - b->data) &&
            (n == 0 || memcmp(a->data, b->data, n) == 0))
            return true;
    }
    struct gguf_walk i = gguf_walk(a), k = gguf_walk(b);
    while (gguf_next(&i, &x) && gguf_next(&k, &y))
        if (!value_same(&x, &y))
            return false;
    return true;
}

bool value_same(const struct gguf_value *a, const struct gguf_value *b)
{
    if (a->type != b->type)
        return false;
    if (a->type == GGUF_ARRAY)
        return same_array(a, b);
    if (a->type == GGUF_STRING)
        return a->len == b->len && (a->len == 0 || memcmp(a->data, b->data, (size_t)a->len) == 0);
    return value_bits(a) == value_bits(b);
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

struct diff_pass {
    struct diff *d;
    bool values;
    uint64_t *first; /* owned: the first piece of each pair, then the number of pieces */
    struct units units;
    /* Protected by the lock, like the results: */
    uint64_t bad; /* the first unreadable piece */
    size_t side_of_bad;
};

/* A range of a pair's bytes (in A) or elements. */
struct diff_piece {
    size_t pair;
    uint64_t first, n;
};

static bool same_shape(const struct gguf *a, const struct gguf_tensor *x, const struct gguf *b,
                       const struct gguf_tensor *y)
{
    for (uint32_t i = 0; i < x->n_dims && i < y->n_dims; i++)
        if (gguf_dim(a, x, i) != gguf_dim(b, y, i))
            return false;
    return x->n_dims == y->n_dims;
}

/* Return the amount of work for a pair in a pass, in bytes or elements. */
static uint64_t work_of(const struct diff_pass *w, size_t i)
{
    const struct pair *p = &w->d->tensors.of[i];
    const struct tensor_diff *d = &w->d->of[i];
    if (!is_both(p) || d->shape)
        return 0;
    const struct gguf_tensor *x = pair_tensor(w->d, p, 0), *y = pair_tensor(w->d, p, 1);
    if (!w->values)
        return d->type ? 0 : x->nbytes;
    bool wanted = (d->type || d->bytes) &&
                  quant_has_values(gguf_type(x), w->d->side[0]->g->fmt.big) &&
                  quant_has_values(gguf_type(y), w->d->side[1]->g->fmt.big);
    return wanted ? x->n_elem : 0;
}

/* ---- bytes ---- */

/* Return the end of the holes that both tensors have at byte `off` of A's data. */
static uint64_t byte_holes(const struct diff *d, const struct pair *p, uint64_t off)
{
    uint64_t end = side_hole(d->side[0], p->no[0], off);
    return end > off ? min_u64(end, side_hole(d->side[1], p->no[1], off)) : off;
}

static int compare_bytes(struct diff_pass *w, const struct diff_piece *c, struct diff_room *m,
                         size_t *side)
{
    const struct pair *p = &w->d->tensors.of[c->pair];
    const struct quant_type *type = gguf_type(pair_tensor(w->d, p, 0));
    size_t n = (size_t)c->n;
    for (*side = 0; *side < 2; ++*side) {
        int r = side_read(w->d->side[*side], p->no[*side], c->first, m->bytes[*side], n);
        if (r < 0)
            return r;
    }
    /* convert B's bytes, which are whole blocks, to A's byte order */
    if (w->d->side[0]->g->fmt.big != w->d->side[1]->g->fmt.big && type && type->block_len)
        quant_swap(type, m->bytes[1], n / type->block_bytes);
    if (memcmp(m->bytes[0], m->bytes[1], n) != 0) {
        LOCKED(units_lock());
        w->d->of[c->pair].bytes = true;
    }
    return 0;
}

/* ---- values ---- */

/* Consecutive elements of one tensor, whose first block is at `data`. */
struct diff_stretch {
    const struct quant_type *type;
    bool big;
    const uint8_t *data;
};

static double value_at(const struct diff_stretch *s, const float *values, size_t i, uint64_t at)
{
    return quant_is_wide(s->type) ? quant_wide_value(s->type, s->big, s->data, at)
                                  : (double)values[i];
}

static void add_values(struct tensor_diff *d, double a, double b, uint64_t at)
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

/* Add n values, starting at element `at` of the tensor, which is element `i` of the stretches. */
static void add_chunk(struct tensor_diff *d, const struct diff_stretch s[2], float values[2][CHUNK],
                      uint64_t i, size_t n, uint64_t at)
{
    for (size_t k = 0; k < 2; k++)
        if (!quant_is_wide(s[k].type))
            floats_read(s[k].type, s[k].big, s[k].data, i, n, values[k]);
    /* Only little-endian floats can be checked quickly. In all other cases, each value is
     * checked. */
    if (HOST_BIG || quant_is_wide(s[0].type) || quant_is_wide(s[1].type) ||
        !quant_all_finite((const uint8_t *)values[0], n) ||
        !quant_all_finite((const uint8_t *)values[1], n)) {
        for (size_t k = 0; k < n; k++)
            add_values(d, value_at(&s[0], values[0], k, i + k),
                       value_at(&s[1], values[1], k, i + k), at + k);
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

/* True if blocks of zero bytes decode to zeros, so that a hole in both need not be read. */
static bool zeros_are_zeros(const struct quant_type *t)
{
    static const uint8_t zeros[QUANT_MAX_BLOCK_BYTES];
    float value[QUANT_MAX_BLOCK_LEN];
    if (quant_is_wide(t))
        return true;
    floats_read(t, false, zeros, 0, t->block_len, value);
    for (size_t i = 0; i < t->block_len; i++)
        if (value[i] != 0)
            return false;
    return true;
}

/* Return the offset of an element's block in the tensor's bytes. */
static uint64_t byte_of(const struct quant_type *t, uint64_t element)
{
    return element / t->block_len * t->block_bytes;
}

/* Return the end of the holes that both tensors have at an element, or the element itself if one of
 * them has no hole there or its zero bytes do not decode to zeros. */
static uint64_t value_holes(const struct diff *d, const struct pair *p, uint64_t element)
{
    uint64_t end = UINT64_MAX;
    for (size_t k = 0; k < 2 && end > element; k++) {
        const struct quant_type *t = gguf_type(pair_tensor(d, p, k));
        uint64_t off = byte_of(t, element);
        uint64_t to = zeros_are_zeros(t) ? side_hole(d->side[k], p->no[k], off) : off;
        end = min_u64(end, to / t->block_bytes * t->block_len);
    }
    return end;
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

static int compare_values(struct diff_pass *w, const struct diff_piece *c, struct diff_room *m,
                          size_t *side)
{
    const struct pair *p = &w->d->tensors.of[c->pair];
    struct tensor_diff found = {.max_at = UINT64_MAX};
    struct diff_stretch s[2];
    for (*side = 0; *side < 2; ++*side) {
        const size_t k = *side;
        const struct quant_type *t = gguf_type(pair_tensor(w->d, p, k));
        s[k] = (struct diff_stretch){t, w->d->side[k]->g->fmt.big, m->bytes[k]};
        int r = side_read(w->d->side[k], p->no[k], byte_of(t, c->first), m->bytes[k],
                          (size_t)byte_of(t, c->n));
        if (r < 0)
            return r;
    }
    for (uint64_t i = 0; i < c->n; i += CHUNK)
        add_chunk(&found, s, m->values, i, (size_t)min_u64(CHUNK, c->n - i), c->first + i);
    LOCKED(units_lock());
    add_distance(&w->d->of[c->pair], &found);
    return 0;
}

/* ---- a pass ---- */

/* Return the size of a pair's pieces in bytes or elements. Pieces are whole blocks. */
static uint64_t piece_size(const struct diff_pass *w, size_t i)
{
    const struct pair *p = &w->d->tensors.of[i];
    const struct quant_type *t = is_both(p) ? gguf_type(pair_tensor(w->d, p, 0)) : NULL;
    const uint64_t block = t && t->block_bytes ? t->block_bytes : 1;
    return w->values ? (uint64_t)PIECE : (uint64_t)ROOM / block * block;
}

static struct diff_piece piece_at(const struct diff_pass *w, uint64_t unit)
{
    const size_t lo = upto_u64(w->first, 0, sizeof(*w->first), w->d->tensors.n, unit) - 1;
    uint64_t size = piece_size(w, lo), at = (unit - w->first[lo]) * size;
    return (struct diff_piece){lo, at, min_u64(size, work_of(w, lo) - at)};
}

/* Skip holes, and pieces of pairs whose bytes are known to differ. */
static uint64_t next_piece(void *arg, uint64_t unit)
{
    struct diff_pass *w = arg;
    while (unit < w->first[w->d->tensors.n]) {
        struct diff_piece c = piece_at(w, unit);
        const struct pair *p = &w->d->tensors.of[c.pair];
        lock_take(units_lock());
        const bool known = !w->values && w->d->of[c.pair].bytes;
        lock_drop(units_lock());
        if (known) {
            unit = w->first[c.pair + 1];
            continue;
        }
        uint64_t end = w->values ? value_holes(w->d, p, c.first) : byte_holes(w->d, p, c.first);
        if (end < c.first + c.n)
            break;
        uint64_t after = w->first[c.pair] + end / piece_size(w, c.pair);
        unit = min_u64(max_u64(after, unit + 1), w->first[c.pair + 1]);
    }
    return unit;
}

static int compare_piece(void *arg, uint64_t unit, void *room)
{
    struct diff_pass *w = arg;
    const struct diff_piece c = piece_at(w, unit);
    size_t side = 0;
    int r = w->values ? compare_values(w, &c, room, &side) : compare_bytes(w, &c, room, &side);
    if (r < 0) {
        LOCKED(units_lock());
        if (unit < w->bad) {
            w->bad = unit;
            w->side_of_bad = side;
        }
    }
    return r;
}

/* Set e to a message that names the unreadable tensor. */
static int unreadable(const struct diff_pass *w, int r, struct err *e)
{
    char shown[SHOW_MAX], file[SHOW_MAX];
    if (w->bad == UINT64_MAX)
        return err_set(e, r, "cannot compare: %s", strerror(-r));
    const struct pair *p = &w->d->tensors.of[piece_at(w, w->bad).pair];
    const struct text name = pair_name(w->d->side[0]->g, false, p->no[0]);
    const char *label = w->d->side[w->side_of_bad]->label;
    return err_set(e, r, "%s: tensor '%s': cannot be read: %s", show(file, label, strlen(label)),
                   show(shown, name.at, name.len), strerror(-r));
}

static int run_pass(struct diff_pass *w, struct err *e)
{
    const struct units_watch watch = {.progress = w->d->opt->progress, .arg = w->d->opt->arg};
    struct units *u = &w->units;
    *u = (struct units){
        .unit = compare_piece, .next = next_piece, .arg = w, .room = sizeof(struct diff_room)};
    for (size_t i = 0; i < w->d->tensors.n; i++) {
        uint64_t size = piece_size(w, i);
        w->first[i] = u->n;
        u->n += (work_of(w, i) + size - 1) / size;
    }
    w->first[w->d->tensors.n] = u->n;
    w->bad = UINT64_MAX;
    int r = u->n ? units_run(u, &watch) : 0;
    return r < 0 ? unreadable(w, r, e) : 0;
}

/* ---- tensors that only one has ---- */

/* Number of bytes at the beginning, middle and end of a tensor that are compared to find its
 * copy. */
enum { SAMPLE = 4096, TRIES = 4 };

static int sample_hash(const struct side *s, uint32_t i, uint8_t *room, uint64_t *ret)
{
    const struct gguf_tensor *t = &s->g->tensor[i];
    uint64_t part[5] = {t->type_id, t->nbytes}, n = min_u64(SAMPLE, t->nbytes);
    const uint64_t at[3] = {0, (t->nbytes - n) / 2, t->nbytes - n};
    for (size_t k = 0; k < 3; k++) {
        int r = side_read(s, i, at[k], room, (size_t)n);
        if (r < 0)
            return r;
        part[2 + k] = hash_name(room, (size_t)n);
    }
    *ret = hash_name(part, sizeof(part));
    return 0;
}

static int same_bytes(const struct side *a, uint32_t i, const struct side *b, uint32_t k,
                      struct diff_room *m, bool *ret)
{
    uint64_t n = a->g->tensor[i].nbytes;
    *ret = n == b->g->tensor[k].nbytes;
    for (uint64_t at = 0, part; *ret && at < n; at += part) {
        part = min_u64(ROOM, n - at);
        int r = side_read(a, i, at, m->bytes[0], (size_t)part);
        if (r == 0)
            r = side_read(b, k, at, m->bytes[1], (size_t)part);
        if (r < 0)
            return r;
        *ret = memcmp(m->bytes[0], m->bytes[1], (size_t)part) == 0;
    }
    return 0;
}

/* Index, by a hash of their sampled bytes, the tensors that only side k has. The index holds the
 * indices of pairs. *n becomes the number of these tensors. */
static int gather_lonely(const struct diff *d, size_t k, struct index *lonely, size_t *n,
                         struct diff_room *m)
{
    int r = index_init(lonely, d->tensors.n + 1);
    for (size_t i = 0; i < d->tensors.n && r == 0; i++) {
        const struct pair *p = &d->tensors.of[i];
        uint64_t hash;
        if (p->no[!k] != PAIR_NONE || pair_tensor(d, p, k)->nbytes == 0)
            continue;
        r = sample_hash(d->side[k], p->no[k], m->bytes[0], &hash);
        if (r == 0)
            index_insert(lonely, hash, (uint32_t)i);
        ++*n;
    }
    return r;
}

/* Find the tensors of side k whose copy is tensor `no` of the other side. */
static int match(struct diff *d, size_t k, const struct index *lonely, uint32_t no,
                 struct diff_room *m)
{
    const struct side *own = d->side[k], *other = d->side[!k];
    uint64_t hash;
    uint32_t i;
    int r = sample_hash(other, no, m->bytes[0], &hash);
    struct probe p = index_probe(lonely, hash);
    for (unsigned tries = 0; r == 0 && tries < TRIES && index_next(lonely, &p, &i);) {
        const uint32_t mine = d->tensors.of[i].no[k];
        bool same = false;
        if (d->of[i].twin != PAIR_NONE ||
            own->g->tensor[mine].type_id != other->g->tensor[no].type_id)
            continue;
        r = same_bytes(own, mine, other, no, m, &same);
        if (r == 0 && same)
            d->of[i].twin = no;
        tries++;
    }
    return r;
}

/* Find the copies. This is skipped if the byte orders differ, because equal tensors usually have
 * equal names in that case. */
static int twins(struct diff *d, struct err *e)
{
    struct diff_room *m = malloc(sizeof(*m));
    int r = m ? 0 : -ENOMEM;
    for (size_t k = 0; k < 2 && r == 0 && d->side[0]->g->fmt.big == d->side[1]->g->fmt.big; k++) {
        const struct gguf *other = d->side[!k]->g;
        struct index lonely = {0};
        size_t n = 0;
        r = gather_lonely(d, k, &lonely, &n, m);
        for (uint32_t i = 0; r == 0 && n && i < other->n_tensors; i++)
            if (other->tensor[i].nbytes)
                r = match(d, k, &lonely, i, m);
        index_free(&lonely);
    }
    free(m);
    return r < 0 ? err_set(e, r, "cannot compare: %s", strerror(-r)) : 0;
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

static void begin_tensors(struct diff *d)
{
    for (size_t i = 0; i < d->tensors.n; i++) {
        const struct pair *p = &d->tensors.of[i];
        struct tensor_diff *f = &d->of[i];
        *f = (struct tensor_diff){.twin = PAIR_NONE, .max_at = UINT64_MAX};
        if (!is_both(p))
            continue;
        const struct gguf_tensor *x = pair_tensor(d, p, 0), *y = pair_tensor(d, p, 1);
        f->type = x->type_id != y->type_id;
        f->shape = !same_shape(d->side[0]->g, x, d->side[1]->g, y);
        /* The length of an unknown type is also unknown. */
        f->bytes = !f->type && !f->shape && x->nbytes != y->nbytes;
    }
}

/* Mark the tensors that differ by more than the tolerance. */
static void apply_tolerance(struct diff *d)
{
    const double tolerance = d->opt->tolerance;
    for (size_t i = 0; i < d->tensors.n; i++) {
        const struct tensor_diff *f = &d->of[i];
        const bool within = tolerance >= 0 && f->measured && f->apart == 0 &&
                            (f->sum.differ == 0 || diff_error(&f->sum) <= tolerance);
        if ((f->type || f->shape || f->bytes) && !within)
            d->tensors.of[i].status = DIFF_CHANGED;
    }
}

static int compare_tensors(struct diff *d, struct err *e)
{
    struct diff_pass w = {.d = d, .first = calloc(d->tensors.n + 1, sizeof(*w.first))};
    if (!w.first)
        return err_set(e, -ENOMEM, "no memory");
    begin_tensors(d);
    int r = run_pass(&w, e);
    if (r == 0 && !d->opt->quick) {
        w.values = true;
        r = run_pass(&w, e);
        for (size_t i = 0; r == 0 && i < d->tensors.n; i++)
            d->of[i].measured = work_of(&w, i) > 0;
    }
    if (r == 0)
        r = twins(d, e);
    if (r == 0)
        apply_tolerance(d);
    free(w.first);
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

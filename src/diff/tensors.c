/* SPDX-License-Identifier: MIT */
/*
 * Compares tensors: see tensors.h. Makes two passes, each on all processors (base/pool.h): over the
 * bytes of pairs with the same type and shape, up to the first difference of each; then over the
 * values of those that differ.
 */
#include "diff/tensors.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/hash.h"
#include "base/pool.h"
#include "derive/stats.h"
#include "quant/convert.h"

/* Elements decoded at a time, which fit the first-level cache; elements per piece; bytes per piece.
 * */
enum { CHUNK = 6144, PIECE = 8 * CHUNK, ROOM = 8 * PIECE };
_Static_assert(CHUNK % QUANT_MAX_BLOCK_LEN == 0, "chunks are whole blocks");

/* A thread's memory: the bytes and the values of both tensors. */
struct room {
    float values[2][CHUNK];
    uint8_t bytes[2][ROOM];
};

struct pass {
    const struct side *side[2];
    struct pairs *pairs;
    struct tensor_diff *result;
    bool values;
    uint64_t *first; /* owned: the first piece of each pair, then the number of pieces */
    struct units units;
    /* Protected by the lock, like the results: */
    uint64_t bad; /* the first unreadable piece */
    size_t side_of_bad;
};

/* A range of bytes of A, or of elements. */
struct piece {
    size_t pair;
    uint64_t first, n;
};

static const struct gguf_tensor *tensor_of(const struct side *s, uint32_t i)
{
    return &s->g->tensor[i];
}

static bool same_shape(const struct side *a, uint32_t i, const struct side *b, uint32_t k)
{
    const struct gguf_tensor *x = tensor_of(a, i), *y = tensor_of(b, k);
    if (x->n_dims != y->n_dims)
        return false;
    for (uint32_t d = 0; d < x->n_dims; d++)
        if (gguf_dim(a->g, x, d) != gguf_dim(b->g, y, d))
            return false;
    return true;
}

static bool has_values(const struct side *s, uint32_t i)
{
    return quant_has_values(gguf_type(tensor_of(s, i)), s->g->fmt.big);
}

/* Return the amount of work of a pass for a pair, in bytes or elements. */
static uint64_t work_of(const struct pass *w, size_t i)
{
    const struct pair *p = &w->pairs->of[i];
    const struct tensor_diff *d = &w->result[i];
    if (p->no[0] == PAIR_NONE || p->no[1] == PAIR_NONE || d->shape)
        return 0;
    const struct gguf_tensor *t = tensor_of(w->side[0], p->no[0]);
    if (!w->values)
        return d->type ? 0 : t->nbytes;
    bool wanted = (d->type || d->bytes) && has_values(w->side[0], p->no[0]) &&
                  has_values(w->side[1], p->no[1]);
    return wanted ? t->n_elem : 0;
}

/* ---- bytes ---- */

/* Convert bytes of B, which are whole blocks, to A's byte order. */
static void to_order_of_a(const struct pass *w, const struct gguf_tensor *t, uint8_t *bytes,
                          size_t n)
{
    const struct quant_type *type = gguf_type(t);
    if (w->side[0]->g->fmt.big != w->side[1]->g->fmt.big && type && type->block_len)
        quant_swap(type, bytes, n / type->block_bytes);
}

/* Return the end of the holes that both tensors have at byte `off` of A's data. */
static uint64_t byte_holes(const struct pass *w, const struct pair *p, uint64_t off)
{
    uint64_t end = side_hole(w->side[0], p->no[0], off);
    return end > off ? min_u64(end, side_hole(w->side[1], p->no[1], off)) : off;
}

static int compare_bytes(struct pass *w, const struct piece *c, struct room *m, size_t *side)
{
    const struct pair *p = &w->pairs->of[c->pair];
    size_t n = (size_t)c->n;
    for (*side = 0; *side < 2; ++*side) {
        int r = side_read(w->side[*side], p->no[*side], c->first, m->bytes[*side], n);
        if (r < 0)
            return r;
    }
    to_order_of_a(w, tensor_of(w->side[0], p->no[0]), m->bytes[1], n);
    if (memcmp(m->bytes[0], m->bytes[1], n) != 0) {
        LOCKED(&w->units.lock);
        w->result[c->pair].bytes = true;
    }
    return 0;
}

/* ---- values ---- */

/* A stretch of one tensor: elements from `first` on, whose first block is at `data`. */
struct stretch {
    const struct quant_type *type;
    bool big;
    const uint8_t *data;
};

static double value_at(const struct stretch *s, const float *values, size_t i, uint64_t at)
{
    return quant_is_wide(s->type) ? quant_wide_value(s->type, s->big, s->data, at)
                                  : (double)values[i];
}

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

/* Add n values, starting with element `at` of the tensor, which is element `i` of the stretches. */
static void add_slowly(struct tensor_diff *d, const struct stretch s[2], float values[2][CHUNK],
                       uint64_t i, size_t n, uint64_t at)
{
    for (size_t k = 0; k < n; k++)
        add_pair(d, value_at(&s[0], values[0], k, i + k), value_at(&s[1], values[1], k, i + k),
                 at + k);
}

static bool all_finite(const float *x, size_t n)
{
    for (size_t i = 0; HOST_BIG && i < n; i++)
        if (!isfinite(x[i]))
            return false;
    return HOST_BIG || quant_all_finite((const uint8_t *)x, n);
}

static void add_chunk(struct tensor_diff *d, const struct stretch s[2], float values[2][CHUNK],
                      uint64_t i, size_t n, uint64_t at)
{
    for (size_t k = 0; k < 2; k++)
        if (!quant_is_wide(s[k].type))
            floats_read(s[k].type, s[k].big, s[k].data, i, n, values[k]);
    bool wide = quant_is_wide(s[0].type) || quant_is_wide(s[1].type);
    if (wide || !all_finite(values[0], n) || !all_finite(values[1], n)) {
        add_slowly(d, s, values, i, n, at);
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

/* Return the place of an element's block in the tensor's bytes. */
static uint64_t byte_of(const struct quant_type *t, uint64_t element)
{
    return element / t->block_len * t->block_bytes;
}

/* Return the end of the holes that both tensors have at an element, where holes stand for zeros. */
static uint64_t value_holes(const struct pass *w, const struct pair *p, uint64_t element)
{
    uint64_t end = UINT64_MAX;
    for (size_t k = 0; k < 2 && end > element; k++) {
        uint32_t no = p->no[k];
        const struct quant_type *t = gguf_type(tensor_of(w->side[k], no));
        uint64_t off = byte_of(t, element);
        uint64_t to = zeros_are_zeros(t) ? side_hole(w->side[k], no, off) : off;
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

static int compare_values(struct pass *w, const struct piece *c, struct room *m, size_t *side)
{
    const struct pair *p = &w->pairs->of[c->pair];
    struct tensor_diff found = {.max_at = UINT64_MAX};
    struct stretch s[2];
    for (size_t k = 0; k < 2; k++) {
        uint32_t no = p->no[k];
        const struct quant_type *t = gguf_type(tensor_of(w->side[k], no));
        s[k] = (struct stretch){t, w->side[k]->g->fmt.big, m->bytes[k]};
        *side = k;
        int r =
            side_read(w->side[k], no, byte_of(t, c->first), m->bytes[k], (size_t)byte_of(t, c->n));
        if (r < 0)
            return r;
    }
    for (uint64_t i = 0; i < c->n; i += CHUNK)
        add_chunk(&found, s, m->values, i, (size_t)min_u64(CHUNK, c->n - i), c->first + i);
    LOCKED(&w->units.lock);
    add_distance(&w->result[c->pair], &found);
    return 0;
}

/* ---- a pass ---- */

/* Return the size of a pair's pieces in bytes or elements, always whole blocks. */
static uint64_t piece_size(const struct pass *w, size_t i)
{
    const uint32_t a = w->pairs->of[i].no[0];
    const struct quant_type *t = a == PAIR_NONE ? NULL : gguf_type(tensor_of(w->side[0], a));
    const uint64_t block = t && t->block_bytes ? t->block_bytes : 1;
    return w->values ? (uint64_t)PIECE : (uint64_t)ROOM / block * block;
}

static struct piece piece_at(const struct pass *w, uint64_t unit)
{
    const size_t lo = upto_u64(w->first, 0, sizeof(*w->first), w->pairs->n, unit) - 1;
    uint64_t size = piece_size(w, lo), at = (unit - w->first[lo]) * size;
    return (struct piece){lo, at, min_u64(size, work_of(w, lo) - at)};
}

/* Skip pieces of pairs whose bytes are known to differ, and holes. */
static uint64_t next_piece(void *arg, uint64_t unit)
{
    struct pass *w = arg;
    while (unit < w->first[w->pairs->n]) {
        struct piece c = piece_at(w, unit);
        const struct pair *p = &w->pairs->of[c.pair];
        if (!w->values && w->result[c.pair].bytes) {
            unit = w->first[c.pair + 1];
            continue;
        }
        uint64_t end = w->values ? value_holes(w, p, c.first) : byte_holes(w, p, c.first);
        if (end < c.first + c.n)
            break;
        uint64_t after = w->first[c.pair] + end / piece_size(w, c.pair);
        unit = min_u64(max_u64(after, unit + 1), w->first[c.pair + 1]);
    }
    return unit;
}

static int compare_piece(void *arg, uint64_t unit, void *room)
{
    struct pass *w = arg;
    const struct piece c = piece_at(w, unit);
    size_t side = 0;
    int r = w->values ? compare_values(w, &c, room, &side) : compare_bytes(w, &c, room, &side);
    if (r < 0) {
        LOCKED(&w->units.lock);
        if (unit < w->bad) {
            w->bad = unit;
            w->side_of_bad = side;
        }
    }
    return r;
}

/* Set e to a message that names the unreadable tensor. */
static int unreadable(const struct pass *w, int r, struct err *e)
{
    char shown[SHOW_MAX], file[SHOW_MAX];
    if (w->bad == UINT64_MAX)
        return err_set(e, r, "cannot compare: %s", strerror(-r));
    const struct pair *p = &w->pairs->of[piece_at(w, w->bad).pair];
    const struct gguf_tensor *t = tensor_of(w->side[0], p->no[0]);
    const char *label = w->side[w->side_of_bad]->label;
    return err_set(e, r, "%s: tensor '%s': cannot be read: %s", show(file, label, strlen(label)),
                   show(shown, gguf_name(w->side[0]->g, t), t->name_len), strerror(-r));
}

static int run(struct pass *w, const struct diff_options *o, struct err *e)
{
    const struct units_watch watch = {.progress = o->progress, .arg = o->arg};
    struct units *u = &w->units;
    *u = (struct units){
        .unit = compare_piece, .next = next_piece, .arg = w, .room = sizeof(struct room)};
    for (size_t i = 0; i < w->pairs->n; i++) {
        uint64_t size = piece_size(w, i);
        w->first[i] = u->n;
        u->n += (work_of(w, i) + size - 1) / size;
    }
    w->first[w->pairs->n] = u->n;
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
    const struct gguf_tensor *t = tensor_of(s, i);
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
                      struct room *m, bool *ret)
{
    uint64_t n = tensor_of(a, i)->nbytes;
    *ret = n == tensor_of(b, k)->nbytes;
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

/* The tensors of one side without a pair, by type and length, and by a hash of their sampled
 * bytes. */
struct lonely {
    struct index by_size, by_sample;
    size_t *pair; /* owned: the pair to which each belongs */
    size_t n;
};

static uint64_t size_hash(const struct gguf_tensor *t)
{
    const uint64_t words[] = {t->type_id, t->nbytes};
    return hash_name(words, sizeof(words));
}

static int gather(const struct pass *w, size_t k, struct lonely *l, struct room *m)
{
    enum diff_status status = k ? DIFF_ONLY_B : DIFF_ONLY_A;
    size_t n = 0;
    for (size_t i = 0; i < w->pairs->n; i++)
        n += w->pairs->of[i].status == status;
    l->pair = calloc(n + 1, sizeof(*l->pair));
    if (!l->pair || index_init(&l->by_size, n + 1) < 0 || index_init(&l->by_sample, n + 1) < 0)
        return -ENOMEM;
    for (size_t i = 0; i < w->pairs->n; i++) {
        if (w->pairs->of[i].status != status)
            continue;
        uint32_t no = w->pairs->of[i].no[k];
        const struct gguf_tensor *t = tensor_of(w->side[k], no);
        uint64_t hash;
        int r = t->nbytes ? sample_hash(w->side[k], no, m->bytes[0], &hash) : 0;
        if (r < 0)
            return r;
        if (t->nbytes) {
            index_insert(&l->by_size, size_hash(t), (uint32_t)l->n);
            index_insert(&l->by_sample, hash, (uint32_t)l->n);
            l->pair[l->n++] = i;
        }
    }
    return 0;
}

/* Find the tensor whose copy is tensor `no` of the other side. */
static int match(struct pass *w, size_t k, const struct lonely *l, uint32_t no, struct room *m)
{
    const struct side *own = w->side[k], *other = w->side[!k];
    uint64_t hash;
    uint32_t i;
    struct probe p = index_probe(&l->by_size, size_hash(tensor_of(other, no)));
    if (!index_next(&l->by_size, &p, &i))
        return 0;
    int r = sample_hash(other, no, m->bytes[0], &hash);
    if (r < 0)
        return r;
    p = index_probe(&l->by_sample, hash);
    for (unsigned tries = 0; tries < TRIES && index_next(&l->by_sample, &p, &i);) {
        struct tensor_diff *d = &w->result[l->pair[i]];
        uint32_t mine = w->pairs->of[l->pair[i]].no[k];
        bool same = false;
        if (d->twin != PAIR_NONE || tensor_of(own, mine)->type_id != tensor_of(other, no)->type_id)
            continue;
        r = same_bytes(own, mine, other, no, m, &same);
        if (r < 0)
            return r;
        if (same)
            d->twin = no;
        tries++;
    }
    return 0;
}

static int find_twins(struct pass *w, size_t k, struct room *m)
{
    struct lonely l = {0};
    int r = gather(w, k, &l, m);
    for (uint32_t i = 0; r == 0 && l.n && i < w->side[!k]->g->n_tensors; i++)
        if (tensor_of(w->side[!k], i)->nbytes)
            r = match(w, k, &l, i, m);
    index_free(&l.by_size);
    index_free(&l.by_sample);
    free(l.pair);
    return r;
}

static int twins(struct pass *w, struct err *e)
{
    struct room *m = malloc(sizeof(*m));
    int r = m ? 0 : -ENOMEM;
    /* Skipped if the byte orders differ: then equal tensors usually have equal names. */
    for (size_t k = 0; k < 2 && r == 0 && w->side[0]->g->fmt.big == w->side[1]->g->fmt.big; k++)
        r = find_twins(w, k, m);
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

static void begin(struct pass *w)
{
    for (size_t i = 0; i < w->pairs->n; i++) {
        const struct pair *p = &w->pairs->of[i];
        w->result[i] = (struct tensor_diff){.twin = PAIR_NONE, .max_at = UINT64_MAX};
        if (p->no[0] == PAIR_NONE || p->no[1] == PAIR_NONE)
            continue;
        const struct gguf_tensor *x = tensor_of(w->side[0], p->no[0]),
                                 *y = tensor_of(w->side[1], p->no[1]);
        w->result[i].type = x->type_id != y->type_id;
        w->result[i].shape = !same_shape(w->side[0], p->no[0], w->side[1], p->no[1]);
        /* The length of an unknown type is also unknown. */
        w->result[i].bytes = !w->result[i].type && !w->result[i].shape && x->nbytes != y->nbytes;
    }
}

static bool within(const struct tensor_diff *d, double tolerance)
{
    return d->measured && d->apart == 0 && (d->sum.differ == 0 || diff_error(&d->sum) <= tolerance);
}

static void settle(const struct pass *w, double tolerance)
{
    for (size_t i = 0; i < w->pairs->n; i++) {
        struct pair *p = &w->pairs->of[i];
        struct tensor_diff *d = &w->result[i];
        bool differs = d->type || d->shape || d->bytes;
        if (differs && (tolerance < 0 || !within(d, tolerance)))
            p->status = DIFF_CHANGED;
    }
}

int tensors_compare(const struct side *const side[2], struct pairs *p, const struct diff_options *o,
                    struct tensor_diff *ret, struct err *e)
{
    struct pass w = {.side = {side[0], side[1]}, .pairs = p, .result = ret};
    w.first = calloc(p->n + 1, sizeof(*w.first));
    if (!w.first)
        return err_set(e, -ENOMEM, "no memory");
    begin(&w);
    int r = run(&w, o, e);
    if (r == 0 && !o->quick) {
        w.values = true;
        r = run(&w, o, e);
        for (size_t i = 0; r == 0 && i < p->n; i++)
            ret[i].measured = work_of(&w, i) > 0;
    }
    if (r == 0)
        r = twins(&w, e);
    if (r == 0)
        settle(&w, o->tolerance);
    free(w.first);
    return r;
}

/* SPDX-License-Identifier: MIT */
/*
 * Judges what was written (judge.h).
 *
 * Written bytes are processed in units, on all processors. Each unit yields the bytes that the
 * tensor would have (for `raw`, the bytes written), which are compared with the current ones. Runs
 * of blocks that differ become pieces. If a tensor is new, or its type or number of elements
 * changes, the pieces cover all its bytes.
 */
#include "live/judge.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/err.h"
#include "base/map.h"
#include "edit/commit.h"
#include "quant/encode.h"
#include "text/number.h"

bool tensor_array_differs(const struct tensor_base *b, enum tensor_view view, const struct npy *npy)
{
    const unsigned width = npy->header ? tensor_views[view].form->width : 0;
    return npy->header && (npy->width != width || npy->fortran || !b->t ||
                           npy->header != tensor_view_size(b, view) - b->t->n_elem * width);
}

/* ---- rounds ---- */

void tensor_round_free(struct tensor_round *round)
{
    extents_free(&round->written);
}

int tensor_round_read(const struct tensor_round *round, const struct tensor_base *b, uint64_t off,
                      void *dst, size_t n)
{
    const struct extent *x;
    uint8_t *to = dst;
    int r = 0;
    for (uint64_t len; r == 0 && n > 0; off += len, to += len, n -= (size_t)len) {
        len = extents_stretch(&round->written, off, n, &x);
        if (x) {
            r = extent_read(x, off, to, (size_t)len);
            continue;
        }
        const size_t there = (size_t)within_u64(off, (size_t)len, tensor_view_size(b, round->view));
        memset(to + there, 0, (size_t)len - there);
        r = there ? tensor_view_read(b, round->view, off, to, there) : 0;
    }
    return r;
}

/* ---- the result of a judgement ---- */

void tensor_edit_free(struct tensor_edit *t)
{
    for (size_t i = 0; i < t->n; i++)
        log_unref(t->piece[i].log);
    free(t->piece);
    *t = TENSOR_EDIT_INIT;
}

/* Return the number of elements of a shape, which must be valid for tensor_shape_bytes(). */
static uint64_t elements_of(const struct tensor_shape *s)
{
    uint64_t n = 1;
    for (uint32_t i = 0; i < s->n_dims; i++)
        n *= s->dims[i];
    return n;
}

/* True if the tensor has this shape. One without dimensions counts as one dimension of 1. */
static bool has_shape(const struct tensor_base *b, uint32_t n_dims, const uint64_t *shape)
{
    uint64_t dims[GGUF_MAX_DIMS];
    const uint32_t n = tensor_dims(b, dims);
    return n == 0 ? n_dims == 1 && shape[0] == 1
                  : n == n_dims && memcmp(dims, shape, n * sizeof(*dims)) == 0;
}

/* Change the shape of a tensor, whose type and number of elements stay. */
static int reshape(const struct tensor_base *b, struct tensor_shape *shape, struct err *e)
{
    uint64_t nbytes;
    shape->type = b->t->type_id;
    int r = tensor_shape_bytes(shape, &nbytes, e);
    if (r < 0)
        return r;
    if (elements_of(shape) != b->t->n_elem)
        return err_set(e, -EINVAL, "the shape has %llu elements, the tensor has %llu",
                       (unsigned long long)elements_of(shape), (unsigned long long)b->t->n_elem);
    return has_shape(b, shape->n_dims, shape->dims) ? TENSOR_SAME : TENSOR_CHANGED;
}

/* ---- faults ---- */

/* Write NumPy's index of an element, such as "[3, 17]". */
static void put_index(struct buf *out, uint64_t element, uint32_t n_dims, const uint64_t *dims)
{
    uint64_t at[GGUF_MAX_DIMS];
    for (uint32_t i = 0; i < n_dims; i++) {
        at[i] = element % dims[i];
        element /= dims[i];
    }
    buf_char(out, '[');
    for (uint32_t i = n_dims; i-- > 0;)
        buf_printf(out, "%llu%s", (unsigned long long)at[i], i ? ", " : "");
    buf_char(out, ']');
}

static void put_value(struct buf *out, const struct quant_value *v)
{
    if (v->kind == QUANT_INTEGER)
        buf_printf(out, "%" PRId64, v->i64);
    else
        text_float(out, v->kind == QUANT_DOUBLE ? v->f64 : (double)v->f32, v->kind == QUANT_FLOAT,
                   &float_names_text);
}

static int needs_importances(const struct quant_type *t, struct err *e)
{
    return err_set(e, -EOPNOTSUPP,
                   "values can be stored as %s only with importances of their columns: mount with "
                   "`-o imatrix=FILE`, a file that has this tensor",
                   t->name);
}

/* ---- a judgement ---- */

enum {
    STRETCH = 65536, /* number of values judged at a time; whole blocks of any type */
    RAW_BLOCK = 512, /* number of bytes of `raw` compared as a unit */
    /* Gaps of at most this many equal bytes between two runs are rewritten, to limit the number of
     * pieces. */
    GAP = 16 * 1024,
};

/* Sizes and offsets of values are counted in the view, after its header, as if it were of float32
 * in C order if it is not; a conversion uses those of `f32`. */
struct job {
    const struct tensor_round *round; /* the data to judge; NULL for a conversion */
    const struct tensor_base *base;   /* the tensor before the edit */
    struct logs *logs;
    bool whole;                    /* the pieces must cover the whole tensor, not only changes */
    bool all;                      /* judge all, not only what was written */
    const struct quant_type *type; /* type of the result; NULL if bytes are judged, not values */
    uint32_t n_dims;               /* the shape of the result */
    uint64_t dims[GGUF_MAX_DIMS];
    const struct quant_form *view;
    struct quant_importances imp;
    const struct quant_importances *weigh; /* points to `imp`, or NULL */
    uint64_t head;                         /* bytes of the view before the first value */
    uint64_t size, unit, block;            /* numbers of bytes: in total, per unit and per block */
    uint64_t old;           /* bytes below this are compared with current blocks of the same type */
    unsigned width;         /* bytes per value */
    uint32_t raw_block;     /* bytes per stored block */
    struct map map;         /* the log of an array in Fortran order */
    const uint8_t *fortran; /* its values there; NULL: not in one piece */
    struct log *log;        /* a reference: the log that values are encoded into */
    uint64_t room;          /* the place of the tensor's first byte there */
    struct units units;
    /* Protected by the lock of the units: */
    uint64_t failed; /* the first unit that failed so far, and why */
    struct err why;
    struct tensor_piece *piece; /* owned, each with a reference to its log */
    size_t n, cap;
};

/* The buffers of one thread. */
struct room {
    uint8_t in[STRETCH * 8], old[STRETCH * 8], raw[STRETCH * 8];
};

/* Set e to a message about an error from quant_write() or quant_convert(); fault->element is
 * counted from the tensor's first element. */
static int report_fault(const struct job *j, int code, const struct quant_fault *fault,
                        struct err *e)
{
    const struct quant_type *t = j->type;
    CLEANUP(buf_free) struct buf b = BUF_INIT;
    buf_str(&b, "element ");
    put_index(&b, fault->element, j->n_dims, j->dims);
    buf_str(&b, " is ");
    put_value(&b, &fault->value);
    buf_char(&b, '\0');
    if (buf_error(&b))
        return err_set(e, -ENOMEM, "no memory");
    const char *what = (const char *)b.data;
    if (code == -EDOM)
        return err_set(e, code, "%s, which %s cannot hold", what, t->name);
    if (code == -EOPNOTSUPP && t->weighs == QUANT_NEEDS)
        return needs_importances(t, e);
    if (code == -EOPNOTSUPP)
        return err_set(e, code,
                       "%s, but values cannot be stored as %s here: write `raw`, or another `type`",
                       what, t->name);
    if (t->block_len == 1) /* a float is rounded, an integer is not */
        return err_set(
            e, code, "%s, which %s %s", what,
            t->name[0] == 'I' ? "cannot be stored exactly as" : "is outside the range of", t->name);
    return err_set(e, code, "%s: the scale of its block is too large for %s", what, t->name);
}

/* ---- pieces ---- */

/* Add a piece, taking ownership of the reference to the log. */
static int add_at(struct job *j, uint64_t at, uint64_t n, uint64_t src, struct log *log)
{
    lock_take(units_lock());
    int r = array_grow(&j->piece, &j->cap, j->n, sizeof(*j->piece));
    if (r == 0)
        j->piece[j->n++] = (struct tensor_piece){at, n, src, log};
    lock_drop(units_lock());
    if (r < 0)
        log_unref(log);
    return r;
}

/* Add pieces of `raw` for the written bytes. Bytes that come from the tensor need no piece. */
static int add_written(struct job *j, uint64_t at, uint64_t n)
{
    const struct extent *x;
    int r = 0;
    for (uint64_t len, end = at + n; r == 0 && at < end; at += len) {
        struct log *log = NULL;
        uint64_t src = 0;
        len = extents_stretch(&j->round->written, at, end - at, &x);
        if (x && x->log) {
            log = REF(x->log);
            src = x->src + (at - x->at);
        } else if (x) {
            r = logs_take(j->logs, len, 0, &log, &src, NULL);
            if (r == 0)
                r = logs_put(j->logs, log, src + len - 1, "", 1); /* zeros before it are a hole */
        }
        if (r < 0)
            log_unref(log);
        else if (log)
            r = add_at(j, at, len, src, log);
    }
    return r;
}

static int add_piece(struct job *j, uint64_t at, const uint8_t *bytes, size_t n)
{
    if (!j->type)
        return add_written(j, at, n);
    const int r = logs_put(j->logs, j->log, j->room + at, bytes, n);
    return r < 0 ? r : add_at(j, at, n, j->room + at, REF(j->log));
}

/* Add pieces for the runs of blocks that differ, including small gaps. at: the place of the n bytes
 * in the tensor. */
static int add_pieces(struct job *j, uint64_t at, const uint8_t *old, const uint8_t *now, size_t n)
{
    const size_t block = j->raw_block, gap = GAP / block * block + block;
    size_t first = n, end = 0; /* of the run; first == n: there is none */
    int r = 0;
    for (size_t i = 0; r == 0 && (i < n || first < n); i += block) {
        const size_t len = i < n ? (size_t)min_u64(block, n - i) : 0;
        if (len > 0 && memcmp(old + i, now + i, len) != 0) {
            first = (size_t)min_u64(first, i);
            end = i + len;
        } else if (first < n && (len == 0 || i - end >= gap)) {
            r = add_piece(j, at + first, now + first, end - first);
            first = n;
        }
    }
    return r;
}

/* ---- units ---- */

/* Return where element `e` of an array, counted in C order, is in Fortran order. */
static uint64_t fortran_place(const struct npy *npy, uint64_t e)
{
    uint64_t at = 0, step = npy->n_elem;
    for (uint32_t k = 0; k < npy->n_dims; k++) { /* dims[0] varies fastest in C order */
        step /= npy->dims[k];
        at += e % npy->dims[k] * step;
        e /= npy->dims[k];
    }
    return at;
}

/* Elements [at, end), counted in C order, of an array in Fortran order. */
struct gather {
    const struct job *j;
    uint64_t at, end;
    uint8_t *to;
};

static int gather_mapped(void *arg)
{
    struct gather *g = arg;
    const struct npy *npy = &g->j->round->npy;
    const uint64_t row = npy->dims[0], width = npy->width, step = npy->n_elem / row * width;
    while (g->at < g->end) {
        const uint8_t *from = g->j->fortran + fortran_place(npy, g->at) * width;
        for (uint64_t n = min_u64(row - g->at % row, g->end - g->at); n > 0; n--, g->at++) {
            memcpy(g->to, from, width);
            from += step;
            g->to += width;
        }
    }
    return 0;
}

static int gather(struct gather *g)
{
    const struct npy *npy = &g->j->round->npy;
    int r = 0;
    if (g->j->fortran)
        return map_guard(gather_mapped, g);
    for (; r == 0 && g->at < g->end; g->at++, g->to += npy->width)
        r = tensor_round_read(g->j->round, g->j->base,
                              npy->header + fortran_place(npy, g->at) * npy->width, g->to,
                              npy->width);
    return r;
}

/* Round n doubles to float32, in place. Returns -ERANGE if one is finite, but too large. */
static int round_doubles(uint8_t *p, uint64_t n)
{
    int r = 0;
    for (uint64_t i = 0; i < n; i++) {
        const uint64_t bits = get_u64(p + 8 * i, false);
        double d;
        memcpy(&d, &bits, sizeof(d));
        const float f = (float)d;
        uint32_t now;
        memcpy(&now, &f, sizeof(now));
        put_u32(p + 4 * i, now, false);
        if (isinf(f) && isfinite(d))
            r = -ERANGE;
    }
    return r;
}

/* Read the values, the bytes of `raw`, or the stored blocks to convert. */
static int read_in(const struct job *j, uint64_t lo, uint64_t hi, struct room *room)
{
    if (!j->round) {
        const struct quant_type *t = quant_find(j->base->t->type_id);
        lo = lo / j->width / t->block_len * t->block_bytes;
        hi = hi / j->width / t->block_len * t->block_bytes;
        return tensor_view_read(j->base, TENSOR_RAW, lo, room->in, (size_t)(hi - lo));
    }
    const struct npy *npy = &j->round->npy;
    const unsigned width = npy->header ? npy->width : j->width;
    const uint64_t first = lo / j->width, n = (hi - lo) / j->width;
    int r = npy->fortran ? gather(&(struct gather){j, first, first + n, room->in})
                         : tensor_round_read(j->round, j->base, j->head + first * width, room->in,
                                             (size_t)(n * width));
    return r == 0 && width > j->width ? round_doubles(room->in, n) : r;
}

static int encode_blocks(const struct job *j, uint64_t lo, size_t blocks, struct room *room,
                         struct err *e)
{
    struct quant_fault fault = {0};
    struct quant_importances imp = j->imp;
    const struct quant_importances *weigh = j->weigh ? &imp : NULL;
    const bool big = j->base->big;
    int r;
    imp.first = lo / j->width;
    if (j->round)
        r = quant_write(j->type, big, j->view, lo < j->old ? room->old : NULL, room->in, blocks,
                        room->raw, weigh, &fault);
    else
        r = quant_convert(quant_find(j->base->t->type_id), j->type, big, room->in,
                          blocks * j->type->block_len, room->raw, weigh, &fault);
    fault.element += imp.first;
    return r < 0 ? report_fault(j, r, &fault, e) : 0;
}

/* Judge bytes [lo, hi), all of which are below j->old, or none. */
static int judge_part(struct job *j, uint64_t lo, uint64_t hi, struct room *room, struct err *e)
{
    const uint64_t at = lo / j->block * j->raw_block; /* in the tensor */
    const size_t blocks = (size_t)(hi / j->block - lo / j->block);
    const size_t n = j->type ? blocks * j->raw_block : (size_t)(hi - lo);
    if (!j->type && j->whole)
        return logs_failed(add_written(j, lo, hi - lo), e);
    int r = read_in(j, lo, hi, room);
    if (r == 0 && lo < j->old)
        r = tensor_view_read(j->base, TENSOR_RAW, at, room->old, n);
    if (r < 0)
        return r == -ERANGE ? err_set(e, r, "a value is too large for float32")
                            : err_sys(e, r, "cannot read what was written, or the tensor");
    if (j->type && (r = encode_blocks(j, lo, blocks, room, e)) < 0)
        return r;
    r = j->whole ? logs_put(j->logs, j->log, j->room + at, room->raw, n)
                 : add_pieces(j, at, room->old, j->type ? room->raw : room->in, n);
    return logs_failed(r, e);
}

static int judge_unit(void *arg, uint64_t unit, void *room)
{
    struct job *j = arg;
    const struct extent *x;
    const uint64_t from = unit * j->unit, end = min_u64(j->size, from + j->unit);
    uint64_t lo = j->all ? from : end, hi = j->all ? end : from;
    struct err e = {0};
    int r = 0;
    for (uint64_t at = from, len; !j->all && at < end; at += len) { /* only what was written */
        len = extents_stretch(&j->round->written, j->head + at, end - at, &x);
        lo = x ? min_u64(lo, at / j->block * j->block) : lo;
        hi = x ? min_u64(end, round_up(at + len, j->block)) : hi;
    }
    for (uint64_t upto; r == 0 && lo < hi; lo = upto) {
        upto = lo < j->old ? min_u64(hi, j->old) : hi;
        r = judge_part(j, lo, upto, room, &e);
    }
    if (r == 0)
        return 0;
    LOCKED(units_lock());
    if (!j->why.code || unit < j->failed) {
        j->failed = unit;
        j->why = e;
    }
    return r;
}

static uint64_t next_unit(void *arg, uint64_t unit)
{
    const struct job *j = arg;
    const struct extent *x;
    const uint64_t at = unit * j->unit;
    const uint64_t len = extents_stretch(&j->round->written, j->head + at, j->size - at, &x);
    return x ? unit : (at + len) / j->unit;
}

/* ---- all units ---- */

static int by_place(const void *a, const void *b)
{
    const struct tensor_piece *p = a, *q = b;
    return p->at < q->at ? -1 : p->at > q->at;
}

/* Reserve space for all values in the tensor's order, aligned as in its file. */
static int reserve(struct job *j, struct err *e)
{
    const uint64_t n = j->type ? j->size / j->block * j->raw_block : 0;
    if (n == 0)
        return 0;
    int r = logs_take(j->logs, n, tensor_data_offset(j->base), &j->log, &j->room, e);
    if (r < 0 || !j->whole)
        return r;
    r = array_grow(&j->piece, &j->cap, j->n, sizeof(*j->piece));
    if (r < 0)
        return err_set(e, r, "no memory");
    j->piece[j->n++] = (struct tensor_piece){0, n, j->room, REF(j->log)};
    return 0;
}

/* Take the values of a view, or of a conversion, `width` bytes each. */
static void take_values(struct job *j, const struct quant_type *type, unsigned width)
{
    j->type = type;
    j->width = width;
    j->block = (uint64_t)type->block_len * width;
    j->raw_block = type->block_bytes;
}

/* Run all units. Sets everything in *ret except its shape. */
static int run(struct job *j, const struct units_watch *watch, struct tensor_edit *ret,
               struct err *e)
{
    const struct imatrix_row *imp = j->base->imp;
    int r = 0;
    j->unit = (uint64_t)STRETCH * (j->type ? j->width : 8);
    j->units = (struct units){.n = (j->size + j->unit - 1) / j->unit,
                              .unit = judge_unit,
                              .next = j->all ? NULL : next_unit,
                              .arg = j,
                              .room = sizeof(struct room)};
    if (imp && j->type && j->type->weighs != QUANT_IGNORES) {
        j->weigh = &j->imp;
        r = imatrix_fit(imp, j->n_dims, j->dims, &j->imp, e);
    }
    if (r == 0)
        r = reserve(j, e);
    if (r == 0 && (r = units_run(&j->units, watch)) < 0) {
        if (r == -EINTR || r == -ENOMEM)
            (void)err_set(e, r, "%s", r == -EINTR ? "interrupted" : "no memory");
        else if (e)
            *e = j->why;
    }
    if (r == 0 && j->round)
        r = logs_check(j->logs, &j->round->written, e);
    log_unref(j->log);
    struct tensor_edit edit = {.shaped = j->whole, .piece = j->piece, .n = j->n};
    if (j->n)
        qsort(j->piece, j->n, sizeof(*j->piece), by_place);
    if (r < 0)
        tensor_edit_free(&edit);
    else
        *ret = edit;
    return r;
}

/* ---- convert ---- */

/* From this size on, the file system is first queried for free space, because encoding takes a
 * while. */
#define ROOM_ASKED ((uint64_t)1 << 20)

static int check_convert(const struct tensor_base *b, const struct quant_type *to,
                         struct tensor_shape *shape, const struct logs *logs, struct err *e)
{
    uint64_t nbytes, dims[GGUF_MAX_DIMS];
    const uint32_t n = tensor_dims(b, dims);
    if (tensor_view_size(b, TENSOR_F32) == 0)
        return err_set(e, -EOPNOTSUPP, "the values of this tensor cannot be read");
    if (!quant_can_encode(to, b->big))
        return err_set(e, -EOPNOTSUPP, "values cannot be stored as %s here", to->name);
    if (to->weighs == QUANT_NEEDS && !b->imp)
        return needs_importances(to, e);
    *shape = (struct tensor_shape){.type = to->id, .n_dims = n ? n : 1, .dims = {1}};
    for (uint32_t i = 0; i < n && i < TENSOR_MAX_DIMS; i++)
        shape->dims[i] = dims[i];
    const int r = tensor_shape_bytes(shape, &nbytes, e);
    return r == 0 && nbytes >= ROOM_ASKED ? edit_room_for(logs->f, nbytes, "conversion", e) : r;
}

/* Convert the values of an existing tensor to another type with quant_convert(). */
static int convert(const struct tensor_base *b, uint32_t type, struct logs *logs,
                   const struct units_watch *watch, struct tensor_edit *ret, struct err *e)
{
    struct tensor_shape shape;
    if (b->t->type_id == type)
        return TENSOR_SAME;
    int r = check_convert(b, quant_find(type), &shape, logs, e);
    if (r < 0)
        return r;
    struct job j = {.base = b,
                    .logs = logs,
                    .whole = true,
                    .all = true,
                    .n_dims = shape.n_dims,
                    .size = b->t->n_elem * 4};
    memcpy(j.dims, shape.dims, sizeof(shape.dims));
    take_values(&j, quant_find(type), 4);
    r = run(&j, watch, ret, e);
    if (r < 0)
        return r;
    ret->shape = shape;
    return TENSOR_CHANGED;
}

/* ---- the result for a view ---- */

/* Check the length. Returns 0 if it is right, otherwise a verdict or -EINVAL. */
static int check_length(uint64_t has, uint64_t whole, struct err *e)
{
    if (has > whole)
        return err_set(e, -EINVAL, "it has %llu bytes, but type and shape require %llu",
                       (unsigned long long)has, (unsigned long long)whole);
    if (has == whole)
        return 0;
    (void)err_set(e, -EINVAL, "it has %llu of %llu bytes", (unsigned long long)has,
                  (unsigned long long)whole);
    return TENSOR_SHORT;
}

/* Check that the header is there. Returns 0 or a verdict. */
static int check_whole_header(const struct tensor_round *round, struct err *e)
{
    if (round->npy.header && round->npy.header <= round->size)
        return round->npy.header == round->size ? TENSOR_BEGUN : 0;
    (void)err_set(e, -EINVAL, "its NumPy header is incomplete");
    return TENSOR_SHORT;
}

/* Map the values of an array in Fortran order, which are collected from all over it. */
static void map_fortran(struct job *j, const struct tensor_round *round)
{
    const struct npy *npy = &round->npy;
    const struct extent *x;
    const uint64_t n = npy->n_elem * npy->width;
    if (!npy->fortran || extents_stretch(&round->written, npy->header, n, &x) < n || !x || !x->log)
        return;
    const uint64_t src = x->src + (npy->header - x->at);
    if (map_open(&j->map, x->log->src.fd, src + n) == 0)
        j->fortran = j->map.data + src;
}

/*
 * Judge values or bytes whose length is right. shape: that of a tensor that is new or gets another
 * number of elements; else NULL. moved: a value may be at another place in the view than now.
 */
static int judge_bytes(const struct tensor_round *round, const struct tensor_base *b,
                       const struct tensor_shape *shape, bool moved, struct logs *logs,
                       const struct units_watch *watch, struct tensor_edit *ret, struct err *e)
{
    const struct tensor_view_kind *kind = &tensor_views[round->view];
    const struct npy *npy = &round->npy;
    struct job j = {.round = round,
                    .base = b,
                    .logs = logs,
                    .whole = shape,
                    .all = shape || moved,
                    .view = kind->form,
                    .head = npy->header,
                    .size = round->size};
    if (shape) {
        j.n_dims = shape->n_dims;
        memcpy(j.dims, shape->dims, sizeof(shape->dims));
    } else if (npy->header) {
        j.n_dims = npy->n_dims;
        memcpy(j.dims, npy->dims, sizeof(npy->dims));
    } else {
        j.n_dims = tensor_dims(b, j.dims);
    }
    if (round->view == TENSOR_RAW) {
        j.width = 1;
        j.block = j.raw_block = RAW_BLOCK;
        j.old = b->t ? b->t->nbytes : 0;
        return run(&j, watch, ret, e);
    }
    unsigned width = kind->form->width;
    if (npy->header) {
        width = npy->width == 2 ? 2 : 4;
        j.view = npy->width == 2 ? &quant_f16 : &quant_f32;
        j.size = npy->n_elem * width;
    }
    take_values(&j, quant_find(shape ? shape->type : b->t->type_id), width);
    j.old = b->t ? min_u64(j.size, b->t->n_elem * j.width) : 0;
    map_fortran(&j, round);
    const int r = run(&j, watch, ret, e);
    map_close(&j.map);
    return r;
}

static int judge_npy(const struct tensor_round *round, const struct tensor_base *b,
                     struct logs *logs, const struct units_watch *watch, struct tensor_edit *ret,
                     struct err *e)
{
    const struct npy *npy = &round->npy;
    struct tensor_shape shape = {.type = b->t->type_id, .n_dims = npy->n_dims};
    uint64_t nbytes;
    int r = check_whole_header(round, e);
    if (r == 0)
        r = check_length(round->size, npy_size(npy), e);
    memcpy(shape.dims, npy->dims, sizeof(npy->dims));
    if (r == 0)
        r = tensor_shape_bytes(&shape, &nbytes, e);
    if (r)
        return r;
    const bool shaped = !has_shape(b, npy->n_dims, npy->dims);
    const bool moved = shaped || tensor_array_differs(b, round->view, npy);
    r = judge_bytes(round, b, npy->n_elem == b->t->n_elem ? NULL : &shape, moved, logs, watch, ret,
                    e);
    ret->shaped = shaped;
    ret->shape = shape;
    return r;
}

/* Parse a text into the member of *ret that it is about. *same: it is what the tensor shows. */
static int parse_text(const struct tensor_round *round, const struct tensor_base *b,
                      struct tensor_shape *ret, bool *same, struct err *e)
{
    CLEANUP(buf_free) struct buf shown = BUF_INIT;
    char text[TENSOR_TEXT_MAX];
    const size_t n = (size_t)round->size;
    int r = tensor_round_read(round, b, 0, text, n);
    if (r < 0)
        return err_sys(e, r, "cannot read what was written");
    if (b->t)
        tensor_view_head(b, round->view, &shown);
    *same = b->t && shown.len == n && memcmp(shown.data, text, n) == 0;
    return *same                         ? 0
           : round->view == TENSOR_SHAPE ? tensor_shape_parse(text, n, ret, e)
                                         : tensor_type_parse(text, n, &ret->type, e);
}

static int judge_text(const struct tensor_round *round, const struct tensor_base *b,
                      struct logs *logs, const struct units_watch *watch, struct tensor_edit *ret,
                      struct err *e)
{
    struct tensor_shape shape;
    bool same;
    int r = parse_text(round, b, &shape, &same, e);
    if (r < 0 || same || !b->t)
        return r;
    if (round->view == TENSOR_TYPE)
        return convert(b, shape.type, logs, watch, ret, e);
    r = reshape(b, &shape, e);
    *ret = (struct tensor_edit){.shaped = r == TENSOR_CHANGED, .shape = shape};
    return r;
}

int tensor_judge(const struct tensor_round *round, const struct tensor_base *b, struct logs *logs,
                 const struct units_watch *watch, struct tensor_edit *ret, struct err *e)
{
    int r;
    *ret = TENSOR_EDIT_INIT;
    if (view_is_text(round->view)) {
        r = judge_text(round, b, logs, watch, ret, e);
    } else if (tensor_views[round->view].npy) {
        r = judge_npy(round, b, logs, watch, ret, e);
    } else {
        r = check_length(round->size, tensor_view_size(b, round->view), e);
        if (r == 0)
            r = judge_bytes(round, b, NULL, false, logs, watch, ret, e);
    }
    return r == 0 && (ret->n > 0 || ret->shaped) ? TENSOR_CHANGED : r;
}

/* ---- new tensors ---- */

static int lacks(struct err *e, const char *what)
{
    (void)err_set(e, -EINVAL, "a new tensor: still needs %s", what);
    return TENSOR_SHORT;
}

/* Find the shape that a new tensor gets by its files, and check the length of its values or bytes.
 * Returns 0, a verdict or -errno. */
static int new_shape(const struct tensor_new *t, struct tensor_shape *ret, struct err *e)
{
    const struct tensor_base none = {0};
    const struct tensor_view_kind *kind = &tensor_views[t->data.view];
    const struct npy *npy = &t->data.npy;
    const bool type = t->type.written.n, shape = t->shape.written.n;
    uint64_t whole;
    bool same;
    int r = type ? parse_text(&t->type, &none, ret, &same, e) : 0;
    if (r == 0 && shape)
        r = parse_text(&t->shape, &none, ret, &same, e);
    if (r < 0)
        return r;
    if (!t->data.written.n)
        return lacks(e, type && shape ? "raw or values"
                        : type        ? "shape, and raw or values"
                        : shape       ? "type, and raw or values"
                                      : "type, shape, and raw or values");
    if (kind->npy) {
        r = check_whole_header(&t->data, e);
        if (r == TENSOR_BEGUN)
            return lacks(e, "the values after the NumPy header");
        if (r)
            return r;
        if (shape && (ret->n_dims != npy->n_dims ||
                      memcmp(ret->dims, npy->dims, sizeof(*npy->dims) * npy->n_dims) != 0))
            return err_set(e, -EINVAL, "a new tensor: %s and shape do not agree", kind->name);
        ret->n_dims = npy->n_dims;
        memcpy(ret->dims, npy->dims, sizeof(npy->dims));
    } else if (!shape || (!type && !kind->form)) {
        return lacks(e, shape ? "type" : type || kind->form ? "shape" : "type and shape");
    }
    ret->type = type ? ret->type : kind->form->same;
    r = tensor_shape_bytes(ret, &whole, e);
    if (r == 0 && kind->form)
        whole = npy->header + elements_of(ret) * (npy->header ? npy->width : kind->form->width);
    if (r == 0 && (r = check_length(t->data.size, whole, e)) != 0)
        (void)err_prefix(e, -EINVAL, "a new tensor: %s", kind->name);
    return r;
}

int tensor_judge_new(const struct tensor_new *t, struct logs *logs, const struct units_watch *watch,
                     struct tensor_edit *ret, struct err *e)
{
    const struct tensor_base none = {.big = t->big, .imp = t->imp};
    struct tensor_shape shape;
    *ret = TENSOR_EDIT_INIT;
    int r = new_shape(t, &shape, e);
    if (r == 0)
        r = judge_bytes(&t->data, &none, &shape, false, logs, watch, ret, e);
    if (r)
        return r;
    ret->shape = shape;
    return TENSOR_CHANGED;
}

/* SPDX-License-Identifier: MIT */
/*
 * Judges drafts (tensor_judge.h).
 *
 * Written bytes are processed in units, on all processors. Each unit yields the bytes that the
 * tensor would have (for `raw`, those of the draft), which are compared with the present ones. Runs
 * of blocks that differ become pieces, made of the written bytes for `raw`, and of bytes encoded
 * into the log for values.
 */
#include "live/tensor_judge.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "edit/commit.h"
#include "quant/convert.h"
#include "quant/encode.h"
#include "text/number.h"

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
        text_i64(out, v->i64);
    else if (v->kind == QUANT_DOUBLE)
        text_f64(out, v->f64, &float_names_text);
    else
        text_f32(out, v->f32, &float_names_text);
}

static int needs_importances(const struct quant_type *t, struct err *e)
{
    return err_set(e, -EOPNOTSUPP,
                   "values are stored as %s only with importances of their columns: mount with "
                   "`-o imatrix=FILE`, of a file that has this tensor",
                   t->name);
}

/* Set e to a message about an error of quant_write() or quant_convert(); fault->element is counted
 * from the tensor's first one. */
static int report_fault(int code, const struct quant_type *t, const struct quant_fault *fault,
                        uint32_t n_dims, const uint64_t *dims, struct err *e)
{
    CLEANUP(buf_free) struct buf b = BUF_INIT;
    buf_str(&b, "element ");
    put_index(&b, fault->element, n_dims, dims);
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
    if (code == -ERANGE && t->block_len == 1)
        return err_set(e, code, "%s, which %s does not hold exactly or is outside its range", what,
                       t->name);
    if (code == -ERANGE)
        return err_set(e, code, "%s: the scale of its block is too large for %s", what, t->name);
    return err_sys(e, code, "values cannot be stored");
}

/* The units of some work, and the message of the first unit that failed. */
struct failing {
    struct units units;
    uint64_t unit;
    struct err e; /* code 0 if no unit failed */
};
static void note_failure(struct failing *f, uint64_t unit, const struct err *e)
{
    LOCKED(&f->units.lock);
    if (f->e.code && f->unit < unit)
        return;
    f->unit = unit;
    f->e = *e;
}

/* Call units_run(), and set a message if it fails. */
static int run_units(struct failing *f, const struct units_watch *watch, struct err *e)
{
    const int r = units_run(&f->units, watch);
    if (r == -EINTR || r == -ENOMEM)
        return err_set(e, r, "%s", r == -EINTR ? "interrupted" : "no memory");
    if (r < 0 && e)
        *e = f->e;
    return r;
}

/* ---- encoding all values of a tensor ---- */

struct encoding {
    /* Type of the blocks that `read` gets, in the model's byte order; NULL if it gets values as in
     * the view. */
    const struct quant_type *stored;
    enum quant_view view;
    /* Reads values [first, first + n), which are whole blocks. Several threads call it. Returns 0
     * or -errno. */
    int (*read)(void *arg, uint64_t first, void *dst, size_t n);
    void *arg;
    struct tensor_shape shape; /* the resulting tensor's, valid for tensor_shape_bytes() */
    bool big;
    const struct imatrix_row *row; /* NULL if nothing is weighed */
    /* A tensor of the same type, whose blocks keep their bytes if they have the same values. NULL
     * if all blocks are encoded, as in a conversion. It may have fewer or more elements. */
    const struct tensor_base *old;
    struct logs *logs;
    /* Set by encode_values(): */
    const struct quant_type *type;
    uint64_t n_elem;
    uint64_t old_elem; /* number of elements whose old blocks can be compared */
    struct quant_importances imp;
    const struct quant_importances *weigh; /* imp, or NULL */
    struct log *log;                       /* the log that has the bytes, from `at` on */
    uint64_t at;
    struct failing work;
};

/* Get the importances of a row for a tensor of this shape. Returns 0, with *arg set to ret, or to
 * NULL if nothing is weighed. Returns -EINVAL if the importances do not fit. */
static int find_importances(const struct imatrix_row *row, const struct quant_type *t,
                            uint32_t n_dims, const uint64_t *dims, struct quant_importances *ret,
                            const struct quant_importances **arg, struct err *e)
{
    *arg = NULL;
    if (!row || !t || t->weighs == QUANT_IGNORES)
        return 0;
    *arg = ret;
    return imatrix_fit(row, n_dims, dims, ret, e);
}

struct encoding_room {
    uint8_t values[TENSOR_STRETCH * 8];
    uint8_t raw[TENSOR_STRETCH * 8];
};

/* Encode values [first, first + n), either all or none of which have old blocks. */
static int encode_part(struct encoding *j, uint64_t first, size_t n, struct encoding_room *room,
                       struct err *e)
{
    const uint64_t byte = first / j->type->block_len * j->type->block_bytes;
    const size_t blocks = n / j->type->block_len, bytes = blocks * j->type->block_bytes;
    const bool over = first < j->old_elem;
    struct quant_fault fault = {0};
    struct quant_importances imp = j->imp;
    const struct quant_importances *weigh = j->weigh ? &imp : NULL;
    imp.first = first;
    int r = j->read(j->arg, first, room->values, n);
    if (r == 0 && over)
        r = tensor_view_read(j->old, TENSOR_RAW, byte, room->raw, bytes);
    if (r < 0)
        return err_sys(e, r, "cannot read the values");
    if (j->stored)
        r = quant_convert(j->stored, j->type, j->big, room->values, n, room->raw, weigh, &fault);
    else
        r = quant_write(j->type, j->big, j->view, over ? room->raw : NULL, room->values, blocks,
                        room->raw, weigh, &fault);
    fault.element += first;
    if (r < 0)
        return report_fault(r, j->type, &fault, j->shape.n_dims, j->shape.dims, e);
    r = logs_put(j->logs, j->log, j->at + byte, room->raw, bytes);
    return logs_failed(r, e);
}

static int encode_unit(void *arg, uint64_t unit, void *room)
{
    struct encoding *j = arg;
    struct err e = {0};
    uint64_t first = unit * TENSOR_STRETCH, end = min_u64(j->n_elem, first + TENSOR_STRETCH);
    int r = 0;
    while (r == 0 && first < end) {
        uint64_t upto = first < j->old_elem ? min_u64(end, j->old_elem) : end;
        r = encode_part(j, first, (size_t)(upto - first), room, &e);
        first = upto;
    }
    if (r < 0)
        note_failure(&j->work, unit, &e);
    return r;
}

/*
 * Encode all values into the log, which makes an edit. Returns TENSOR_CHANGED, -EDOM, -ERANGE or
 * -EOPNOTSUPP (the message names the element by NumPy's index), -EINTR, -ENOSPC, -ENOMEM or -errno.
 */
static int encode_values(struct encoding *j, const struct units_watch *watch,
                         struct tensor_edit *ret, struct err *e)
{
    uint64_t nbytes;
    j->type = quant_find(j->shape.type);
    j->n_elem = tensor_shape_elements(&j->shape);
    int r = tensor_shape_bytes(&j->shape, &nbytes, e);
    if (r == 0)
        r = find_importances(j->row, j->type, j->shape.n_dims, j->shape.dims, &j->imp, &j->weigh,
                             e);
    if (r < 0)
        return r;
    if (j->old && j->old->exists && j->old->type == j->shape.type)
        j->old_elem = min_u64(j->n_elem, j->old->n_elem);
    struct tensor_piece *p = malloc(sizeof(*p));
    r = p ? logs_take(j->logs, nbytes, 0, &j->log, &j->at, e) : err_set(e, -ENOMEM, "no memory");
    if (r < 0) {
        free(p);
        return r;
    }
    *p = (struct tensor_piece){0, nbytes, j->at, j->log};
    struct tensor_edit edit = {true, true, j->shape, p, 1};
    j->work.units = (struct units){.n = (j->n_elem + TENSOR_STRETCH - 1) / TENSOR_STRETCH,
                                   .unit = encode_unit,
                                   .arg = j,
                                   .room = sizeof(struct encoding_room)};
    r = run_units(&j->work, watch, e);
    if (r < 0)
        tensor_edit_free(&edit);
    else
        *ret = edit;
    return r < 0 ? r : TENSOR_CHANGED;
}

/* ---- convert ---- */

static int read_stored(void *arg, uint64_t first, void *dst, size_t n)
{
    const struct tensor_base *base = arg;
    const struct quant_type *t = quant_find(base->type);
    return tensor_view_read(base, TENSOR_RAW, first / t->block_len * t->block_bytes, dst,
                            n / t->block_len * t->block_bytes);
}

/* From this size on, the file system is first queried for free space, because encoding takes a
 * while. */
#define ROOM_ASKED ((uint64_t)1 << 20)

static int check_convert(const struct tensor_base *base, const struct quant_type *to,
                         struct tensor_shape *shape, const struct logs *logs, struct err *e)
{
    uint64_t nbytes;
    if (!tensor_view_exists(base, TENSOR_F32))
        return err_set(e, -EOPNOTSUPP, "the values of this tensor cannot be read");
    if (!quant_can_encode(to, base->big))
        return err_set(e, -EOPNOTSUPP, "values cannot be stored as %s here",
                       to ? to->name : "an unknown type");
    if (to->weighs == QUANT_NEEDS && !base->imp)
        return needs_importances(to, e);
    *shape = (struct tensor_shape){.type = to->id, .n_dims = base->n_dims};
    for (uint32_t i = 0; i < base->n_dims && i < TENSOR_MAX_DIMS; i++)
        shape->dims[i] = base->dims[i];
    if (base->n_dims == 0)
        shape->dims[shape->n_dims++] = 1;
    const int r = tensor_shape_bytes(shape, &nbytes, e);
    return r == 0 && nbytes >= ROOM_ASKED ? edit_room_for(logs->f, nbytes, "conversion", e) : r;
}

int tensor_convert(struct tensor_base *base, uint32_t type, struct logs *logs,
                   const struct units_watch *watch, struct tensor_edit *ret, struct err *e)
{
    struct encoding j = {.stored = quant_find(base->type),
                         .read = read_stored,
                         .arg = base,
                         .big = base->big,
                         .row = base->imp,
                         .logs = logs};
    if (base->exists && base->type == type)
        return TENSOR_SAME;
    int r = check_convert(base, quant_find(type), &j.shape, logs, e);
    return r < 0 ? r : encode_values(&j, watch, ret, e);
}

/* ---- changed bytes of a view ---- */

enum {
    RAW_UNIT = 256 * 1024, /* number of bytes of `raw` judged at a time */
    RAW_BLOCK = 512,       /* number of bytes compared as a unit */
    /* Gaps of at most this many equal bytes between two runs are rewritten, to limit the number of
     * pieces. */
    GAP = 16 * 1024,
};

struct job {
    struct draft *d;
    const struct tensor_base *base;
    const struct tensor_round *round; /* the data to judge */
    const struct quant_type *type;    /* NULL if bytes are judged, not values */
    enum quant_view view;
    struct quant_importances imp;
    const struct quant_importances *weigh; /* imp, or NULL */
    uint64_t head;                         /* bytes of the draft before the first value */
    uint64_t unit, block;                  /* bytes of the view per unit and per block */
    uint64_t size;                         /* bytes of the view after `head` */
    uint32_t raw_block;                    /* bytes per stored block */
    struct log *log;                       /* a reference: the log that values are encoded into */
    uint64_t low, room;                    /* stored byte `low` is at `room` in the log */
    struct failing work;
    /* Protected by the lock of the units: */
    struct tensor_piece *piece; /* owned, each with a reference to its log */
    size_t n, cap;
};

/* A thread's memory. */
struct room {
    uint8_t view[TENSOR_STRETCH * 4];
    uint8_t old[TENSOR_STRETCH * 8];
    uint8_t raw[TENSOR_STRETCH * 8];
};
_Static_assert(RAW_UNIT <= TENSOR_STRETCH * 4, "a unit of bytes fits");

/* ---- pieces ---- */

/* Add a piece, taking over the reference to the log. */
static int add_at(struct job *j, uint64_t at, uint64_t n, uint64_t src, struct log *log)
{
    lock_take(&j->work.units.lock);
    int r = array_grow(&j->piece, &j->cap, j->n, sizeof(*j->piece));
    if (r == 0)
        j->piece[j->n++] = (struct tensor_piece){at, n, src, log};
    lock_drop(&j->work.units.lock);
    if (r < 0)
        log_unref(log);
    return r;
}

/* Add a piece of `raw` for the written bytes; those that come from the base are equal. */
static int add_written(struct job *j, uint64_t at, uint64_t n)
{
    struct tensor_piece p;
    int r = 0;
    for (uint64_t end = at + n; r == 0 && at < end; at += p.len) {
        r = tensor_round_piece(j->d, j->round, at, end - at, &p, NULL);
        if (r == 0 && p.log)
            r = add_at(j, at, p.len, p.src, p.log);
    }
    return r;
}

static int add_piece(struct job *j, uint64_t at, const uint8_t *bytes, size_t n)
{
    uint64_t src = j->room + (at - j->low);
    if (!j->type)
        return add_written(j, at, n);
    int r = logs_put(j->d->logs, j->log, src, bytes, n);
    return r < 0 ? r : add_at(j, at, n, src, log_ref(j->log));
}

/* n bytes to compare block by block; the last block may be shorter. */
struct compare {
    const uint8_t *old, *raw;
    size_t n, block;
};

static bool differs(const struct compare *c, size_t block)
{
    size_t at = block * c->block;
    size_t n = (size_t)min_u64(c->block, c->n - at);
    return memcmp(c->old + at, c->raw + at, n) != 0;
}

/* Find the next run [*first, *end) of blocks that differ, including small gaps. Returns false at
 * the end. */
static bool next_run(const struct compare *c, size_t *first, size_t *end)
{
    const size_t blocks = (c->n + c->block - 1) / c->block, gap = GAP / c->block + 1;
    while (*first < blocks && !differs(c, *first))
        ++*first;
    if (*first == blocks)
        return false;
    *end = *first + 1;
    for (size_t i = *end; i < blocks && i - *end < gap; i++)
        if (differs(c, i))
            *end = i + 1;
    return true;
}

/* Copy all values of the blocks that differ to the log, so that judging them again gives the same
 * result. */
static int hold_changed(struct job *j, uint64_t from, const struct compare *c, size_t first,
                        size_t end)
{
    int r = 0;
    for (size_t i = first, upto; r == 0 && i < end; i = upto + 1) {
        for (upto = i; upto < end && differs(c, upto);)
            upto++;
        if (upto > i) {
            const uint64_t lo = j->head + (from + i) * j->block, n = (upto - i) * j->block;
            r = tensor_draft_hold(j->d, lo, min_u64(lo + n, j->head + j->size));
        }
    }
    return r;
}

/* Add pieces for the blocks that differ; the first block compared is number `from`. */
static int add_pieces(struct job *j, uint64_t from, const struct compare *c)
{
    int r = 0;
    for (size_t first = 0, end; r == 0 && next_run(c, &first, &end); first = end) {
        size_t at = first * c->block, upto = (size_t)min_u64(end * c->block, c->n);
        r = add_piece(j, from * c->block + at, c->raw + at, upto - at);
        if (r == 0 && j->type)
            r = hold_changed(j, from, c, first, end);
    }
    return r;
}

/* ---- units ---- */

static int cannot_read(int r, struct err *e)
{
    return err_sys(e, r, "cannot read the draft or the tensor");
}

static int judge_bytes(struct job *j, uint64_t lo, uint64_t hi, struct room *room, struct err *e)
{
    struct compare c = {room->old, room->view, (size_t)(hi - lo), RAW_BLOCK};
    int r = tensor_round_read(j->d, j->round, j->head + lo, room->view, c.n);
    if (r == 0)
        r = tensor_view_read(j->base, TENSOR_RAW, lo, room->old, c.n);
    if (r < 0)
        return cannot_read(r, e);
    r = add_pieces(j, lo / RAW_BLOCK, &c);
    return logs_failed(r, e);
}

static int judge_values(struct job *j, uint64_t lo, uint64_t hi, struct room *room, struct err *e)
{
    const uint64_t first = lo / j->block;
    const size_t blocks = (size_t)(hi / j->block - first);
    struct compare c = {room->old, room->raw, blocks * j->raw_block, j->raw_block};
    struct quant_fault fault = {0};
    struct quant_importances imp = j->imp;
    imp.first = first * j->type->block_len;
    int r = tensor_round_read(j->d, j->round, j->head + lo, room->view, (size_t)(hi - lo));
    if (r == 0)
        r = tensor_view_read(j->base, TENSOR_RAW, first * j->raw_block, room->old, c.n);
    if (r < 0)
        return cannot_read(r, e);
    r = quant_write(j->type, j->base->big, j->view, room->old, room->view, blocks, room->raw,
                    j->weigh ? &imp : NULL, &fault);
    fault.element += first * j->type->block_len;
    if (r < 0)
        return report_fault(r, j->type, &fault, j->base->n_dims, j->base->dims, e);
    r = add_pieces(j, first, &c);
    return logs_failed(r, e);
}

/* Return the index of the first range to judge that ends after byte `off` of the view, or the
 * number of ranges. */
static size_t find_fresh(const struct job *j, uint64_t off)
{
    const struct tensor_ranges *f = &j->round->fresh;
    return UPTO(f->of, hi, f->n, off);
}

/* Find the part of [lo, hi) that was written, in bytes of the view after its header, and extend it
 * to whole blocks. Returns false if nothing was written. */
static bool written_in(const struct job *j, uint64_t *lo, uint64_t *hi)
{
    const struct tensor_ranges *f = &j->round->fresh;
    const uint64_t from = j->head + *lo, upto = j->head + *hi;
    size_t first = find_fresh(j, from), end = find_fresh(j, upto);
    if (first == f->n || f->of[first].lo >= upto)
        return false;
    const uint64_t begin = max_u64(f->of[first].lo, from) - j->head;
    bool more = end < f->n && f->of[end].lo < upto;
    const uint64_t last = (more ? upto : f->of[end - 1].hi) - j->head;
    *lo = begin / j->block * j->block;
    *hi = min_u64((last + j->block - 1) / j->block * j->block, *hi);
    return true;
}

static int judge_unit(void *arg, uint64_t unit, void *room)
{
    struct job *j = arg;
    struct err e = {0};
    uint64_t lo = unit * j->unit, hi = min_u64(j->size, lo + j->unit);
    if (!written_in(j, &lo, &hi))
        return 0;
    int r = j->type ? judge_values(j, lo, hi, room, &e) : judge_bytes(j, lo, hi, room, &e);
    if (r < 0)
        note_failure(&j->work, unit, &e);
    return r;
}

static uint64_t next_unit(void *arg, uint64_t unit)
{
    const struct job *j = arg;
    const size_t i = find_fresh(j, j->head + unit * j->unit);
    if (i == j->round->fresh.n)
        return UINT64_MAX;
    const uint64_t lo = j->round->fresh.of[i].lo;
    return lo <= j->head ? unit : max_u64(unit, (lo - j->head) / j->unit);
}

/* ---- all units ---- */

static int by_place(const void *a, const void *b)
{
    const struct tensor_piece *p = a, *q = b;
    return p->at < q->at ? -1 : p->at > q->at;
}

/* Reserve space for all values that may differ, in the tensor's order, aligned as in its file. */
static int reserve(struct job *j, struct err *e)
{
    uint64_t lo = 0, hi = j->size;
    if (!j->type || !written_in(j, &lo, &hi))
        return 0;
    lo = lo / j->block * j->raw_block;
    hi = hi / j->block * j->raw_block;
    j->low = lo;
    return logs_take(j->d->logs, hi - lo, tensor_base_offset(j->base) + lo, &j->log, &j->room, e);
}

/* Judge the bytes written to a tensor that keeps its number of elements and its type. */
static int judge_changes(struct job *j, const struct units_watch *watch, struct tensor_edit *ret,
                         struct err *e)
{
    j->work.units = (struct units){.n = (j->size + j->unit - 1) / j->unit,
                                   .unit = judge_unit,
                                   .next = next_unit,
                                   .arg = j,
                                   .room = sizeof(struct room)};
    int r = find_importances(j->base->imp, j->type, j->base->n_dims, j->base->dims, &j->imp,
                             &j->weigh, e);
    if (r == 0)
        r = reserve(j, e);
    if (r < 0)
        return r;
    r = run_units(&j->work, watch, e);
    log_unref(j->log);
    struct tensor_edit edit = {.piece = j->piece, .n = j->n};
    if (j->n)
        qsort(j->piece, j->n, sizeof(*j->piece), by_place);
    if (r < 0)
        tensor_edit_free(&edit);
    else
        *ret = edit;
    return r;
}

/* Make the job for a round. npy: the draft's header, or NULL if there is none. */
static struct job make_job(struct draft *d, const struct tensor_round *round, const struct npy *npy)
{
    const uint64_t head = npy ? npy->header : 0;
    const struct tensor_base *base = round->base;
    struct job j = {.d = d, .base = base, .head = head, .size = round->size - head};
    j.round = round;
    if (d->view == TENSOR_RAW) {
        j.unit = RAW_UNIT;
        j.block = RAW_BLOCK;
        return j;
    }
    j.type = quant_find(base->type);
    j.view = npy ? tensor_npy_values(npy) : tensor_view_values(d->view);
    unsigned width = tensor_values_width(j.view);
    j.unit = (uint64_t)TENSOR_STRETCH * width;
    j.block = (uint64_t)j.type->block_len * width;
    j.raw_block = j.type->block_bytes;
    return j;
}

/* ---- encoding all values again ---- */

struct reader {
    struct draft *d;
    uint64_t head;
    unsigned width;
};

static int read_values(void *arg, uint64_t first, void *dst, size_t n)
{
    const struct reader *rd = arg;
    size_t got = 0;
    int r = tensor_draft_read(rd->d, rd->head + first * rd->width, dst, n * rd->width, &got);
    memset((uint8_t *)dst + got, 0, r == 0 ? n * rd->width - got : 0);
    return r;
}

static int encode_all(struct draft *d, enum quant_view values, uint64_t head,
                      const struct tensor_shape *shape, const struct tensor_base *old,
                      const struct imatrix_row *imp, const struct units_watch *watch,
                      struct tensor_edit *ret, struct err *e)
{
    struct reader rd = {d, head, tensor_values_width(values)};
    struct encoding j = {.view = values,
                         .read = read_values,
                         .arg = &rd,
                         .shape = *shape,
                         .big = d->base->big,
                         .row = imp,
                         .old = old,
                         .logs = d->logs};
    return encode_values(&j, watch, ret, e);
}

/* ---- the result for a draft ---- */

/* Check the length. Returns 0 if it is right, otherwise a verdict or -EINVAL. */
static int check_length(const struct tensor_round *round, uint64_t whole, struct err *e)
{
    if (round->size < whole) {
        (void)err_set(e, -EINVAL, "it has %llu of %llu bytes", (unsigned long long)round->size,
                      (unsigned long long)whole);
        return TENSOR_SHORT;
    }
    if (round->size > whole)
        return err_set(e, -EINVAL, "it has %llu bytes, %llu too many",
                       (unsigned long long)round->size, (unsigned long long)(round->size - whole));
    return 0;
}

/* Get the draft's header. Returns 0, a verdict or -errno. */
static int find_header(struct draft *d, uint64_t size, struct npy *ret, struct err *e)
{
    lock_take(&d->lock);
    *ret = d->npy;
    lock_drop(&d->lock);
    if (ret->header && ret->header <= size)
        return ret->header == size ? TENSOR_BEGUN : 0;
    (void)err_set(e, -EINVAL, "its NumPy header is not whole");
    return TENSOR_SHORT;
}

static bool same_dims(const struct tensor_base *b, const struct npy *npy)
{
    if (b->n_dims == 0)
        return npy->n_dims == 1 && npy->dims[0] == 1;
    return b->n_dims == npy->n_dims &&
           memcmp(b->dims, npy->dims, npy->n_dims * sizeof(npy->dims[0])) == 0;
}

/* True if values have moved, so that all must be judged. The layout is compared with that of the
 * base's view while bytes of it are shown, and later with that of the judged bytes. */
static bool is_moved(const struct draft *d, const struct tensor_round *round, const struct npy *npy)
{
    const struct tensor_base *base = round->base;
    const unsigned width = tensor_view_form(d->view)->width;
    const uint64_t header = tensor_view_size(base, d->view) - base->n_elem * width;
    if (round->cut == 0)
        return npy->header != d->layout.header || npy->width != d->layout.width;
    return !same_dims(base, npy) || npy->header != header || npy->width != width;
}

static int judge_npy(struct draft *d, struct tensor_round *round, const struct units_watch *watch,
                     struct tensor_edit *ret, struct err *e)
{
    const struct tensor_base *base = round->base;
    struct npy npy = {0};
    struct tensor_shape shape = {.type = base->type};
    uint64_t nbytes;
    int r = find_header(d, round->size, &npy, e);
    if (r == 0)
        r = check_length(round, npy.header + npy.n_elem * npy.width, e);
    if (r)
        return r;
    shape.n_dims = npy.n_dims;
    memcpy(shape.dims, npy.dims, sizeof(npy.dims));
    r = tensor_shape_bytes(&shape, &nbytes, e);
    if (r == 0 && is_moved(d, round, &npy))
        r = tensor_draft_detach(d, round, &npy);
    if (r < 0)
        return e && e->code ? r : logs_failed(r, e);
    if (npy.n_elem != base->n_elem)
        return encode_all(d, tensor_npy_values(&npy), npy.header, &shape, base, base->imp, watch,
                          ret, e);
    struct job j = make_job(d, round, &npy);
    r = judge_changes(&j, watch, ret, e);
    ret->shaped = !same_dims(base, &npy);
    ret->shape = shape;
    return r;
}

static int judge(struct draft *d, struct tensor_round *round, const struct units_watch *watch,
                 struct tensor_edit *ret, struct err *e)
{
    if (tensor_view_is_npy(d->view))
        return judge_npy(d, round, watch, ret, e);
    int r = check_length(round, tensor_view_size(round->base, d->view), e);
    if (r)
        return r;
    struct job j = make_job(d, round, NULL);
    return judge_changes(&j, watch, ret, e);
}

int tensor_draft_judge(struct draft *d, const struct units_watch *watch, struct tensor_edit *ret,
                       struct err *e)
{
    struct tensor_edit edit = TENSOR_EDIT_INIT;
    struct tensor_round round;
    int r = tensor_draft_begin(d, &round);
    if (r <= 0)
        return r == 0 ? TENSOR_SAME : cannot_read(r, e);
    r = judge(d, &round, watch, &edit, e);
    if (r == 0 && (edit.n > 0 || edit.shaped))
        r = TENSOR_CHANGED;
    r = tensor_draft_end(d, &round, r == TENSOR_CHANGED || r == TENSOR_SAME, r);
    if (r == TENSOR_SAME)
        tensor_draft_passed(d, d->base);
    if (r == TENSOR_CHANGED) {
        *ret = edit;
        return r;
    }
    tensor_edit_free(&edit);
    return r;
}

/* ---- new tensors ---- */

/* Views of the same type are adjacent; the one that also gives the shape comes first. */
static const enum tensor_view order[] = {TENSOR_F32_NPY, TENSOR_F32, TENSOR_F16_NPY, TENSOR_F16,
                                         TENSOR_BF16};

static int lacks(struct err *e, const char *what)
{
    (void)err_set(e, -EINVAL, "a new tensor: lacks %s", what);
    return TENSOR_SHORT;
}

static int check_new_length(struct draft *d, uint64_t need, struct err *e)
{
    uint64_t have = atomic_load(&d->size);
    const char *name = tensor_view_name(d->view);
    if (have > need)
        return err_set(e, -EINVAL, "a new tensor: %s has %llu bytes, type and shape make %llu",
                       name, (unsigned long long)have, (unsigned long long)need);
    if (have == need)
        return 0;
    (void)err_set(e, -EINVAL, "a new tensor: %s has %llu of %llu bytes", name,
                  (unsigned long long)have, (unsigned long long)need);
    return TENSOR_SHORT;
}

/* Judge a tensor by its view `raw`, whose bytes are taken unchanged. */
static int judge_new_raw(const struct tensor_new *t, struct tensor_edit *ret, struct err *e)
{
    struct draft *d = t->draft[TENSOR_RAW];
    struct tensor_shape shape = t->shape;
    uint64_t nbytes;
    if (!t->has_type || !t->has_shape)
        return lacks(e, t->has_type ? "shape" : t->has_shape ? "type" : "type and shape");
    shape.type = t->type;
    int r = tensor_shape_bytes(&shape, &nbytes, e);
    if (r == 0)
        r = check_new_length(d, nbytes, e);
    if (r)
        return r;
    r = tensor_draft_share(d, &shape, ret, e);
    return r < 0 ? r : TENSOR_CHANGED;
}

static bool same_shape(const struct tensor_shape *s, const struct npy *npy)
{
    return s->n_dims == npy->n_dims &&
           memcmp(s->dims, npy->dims, s->n_dims * sizeof(s->dims[0])) == 0;
}

/* Find the shape and where the values begin. */
static int place_values(const struct tensor_new *t, struct draft *d, struct npy *npy,
                        struct tensor_shape *shape, struct err *e)
{
    uint64_t size = atomic_load(&d->size);
    const unsigned width = tensor_view_form(d->view)->width;
    *shape = t->shape;
    *npy = (struct npy){.width = width};
    if (tensor_view_is_npy(d->view)) {
        int r = find_header(d, size, npy, e);
        if (r == TENSOR_BEGUN)
            return lacks(e, "the values behind the NumPy header");
        if (r)
            return r;
        if (t->has_shape && !same_shape(&t->shape, npy))
            return err_set(e, -EINVAL, "a new tensor: %s and shape do not agree",
                           tensor_view_name(d->view));
        shape->n_dims = npy->n_dims;
        memcpy(shape->dims, npy->dims, sizeof(npy->dims));
    } else if (!t->has_shape) {
        return lacks(e, "shape");
    }
    shape->type = t->has_type ? t->type : tensor_view_form(d->view)->same;
    return check_new_length(d, npy->header + tensor_shape_elements(shape) * npy->width, e);
}

static int judge_new_values(const struct tensor_new *t, struct draft *d,
                            const struct units_watch *watch, struct tensor_edit *ret, struct err *e)
{
    struct npy npy;
    struct tensor_shape shape;
    uint64_t nbytes;
    int r = place_values(t, d, &npy, &shape, e);
    if (r)
        return r;
    r = tensor_shape_bytes(&shape, &nbytes, e);
    if (r < 0)
        return r;
    enum quant_view values =
        tensor_view_is_npy(d->view) ? tensor_npy_values(&npy) : tensor_view_values(d->view);
    return encode_all(d, values, npy.header, &shape, NULL, t->imp, watch, ret, e);
}

int tensor_new_judge(const struct tensor_new *t, const struct units_watch *watch,
                     struct tensor_edit *ret, struct err *e)
{
    if (t->draft[TENSOR_RAW])
        return judge_new_raw(t, ret, e);
    for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++) {
        struct draft *d = t->draft[order[i]];
        if (d && atomic_load(&d->size) > 0)
            return judge_new_values(t, d, watch, ret, e);
    }
    if (t->has_type && t->has_shape)
        return lacks(e, "raw or values");
    return lacks(e, t->has_type    ? "shape, and raw or values"
                    : t->has_shape ? "type, and raw or values"
                                   : "type, shape, and raw or values");
}

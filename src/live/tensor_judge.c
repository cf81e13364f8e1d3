/* SPDX-License-Identifier: MIT */
/*
 * Reads tensors as they are before an edit, and judges drafts (tensor_judge.h).
 *
 * Written bytes are processed in units, on all processors. Each unit yields the bytes that the
 * tensor would have (for `raw`, the draft's bytes), which are compared with the current ones. Runs
 * of blocks that differ become pieces: of the written bytes for `raw`, of bytes encoded into the
 * log for values. If a tensor is new, or its type or number of elements changes, the pieces cover
 * all its bytes.
 */
#include "live/tensor_judge.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/bytes.h"
#include "base/err.h"
#include "edit/commit.h"
#include "live/draft.h"
#include "quant/encode.h"
#include "text/number.h"

/* ---- making bases ---- */

/* Return the number of elements of a shape, which must be valid for tensor_shape_bytes(). */
static uint64_t elements_of(const struct tensor_shape *s)
{
    uint64_t n = 1;
    for (uint32_t i = 0; i < s->n_dims; i++)
        n *= s->dims[i];
    return n;
}

int tensor_base_none(bool big, struct tensor_base **ret)
{
    struct tensor_base *b = calloc(1, sizeof(*b));
    if (!b)
        return -ENOMEM;
    atomic_init(&b->refs, 1);
    b->big = big;
    *ret = b;
    return 0;
}

int tensor_base_make(const struct gguf *g, uint32_t i, struct store *store,
                     struct tensor_content *content, struct tensor_base **ret)
{
    struct tensor_base *b;
    if (tensor_base_none(g->fmt.big, &b) < 0)
        return -ENOMEM;
    b->exists = true;
    if (content && content->shape.n_dims > 0) {
        b->type = content->shape.type;
        b->n_dims = content->shape.n_dims;
        b->n_elem = elements_of(&content->shape);
        b->nbytes = content->nbytes;
        memcpy(b->dims, content->shape.dims, b->n_dims * sizeof(b->dims[0]));
    } else {
        const struct gguf_tensor *t = &g->tensor[i];
        b->type = t->type_id;
        b->n_dims = t->n_dims;
        b->n_elem = t->n_elem;
        b->nbytes = t->nbytes;
        for (uint32_t k = 0; k < t->n_dims; k++)
            b->dims[k] = gguf_dim(g, t, k);
    }
    b->store = store ? store_ref(store) : NULL;
    b->place = i;
    b->content = tensor_content_ref(content);
    *ret = b;
    return 0;
}

struct tensor_base *tensor_base_ref(struct tensor_base *b)
{
    atomic_fetch_add(&b->refs, 1);
    return b;
}

void tensor_base_unref(struct tensor_base *b)
{
    if (!b || atomic_fetch_sub(&b->refs, 1) != 1)
        return;
    store_unref(b->store);
    tensor_content_unref(b->content);
    free(b);
}

uint64_t tensor_base_offset(const struct tensor_base *b)
{
    return b->store ? b->store->place[b->place].off : 0;
}

/* ---- views ---- */

const struct tensor_view_kind tensor_views[TENSOR_ASIDE] = {
    [TENSOR_RAW] = {"raw", NULL, false, QUANT_F32},
    [TENSOR_F32] = {"f32", &form_f32, false, QUANT_F32},
    [TENSOR_F16] = {"f16", &form_f16, false, QUANT_F16},
    [TENSOR_BF16] = {"bf16", &form_bf16, false, QUANT_BF16},
    [TENSOR_F32_NPY] = {"f32.npy", &form_f32, true, QUANT_F32},
    [TENSOR_F16_NPY] = {"f16.npy", &form_f16, true, QUANT_F16},
    [TENSOR_TYPE] = {"type", NULL, false, QUANT_F32},
    [TENSOR_SHAPE] = {"shape", NULL, false, QUANT_F32},
    [TENSOR_HELPER] = {"the file", NULL, false, QUANT_F32},
};

/* False if the tensor does not exist or its values cannot be shown. */
static bool view_exists(const struct tensor_base *b, enum tensor_view view)
{
    return b->exists && (!tensor_views[view].form || quant_has_values(quant_find(b->type), b->big));
}

static bool is_text(enum tensor_view view)
{
    return view == TENSOR_TYPE || view == TENSOR_SHAPE;
}

static size_t header(const struct tensor_base *b, enum tensor_view view, struct buf *out)
{
    return tensor_views[view].npy
               ? npy_header(out, tensor_views[view].form->descr, b->n_dims, b->dims)
               : 0;
}

uint64_t tensor_view_size(const struct tensor_base *b, enum tensor_view view)
{
    struct buf measure = BUF_MEASURE;
    if (!view_exists(b, view))
        return 0;
    if (is_text(view))
        tensor_text(b, view, &measure);
    if (!tensor_views[view].form)
        return is_text(view) ? measure.len : b->nbytes;
    return header(b, view, &measure) + b->n_elem * tensor_views[view].form->width;
}

/* ---- bytes ---- */

/* From this size on, copying with a system call is faster than accessing the mapped pages. */
#define MUCH ((size_t)32 << 10)

static int read_store(const struct tensor_base *b, uint64_t off, void *dst, size_t n)
{
    uint64_t at;
    assert(b->store && b->place < b->store->n);
    struct mapped *m = n < MUCH ? NULL : store_mapped(b->store, b->place, off, n, &at);
    const struct source file = m ? mapped_source(m) : (struct source){0};
    int r = m && !m->far ? file.read(&file, at, dst, n) : -EIO;
    /* store_read() also records that the file was truncated. */
    return r == -EIO ? store_read(b->store, b->place, off, dst, n, b->nbytes) : r;
}

static int read_raw(const struct tensor_base *b, uint64_t off, uint8_t *dst, size_t n)
{
    const struct tensor_piece *p;
    for (uint64_t len; n > 0; off += len, dst += len, n -= (size_t)len) {
        len = tensor_content_stretch(b->content, off, n, &p);
        int r =
            p ? tensor_piece_read(p, off, dst, (size_t)len) : read_store(b, off, dst, (size_t)len);
        if (r < 0)
            return r;
    }
    return 0;
}

/* Maximum number of stored bytes decoded at a time. */
enum { ROOM = 64 * 1024 };

static int read_values(const struct tensor_base *b, const struct form *form, uint64_t off,
                       uint8_t *dst, size_t n)
{
    const struct quant_type *t = quant_find(b->type);
    const uint64_t blocks = ROOM / t->block_bytes, step = blocks * t->block_len * form->width;
    uint8_t *raw = malloc(ROOM);
    int r = raw ? 0 : -ENOMEM;
    for (size_t done = 0; r == 0 && done < n;) {
        uint64_t at = off + done, first, last, skip = at / step * step;
        size_t len = (size_t)min_u64(n - done, step - (at - skip));
        quant_extent(t, form->width, at, len, &first, &last);
        r = read_raw(b, first, raw, (size_t)(last - first));
        /* Offset of the first block's values, not counting the header of the view. */
        uint64_t start = first / t->block_bytes * t->block_len * form->width;
        if (r == 0)
            form->read(t, b->big, raw, at - start, len, dst + done);
        done += len;
    }
    free(raw);
    return r;
}

int tensor_view_read(const struct tensor_base *b, enum tensor_view view, uint64_t off, void *dst,
                     size_t n)
{
    CLEANUP(buf_free) struct buf head = BUF_INIT; /* the header, or the whole text */
    if (is_text(view))
        tensor_text(b, view, &head);
    else if (!tensor_views[view].form)
        return read_raw(b, off, dst, n);
    size_t len = is_text(view) ? head.len : header(b, view, &head), done = 0;
    if (buf_error(&head))
        return buf_error(&head);
    if (off < len) {
        done = (size_t)min_u64(n, len - off);
        memcpy(dst, head.data + off, done);
    }
    return is_text(view) ? 0
                         : read_values(b, tensor_views[view].form, off + done - len,
                                       (uint8_t *)dst + done, n - done);
}

/* ---- the result of a judgement ---- */

void tensor_edit_free(struct tensor_edit *t)
{
    for (size_t i = 0; i < t->n; i++)
        log_unref(t->piece[i].log);
    free(t->piece);
    *t = TENSOR_EDIT_INIT;
}

/* ---- texts ---- */

/* Remove the blanks around a text, which must be one line. */
static int take_line(const char *text, size_t n, const uint8_t **ret, size_t *len, struct err *e)
{
    *ret = (const uint8_t *)text;
    *len = n;
    scan_trim(ret, len);
    return memchr(*ret, '\n', *len) ? err_set(e, -EINVAL, "more than one line") : 0;
}

/* ---- type ---- */

/* Report that a text is not a type, suggesting the first type whose name begins with it, or else
 * the nearest one. */
static int not_a_type(const char *p, size_t n, struct err *e)
{
    char shown[SHOW_MAX];
    struct nearest near = nearest_to(p, n);
    const char *meant = NULL;
    for (uint32_t id = 0; quant_find(id); id++) {
        const struct quant_type *t = quant_find(id);
        if (t->block_len == 0)
            continue;
        if (!meant && strncasecmp(t->name, p, n) == 0)
            meant = t->name;
        nearest_offer(&near, t->name, strlen(t->name), id);
    }
    if (!meant && near.found)
        meant = quant_find((uint32_t)near.which)->name;
    return err_set(e, -EINVAL, "'%s' is not a type%s%s%s", show(shown, p, n),
                   meant ? "; did you mean " : ", such as Q8_0 or F16", meant ? meant : "",
                   meant ? "?" : "");
}

/* True for "unknown:NNN". */
static bool is_unknown(const uint8_t *p, size_t n)
{
    static const char prefix[] = "unknown:";
    const size_t len = sizeof(prefix) - 1;
    struct integer v;
    return n > len && strncasecmp((const char *)p, prefix, len) == 0 &&
           scan_integer(p + len, n - len, &v) == 0;
}

int tensor_type_parse(const char *text, size_t n, uint32_t *ret, struct err *e)
{
    char shown[SHOW_MAX];
    const uint8_t *p;
    size_t len;
    int r = take_line(text, n, &p, &len, e);
    if (r == 0 && len == 0)
        r = err_set(e, -EINVAL, "no type is given, such as Q8_0 or F16");
    if (r < 0)
        return r;
    for (uint32_t id = 0; quant_find(id); id++) {
        const struct quant_type *t = quant_find(id);
        if (strlen(t->name) != len || strncasecmp(t->name, (const char *)p, len) != 0)
            continue;
        if (t->block_len == 0)
            return err_set(e, -EOPNOTSUPP, "a tensor of the retired type %s cannot be created",
                           t->name);
        *ret = id;
        return 0;
    }
    if (is_unknown(p, len))
        return err_set(e, -EOPNOTSUPP, "a tensor of type %s cannot be created",
                       show(shown, p, len));
    return not_a_type((const char *)p, len, e);
}

/* ---- shape ---- */

int tensor_shape_parse(const char *text, size_t n, struct tensor_shape *ret, struct err *e)
{
    char shown[SHOW_MAX];
    uint64_t dims[TENSOR_MAX_DIMS] = {1}, elements = 1; /* in NumPy's order */
    uint32_t n_dims = 0;
    const uint8_t *line;
    struct integer v;
    size_t len;
    int r = take_line(text, n, &line, &len, e);
    if (r < 0)
        return r;
    for (const uint8_t *p = line, *end = line + len, *first; p < end;) {
        for (first = p; p < end && !is_space(*p);)
            p++;
        r = scan_integer(first, (size_t)(p - first), &v);
        while (p < end && is_space(*p))
            p++;
        if (r == -EINVAL || v.minus)
            return err_set(
                e, -EINVAL,
                "'%s' is not a shape: must be numbers separated by spaces, such as 4096 128",
                show(shown, line, len));
        if (r == 0 && v.magnitude == 0)
            return err_set(e, -EINVAL, "a dimension is 0");
        if (n_dims == TENSOR_MAX_DIMS)
            return err_set(e, -EINVAL, "a shape has 1 to %d dimensions", TENSOR_MAX_DIMS);
        if (r < 0 || !mul_u64(elements, v.magnitude, &elements) || elements > GGUF_MAX_ELEMENTS)
            return err_set(e, -EINVAL, "the number of elements overflows");
        dims[n_dims++] = v.magnitude;
    }
    ret->n_dims = n_dims ? n_dims : 1;
    for (uint32_t i = 0; i < TENSOR_MAX_DIMS; i++)
        ret->dims[i] = i < ret->n_dims ? dims[ret->n_dims - 1 - i] : 0;
    return 0;
}

/* ---- the content of texts ---- */

void tensor_text(const struct tensor_base *base, enum tensor_view view, struct buf *out)
{
    const struct quant_type *type = quant_find(base->type);
    if (view == TENSOR_TYPE && type && type->block_len)
        buf_str(out, type->name);
    else if (view == TENSOR_TYPE)
        buf_printf(out, "unknown:%" PRIu32, base->type);
    for (uint32_t i = base->n_dims; view == TENSOR_SHAPE && i-- > 0;)
        buf_printf(out, "%" PRIu64 "%s", base->dims[i], i ? " " : "");
    buf_char(out, '\n');
}

int tensor_reshape(const struct tensor_base *base, struct tensor_shape *shape, struct err *e)
{
    uint64_t nbytes;
    shape->type = base->type;
    int r = tensor_shape_bytes(shape, &nbytes, e);
    if (r < 0)
        return r;
    const uint64_t elements = elements_of(shape);
    if (elements != base->n_elem)
        return err_set(e, -EINVAL, "the shape has %llu elements, the tensor has %llu",
                       (unsigned long long)elements, (unsigned long long)base->n_elem);
    bool same = shape->n_dims == base->n_dims &&
                memcmp(shape->dims, base->dims, shape->n_dims * sizeof(shape->dims[0])) == 0;
    bool scalar = base->n_dims == 0 && shape->n_dims == 1;
    return same || scalar ? TENSOR_SAME : TENSOR_CHANGED;
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
        text_i64(out, v->i64);
    else if (v->kind == QUANT_DOUBLE)
        text_f64(out, v->f64, &float_names_text);
    else
        text_f32(out, v->f32, &float_names_text);
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
    RAW_UNIT = 256 * 1024, /* number of bytes of `raw` judged at a time */
    RAW_BLOCK = 512,       /* number of bytes compared as a unit */
    /* Gaps of at most this many equal bytes between two runs are rewritten, to limit the number of
     * pieces. */
    GAP = 16 * 1024,
};

/* Sizes and offsets of values are counted in the view, after its header; a conversion uses those of
 * `f32`. */
struct job {
    struct draft *d;                  /* holds the values or bytes; NULL for a conversion */
    const struct tensor_round *round; /* the data of `d` to judge */
    const struct tensor_base *base;   /* the tensor before the edit */
    struct logs *logs;
    bool whole;                    /* the pieces must cover the whole tensor, not only changes */
    const struct quant_type *type; /* type of the result; NULL if bytes are judged, not values */
    uint32_t n_dims;               /* the shape of the result */
    const uint64_t *dims;
    enum quant_view view;
    struct quant_importances imp;
    const struct quant_importances *weigh; /* points to `imp`, or NULL */
    uint64_t head;                         /* bytes of the draft before the first value */
    uint64_t size, unit, block;            /* numbers of bytes: in total, per unit and per block */
    uint64_t old;       /* bytes below this are compared with current blocks of the same type */
    unsigned width;     /* bytes per value */
    uint32_t raw_block; /* bytes per stored block */
    struct log *log;    /* a reference: the log that values are encoded into */
    uint64_t low, room; /* stored byte `low` is at `room` in the log */
    struct units units;
    /* Protected by the lock of the units: */
    uint64_t failed; /* the first unit that failed so far, and why */
    struct err why;
    struct tensor_piece *piece; /* owned, each with a reference to its log */
    size_t n, cap;
};

/* The buffers of one thread. */
struct room {
    uint8_t in[TENSOR_STRETCH * 8];
    uint8_t old[TENSOR_STRETCH * 8];
    uint8_t raw[TENSOR_STRETCH * 8];
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

/* Add pieces of `raw` for the written bytes. Bytes that come from the base need no piece. */
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
    int r = logs_put(j->logs, j->log, src, bytes, n);
    return r < 0 ? r : add_at(j, at, n, src, log_ref(j->log));
}

/* Two ranges of n bytes to compare block by block; the last block may be shorter. */
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

/* Add pieces for the blocks that differ; the first block compared is block `from`. */
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
    struct compare c = {room->old, room->in, (size_t)(hi - lo), RAW_BLOCK};
    int r = 0;
    if (lo >= j->old)
        return logs_failed(add_written(j, lo, hi - lo), e);
    r = tensor_round_read(j->d, j->round, lo, room->in, c.n);
    if (r == 0)
        r = tensor_view_read(j->base, TENSOR_RAW, lo, room->old, c.n);
    if (r < 0)
        return cannot_read(r, e);
    r = add_pieces(j, lo / RAW_BLOCK, &c);
    return logs_failed(r, e);
}

/* Read the values, or the stored blocks to convert. */
static int read_in(const struct job *j, uint64_t lo, uint64_t hi, void *dst)
{
    if (j->d)
        return tensor_round_read(j->d, j->round, j->head + lo, dst, (size_t)(hi - lo));
    const struct quant_type *t = quant_find(j->base->type);
    lo = lo / j->width / t->block_len * t->block_bytes;
    hi = hi / j->width / t->block_len * t->block_bytes;
    return tensor_view_read(j->base, TENSOR_RAW, lo, dst, (size_t)(hi - lo));
}

static int judge_values(struct job *j, uint64_t lo, uint64_t hi, struct room *room, struct err *e)
{
    const uint64_t first = lo / j->block, at = first * j->raw_block;
    const size_t blocks = (size_t)(hi / j->block - first);
    const bool over = lo < j->old;
    struct compare c = {room->old, room->raw, blocks * j->raw_block, j->raw_block};
    struct quant_fault fault = {0};
    struct quant_importances imp = j->imp;
    const struct quant_importances *weigh = j->weigh ? &imp : NULL;
    imp.first = lo / j->width;
    int r = read_in(j, lo, hi, room->in);
    if (r == 0 && over)
        r = tensor_view_read(j->base, TENSOR_RAW, at, room->old, c.n);
    if (r < 0)
        return cannot_read(r, e);
    if (j->d)
        r = quant_write(j->type, j->base->big, j->view, over ? room->old : NULL, room->in, blocks,
                        room->raw, weigh, &fault);
    else
        r = quant_convert(quant_find(j->base->type), j->type, j->base->big, room->in,
                          blocks * j->type->block_len, room->raw, weigh, &fault);
    fault.element += imp.first;
    if (r < 0)
        return report_fault(j, r, &fault, e);
    r = j->whole ? logs_put(j->logs, j->log, j->room + at, room->raw, c.n)
                 : add_pieces(j, first, &c);
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
    int r = 0;
    if (!j->whole && !written_in(j, &lo, &hi))
        return 0;
    for (uint64_t upto; r == 0 && lo < hi; lo = upto) {
        upto = lo < j->old ? min_u64(hi, j->old) : hi;
        r = j->type ? judge_values(j, lo, upto, room, &e) : judge_bytes(j, lo, upto, room, &e);
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
    if (!j->type || (!j->whole && !written_in(j, &lo, &hi)))
        return 0;
    lo = lo / j->block * j->raw_block;
    hi = hi / j->block * j->raw_block;
    j->low = lo;
    int r = logs_take(j->logs, hi - lo, tensor_base_offset(j->base) + lo, &j->log, &j->room, e);
    if (r < 0 || !j->whole)
        return r;
    r = array_grow(&j->piece, &j->cap, j->n, sizeof(*j->piece));
    if (r < 0)
        return err_set(e, r, "no memory");
    j->piece[j->n++] = (struct tensor_piece){0, hi, j->room, log_ref(j->log)};
    return 0;
}

/* Run all units. imp: the importances of the tensor's columns, or NULL. Sets everything in *ret
 * except its shape. */
static int run(struct job *j, const struct imatrix_row *imp, const struct units_watch *watch,
               struct tensor_edit *ret, struct err *e)
{
    int r = 0;
    j->units = (struct units){.n = (j->size + j->unit - 1) / j->unit,
                              .unit = judge_unit,
                              .next = j->whole ? NULL : next_unit,
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
    log_unref(j->log);
    struct tensor_edit edit = {.shaped = j->whole, .whole = j->whole, .piece = j->piece, .n = j->n};
    if (j->n)
        qsort(j->piece, j->n, sizeof(*j->piece), by_place);
    if (r < 0)
        tensor_edit_free(&edit);
    else
        *ret = edit;
    return r;
}

static void take_values(struct job *j, const struct quant_type *type, unsigned width)
{
    j->type = type;
    j->width = width;
    j->unit = (uint64_t)TENSOR_STRETCH * width;
    j->block = (uint64_t)type->block_len * width;
    j->raw_block = type->block_bytes;
}

/* Make the job for a round. npy: the draft's header, or NULL if there is none. shape: the shape of
 * a tensor that is new or whose number of elements changes; else NULL. */
static struct job make_job(struct draft *d, const struct tensor_round *round, const struct npy *npy,
                           const struct tensor_shape *shape)
{
    const struct tensor_base *base = round->base;
    const struct tensor_view_kind *kind = &tensor_views[d->view];
    struct job j = {.d = d, .round = round, .base = base, .logs = d->logs, .whole = shape};
    j.n_dims = shape ? shape->n_dims : base->n_dims;
    j.dims = shape ? shape->dims : base->dims;
    j.head = npy ? npy->header : 0;
    j.size = round->size - j.head;
    if (d->view == TENSOR_RAW) {
        j.unit = RAW_UNIT;
        j.block = RAW_BLOCK;
        j.old = base->nbytes;
        return j;
    }
    take_values(&j, quant_find(shape ? shape->type : base->type),
                npy ? npy->width : kind->form->width);
    j.view = !npy ? kind->values : npy->width == 2 ? QUANT_F16 : QUANT_F32;
    j.old = min_u64(j.size, base->n_elem * j.width);
    return j;
}

/* ---- convert ---- */

/* From this size on, the file system is first queried for free space, because encoding takes a
 * while. */
#define ROOM_ASKED ((uint64_t)1 << 20)

static int check_convert(const struct tensor_base *base, const struct quant_type *to,
                         struct tensor_shape *shape, const struct logs *logs, struct err *e)
{
    uint64_t nbytes;
    if (!view_exists(base, TENSOR_F32))
        return err_set(e, -EOPNOTSUPP, "the values of this tensor cannot be read");
    if (!quant_can_encode(to, base->big))
        return err_set(e, -EOPNOTSUPP, "values cannot be stored as %s here", to->name);
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
    struct tensor_shape shape;
    if (base->type == type)
        return TENSOR_SAME;
    int r = check_convert(base, quant_find(type), &shape, logs, e);
    if (r < 0)
        return r;
    struct job j = {.base = base,
                    .logs = logs,
                    .whole = true,
                    .n_dims = shape.n_dims,
                    .dims = shape.dims,
                    .size = base->n_elem * 4};
    take_values(&j, quant_find(type), 4);
    r = run(&j, base->imp, watch, ret, e);
    if (r < 0)
        return r;
    ret->shape = shape;
    return TENSOR_CHANGED;
}

/* ---- the result for a draft ---- */

/* Check the length. what and name: the subject of the message. Returns 0 if the length is right,
 * otherwise a verdict or -EINVAL. */
static int check_length(uint64_t has, uint64_t whole, const char *what, const char *name,
                        struct err *e)
{
    if (has > whole)
        return err_set(e, -EINVAL, "%s%s has %llu bytes, but type and shape require %llu", what,
                       name, (unsigned long long)has, (unsigned long long)whole);
    if (has == whole)
        return 0;
    (void)err_set(e, -EINVAL, "%s%s has %llu of %llu bytes", what, name, (unsigned long long)has,
                  (unsigned long long)whole);
    return TENSOR_SHORT;
}

/* Get the draft's header. Returns 0, a verdict or -errno. */
static int find_header(struct draft *d, uint64_t size, struct npy *ret, struct err *e)
{
    lock_take(&d->lock);
    *ret = d->npy;
    lock_drop(&d->lock);
    if (ret->header && ret->header <= size)
        return ret->header == size ? TENSOR_BEGUN : 0;
    (void)err_set(e, -EINVAL, "its NumPy header is incomplete");
    return TENSOR_SHORT;
}

/* True if an array has this shape. A shape without dimensions counts as one dimension of 1. */
static bool is_shape(const struct npy *npy, uint32_t n_dims, const uint64_t *dims)
{
    if (n_dims == 0)
        return npy->n_dims == 1 && npy->dims[0] == 1;
    return n_dims == npy->n_dims && memcmp(dims, npy->dims, n_dims * sizeof(*dims)) == 0;
}

/*
 * True if values have moved, so that all must be judged. As long as bytes of the base are shown,
 * the header is compared with that of the base's view; after that, with the layout of the values
 * judged so far.
 */
static bool is_moved(const struct draft *d, const struct tensor_round *round, const struct npy *npy)
{
    const struct tensor_base *base = round->base;
    const unsigned width = tensor_views[d->view].form->width;
    const uint64_t header = tensor_view_size(base, d->view) - base->n_elem * width;
    if (round->cut == 0)
        return npy->header != d->layout.header || npy->width != d->layout.width;
    return !is_shape(npy, base->n_dims, base->dims) || npy->header != header || npy->width != width;
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
        r = check_length(round->size, npy.header + npy.n_elem * npy.width, "it", "", e);
    if (r)
        return r;
    shape.n_dims = npy.n_dims;
    memcpy(shape.dims, npy.dims, sizeof(npy.dims));
    r = tensor_shape_bytes(&shape, &nbytes, e);
    if (r == 0 && is_moved(d, round, &npy))
        r = tensor_draft_detach(d, round, &npy);
    if (r < 0)
        return e && e->code ? r : logs_failed(r, e);
    struct job j = make_job(d, round, &npy, npy.n_elem == base->n_elem ? NULL : &shape);
    r = run(&j, base->imp, watch, ret, e);
    ret->shaped = !is_shape(&npy, base->n_dims, base->dims);
    ret->shape = shape;
    return r;
}

static int judge(struct draft *d, struct tensor_round *round, const struct units_watch *watch,
                 struct tensor_edit *ret, struct err *e)
{
    if (tensor_views[d->view].npy)
        return judge_npy(d, round, watch, ret, e);
    int r = check_length(round->size, tensor_view_size(round->base, d->view), "it", "", e);
    if (r)
        return r;
    struct job j = make_job(d, round, NULL, NULL);
    return run(&j, round->base->imp, watch, ret, e);
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

/* Views of the same type are adjacent; the view that also defines the shape comes first. */
static const enum tensor_view order[] = {TENSOR_F32_NPY, TENSOR_F32, TENSOR_F16_NPY, TENSOR_F16,
                                         TENSOR_BF16};

static int lacks(struct err *e, const char *what)
{
    (void)err_set(e, -EINVAL, "a new tensor: still needs %s", what);
    return TENSOR_SHORT;
}

/* Judge a tensor by one of its views. The bytes of `raw` are used unchanged. */
static int judge_new(const struct tensor_new *t, struct draft *d, const struct tensor_round *round,
                     const struct units_watch *watch, struct tensor_edit *ret, struct err *e)
{
    const struct tensor_view_kind *kind = &tensor_views[d->view];
    struct tensor_shape shape = t->shape;
    struct npy npy = {0};
    uint64_t whole;
    int r = 0;
    if (kind->npy) {
        r = find_header(d, round->size, &npy, e);
        if (r == TENSOR_BEGUN)
            return lacks(e, "the values after the NumPy header");
        if (r)
            return r;
        if (t->has_shape && !is_shape(&npy, shape.n_dims, shape.dims))
            return err_set(e, -EINVAL, "a new tensor: %s and shape do not agree", kind->name);
        shape.n_dims = npy.n_dims;
        memcpy(shape.dims, npy.dims, sizeof(npy.dims));
    } else if (!t->has_shape || (!t->has_type && !kind->form)) {
        return lacks(e, t->has_shape                ? "type"
                        : t->has_type || kind->form ? "shape"
                                                    : "type and shape");
    }
    shape.type = t->has_type ? t->type : kind->form->same;
    r = tensor_shape_bytes(&shape, &whole, e);
    if (r == 0 && kind->form)
        whole = npy.header + elements_of(&shape) * (npy.header ? npy.width : kind->form->width);
    if (r == 0)
        r = check_length(round->size, whole, "a new tensor: ", kind->name, e);
    if (r)
        return r;
    struct job j = make_job(d, round, kind->npy ? &npy : NULL, &shape);
    r = run(&j, t->imp, watch, ret, e);
    if (r < 0)
        return r;
    ret->shape = shape;
    return TENSOR_CHANGED;
}

int tensor_new_judge(const struct tensor_new *t, const struct units_watch *watch,
                     struct tensor_edit *ret, struct err *e)
{
    struct draft *d = t->draft[TENSOR_RAW];
    struct tensor_round round;
    for (size_t i = 0; !d && i < COUNT(order); i++)
        if (t->draft[order[i]] && t->draft[order[i]]->size > 0)
            d = t->draft[order[i]];
    if (!d && t->has_type && t->has_shape)
        return lacks(e, "raw or values");
    if (!d)
        return lacks(e, t->has_type    ? "shape, and raw or values"
                        : t->has_shape ? "type, and raw or values"
                                       : "type, shape, and raw or values");
    int r = tensor_draft_round(d, &round);
    if (r < 0)
        return err_set(e, r, "no memory");
    r = judge_new(t, d, &round, watch, ret, e);
    tensor_round_free(&round);
    return r;
}

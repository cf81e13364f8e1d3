/* SPDX-License-Identifier: MIT */
/* Values to stored bytes: see tensor_encode.h. */
#include "live/tensor_encode.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "edit/commit.h"
#include "live/tensor_base.h"
#include "quant/convert.h"
#include "quant/encode.h"
#include "text/number.h"

/* ---- faults ---- */

/* "[3, 17]": NumPy's index of an element. */
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

int tensor_fault(int code, const struct quant_type *t, const struct quant_fault *fault,
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
    return err_set(e, code, "values cannot be stored: %s", strerror(-code));
}

void tensor_failure_note(struct tensor_failure *f, uint64_t unit, const struct err *e)
{
    lock_take(&f->lock);
    if (!f->e.code || unit < f->unit) {
        f->unit = unit;
        f->e = *e;
    }
    lock_drop(&f->lock);
}

int tensor_units(struct units *c, const struct units_watch *watch, struct tensor_failure *f,
                 struct err *e)
{
    lock_init(&f->lock);
    const int r = units_run(c, watch);
    lock_destroy(&f->lock);
    if (r == -EINTR || r == -ENOMEM)
        return err_set(e, r, "%s", r == -EINTR ? "interrupted" : "no memory");
    if (r < 0 && e)
        *e = f->e;
    return r;
}

/* ---- encode ---- */

int tensor_importances(const struct imatrix_row *row, const struct quant_type *t, uint32_t n_dims,
                       const uint64_t *dims, struct quant_importances *ret,
                       const struct quant_importances **arg, struct err *e)
{
    *arg = NULL;
    if (!row || !t || t->weighs == QUANT_IGNORES)
        return 0;
    *arg = ret;
    return imatrix_fit(row, n_dims, dims, ret, e);
}

struct job {
    const struct tensor_encode *t;
    const struct quant_type *type;
    uint64_t n_elem;
    uint64_t old_elem; /* elements whose old blocks can be looked at */
    struct quant_importances imp;
    const struct quant_importances *weigh; /* imp, or NULL */
    struct logs *logs;
    struct log *log; /* where the bytes are, from `at` on */
    uint64_t at;
    struct tensor_failure failure;
};

/* Memory of a thread. */
struct room {
    uint8_t values[TENSOR_STRETCH * 8];
    uint8_t raw[TENSOR_STRETCH * 8];
};

/* Encode values [first, first + n), all with old blocks or all without. */
static int encode_part(struct job *j, uint64_t first, size_t n, struct room *room, struct err *e)
{
    const struct tensor_encode *t = j->t;
    const uint64_t byte = first / j->type->block_len * j->type->block_bytes;
    const size_t blocks = n / j->type->block_len, bytes = blocks * j->type->block_bytes;
    const bool over = first < j->old_elem;
    struct quant_fault fault = {0};
    struct quant_importances imp = j->imp;
    const struct quant_importances *weigh = j->weigh ? &imp : NULL;
    imp.first = first;
    int r = t->from.read(t->from.arg, first, room->values, n);
    if (r == 0 && over)
        r = tensor_view_read(t->old, TENSOR_RAW, byte, room->raw, bytes);
    if (r < 0)
        return err_set(e, r, "cannot read the values: %s", strerror(-r));
    if (t->from.stored)
        r = quant_convert(t->from.stored, j->type, t->big, room->values, n, room->raw, weigh,
                          &fault);
    else
        r = quant_write(j->type, t->big, t->from.view, over ? room->raw : NULL, room->values,
                        blocks, room->raw, weigh, &fault);
    fault.element += first;
    if (r < 0)
        return tensor_fault(r, j->type, &fault, t->shape.n_dims, t->shape.dims, e);
    r = logs_put(j->logs, j->log, j->at + byte, room->raw, bytes);
    return logs_failed(r, e);
}

static int encode_unit(void *arg, uint64_t unit, void *room)
{
    struct job *j = arg;
    struct err e = {0};
    uint64_t first = unit * TENSOR_STRETCH, end = min_u64(j->n_elem, first + TENSOR_STRETCH);
    int r = 0;
    while (r == 0 && first < end) {
        uint64_t upto = first < j->old_elem ? min_u64(end, j->old_elem) : end;
        r = encode_part(j, first, (size_t)(upto - first), room, &e);
        first = upto;
    }
    if (r < 0)
        tensor_failure_note(&j->failure, unit, &e);
    return r;
}

int tensor_encode(const struct tensor_encode *t, struct logs *logs, const struct units_watch *watch,
                  struct tensor_edit *ret, struct err *e)
{
    struct job j = {.t = t, .type = quant_find(t->shape.type), .n_elem = 1, .logs = logs};
    struct units c = {.unit = encode_unit, .arg = &j, .room = sizeof(struct room)};
    uint64_t nbytes;
    int r = tensor_shape_bytes(&t->shape, &nbytes, e);
    if (r == 0)
        r = tensor_importances(t->imp, j.type, t->shape.n_dims, t->shape.dims, &j.imp, &j.weigh, e);
    if (r < 0)
        return r;
    for (uint32_t i = 0; i < t->shape.n_dims; i++)
        j.n_elem *= t->shape.dims[i];
    if (t->old && t->old->exists && t->old->type == t->shape.type)
        j.old_elem = min_u64(j.n_elem, t->old->n_elem);
    struct tensor_piece *p = malloc(sizeof(*p));
    r = p ? logs_take(logs, nbytes, 0, &j.log, &j.at, e) : err_set(e, -ENOMEM, "no memory");
    if (r < 0) {
        free(p);
        return r;
    }
    *p = (struct tensor_piece){0, nbytes, j.at, j.log};
    struct tensor_edit edit = {true, true, t->shape, p, 1};
    c.n = (j.n_elem + TENSOR_STRETCH - 1) / TENSOR_STRETCH;
    r = tensor_units(&c, watch, &j.failure, e);
    if (r < 0)
        tensor_edit_free(&edit);
    else
        *ret = edit;
    return r;
}

/* ---- convert ---- */

static int read_stored(void *arg, uint64_t first, void *dst, size_t n)
{
    const struct tensor_base *base = arg;
    const struct quant_type *t = quant_find(base->type);
    return tensor_view_read(base, TENSOR_RAW, first / t->block_len * t->block_bytes, dst,
                            n / t->block_len * t->block_bytes);
}

/* From so many bytes on the file system is asked first whether it has room: encoding takes a while. */
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
    struct tensor_encode t = {
        .from = {.stored = quant_find(base->type), .read = read_stored, .arg = base},
        .big = base->big,
        .imp = base->imp,
    };
    if (base->exists && base->type == type)
        return TENSOR_SAME;
    int r = check_convert(base, quant_find(type), &t.shape, logs, e);
    if (r == 0)
        r = tensor_encode(&t, logs, watch, ret, e);
    return r < 0 ? r : TENSOR_CHANGED;
}

/* SPDX-License-Identifier: MIT */
/* Views of a tensor, and their texts (view.h). */
#include "derive/view.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

#include "base/bytes.h"
#include "model/facts.h"
#include "model/npy.h"
#include "text/number.h"

/* ---- bases ---- */

struct tensor_base tensor_base_in(const struct view *v, uint32_t number)
{
    const struct gguf *g = v->snap->gguf;
    const uint32_t i = ids_find(v->snap->ids, g->n_tensors, number);
    return (struct tensor_base){
        .v = *v, .t = i == IDS_NONE ? NULL : &g->tensor[i], .big = g->fmt.big};
}

void tensor_base_free(struct tensor_base *b)
{
    view_free(&b->v);
    b->t = NULL;
}

static uint32_t tensor_place(const struct tensor_base *b)
{
    return snapshot_tensor_no(b->v.snap, b->t);
}

uint32_t tensor_dims(const struct tensor_base *b, uint64_t dims[GGUF_MAX_DIMS])
{
    for (uint32_t k = 0; k < b->t->n_dims; k++)
        dims[k] = gguf_dim(b->v.snap->gguf, b->t, k);
    return b->t->n_dims;
}

uint64_t tensor_data_offset(const struct tensor_base *b)
{
    return b->t ? b->v.store->place[tensor_place(b)].off : 0;
}

/* ---- views ---- */

const struct tensor_view_kind tensor_views[TENSOR_VIEWS] = {
    [TENSOR_RAW] = {"raw", NULL, false},
    [TENSOR_F32] = {"f32", &quant_f32, false},
    [TENSOR_F16] = {"f16", &quant_f16, false},
    [TENSOR_BF16] = {"bf16", &quant_bf16, false},
    [TENSOR_F32_NPY] = {"f32.npy", &quant_f32, true},
    [TENSOR_F16_NPY] = {"f16.npy", &quant_f16, true},
    [TENSOR_TYPE] = {"type", NULL, false},
    [TENSOR_SHAPE] = {"shape", NULL, false},
};

void tensor_view_head(const struct tensor_base *b, enum tensor_view view, struct buf *out)
{
    uint64_t dims[GGUF_MAX_DIMS];
    if (view == TENSOR_TYPE)
        fact_type_name(b->t, out);
    else if (view == TENSOR_SHAPE)
        fact_shape(b->v.snap->gguf, b->t, " ", out);
    else if (tensor_views[view].npy)
        (void)npy_header(out, tensor_views[view].form->descr, tensor_dims(b, dims), dims);
    if (view_is_text(view))
        buf_char(out, '\n');
}

uint64_t tensor_view_size(const struct tensor_base *b, enum tensor_view view)
{
    struct buf measure = BUF_MEASURE;
    if (!b->t || view_is_computed(view))
        return 0;
    const struct quant_form *form = tensor_views[view].form;
    if (form && !quant_has_values(quant_find(b->t->type_id), b->big))
        return 0;
    tensor_view_head(b, view, &measure);
    return measure.len + (form ? form_size(form, b->t) : view_is_text(view) ? 0 : b->t->nbytes);
}

int tensor_view_read(const struct tensor_base *b, enum tensor_view view, uint64_t off, void *dst,
                     size_t n)
{
    CLEANUP(buf_free) struct buf head = BUF_INIT;
    const struct quant_form *form = tensor_views[view].form;
    tensor_view_head(b, view, &head);
    const size_t done = (size_t)within_u64(off, n, head.len);
    uint8_t *rest = (uint8_t *)dst + done;
    if (buf_error(&head))
        return buf_error(&head);
    if (done)
        memcpy(dst, head.data + off, done);
    if (done == n)
        return 0;
    off += done - head.len;
    return form ? form_read(form, b->v.snap->gguf, b->v.store, tensor_place(b), off, rest, n - done)
                : store_read(b->v.store, tensor_place(b), off, rest, n, b->t->nbytes);
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

int tensor_type_parse(const char *text, size_t n, uint32_t *ret, struct err *e)
{
    static const char unknown[] = "unknown:";
    char shown[SHOW_MAX];
    const uint8_t *line;
    size_t len;
    int r = take_line(text, n, &line, &len, e);
    if (r < 0)
        return r;
    const char *word = (const char *)line;
    struct nearest near = nearest_to(word, len);
    for (uint32_t id = 0; quant_find(id); id++) {
        const struct quant_type *t = quant_find(id);
        const bool same = strlen(t->name) == len && strncasecmp(t->name, word, len) == 0;
        if (same && t->block_len == 0)
            return err_set(e, -EOPNOTSUPP, "a tensor of the retired type %s cannot be created",
                           t->name);
        if (same) {
            *ret = id;
            return 0;
        }
        if (t->block_len)
            nearest_offer(&near, t->name, strlen(t->name), id);
    }
    (void)show(shown, word, len);
    if (len >= strlen(unknown) && strncasecmp(word, unknown, strlen(unknown)) == 0)
        return err_set(e, -EOPNOTSUPP, "a tensor of type %s cannot be created", shown);
    return near.found ? err_set(e, -EINVAL, "'%s' is not a type; did you mean %s?", shown,
                                quant_find((uint32_t)near.which)->name)
                      : err_set(e, -EINVAL, "'%s' is not a type, such as Q8_0 or F16", shown);
}

/* ---- shape ---- */

int tensor_shape_parse(const char *text, size_t n, struct tensor_shape *ret, struct err *e)
{
    char shown[SHOW_MAX];
    uint64_t dims[TENSOR_MAX_DIMS] = {1}, elements = 1; /* in NumPy's order */
    uint32_t n_dims = 0;
    const uint8_t *line;
    struct integer v = {0};
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

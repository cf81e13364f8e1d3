/* SPDX-License-Identifier: MIT */
/* Tensors in the making: see tensor_new.h. */
#include "live/tensor_new.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "quant/encode.h"

/* A view that brings its own type is at most as good as one that brings the shape too. */
static const enum tensor_view order[] = {TENSOR_F32_NPY, TENSOR_F32, TENSOR_F16_NPY, TENSOR_F16,
                                         TENSOR_BF16};

static uint64_t elements(const struct tensor_shape *s)
{
    uint64_t n = 1;
    for (uint32_t i = 0; i < s->n_dims; i++)
        n *= s->dims[i];
    return n;
}

static int lacks(struct err *e, const char *what)
{
    (void)err_set(e, -EINVAL, "a new tensor: lacks %s", what);
    return TENSOR_SHORT;
}

static int check_length(struct tensor_draft *d, uint64_t need, struct err *e)
{
    uint64_t have = tensor_draft_size(d);
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

/* The bytes as they are. */
static int judge_raw(const struct tensor_new *t, struct tensor_edit *ret, struct err *e)
{
    struct tensor_draft *d = t->draft[TENSOR_RAW];
    struct tensor_shape shape = t->shape;
    uint64_t nbytes;
    if (!t->has_type || !t->has_shape)
        return lacks(e, t->has_type ? "shape" : t->has_shape ? "type" : "type and shape");
    shape.type = t->type;
    int r = tensor_shape_bytes(&shape, &nbytes, e);
    if (r == 0)
        r = check_length(d, nbytes, e);
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

/* The type that values have by themselves. */
static uint32_t own_type(enum tensor_view view)
{
    return tensor_view_form(view)->same;
}

/* The shape, and where the values begin. */
static int place_values(const struct tensor_new *t, struct tensor_draft *d, struct npy *npy,
                        struct tensor_shape *shape, struct err *e)
{
    uint64_t size = tensor_draft_size(d);
    const unsigned width = tensor_view_form(d->view)->width;
    *shape = t->shape;
    *npy = (struct npy){.width = width};
    if (tensor_view_is_npy(d->view)) {
        int r = tensor_draft_header(d, size, npy, e);
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
    shape->type = t->has_type ? t->type : own_type(d->view);
    return check_length(d, npy->header + elements(shape) * npy->width, e);
}

static int judge_values(const struct tensor_new *t, struct tensor_draft *d,
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
    r = tensor_draft_encode(d, values, npy.header, &shape, NULL, t->imp, watch, ret, e);
    return r < 0 ? r : TENSOR_CHANGED;
}

int tensor_new_judge(const struct tensor_new *t, const struct units_watch *watch,
                     struct tensor_edit *ret, struct err *e)
{
    if (t->draft[TENSOR_RAW])
        return judge_raw(t, ret, e);
    for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++) {
        struct tensor_draft *d = t->draft[order[i]];
        if (d && tensor_draft_size(d) > 0)
            return judge_values(t, d, watch, ret, e);
    }
    if (t->has_type && t->has_shape)
        return lacks(e, "raw or values");
    return lacks(e, t->has_type    ? "shape, and raw or values"
                    : t->has_shape ? "type, and raw or values"
                                   : "type, shape, and raw or values");
}

uint64_t tensor_new_limit(const struct tensor_new *t, enum tensor_view view)
{
    struct tensor_shape shape = t->shape;
    uint64_t nbytes;
    if (!t->has_shape || tensor_view_is_npy(view))
        return TENSOR_DRAFT_MAX;
    shape.type = t->has_type ? t->type : 0;
    if (view == TENSOR_RAW && (!t->has_type || tensor_shape_bytes(&shape, &nbytes, NULL) < 0))
        return TENSOR_DRAFT_MAX;
    if (view == TENSOR_RAW)
        return nbytes;
    return min_u64(elements(&shape) * tensor_view_form(view)->width, TENSOR_DRAFT_MAX);
}

/* SPDX-License-Identifier: MIT */
/*
 * A tensor in the making: what was written into its folder, judged as a whole.
 *
 * Where type, shape and `raw` were given they count, and values are left aside. Else values are
 * encoded, of the first view that has some in this order: f32.npy, f32, f16.npy, f16, bf16; the type
 * is the view's own if none was given, the shape that of a NumPy header. While `raw` was begun values
 * are not looked at.
 *
 * Threads: nothing may write the drafts meanwhile.
 */
#ifndef LIVE_TENSOR_NEW_H
#define LIVE_TENSOR_NEW_H

#include "base/units.h"
#include "live/tensor_draft.h"

struct tensor_new {
    bool big; /* the model's byte order */
    bool has_type, has_shape;
    uint32_t type;                            /* as tensor_type_parse() gives it */
    struct tensor_shape shape;                /* dims as tensor_shape_parse() gives them */
    const struct imatrix_row *imp;            /* not owned; NULL: none */
    struct tensor_draft *draft[TENSOR_VIEWS]; /* not owned; NULL: nothing was written to it */
};

/*
 * TENSOR_CHANGED: *ret has the shape and the pieces of edit_tensor_add(). TENSOR_SHORT: the line says
 * what it lacks ("lacks shape"). Else it cannot become a tensor as it is: -EINVAL (what was given does
 * not agree; a shape that cannot be), -EOPNOTSUPP, -EDOM, -ERANGE, -ENOSPC, -ENOMEM, -EINTR, -errno.
 * The edit has the bytes of a draft of `raw` that is used, and the draft shows them on.
 */
int tensor_new_judge(const struct tensor_new *t, const struct units_watch *watch,
                     struct tensor_edit *ret, struct err *e);

/* How long a view can be, as far as type and shape are known; TENSOR_DRAFT_MAX: they are not. */
uint64_t tensor_new_limit(const struct tensor_new *t, enum tensor_view view);

#endif

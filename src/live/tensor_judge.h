/* SPDX-License-Identifier: MIT */
/*
 * What was written is judged: to a view of a tensor that exists (tensor_draft.h), or into the folder of one in the
 * making, which is judged as a whole.
 *
 * Of one in the making type, shape and `raw` count where they were given, and values are left aside. Else values are
 * encoded, of the first view that has some in this order: f32.npy, f32, f16.npy, f16, bf16; the type
 * is the view's own if none was given, the shape that of a NumPy header. While `raw` was begun values
 * are not looked at.
 *
 * Threads: any; see tensor_draft.h. Nothing may write the drafts of one in the making meanwhile.
 */
#ifndef LIVE_TENSOR_JUDGE_H
#define LIVE_TENSOR_JUDGE_H

#include "base/pool.h"
#include "live/tensor_draft.h"

/* Values of a unit of work: whole blocks of any type. */
#define TENSOR_STRETCH 65536

/*
 * Judge what was written since it was begun or passed. enum tensor_verdict:
 *
 *     TENSOR_SAME      nothing was written, or nothing that differs
 *     TENSOR_CHANGED   *ret is what to do; passed() or failed() must follow
 *     TENSOR_SHORT     too short, for now
 *     TENSOR_BEGUN     only a NumPy header
 *
 * or -EDOM, -ERANGE, -EOPNOTSUPP (as in quant_write(); the line names the element), -EINVAL (a header
 * or shape that cannot be, bytes behind the values), -ENOSPC, -ENOMEM, -EIO (also: the model was cut),
 * -EINTR (watch->cancel), -EAGAIN (it was truncated meanwhile: judge again). Of a tensor that does
 * not exist yet: tensor_new_judge(). After anything but CHANGED and SAME all that was written counts as
 * not judged.
 */
int tensor_draft_judge(struct draft *d, const struct units_watch *watch, struct tensor_edit *ret,
                       struct err *e);
/*
 * The values of a tensor that exists, whatever its bytes are made of, as another type, as by
 * quant_convert(). Errors as above, and -EINVAL (its rows are not whole blocks of that type, or over
 * 4 dimensions), -EOPNOTSUPP (values that cannot be shown, or stored in that type). TENSOR_SAME: it
 * has that type.
 */
int tensor_convert(struct tensor_base *base, uint32_t type, struct logs *logs,
                   const struct units_watch *watch, struct tensor_edit *ret, struct err *e);

/* ---- new tensors ---- */

struct tensor_new {
    bool big; /* the model's byte order */
    bool has_type, has_shape;
    uint32_t type;                     /* as tensor_type_parse() gives it */
    struct tensor_shape shape;         /* dims as tensor_shape_parse() gives them */
    const struct imatrix_row *imp;     /* not owned; NULL: none */
    struct draft *draft[TENSOR_VIEWS]; /* not owned; NULL: nothing was written to it */
};

/*
 * TENSOR_CHANGED: *ret has the shape and the pieces of edit_tensor_add(). TENSOR_SHORT: the line says
 * what it lacks ("lacks shape"). Else it cannot become a tensor as it is: -EINVAL (what was given does
 * not agree; a shape that cannot be), -EOPNOTSUPP, -EDOM, -ERANGE, -ENOSPC, -ENOMEM, -EINTR, -errno.
 * The edit has the bytes of a draft of `raw` that is used, and the draft shows them on.
 */
int tensor_new_judge(const struct tensor_new *t, const struct units_watch *watch,
                     struct tensor_edit *ret, struct err *e);

#endif

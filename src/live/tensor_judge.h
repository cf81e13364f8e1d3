/* SPDX-License-Identifier: MIT */
/*
 * Judges drafts: of a view of an existing tensor (draft.h), or of the directory of a new tensor,
 * which is judged as a whole.
 *
 * The judge of a view examines the bytes written since the draft last passed. Values are compared
 * with the view of the base, block by block: equal blocks keep their bytes, others are encoded, on
 * all processors. A draft that passed shows the written bytes, not the encoded result, and
 * continues from the new base; it holds all values of each block that it changed, so that judging
 * them again gives the same bytes. If a NumPy header moves the values or changes their type, all of
 * them are judged again. Bytes of `raw` that differ become pieces of the log as written; values are
 * encoded into it.
 *
 * For a new tensor, type, shape and `raw` count if `raw` was given, and values are ignored.
 * Otherwise values are encoded, from the first view that has any, in this order: f32.npy, f32,
 * f16.npy, f16, bf16; the type is the view's own if none was given, the shape that of a NumPy
 * header. Once `raw` was begun, values are not considered.
 *
 * Threads: any; see draft.h. The drafts of a new tensor must not be written during its judgement.
 */
#ifndef LIVE_TENSOR_JUDGE_H
#define LIVE_TENSOR_JUDGE_H

#include "live/draft.h"
#include "quant/encode.h"

/* Number of values per unit of work: whole blocks of any type. */
#define TENSOR_STRETCH 65536

/*
 * Judge what was written since it was begun or passed. enum tensor_verdict:
 *
 *     TENSOR_SAME      nothing was written, or nothing that differs
 *     TENSOR_CHANGED *ret is the edit; passed() or failed() must follow
 *     TENSOR_SHORT     too short, for now
 *     TENSOR_BEGUN     only a NumPy header
 *
 * or -EDOM, -ERANGE, -EOPNOTSUPP (as in quant_write(); the line names the element), -EINVAL (a header or shape that
 * cannot be, bytes after the values), -ENOSPC, -ENOMEM, -EIO (also: the model was truncated), -EINTR (watch->cancel),
 * -EAGAIN (it was truncated meanwhile: judge again). For a tensor that does not exist yet: tensor_new_judge(). After
 * anything but CHANGED and SAME everything written counts as not judged.
 */
int tensor_draft_judge(struct draft *d, const struct units_watch *watch, struct tensor_edit *ret,
                       struct err *e);
/*
 * Convert the values of an existing tensor, wherever its bytes come from, to another type as by
 * quant_convert(). Errors as above, and -EINVAL (its rows are not whole blocks of that type, or
 * over 4 dimensions), -EOPNOTSUPP (values that cannot be shown, or stored in that type).
 * TENSOR_SAME: it has that type.
 */
int tensor_convert(struct tensor_base *base, uint32_t type, struct logs *logs,
                   const struct units_watch *watch, struct tensor_edit *ret, struct err *e);

/* ---- new tensors ---- */

struct tensor_new {
    bool big; /* the model's byte order */
    bool has_type, has_shape;
    uint32_t type;                     /* as from tensor_type_parse() */
    struct tensor_shape shape;         /* dims as from tensor_shape_parse() */
    const struct imatrix_row *imp;     /* not owned; NULL: none */
    struct draft *draft[TENSOR_VIEWS]; /* not owned; NULL: not written */
};

/*
 * Judge a new tensor. TENSOR_CHANGED: *ret has the shape and the pieces for edit_tensor_add().
 * TENSOR_SHORT: the message says what the tensor lacks ("lacks shape"). Otherwise it cannot become
 * a tensor as it is: -EINVAL (its views do not fit together; an impossible shape), -EOPNOTSUPP,
 * -EDOM, -ERANGE, -ENOSPC, -ENOMEM, -EINTR, -errno. If a draft of `raw` is used, the edit has its
 * bytes, and the draft keeps showing them.
 */
int tensor_new_judge(const struct tensor_new *t, const struct units_watch *watch,
                     struct tensor_edit *ret, struct err *e);

#endif

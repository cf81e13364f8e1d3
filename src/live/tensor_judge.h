/* SPDX-License-Identifier: MIT */
/*
 * Judges the draft of a view of an existing tensor (draft.h), or the directory of a new tensor as a
 * whole.
 *
 * The judge of a view examines the bytes written since the draft last passed. Values are compared
 * with the view of the base, block by block: equal blocks keep their bytes, and the others are
 * encoded, using all processors. A draft that passed shows the written bytes, not the encoded
 * result, and continues from the new base; it holds all values of each block that it changed, so
 * that judging them again gives the same bytes. If a NumPy header moves the values or changes their
 * type, all values are judged again. Bytes of `raw` that differ become pieces as they were written
 * to the log; values are encoded into the log.
 *
 * For a new tensor, if `raw` was given, type, shape and `raw` count, and values are ignored.
 * Otherwise the values are encoded from the first of these views that has any: f32.npy, f32,
 * f16.npy, f16, bf16. The type defaults to the view's own, and the shape to that in a NumPy header.
 * Once `raw` has been begun, values are not considered.
 *
 * Threads: any; see draft.h. The drafts of a new tensor must not be written while it is judged.
 */
#ifndef LIVE_TENSOR_JUDGE_H
#define LIVE_TENSOR_JUDGE_H

#include "live/draft.h"
#include "quant/encode.h"

/* Number of values per unit of work; a whole number of blocks in any type. */
#define TENSOR_STRETCH 65536

/*
 * Judge the bytes written since the draft was begun or last passed. Returns enum tensor_verdict:
 *
 *     TENSOR_SAME      nothing was written, or nothing that differs
 *     TENSOR_CHANGED *ret is the edit; passed() or failed() must follow
 *     TENSOR_SHORT     too short, for now
 *     TENSOR_BEGUN     only a NumPy header
 *
 * or -EDOM, -ERANGE, -EOPNOTSUPP (as from quant_write(); the message names the element), -EINVAL
 * (an impossible header or shape, or bytes after the values), -ENOSPC, -ENOMEM, -EIO (also if the
 * model was truncated), -EINTR (watch->cancel) or -EAGAIN (the draft was truncated in the meantime:
 * judge it again). After any result except CHANGED and SAME, all bytes written count as not judged.
 * For a tensor that does not exist yet, use tensor_new_judge().
 */
int tensor_draft_judge(struct draft *d, const struct units_watch *watch, struct tensor_edit *ret,
                       struct err *e);
/*
 * Convert the values of an existing tensor to another type with quant_convert(), wherever its bytes
 * come from. Returns TENSOR_CHANGED, TENSOR_SAME if the tensor already has that type, an error as
 * above, -EINVAL (its rows are not whole blocks of that type, or it has more than 4 dimensions), or
 * -EOPNOTSUPP (its values cannot be shown, or cannot be stored in that type).
 */
int tensor_convert(struct tensor_base *base, uint32_t type, struct logs *logs,
                   const struct units_watch *watch, struct tensor_edit *ret, struct err *e);

/* ---- new tensors ---- */

struct tensor_new {
    bool big; /* the model's byte order */
    bool has_type, has_shape;
    uint32_t type;                     /* from tensor_type_parse() */
    struct tensor_shape shape;         /* dims from tensor_shape_parse() */
    const struct imatrix_row *imp;     /* not owned; NULL if unknown */
    struct draft *draft[TENSOR_VIEWS]; /* not owned; NULL if not written */
};

/*
 * Judge a new tensor. Returns TENSOR_CHANGED, with the shape and pieces for edit_tensor_add() in
 * *ret; TENSOR_SHORT, with a message that says what the tensor lacks ("lacks shape"); or, if it
 * cannot become a tensor as it is, -EINVAL (its views do not fit together, or the shape is
 * impossible), -EOPNOTSUPP, -EDOM, -ERANGE, -ENOSPC, -ENOMEM, -EINTR or -errno. If a draft of `raw`
 * is used, the edit has its bytes, and the draft continues to show them.
 */
int tensor_new_judge(const struct tensor_new *t, const struct units_watch *watch,
                     struct tensor_edit *ret, struct err *e);

#endif

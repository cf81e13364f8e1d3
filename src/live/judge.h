/* SPDX-License-Identifier: MIT */
/*
 * Judges what was written to a view of a tensor, or to the files of a new tensor as a whole, and
 * reads the views of a tensor as it is.
 *
 * Written bytes are compared with the present tensor, block by block: equal blocks keep their
 * bytes, and the others are encoded, using all processors. Bytes of `raw` that differ become pieces
 * where they already are in the log; values are encoded into new pieces in the log.
 *
 * Of a new tensor one view counts. The type defaults to the view's own, and the shape to that in a
 * NumPy header.
 *
 * Threads: any. Call without any lock.
 */
#ifndef LIVE_JUDGE_H
#define LIVE_JUDGE_H

#include "base/pool.h"
#include "derive/view.h"
#include "edit/change.h"
#include "live/extents.h"
#include "model/npy.h"
#include "quant/encode.h"

/* True if the values of an array lie elsewhere than in the view of the tensor, or in another form.
 * npy->header 0: there is no array, so nothing differs. */
bool tensor_array_differs(const struct tensor_base *b, enum tensor_view view,
                          const struct npy *npy);

/* ---- what was written ---- */

/* What was written to a view, at one moment. Other bytes come from the tensor. */
struct tensor_round {
    enum tensor_view view;
    struct extents written; /* owned */
    uint64_t size;          /* of the view with these bytes */
    uint64_t epoch;         /* of the newest of these bytes (objects.h) */
    struct npy npy;         /* the header of a NumPy view, unless npy.header is 0 */
};

void tensor_round_free(struct tensor_round *round);
/* Read bytes [off, off + n) of a view with these bytes over the tensor. Returns 0, -EIO or
 * -errno. */
int tensor_round_read(const struct tensor_round *round, const struct tensor_base *b, uint64_t off,
                      void *dst, size_t n);

/* ---- the verdict ---- */

enum tensor_verdict {
    TENSOR_SAME,    /* no byte changes */
    TENSOR_CHANGED, /* struct tensor_edit is set */
    /* Incomplete, but may become complete; struct err has code -EINVAL and says what is missing. */
    TENSOR_SHORT,
    TENSOR_BEGUN, /* only a NumPy header so far: neither an edit nor an error */
};

/* An operation on a tensor (edit/change.h). */
struct tensor_edit {
    bool shaped; /* the shape or type changes: see `shape` */
    struct tensor_shape shape;
    struct tensor_piece *piece; /* owned, each with a reference to its log */
    size_t n;
};

#define TENSOR_EDIT_INIT ((struct tensor_edit){0})

void tensor_edit_free(struct tensor_edit *t);

/* ---- judging ---- */

/*
 * Judge what was written to a view of an existing tensor. A new type converts its values with
 * quant_convert(); a new shape must have as many elements. Returns enum tensor_verdict, or -EDOM,
 * -ERANGE, -EOPNOTSUPP (as from quant_write(), with a message that names the element; or values that
 * cannot be shown), -EINVAL (an impossible header, shape or text, or bytes after the values),
 * -ENOSPC, -ENOMEM, -EIO (also if the model was truncated) or -EINTR (watch->cancel). If there is no
 * tensor, a text is just parsed.
 */
int tensor_judge(const struct tensor_round *round, const struct tensor_base *b, struct logs *logs,
                 const struct units_watch *watch, struct tensor_edit *ret, struct err *e);

/* What is known of a new tensor: what was written to its files, if anything. */
struct tensor_new {
    struct tensor_round type, shape;
    struct tensor_round data; /* the view that counts */
    bool big;
    const struct imatrix_row *imp; /* not owned; NULL if unknown */
};

/*
 * Judge a new tensor. Returns TENSOR_CHANGED, with the shape and pieces for edit_tensor_add() in
 * *ret; TENSOR_SHORT, with a message that says what is missing; or an error as above.
 */
int tensor_judge_new(const struct tensor_new *t, struct logs *logs, const struct units_watch *watch,
                     struct tensor_edit *ret, struct err *e);

#endif

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
#include "edit/change.h"
#include "live/extents.h"
#include "model/imatrix.h"
#include "model/npy.h"
#include "model/snapshot.h"
#include "quant/encode.h"

/* The files that programs can write in a tensor's directory. A member is the number of its row in
 * files_tensor (tree/files.c). */
enum tensor_view {
    TENSOR_RAW,     /* the bytes as stored */
    TENSOR_F32,     /* the values, in the form of quant/quant.h */
    TENSOR_F32_NPY, /* the values after a NumPy header */
    TENSOR_SHAPE,   /* the tensor's shape and type as texts */
    TENSOR_TYPE,
    TENSOR_OFFSET, /* as any other row, computed: writes are accepted but ignored */
    TENSOR_F16,
    TENSOR_F16_NPY,
    TENSOR_BF16,
    TENSOR_VIEWS
};

struct tensor_view_kind {
    const char *name; /* name of the view's file, such as "f32.npy"; NULL if computed */
    const struct quant_form *form; /* form of the values; NULL for raw bytes and texts */
    bool npy;                      /* a NumPy header precedes the values */
};
extern const struct tensor_view_kind tensor_views[TENSOR_VIEWS];

static inline bool view_is_text(enum tensor_view view)
{
    return view == TENSOR_TYPE || view == TENSOR_SHAPE;
}

static inline bool view_is_computed(enum tensor_view view)
{
    return view >= TENSOR_VIEWS || !tensor_views[view].name;
}

/* ---- a tensor as it is ---- */

/* A tensor in one state of the model. */
struct tensor_base {
    struct view v;                 /* references; empty if there is no tensor */
    const struct gguf_tensor *t;   /* NULL: no tensor yet, or it was removed */
    const struct imatrix_row *imp; /* not owned: importances of its columns, or NULL if unknown */
    bool big;                      /* byte order of the model */
};

/* Find a tensor in a view, whose references the result shares. */
struct tensor_base tensor_base_in(const struct view *v, uint32_t number);
void tensor_base_free(struct tensor_base *b);
/* Return the view's size, or 0 if the tensor does not exist or its values cannot be shown. */
uint64_t tensor_view_size(const struct tensor_base *b, enum tensor_view view);
/* Read bytes [off, off + n), which must be within the view's size. Returns 0, -EIO (the file was
 * truncated), -ENOMEM, or -errno from reading a log. */
int tensor_view_read(const struct tensor_base *b, enum tensor_view view, uint64_t off, void *dst,
                     size_t n);

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
    uint64_t epoch;         /* of the newest of these bytes (views.h) */
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

/* ---- the texts in a tensor's `type` and `shape`: one line, which may end in blanks ---- */

/* Maximum length of such a text. */
#define TENSOR_TEXT_MAX 4096

/* Parse ggml's name for a type, such as "Q8_0", ignoring case. Returns 0, -EINVAL (not a type; the
 * message suggests the nearest one), or -EOPNOTSUPP (a retired or unknown type: "unknown:NNN"). */
int tensor_type_parse(const char *text, size_t n, uint32_t *ret, struct err *e);
/* Parse "4096 128": 1 to 4 nonzero decimal numbers in NumPy's order, separated by spaces; an empty
 * text means one dimension of 1. Sets n_dims and dims of *ret. Returns 0 or -EINVAL. */
int tensor_shape_parse(const char *text, size_t n, struct tensor_shape *ret, struct err *e);
/* Write the text that `type` or `shape` shows for an existing tensor, including the newline. */
void tensor_text(const struct tensor_base *b, enum tensor_view view, struct buf *out);

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

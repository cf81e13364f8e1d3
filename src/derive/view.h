/* SPDX-License-Identifier: MIT */
/*
 * The views of a tensor, which are files in its directory: their table, and what they hold for a
 * tensor in one state of the model. Writes and parses the texts of `type` and `shape`.
 *
 * Threads: any.
 */
#ifndef DERIVE_VIEW_H
#define DERIVE_VIEW_H

#include "base/err.h"
#include "model/imatrix.h"
#include "model/snapshot.h"

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

/* Get the dimensions of a tensor as they are stored. Returns how many there are. */
uint32_t tensor_dims(const struct tensor_base *b, uint64_t dims[GGUF_MAX_DIMS]);
/* Return the offset of the tensor's bytes in its file, or 0 if there is no tensor. */
uint64_t tensor_data_offset(const struct tensor_base *b);
/* Write what a view has before its data: a NumPy header, or the whole of a text. */
void tensor_view_head(const struct tensor_base *b, enum tensor_view view, struct buf *out);

/* ---- the texts in a tensor's `type` and `shape`: one line, which may end in blanks ---- */

/* Maximum length of such a text. */
#define TENSOR_TEXT_MAX 4096

/* Parse ggml's name for a type, such as "Q8_0", ignoring case. Returns 0, -EINVAL (not a type; the
 * message suggests the nearest one), or -EOPNOTSUPP (a retired or unknown type: "unknown:NNN"). */
int tensor_type_parse(const char *text, size_t n, uint32_t *ret, struct err *e);
/* Parse "4096 128": 1 to 4 nonzero decimal numbers in NumPy's order, separated by spaces; an empty
 * text means one dimension of 1. Sets n_dims and dims of *ret. Returns 0 or -EINVAL. */
int tensor_shape_parse(const char *text, size_t n, struct tensor_shape *ret, struct err *e);

#endif

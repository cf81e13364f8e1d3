/* SPDX-License-Identifier: MIT */
/*
 * A base is a tensor before an edit, with the content of its views. Its bytes come from a store,
 * overlaid by pieces of drafts that were accepted and perhaps not written yet. A tensor that does
 * not exist yet has a base without bytes.
 *
 * If the pieces are later written in place, the store gives the same bytes: a base never changes
 * while it exists, unless bytes outside its pieces are overwritten.
 *
 * Threads: any; bases are immutable and reference-counted.
 */
#ifndef LIVE_TENSOR_BASE_H
#define LIVE_TENSOR_BASE_H

#include "edit/change.h"
#include "model/store.h"
#include "model/imatrix.h"
#include "model/npy.h"
#include "quant/encode.h"

/* The kinds of files that programs may write in a tensor's directory. */
enum tensor_view {
    TENSOR_RAW, /* the bytes as stored */
    TENSOR_F32, /* the values, in the form of model/store.h */
    TENSOR_F16,
    TENSOR_BF16,
    TENSOR_F32_NPY, /* the values after a NumPy header */
    TENSOR_F16_NPY,
    TENSOR_VIEWS,
    TENSOR_TYPE = TENSOR_VIEWS, /* the tensor's type and shape as texts */
    TENSOR_SHAPE,
    TENSOR_HELPER, /* a file beside the views that a program may rename over one of them */
    TENSOR_ASIDE,  /* computed from the others; writes are accepted but ignored */
};

struct tensor_base {
    atomic_uint refs;
    bool big;
    bool exists;   /* if false, all members below are 0 */
    uint32_t type; /* ggml's id */
    uint32_t n_dims;
    uint64_t dims[GGUF_MAX_DIMS]; /* as stored */
    uint64_t n_elem, nbytes;
    struct store *store;            /* a reference; NULL if all bytes are in the pieces */
    uint32_t place;                 /* the number of the tensor in the store */
    struct tensor_content *content; /* a reference; NULL if there are no pieces */
    const struct imatrix_row *imp;  /* not owned: importances of its columns, or NULL if unknown */
};

/*
 * Make the base of tensor i of g, which is tensor `place` of the store, overlaid by a content.
 * Takes references. `store` is NULL if the content covers all bytes. If the content has a shape of
 * its own, that is used and i is ignored. Returns 0 or -ENOMEM.
 */
int tensor_base_make(const struct gguf *g, uint32_t i, struct store *store, uint32_t place,
                     struct tensor_content *content, struct tensor_base **ret);
/* Make the base of a tensor that does not exist yet, in a model with this byte order. Returns 0 or
 * -ENOMEM. */
int tensor_base_none(bool big, struct tensor_base **ret);
struct tensor_base *tensor_base_ref(struct tensor_base *b);
void tensor_base_unref(struct tensor_base *b); /* may be NULL */

/* Return the number of elements of a shape, which must be valid for tensor_shape_bytes(). */
uint64_t tensor_shape_elements(const struct tensor_shape *s);

/* Return the offset of the tensor's bytes in the file of its store, or 0 without a store. */
uint64_t tensor_base_offset(const struct tensor_base *b);

/* Return the name of a view's file, such as "f32.npy". */
const char *tensor_view_name(enum tensor_view view);
/* Return the form of the view's values, or NULL for raw bytes. */
const struct form *tensor_view_form(enum tensor_view view);
bool tensor_view_is_npy(enum tensor_view view);
/* Return how the values of a view or an array are compared and encoded. The third function returns
 * the number of bytes per value. */
enum quant_view tensor_view_values(enum tensor_view view);
enum quant_view tensor_npy_values(const struct npy *npy);
unsigned tensor_values_width(enum quant_view values);
/* Returns false if the tensor does not exist or its values cannot be shown; the view's size is then
 * 0. */
bool tensor_view_exists(const struct tensor_base *b, enum tensor_view view);
uint64_t tensor_view_size(const struct tensor_base *b, enum tensor_view view);
/* Read bytes [off, off + n), which must be within the view's size. Returns 0, -EIO (the file was
 * truncated), -ENOMEM, or -errno from reading a draft. */
int tensor_view_read(const struct tensor_base *b, enum tensor_view view, uint64_t off, void *dst,
                     size_t n);

/* ---- the result of a conversion, or of judging a draft or a new tensor: an operation on a tensor
 * (edit/change.h) ---- */

enum tensor_verdict {
    TENSOR_SAME,    /* no byte changes */
    TENSOR_CHANGED, /* struct tensor_edit is set */
    /* Incomplete, but may become complete; struct err has code -EINVAL and says what is missing. */
    TENSOR_SHORT,
    TENSOR_BEGUN, /* only a NumPy header, which is neither an edit yet nor an error */
};

struct tensor_edit {
    bool shaped; /* the shape or type changes: see `shape` */
    bool whole;  /* the pieces cover all bytes of the tensor */
    struct tensor_shape shape;
    struct tensor_piece *piece; /* owned, each with a reference to its log */
    size_t n;
};

#define TENSOR_EDIT_INIT ((struct tensor_edit){0})

/* Apply the edit to the tensor with this name, like edit_tensor_write() and edit_tensor_set(). On
 * failure, nothing has changed. */
int tensor_edit_apply(const struct tensor_edit *t, struct edit_change *c, const void *name,
                      size_t n, struct err *e);
void tensor_edit_free(struct tensor_edit *t);

/* ---- the texts in a tensor's `type` and `shape`: one line, which may end in a newline and blanks
 * ---- */

/* Parse ggml's name for a type, such as "Q8_0", ignoring case. Returns 0, -EINVAL (not a type; the
 * message suggests the nearest one), or -EOPNOTSUPP (a retired or unknown type: "unknown:NNN"). */
int tensor_type_parse(const char *text, size_t n, uint32_t *ret, struct err *e);
/* Parse "4096 128": 1 to 4 nonzero decimal numbers in NumPy's order, separated by spaces; an empty
 * text means one dimension of 1. Sets n_dims and dims of *ret. Returns 0 or -EINVAL. */
int tensor_shape_parse(const char *text, size_t n, struct tensor_shape *ret, struct err *e);

/* Write the text that `type` or `shape` shows for an existing tensor, including the newline. */
void tensor_text(const struct tensor_base *base, enum tensor_view view, struct buf *out);

/*
 * Change the shape of a tensor, keeping its type and number of elements. *shape has the dims as
 * parsed, and gets the type. Returns TENSOR_SAME (0) if the tensor already has that shape,
 * TENSOR_CHANGED (1), -EINVAL (another number of elements, or rows that are not whole blocks) or
 * -EOPNOTSUPP (an unknown type).
 */
int tensor_reshape(const struct tensor_base *base, struct tensor_shape *shape, struct err *e);

#endif

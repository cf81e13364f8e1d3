/* SPDX-License-Identifier: MIT */
/*
 * A tensor before an edit, and the content of its views: its bytes come from a store, under pieces
 * of drafts that are accepted and perhaps not written yet. Or a tensor that does not exist yet,
 * without bytes.
 *
 * If the pieces are written in place later, both give the same bytes: a base stays the same as long
 * as it lives, unless bytes outside its pieces are overwritten.
 *
 * Threads: immutable and counted; any.
 */
#ifndef LIVE_TENSOR_BASE_H
#define LIVE_TENSOR_BASE_H

#include "edit/change.h"
#include "model/store.h"
#include "model/imatrix.h"
#include "model/npy.h"
#include "quant/encode.h"

/* Kinds of files in a tensor's directory, for programs that write them. */
enum tensor_view {
    TENSOR_RAW, /* the bytes as stored */
    TENSOR_F32, /* the values, as in model/store.h */
    TENSOR_F16,
    TENSOR_BF16,
    TENSOR_F32_NPY, /* the values after a NumPy header */
    TENSOR_F16_NPY,
    TENSOR_VIEWS,
    TENSOR_TYPE = TENSOR_VIEWS, /* texts of the tensor's type and shape */
    TENSOR_SHAPE,
    TENSOR_HELPER, /* a file beside the views, with which a program replaces a view by renaming */
    TENSOR_ASIDE,  /* computed from the others: writes are accepted and ignored */
};

struct tensor_base {
    atomic_uint refs;
    bool big;
    bool exists;   /* if not, all members below are 0 */
    uint32_t type; /* ggml's id */
    uint32_t n_dims;
    uint64_t dims[GGUF_MAX_DIMS]; /* as stored */
    uint64_t n_elem, nbytes;
    struct store *store;            /* a reference; NULL: all bytes are in the pieces */
    uint32_t place;                 /* number of the tensor in the store */
    struct tensor_content *content; /* a reference; NULL: no pieces */
    const struct imatrix_row *imp;  /* not owned: importances of its columns; NULL: unknown */
};

/*
 * Make the base of tensor i of g, which is tensor `place` of the store, with a content over it.
 * Takes references. store NULL: the content covers all bytes. If the content has its own shape,
 * that is used and i is ignored. Returns 0 or -ENOMEM.
 */
int tensor_base_make(const struct gguf *g, uint32_t i, struct store *store, uint32_t place,
                     struct tensor_content *content, struct tensor_base **ret);
/* Make the base of a tensor that does not exist yet, in a model of this byte order. Returns 0 or
 * -ENOMEM. */
int tensor_base_none(bool big, struct tensor_base **ret);
struct tensor_base *tensor_base_ref(struct tensor_base *b);
void tensor_base_unref(struct tensor_base *b); /* may be NULL */

/* The shape must be valid for tensor_shape_bytes(). */
uint64_t tensor_shape_elements(const struct tensor_shape *s);

/* Return where the tensor's bytes are in the file of its store; 0 without one. */
uint64_t tensor_base_offset(const struct tensor_base *b);

/* Return the name of a view's file: "f32.npy". */
const char *tensor_view_name(enum tensor_view view);
/* Return the form of the view's values; NULL: raw bytes. */
const struct form *tensor_view_form(enum tensor_view view);
bool tensor_view_is_npy(enum tensor_view view);
/* Return how the values of a view or an array are compared and encoded, and the bytes per value. */
enum quant_view tensor_view_values(enum tensor_view view);
enum quant_view tensor_npy_values(const struct npy *npy);
unsigned tensor_values_width(enum quant_view values);
/* False: its values cannot be shown, or it does not exist. Then the view has size 0. */
bool tensor_view_exists(const struct tensor_base *b, enum tensor_view view);
uint64_t tensor_view_size(const struct tensor_base *b, enum tensor_view view);
/* Read bytes [off, off + n), within its size. Returns 0, -EIO (the file was truncated), -errno of a
 * draft, or -ENOMEM. */
int tensor_view_read(const struct tensor_base *b, enum tensor_view view, uint64_t off, void *dst,
                     size_t n);

/*
 * ---- the result of judging a draft, a conversion or a new tensor: an operation on a tensor
 * (edit/change.h) ----
 */

enum tensor_verdict {
    TENSOR_SAME,    /* no byte changes */
    TENSOR_CHANGED, /* struct tensor_edit is set */
    /* Incomplete, but may become complete; struct err says what is missing, with -EINVAL. */
    TENSOR_SHORT,
    TENSOR_BEGUN, /* only a NumPy header: not an edit yet, but not an error */
};

struct tensor_edit {
    bool shaped; /* shape or type change: `shape` */
    bool whole;  /* the pieces are all bytes of the tensor */
    struct tensor_shape shape;
    struct tensor_piece *piece; /* owned, each with a reference to its draft */
    size_t n;
};

#define TENSOR_EDIT_INIT ((struct tensor_edit){0})

/*
 * Apply the edit to the tensor with this name, like edit_tensor_write() and edit_tensor_set(). On
 * failure nothing has changed.
 */
int tensor_edit_apply(const struct tensor_edit *t, struct edit_change *c, const void *name,
                      size_t n, struct err *e);
void tensor_edit_free(struct tensor_edit *t);

/* ---- the texts of a tensor's `type` and `shape`: one line, which may end in a newline and blanks ---- */

/*
 * Parse ggml's name of a type, such as "Q8_0", in upper or lower case. Returns 0, -EINVAL (not a
 * type; the message suggests the nearest), or -EOPNOTSUPP (a retired or unknown type:
 * "unknown:NNN").
 */
int tensor_type_parse(const char *text, size_t n, uint32_t *ret, struct err *e);
/*
 * Parse "4096 128": 1 to 4 nonzero decimal numbers in NumPy's order, separated by spaces; an empty
 * text is one dimension of 1. Sets n_dims and dims of *ret. Returns 0 or -EINVAL.
 */
int tensor_shape_parse(const char *text, size_t n, struct tensor_shape *ret, struct err *e);

/* Write the text that `type` or `shape` shows for an existing tensor, with the newline. */
void tensor_text(const struct tensor_base *base, enum tensor_view view, struct buf *out);

/*
 * Set another shape with the same number of elements: dims as parsed, the tensor's type. Returns
 * TENSOR_SAME (0): it has that shape; TENSOR_CHANGED (1); -EINVAL (another number of elements, or
 * rows that are not whole blocks), -EOPNOTSUPP (an unknown type).
 */
int tensor_reshape(const struct tensor_base *base, struct tensor_shape *shape, struct err *e);

#endif

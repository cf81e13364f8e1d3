/* SPDX-License-Identifier: MIT */
/*
 * Judges the draft of a view of an existing tensor (draft.h), or the directory of a new tensor as a
 * whole. Also reads the views of a tensor as they were before the draft.
 *
 * The judge of a view examines the bytes written since the draft last passed. Values are compared
 * with the view of the base, block by block: equal blocks keep their bytes, and the others are
 * encoded, using all processors. A draft that has passed shows the written bytes, not the encoded
 * result, and continues from the new base; it holds all values of each block that it changed, so
 * that judging the block again gives the same bytes. If a NumPy header moves the values or changes
 * their type, all values are judged again. Bytes of `raw` that differ become pieces where they
 * already are in the log; values are encoded into new pieces in the log.
 *
 * Once a new tensor has a `raw`, only type, shape and `raw` count, and values are ignored.
 * Otherwise the values are encoded from the first of these views that has values: f32.npy,
 * f32, f16.npy, f16, bf16. The type defaults to the view's own, and the shape to that in a NumPy
 * header.
 *
 * Threads: any; see draft.h. The drafts of a new tensor must not be written while it is judged.
 */
#ifndef LIVE_TENSOR_JUDGE_H
#define LIVE_TENSOR_JUDGE_H

#include "base/pool.h"
#include "edit/change.h"
#include "model/store.h"
#include "model/imatrix.h"
#include "model/npy.h"
#include "quant/encode.h"

struct draft;
struct logs;

/* The kinds of files that programs can write in a tensor's directory. */
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
    TENSOR_HELPER, /* a file beside the views that a program can rename over one of them */
    TENSOR_ASIDE,  /* computed from other views; writes are accepted but ignored */
};

/*
 * A base is a tensor before an edit, with the content of its views. Its bytes come from a store,
 * overlaid by pieces of drafts that have been accepted but may not have been written yet. A tensor
 * that does not exist yet has a base without bytes.
 *
 * If the pieces are later written in place, the store gives the same bytes: a base never changes
 * while it exists, unless bytes outside its pieces are overwritten. Bases are immutable and
 * reference-counted.
 */
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
 * Make the base of tensor i in g and in the store, overlaid by `content`. Takes references. `store`
 * is NULL if the content covers all bytes. If the content has a shape of its own, that shape is
 * used. Returns 0 or -ENOMEM.
 */
int tensor_base_make(const struct gguf *g, uint32_t i, struct store *store,
                     struct tensor_content *content, struct tensor_base **ret);
/* Make the base of a tensor that does not exist yet, in a model with this byte order. Returns 0 or
 * -ENOMEM. */
int tensor_base_none(bool big, struct tensor_base **ret);
struct tensor_base *tensor_base_ref(struct tensor_base *b);
void tensor_base_unref(struct tensor_base *b); /* may be NULL */

/* Return the offset of the tensor's bytes in the file of its store, or 0 without a store. */
uint64_t tensor_base_offset(const struct tensor_base *b);

struct tensor_view_kind {
    const char *name;        /* name of the view's file, such as "f32.npy" */
    const struct form *form; /* form of the values; NULL for raw bytes and texts */
    bool npy;                /* a NumPy header precedes the values */
    enum quant_view values;  /* how values are compared and encoded */
};
extern const struct tensor_view_kind tensor_views[TENSOR_ASIDE];

/* Return the view's size, or 0 if the tensor does not exist or its values cannot be shown. */
uint64_t tensor_view_size(const struct tensor_base *b, enum tensor_view view);
/* Read bytes [off, off + n), which must be within the view's size. Returns 0, -EIO (the file was
 * truncated), -ENOMEM, or -errno from reading a draft. */
int tensor_view_read(const struct tensor_base *b, enum tensor_view view, uint64_t off, void *dst,
                     size_t n);

/*
 * ---- the result of a conversion, or of judging a draft or a new tensor ----
 *
 * It is an operation on a tensor (edit/change.h).
 */

enum tensor_verdict {
    TENSOR_SAME,    /* no byte changes */
    TENSOR_CHANGED, /* struct tensor_edit is set */
    /* Incomplete, but may become complete; struct err has code -EINVAL and says what is missing. */
    TENSOR_SHORT,
    TENSOR_BEGUN, /* only a NumPy header so far: neither an edit nor an error */
};

struct tensor_edit {
    bool shaped; /* the shape or type changes: see `shape` */
    bool whole;  /* the pieces cover all bytes of the tensor */
    struct tensor_shape shape;
    struct tensor_piece *piece; /* owned, each with a reference to its log */
    size_t n;
};

#define TENSOR_EDIT_INIT ((struct tensor_edit){0})

void tensor_edit_free(struct tensor_edit *t);

/*
 * ---- the texts in a tensor's `type` and `shape` ----
 *
 * Each is one line, which may end in a newline and blanks.
 */

/* Parse ggml's name for a type, such as "Q8_0", ignoring case. Returns 0, -EINVAL (not a type; the
 * message suggests the nearest one), or -EOPNOTSUPP (a retired or unknown type: "unknown:NNN"). */
int tensor_type_parse(const char *text, size_t n, uint32_t *ret, struct err *e);
/* Parse "4096 128": 1 to 4 nonzero decimal numbers in NumPy's order, separated by spaces; an empty
 * text means one dimension of 1. Sets n_dims and dims of *ret. Returns 0 or -EINVAL. */
int tensor_shape_parse(const char *text, size_t n, struct tensor_shape *ret, struct err *e);

/* Write the text that `type` or `shape` shows for an existing tensor, including the newline. */
void tensor_text(const struct tensor_base *base, enum tensor_view view, struct buf *out);

/*
 * Change the shape of a tensor, keeping its type and number of elements. *shape holds the parsed
 * dims; its type is set. Returns TENSOR_SAME (0) if the tensor already has that shape,
 * TENSOR_CHANGED (1), -EINVAL (a different number of elements, or rows that are not whole blocks)
 * or -EOPNOTSUPP (an unknown type).
 */
int tensor_reshape(const struct tensor_base *base, struct tensor_shape *shape, struct err *e);

/* ---- judging ---- */

/* Number of values per unit of work; a whole number of blocks in any type. */
#define TENSOR_STRETCH 65536

/*
 * Judge the bytes written since the draft was started or last passed. Returns enum tensor_verdict:
 *
 *     TENSOR_SAME      nothing was written, or nothing that differs
 *     TENSOR_CHANGED   *ret is the edit; passed() or failed() must follow
 *     TENSOR_SHORT     the draft is too short so far
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
 * Convert the values of an existing tensor to another type with quant_convert(), whether its bytes
 * are in the file or in a log. Returns TENSOR_CHANGED, TENSOR_SAME if the tensor already has that
 * type, an error as above, -EINVAL (its rows are not whole blocks of that type, or it has more than
 * 4 dimensions), or -EOPNOTSUPP (its values cannot be shown, or cannot be stored in that type).
 */
int tensor_convert(struct tensor_base *base, uint32_t type, struct logs *logs,
                   const struct units_watch *watch, struct tensor_edit *ret, struct err *e);

/* ---- new tensors ---- */

struct tensor_new {
    bool has_type, has_shape;
    uint32_t type;                     /* from tensor_type_parse() */
    struct tensor_shape shape;         /* dims from tensor_shape_parse() */
    const struct imatrix_row *imp;     /* not owned; NULL if unknown */
    struct draft *draft[TENSOR_VIEWS]; /* not owned; NULL if not written */
};

/*
 * Judge a new tensor. Returns TENSOR_CHANGED, with the shape and pieces for edit_tensor_add() in
 * *ret; TENSOR_SHORT, with a message that says what is missing ("still needs shape"); or, if the
 * directory cannot become a tensor as it is, -EINVAL (its views contradict each other, or the shape
 * is impossible), -EOPNOTSUPP, -EDOM, -ERANGE, -ENOSPC, -ENOMEM, -EINTR or -errno. If a draft of
 * `raw` is used, the edit contains its bytes, and the draft continues to show them.
 */
int tensor_new_judge(const struct tensor_new *t, const struct units_watch *watch,
                     struct tensor_edit *ret, struct err *e);

#endif

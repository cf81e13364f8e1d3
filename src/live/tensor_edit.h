/* SPDX-License-Identifier: MIT */
/*
 * What the judge of a draft, of a conversion or of a new tensor makes of it: an operation on a
 * tensor (edit/tensors.h).
 *
 * Threads: one at a time.
 */
#ifndef LIVE_TENSOR_EDIT_H
#define LIVE_TENSOR_EDIT_H

#include "edit/tensors.h"

enum tensor_verdict {
    TENSOR_SAME,    /* nothing changes */
    TENSOR_CHANGED, /* struct tensor_edit is set */
    TENSOR_SHORT, /* not whole, and may become so; struct err says what is missing, with -EINVAL */
    TENSOR_BEGUN, /* a NumPy header and nothing else: not an edit yet, and not a mistake */
};

struct tensor_edit {
    bool shaped; /* another shape or type: `shape` */
    bool whole;  /* the pieces are all bytes of the tensor */
    struct tensor_shape shape;
    struct tensor_piece *piece; /* owned, with a reference to the draft of each */
    size_t n;
};

#define TENSOR_EDIT_INIT ((struct tensor_edit){0})

/* Do it to the tensor of this name. As edit_tensor_write() and edit_tensor_set(); on failure nothing
 * has changed. */
int tensor_edit_apply(const struct tensor_edit *t, struct edit_change *c, const void *name,
                      size_t n, struct err *e);
void tensor_edit_free(struct tensor_edit *t);

#endif

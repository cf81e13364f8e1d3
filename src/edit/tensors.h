/* SPDX-License-Identifier: MIT */
/*
 * Operations on tensors, in addition to those on keys: see change.h. All take effect one after
 * another, and edit_undo() takes them back in their common order.
 *
 *     r = edit_tensor_rename(&c, "a", 1, "b", 1, &e);
 *     r = edit_tensor_write(&c, "b", 1, &piece, 1, &e);          by its current name
 *
 * An operation costs as much as what it changes: a tensor's name, or its list of pieces. Bytes are not copied: they
 * stay in their drafts until the commit.
 *
 * Order: as for keys, by rank. A new tensor goes to the end (EDIT_LAST); one added under the name
 * of a tensor removed in the same change gets its rank.
 *
 * Refused, with nothing changed: a tensor that does not exist (-ENOENT); a new name that is taken
 * (-EEXIST), empty or with a NUL (-EINVAL) or over 63 bytes (-ENAMETOOLONG); shapes that
 * tensor_shape_bytes() refuses; more versions than there are numbers (-EOVERFLOW); adding and
 * removing in a file of a split model, because each file states their number (-EOPNOTSUPP); a
 * header over GGUF_MAX_HEADER (-EFBIG); -ENOMEM.
 */
#ifndef EDIT_TENSORS_H
#define EDIT_TENSORS_H

#include "edit/change.h"

#define EDIT_MAX_TENSOR_NAME 63 /* bytes; ggml's limit, with its NUL */

/* A tensor of the new model. */
struct edit_tensor {
    struct tensor_id id;
    uint32_t old; /* its index in the base; EDIT_NONE: a new one, even under an old name */
    uint64_t nbytes;
    uint64_t rank;
    const char *name; /* stored in the base or the change */
    size_t name_len;
    struct tensor_content *content; /* from the change; NULL: the base's */
};

/* The one with this name, or number, after the change. False: none has it. */
bool edit_tensor_find(const struct edit_change *c, const void *name, size_t n,
                      struct edit_tensor *ret);
bool edit_tensor_numbered(const struct edit_change *c, uint32_t number, struct edit_tensor *ret);

int edit_tensor_rename(struct edit_change *c, const void *from, size_t from_len, const void *to,
                       size_t to_len, struct err *e);
int edit_tensor_remove(struct edit_change *c, const void *name, size_t n, struct err *e);
/* Add a tensor with this number. The pieces must make up all of its bytes (else -EINVAL). */
int edit_tensor_add(struct edit_change *c, const void *name, size_t n,
                    const struct tensor_shape *shape, const struct tensor_piece *piece,
                    size_t pieces, uint64_t rank, uint32_t number, struct err *e);
/*
 * Set another type or shape with all bytes new; or, without pieces, a shape with the same number of
 * bytes in its type (else -EINVAL).
 */
int edit_tensor_set(struct edit_change *c, const void *name, size_t n,
                    const struct tensor_shape *shape, const struct tensor_piece *piece,
                    size_t pieces, struct err *e);
/* Replace ranges of its bytes: pieces in order, disjoint, inside the tensor (else -EINVAL). */
int edit_tensor_write(struct edit_change *c, const void *name, size_t n,
                      const struct tensor_piece *piece, size_t pieces, struct err *e);

/* All tensors after the change, in the order of the new file; both must outlive it. 0, -ENOMEM. */
int edit_change_tensors(const struct edit_change *c, struct edit_tensor **ret, size_t *n);

#endif

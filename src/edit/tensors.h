/* SPDX-License-Identifier: MIT */
/*
 * Operations on tensors, beside those on keys: see change.h. They take effect one after another, and
 * edit_undo() takes them back in the order of both.
 *
 *     r = edit_tensor_rename(&c, "a", 1, "b", 1, &e);
 *     r = edit_tensor_write(&c, "b", 1, &piece, 1, &e);          by its name at that moment
 *
 * An operation costs what it changes: a tensor's name, or its list of pieces. Bytes are not copied:
 * they stay in their drafts until the commit.
 *
 * Order: as for keys, by rank. A new tensor goes to the end (EDIT_LAST); one that is added under the
 * name of one that was removed in the same change gets its rank.
 *
 * Refused, with nothing changed: a tensor that does not exist (-ENOENT); a new name that is taken
 * (-EEXIST), empty or with a NUL (-EINVAL) or over 63 bytes (-ENAMETOOLONG); shapes as
 * tensor_shape_bytes() refuses them; more versions than there are numbers (-EOVERFLOW); adding and removing in a file of a split model, because each of
 * them says how many there are (-EOPNOTSUPP); a header over GGUF_MAX_HEADER (-EFBIG); -ENOMEM.
 */
#ifndef EDIT_TENSORS_H
#define EDIT_TENSORS_H

#include "edit/change.h"

#define EDIT_MAX_TENSOR_NAME 63 /* bytes; ggml's limit, with its NUL */

/* A tensor of the new model. */
struct edit_tensor {
    struct tensor_id id;
    uint32_t old; /* its place in the base; EDIT_NONE: a new one, also under an old name */
    uint64_t nbytes;
    uint64_t rank;
    const char *name; /* in the base or the change */
    size_t name_len;
    struct tensor_content *content; /* of the change; NULL: the base's */
};

/* That of this name, or number, after the change. False: no tensor has it. */
bool edit_tensor_find(const struct edit_change *c, const void *name, size_t n,
                      struct edit_tensor *ret);
bool edit_tensor_numbered(const struct edit_change *c, uint32_t number, struct edit_tensor *ret);

int edit_tensor_rename(struct edit_change *c, const void *from, size_t from_len, const void *to,
                       size_t to_len, struct err *e);
int edit_tensor_remove(struct edit_change *c, const void *name, size_t n, struct err *e);
/* Add a tensor with this number. The pieces make up all of its bytes (else -EINVAL). */
int edit_tensor_add(struct edit_change *c, const void *name, size_t n,
                    const struct tensor_shape *shape, const struct tensor_piece *piece,
                    size_t pieces, uint64_t rank, uint32_t number, struct err *e);
/* Another type or shape with all bytes anew; or, without pieces, a shape of as many bytes of the
 * type that it has (else -EINVAL). */
int edit_tensor_set(struct edit_change *c, const void *name, size_t n,
                    const struct tensor_shape *shape, const struct tensor_piece *piece,
                    size_t pieces, struct err *e);
/* Replace ranges of its bytes: pieces in order, disjoint, inside of it (else -EINVAL). */
int edit_tensor_write(struct edit_change *c, const void *name, size_t n,
                      const struct tensor_piece *piece, size_t pieces, struct err *e);

/* All tensors after the change, in the order of the new file; both must outlive it. 0, -ENOMEM. */
int edit_change_tensors(const struct edit_change *c, struct edit_tensor **ret, size_t *n);

#endif

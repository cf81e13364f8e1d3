/* SPDX-License-Identifier: MIT */
/*
 * The texts of a tensor's `type` and `shape`. A text is refused as soon as no continuation could make
 * it valid, and is judged in full at its newline.
 *
 * Pure. Threads: any.
 */
#ifndef LIVE_TENSOR_TEXT_H
#define LIVE_TENSOR_TEXT_H

#include "model/content.h"
#include "live/tensor_base.h"

/* More text is needed: the newline is missing. */
#define TENSOR_TEXT_MORE 1

/*
 * "Q8_0": ggml's name of a type, in upper or lower case, with spaces around it. end: there is no more,
 * so that a newline may be missing. 0; TENSOR_TEXT_MORE; -EINVAL (not a type; the line names the
 * nearest), -EOPNOTSUPP (a retired or unknown type: "unknown:NNN").
 */
int tensor_type_parse(const char *text, size_t n, bool end, uint32_t *ret, struct err *e);

/*
 * "4096 128": decimal numbers in NumPy's order, 1 to 4, none 0, with spaces between; nothing is one
 * dimension of 1. Sets n_dims and dims of *ret. 0; TENSOR_TEXT_MORE; -EINVAL.
 */
int tensor_shape_parse(const char *text, size_t n, bool end, struct tensor_shape *ret,
                       struct err *e);

/* What `type` and `shape` show of a tensor, with the newline. */
void tensor_type_text(const struct tensor_base *base, struct buf *out);
void tensor_shape_text(const struct tensor_base *base, struct buf *out);

/*
 * Another shape of as many elements: dims as parsed, the type of the tensor. TENSOR_SAME (0): it has
 * that shape; TENSOR_CHANGED (1); -EINVAL (another number of elements, or rows that are not whole
 * blocks), -EOPNOTSUPP (an unknown type).
 */
int tensor_reshape(const struct tensor_base *base, struct tensor_shape *shape, struct err *e);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * Encodes values to blocks of a tensor of either byte order, and writes new values over old blocks.
 * Threads: any.
 */
#ifndef QUANT_ENCODE_H
#define QUANT_ENCODE_H

#include "quant/quant.h"

/* A value in the format of its tensor: `kind` names the member. */
struct quant_value {
    union {
        float f32;
        double f64;
        int64_t i64;
    };
    enum { QUANT_FLOAT, QUANT_DOUBLE, QUANT_INTEGER } kind;
};

/* The value that could not be stored, and its index among the given values, from 0. */
struct quant_fault {
    uint64_t element;
    struct quant_value value;
};

/* The importances of a tensor's columns, one matrix after another. They are finite and not
 * negative. */
struct quant_importances {
    const float *of;
    uint64_t columns;
    uint64_t matrix; /* number of elements in a matrix */
    uint64_t first;  /* index in the tensor of the first given element */
};

/* True if values can be stored in this type (NULL: an unknown type), possibly only with
 * importances. */
bool quant_can_encode(const struct quant_type *t, bool big);

/*
 * Encode n whole blocks of a tensor of either byte order from n * block_len host floats. The memory
 * must not overlap. imp may be NULL.
 *
 *     0             done
 *     -EDOM         a NaN or an infinity, which the type cannot hold
 *     -ERANGE       a value that an integer type does not hold exactly (-0 becomes 0), or that
 *                   would become infinite, itself or through the scale that its block needs
 *     -EOPNOTSUPP   no encoder (!quant_can_encode()): `raw` is the only way to write such a tensor;
 *                   or it needs importances (QUANT_NEEDS)
 *
 * On failure dst is undefined, and *fault names an element of the first block that cannot be
 * stored: its first value that is not finite (-EDOM), else the first of largest magnitude
 * (-ERANGE). For -EOPNOTSUPP it names the first value of all.
 */
int quant_encode(const struct quant_type *t, bool big, const float *src, size_t n, uint8_t *dst,
                 const struct quant_importances *imp, struct quant_fault *fault);

/* The view of a tensor that the values belong to. */
enum quant_view { QUANT_F32, QUANT_F16, QUANT_BF16 };

/*
 * Encode n whole blocks from `values`, the little-endian stream of a view (any alignment), as new
 * content of the blocks `old` (NULL: a new tensor). A block keeps its bytes if all its values
 * equal, bit for bit, those that the view shows for the old block, even if its type has no encoder.
 * All other blocks are encoded. A NaN that comes from a block's scale equals any NaN. Values in the
 * type's own format are stored bit for bit. dst may be old. The caller has checked
 * quant_has_values(). Errors and *fault are those of quant_encode(), except that -EOPNOTSUPP names
 * the first value that differs.
 */
int quant_write(const struct quant_type *t, bool big, enum quant_view view, const uint8_t *old,
                const uint8_t *values, size_t n, uint8_t *dst, const struct quant_importances *imp,
                struct quant_fault *fault);

#endif

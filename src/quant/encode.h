/* SPDX-License-Identifier: MIT */
/* Encodes values as the blocks of a tensor in either byte order, writes new values over old blocks,
 * and converts blocks of one type to another. Any thread may call these functions. */
#ifndef QUANT_ENCODE_H
#define QUANT_ENCODE_H

#include "quant/quant.h"

/* A value in the format of its tensor: `kind` says which member is valid. */
struct quant_value {
    union {
        float f32;
        double f64;
        int64_t i64;
    };
    enum { QUANT_FLOAT, QUANT_DOUBLE, QUANT_INTEGER } kind;
};

/* The value that could not be stored, and its index among the given values, counted from 0. */
struct quant_fault {
    uint64_t element;
    struct quant_value value;
};

/* The importances of a tensor's columns, one matrix after another. They are finite and never
 * negative. */
struct quant_importances {
    const float *of;
    uint64_t columns;
    uint64_t matrix; /* number of elements in a matrix */
    uint64_t first;  /* tensor index of the first element to encode */
};

/* Return true if values can be stored in this type (NULL: an unknown type), even if only with
 * importances. */
bool quant_can_encode(const struct quant_type *t, bool big);

/*
 * Encode n whole blocks of a tensor, in either byte order, from n * block_len host floats. The
 * memory must not overlap. imp may be NULL.
 *
 *     0             done
 *     -EDOM         the type cannot hold a NaN or an infinity among the values
 *     -ERANGE       an integer type cannot hold a value exactly (-0 becomes 0), or a value
 *                   would become infinite, by itself or through the scale its block needs
 *     -EOPNOTSUPP   there is no encoder (!quant_can_encode()), so the tensor can only be written
 *                   through `raw`; or the encoder needs importances (QUANT_NEEDS)
 *
 * On failure dst is undefined, and *fault names an element of the first block that cannot be
 * stored: the first value that is not finite (-EDOM), or the first one with the largest magnitude
 * (-ERANGE). For -EOPNOTSUPP it names the very first value.
 */
int quant_encode(const struct quant_type *t, bool big, const float *src, size_t n, uint8_t *dst,
                 const struct quant_importances *imp, struct quant_fault *fault);

/*
 * Encode n whole blocks from `values`, the little-endian stream of a view (any alignment), as the
 * new content of the blocks `old` (NULL: a new tensor). If all values of a block equal, bit for
 * bit, those that the view shows for the old block, its bytes are kept, even if the type has no
 * encoder. All other blocks are encoded. A NaN that comes from a block's scale equals any NaN.
 * Values in the type's own format are stored bit for bit. dst may be the same as old. The caller
 * has checked quant_has_values(). Errors and *fault are as for quant_encode(), except that
 * -EOPNOTSUPP names the first value that differs.
 */
int quant_write(const struct quant_type *t, bool big, const struct quant_form *view,
                const uint8_t *old, const uint8_t *values, size_t n, uint8_t *dst,
                const struct quant_importances *imp, struct quant_fault *fault);

/*
 * Encode n elements as blocks of type `to` from blocks of type `from` in the same byte order. The
 * elements must fill whole blocks of both types, and the memory must not overlap.
 *
 * When I32, I64 or F64 is converted to an integer type, each value must be stored exactly;
 * otherwise the result is -ERANGE (-EDOM if the value is not finite). When I32 or I64 is converted
 * to F64, values are rounded once. In all other cases values are rounded to float32 and then
 * encoded by quant_encode(), with -ERANGE if a finite value becomes infinite. If both types are the
 * same, the bytes are copied unchanged.
 *
 * Errors and *fault are as for quant_encode(), except that for I32, I64 and F64 the value at fault
 * is the first that cannot be stored. The caller has checked quant_has_values() and
 * quant_can_encode().
 */
int quant_convert(const struct quant_type *from, const struct quant_type *to, bool big,
                  const uint8_t *src, size_t n, uint8_t *dst, const struct quant_importances *imp,
                  struct quant_fault *fault);

#endif

/* SPDX-License-Identifier: MIT */
/* Converts blocks of one type to blocks of another. Any thread may call these functions. */
#ifndef QUANT_CONVERT_H
#define QUANT_CONVERT_H

#include "quant/encode.h"

/* Return true if float32 cannot hold all values of the type, which is I32, I64 or F64. */
bool quant_is_wide(const struct quant_type *t);
/* Return value i of a tensor of such a type. `data` is the tensor's first block. */
double quant_wide_value(const struct quant_type *t, bool big, const uint8_t *data, uint64_t i);

/*
 * Encode n elements as blocks of type `to` from blocks of type `from` in the same byte order. The
 * elements must fill whole blocks of both types, and the memory must not overlap.
 *
 * When I32, I64 or F64 is converted to an integer type, each value must be stored exactly;
 * otherwise the result is -ERANGE (-EDOM if the value is not finite). When I32 or I64 is converted
 * to F64, values are rounded once. In all other cases values are rounded to float32 and then
 * encoded by quant_encode(), with -ERANGE if a finite value becomes infinite. If both types are the
 * same, the bytes are kept.
 *
 * Errors and *fault are those of quant_encode(), except that for I32, I64 and F64 the value at
 * fault is the first that cannot be stored. The caller has checked quant_has_values() and
 * quant_can_encode().
 */
int quant_convert(const struct quant_type *from, const struct quant_type *to, bool big,
                  const uint8_t *src, size_t n, uint8_t *dst, const struct quant_importances *imp,
                  struct quant_fault *fault);

#endif

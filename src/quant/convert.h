/* SPDX-License-Identifier: MIT */
/* Blocks of one type to blocks of another. Threads: any. */
#ifndef QUANT_CONVERT_H
#define QUANT_CONVERT_H

#include "quant/encode.h"

/* True if float32 cannot hold all values of the type: I32, I64, F64. */
bool quant_is_wide(const struct quant_type *t);
/* Return value i of a tensor of such a type, whose first block is `data`. */
double quant_wide_value(const struct quant_type *t, bool big, const uint8_t *data, uint64_t i);

/*
 * Encode n elements of type `to`, which are whole blocks of both types, from blocks of type `from`
 * in the same byte order. No overlap.
 *
 * From I32, I64 or F64 to an integer type, each value must be stored exactly, else the result is
 * -ERANGE (-EDOM if it is not finite). From I32 or I64 to F64, values are rounded once. All other
 * values are rounded to float32 and then encoded by quant_encode(), with -ERANGE if a finite value
 * becomes infinite. A tensor of the same type keeps its bytes.
 *
 * Errors and *fault are those of quant_encode(), except that for I32, I64 and F64 the value at
 * fault is the first that cannot be stored. The caller has checked quant_has_values() and
 * quant_can_encode().
 */
int quant_convert(const struct quant_type *from, const struct quant_type *to, bool big,
                  const uint8_t *src, size_t n, uint8_t *dst, const struct quant_importances *imp,
                  struct quant_fault *fault);

#endif

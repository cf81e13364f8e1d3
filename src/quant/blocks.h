/* SPDX-License-Identifier: MIT */
/* Helpers for reading, writing and converting blocks. Private to the layer. */
#ifndef QUANT_BLOCKS_H
#define QUANT_BLOCKS_H

#include "quant/quant.h"

/* Reverse those fields in a block that big-endian files store reversed. */
void quant_swap_fields(const struct quant_type *t, uint8_t *block);

/* Decode n blocks in either byte order to n * block_len host floats. */
void quant_decode(const struct quant_type *t, bool big, const uint8_t *src, size_t n, float *dst);

#endif

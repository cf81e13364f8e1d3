/* SPDX-License-Identifier: MIT */
/* What reading, writing and converting blocks share. Private to the layer. */
#ifndef QUANT_BLOCKS_H
#define QUANT_BLOCKS_H

#include "quant/quant.h"

/* Reverse each field of a block that a big-endian file has reversed. */
void quant_swap_fields(const struct quant_type *t, uint8_t *block);

/* n blocks to n * block_len host floats, also from a big-endian file. */
void quant_decode(const struct quant_type *t, bool big, const uint8_t *src, size_t n, float *dst);

#endif

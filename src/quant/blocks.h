/* SPDX-License-Identifier: MIT */
/* What reading and writing blocks share. Private to the layer. */
#ifndef QUANT_BLOCKS_H
#define QUANT_BLOCKS_H

#include "quant/quant.h"

/* Reverse each field of a block that a big-endian file has reversed. */
void quant_swap_fields(const struct quant_type *t, uint8_t *block);

#endif

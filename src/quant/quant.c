/* SPDX-License-Identifier: MIT */
/* The table of tensor types: see quant.h. */
#include "quant/quant.h"

const struct quant_type *quant_find(uint32_t id)
{
    (void)id;
    return NULL;
}

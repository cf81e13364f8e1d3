/* SPDX-License-Identifier: MIT */
/* The table of tensor types: see quant.h. */
#include "quant/quant.h"

const struct quant_type *quant_find(uint32_t id)
{
    (void)id;
    return NULL;
}

bool quant_has_values(const struct quant_type *t, bool big)
{
    (void)t;
    (void)big;
    return false;
}
void quant_read_f32(const struct quant_type *t, bool big, const uint8_t *data, uint64_t off, size_t n, void *dst)
{
    (void)t; (void)big; (void)data; (void)off; (void)n; (void)dst;
}
void quant_extent_f32(const struct quant_type *t, uint64_t off, size_t n, uint64_t *first, uint64_t *last)
{
    (void)t; (void)off; (void)n; *first = *last = 0;
}
void quant_init(void)
{
}

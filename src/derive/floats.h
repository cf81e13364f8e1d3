/* SPDX-License-Identifier: MIT */
/* Decoded values as the host's floats. */
#ifndef DERIVE_FLOATS_H
#define DERIVE_FLOATS_H

#include <string.h>

#include "base/bytes.h"
#include "quant/quant.h"

/* Values [first, first + n) of a tensor whose first block is `data`. May run under map_guard(). */
static inline void floats_read(const struct quant_type *t, bool big, const uint8_t *data,
                               uint64_t first, size_t n, float *dst)
{
    quant_read_f32(t, big, data, 4 * first, 4 * n, dst);
    for (size_t i = 0; HOST_BIG && i < n; i++) {
        uint32_t v = get_u32((const uint8_t *)&dst[i], false);
        memcpy(&dst[i], &v, sizeof(v));
    }
}

#endif

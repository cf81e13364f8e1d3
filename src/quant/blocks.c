/* SPDX-License-Identifier: MIT */
/* Helpers for reading, writing and converting blocks: see blocks.h. */
#include "quant/blocks.h"

#include <string.h>

#include "base/bytes.h"

/* Size in bytes of the stack buffer for swapped blocks. */
enum { SWAP_ROOM = 2048 };

void quant_swap_fields(const struct quant_type *t, uint8_t *block)
{
    for (size_t i = 0; i < t->swap_count; i++) {
        uint8_t *p = block + t->swap_at[i];
        put_uint(p, get_uint(p, t->swap_width, true), t->swap_width, false);
    }
}

void quant_decode(const struct quant_type *t, bool big, const uint8_t *src, size_t n, float *dst)
{
    uint8_t room[SWAP_ROOM];
    const size_t most = sizeof(room) / t->block_bytes;
    if (!big || t->swap_count == 0) {
        t->decode(src, n, dst);
        return;
    }
    for (size_t k; n > 0; n -= k) {
        k = n < most ? n : most;
        memcpy(room, src, k * t->block_bytes);
        for (size_t i = 0; i < k; i++)
            quant_swap_fields(t, room + i * t->block_bytes);
        t->decode(room, k, dst);
        src += k * t->block_bytes;
        dst += k * t->block_len;
    }
}

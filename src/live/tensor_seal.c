/* SPDX-License-Identifier: MIT */
/* What is sealed of a draft: see tensor_seal.h. */
#include "live/tensor_seal.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"

enum { GRANULE = TENSOR_GRANULE };

struct tensor_seal *tensor_seal_make(struct tensor_base *base, struct edit_draft *file,
                                     struct bits *present, uint64_t cut, uint64_t shift)
{
    struct tensor_seal *s = calloc(1, sizeof(*s));
    if (!s)
        return NULL;
    atomic_init(&s->refs, 1);
    s->base = base;
    s->file = file;
    s->present = *present;
    *present = BITS_INIT;
    s->cut = cut;
    s->shift = shift;
    return s;
}

struct tensor_seal *tensor_seal_ref(struct tensor_seal *s)
{
    if (s)
        atomic_fetch_add(&s->refs, 1);
    return s;
}

void tensor_seal_unref(struct tensor_seal *s)
{
    if (!s || atomic_fetch_sub(&s->refs, 1) != 1)
        return;
    tensor_base_unref(s->base);
    edit_draft_unref(s->file);
    bits_free(&s->present);
    free(s);
}

uint64_t tensor_seal_stretch(const struct tensor_seal *s, uint64_t off, uint64_t n, bool *held)
{
    uint64_t lo, hi;
    bool any = bits_next(&s->present, off / GRANULE, &lo, &hi);
    bool in = any && lo <= off / GRANULE;
    *held = in || off >= s->cut;
    if (in)
        return min_u64(n, hi * GRANULE - off);
    n = any ? min_u64(n, lo * GRANULE - off) : n;
    return off < s->cut ? min_u64(n, s->cut - off) : n;
}

int tensor_seal_read(const struct tensor_seal *s, uint64_t off, uint8_t *dst, size_t n)
{
    int r = 0;
    while (r == 0 && n > 0) {
        bool held;
        size_t len = (size_t)tensor_seal_stretch(s, off, n, &held);
        if (held)
            r = s->file->src.read(&s->file->src, s->shift + off, dst, len);
        else
            r = tensor_view_read(s->base, TENSOR_RAW, off, dst, len);
        off += len;
        dst += len;
        n -= len;
    }
    return r;
}

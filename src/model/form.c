/* SPDX-License-Identifier: MIT */
/* Values as bytes: see form.h. */
#include "model/form.h"

#include <errno.h>
#include <stdlib.h>

/* Elements in the file's byte order, each reversed. `data` is the first one. */
static void read_swapped(const struct quant_type *t, bool big, const uint8_t *data, uint64_t off,
                         size_t n, void *dst)
{
    uint64_t last = t->block_bytes - 1u;
    for (size_t i = 0; i < n; i++) {
        uint64_t in = (off + i) % t->block_bytes;
        ((uint8_t *)dst)[i] = data[off + i - in + (big ? last - in : in)];
    }
}

const struct form form_f32 = {4, 0, "<f4", quant_read_f32};
const struct form form_f16 = {2, 1, "<f2", quant_read_f16};
const struct form form_bf16 = {2, 30, NULL, quant_read_bf16};
const struct form form_stored = {0, UINT32_MAX, NULL, read_swapped};

static unsigned width_of(const struct form *f, const struct quant_type *type)
{
    return f->width ? f->width : type->block_bytes;
}

bool form_decodes(const struct form *f, const struct gguf *g, const struct gguf_tensor *t)
{
    return g->fmt.big || (f->width && t->type_id != f->same);
}

uint64_t form_size(const struct form *f, const struct gguf_tensor *t)
{
    return f->width ? t->n_elem * f->width : t->nbytes;
}

struct decode {
    const struct form *form;
    const struct quant_type *type;
    bool big;
    const uint8_t *data;
    uint64_t off;
    size_t n;
    void *dst;
};

static int decode(void *arg)
{
    const struct decode *d = arg;
    d->form->read(d->type, d->big, d->data, d->off, d->n, d->dst);
    return 0;
}

int form_read(const struct form *f, const struct gguf *g, const struct store *s, uint32_t i,
              uint64_t off, void *dst, size_t n)
{
    const struct quant_type *type = gguf_type(&g->tensor[i]);
    uint64_t first, last;
    quant_extent(type, width_of(f, type), off, n, &first, &last);
    uint8_t *room;
    const uint8_t *data;
    int r = store_bytes(s, i, first, last, g->tensor[i].nbytes, &room, &data);
    if (r < 0)
        return r;
    off -= first / type->block_bytes * type->block_len * width_of(f, type);
    struct decode d = {f, type, g->fmt.big, data, off, n, dst};
    r = map_guard(decode, &d);
    free(room);
    return r < 0 ? r : store_check(s, i, first, last);
}

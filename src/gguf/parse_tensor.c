/* SPDX-License-Identifier: MIT */
/* The tensor infos of a header: see cursor.h; docs/format.md draws an info. */
#include "gguf/cursor.h"

#include "base/buf.h"

/* In version 1, written in August 2023 only, ids 16 to 18 were the integers. */
static uint32_t type_of(const struct cursor *c, uint32_t stored)
{
    return c->fmt.version == 1 && stored >= 16 && stored <= 18 ? stored + 8 : stored;
}

/*
 * The product of the dimensions, refused if it is over the limit. A dimension of 0 makes it 0, but
 * the others must not overflow: 2^32 x 2^32 x 0 must not pass as a tensor of no bytes.
 */
static int count_elements(struct cursor *c, uint32_t n_dims, uint64_t *ret)
{
    uint64_t product = 1, at;
    bool empty = false;
    for (uint32_t i = 0; i < n_dims; i++) {
        uint64_t d;
        at = c->pos;
        int r = cursor_uint(c, c->fmt.len_width, "dimension", &d);
        if (r < 0)
            return r;
        bool fits =
            d <= INT64_MAX && mul_u64(product, d ? d : 1, &product) && product <= GGUF_MAX_ELEMENTS;
        if (d > INT64_MAX)
            r = cursor_fault(c, -EBADMSG, "dimension", at, "%lld is negative", (long long)d);
        else if (!fits)
            r = cursor_fault(c, -EBADMSG, "dimension", at,
                             "the number of elements overflows with %llu", (unsigned long long)d);
        if (r < 0)
            return r;
        if (!fits)
            product = 1;
        empty |= d == 0 || !fits;
    }
    *ret = empty ? 0 : product;
    return 0;
}

/* Bytes of the data; for an unknown type only the layout shows them (layout.c). */
static int count_bytes(struct cursor *c, struct gguf_tensor *t)
{
    const struct quant_type *type = quant_find(t->type_id);
    if (!type || type->block_len == 0)
        return 0;
    uint64_t row = t->n_dims ? get_uint(c->bytes + t->dims_off, c->fmt.len_width, c->fmt.big) : 1;
    if (row % type->block_len) {
        t->n_elem = 0;
        return cursor_fault(c, -EBADMSG, "dimension", t->dims_off,
                            "%llu elements a row is not a multiple of the %u of a block of %s",
                            (unsigned long long)row, type->block_len, type->name);
    }
    if (!mul_u64(t->n_elem / type->block_len, type->block_bytes, &t->nbytes) ||
        t->nbytes > INT64_MAX)
        return cursor_fail(c, -EBADMSG, "dimension", t->dims_off, "the size in bytes overflows");
    return 0;
}

static int parse_dims(struct cursor *c, struct gguf_tensor *t)
{
    uint64_t n_dims = 0, declared = 0, at = c->pos;
    int r = cursor_uint(c, 4, "number of dimensions", &n_dims);
    if (r < 0)
        return r;
    if (n_dims > GGUF_MAX_DIMS)
        return cursor_fail(c, -EBADMSG, "number of dimensions", at, "%llu is over the limit of %d",
                           (unsigned long long)n_dims, GGUF_MAX_DIMS);
    t->n_dims = (uint32_t)n_dims;
    t->dims_off = c->pos;
    r = count_elements(c, t->n_dims, &t->n_elem);
    if (r < 0 || !c->fmt.draft)
        return r;
    r = cursor_uint(c, 4, "number of elements", &declared);
    if (r == 0 && declared != t->n_elem)
        return cursor_fail(c, -EBADMSG, "number of elements", c->pos - 4,
                           "declared %llu, but the dimensions give %llu",
                           (unsigned long long)declared, (unsigned long long)t->n_elem);
    return r;
}

static int parse_info(struct cursor *c, struct gguf_tensor *t)
{
    uint64_t len, type = 0;
    *t = (struct gguf_tensor){.info_off = c->pos};
    int r = cursor_string(c, "name length", &t->name_off, &len);
    if (r < 0)
        return r;
    t->name_len = (uint32_t)len;
    c->name_off = t->name_off;
    c->name_len = len;
    r = parse_dims(c, t);
    if (r == 0)
        r = cursor_uint(c, 4, "type", &type);
    if (r == 0)
        r = cursor_uint(c, 8, "offset", &t->off);
    if (r < 0)
        return r;
    t->stored_id = (uint32_t)type;
    t->type_id = type_of(c, t->stored_id);
    return count_bytes(c, t);
}

int parse_tensors(struct cursor *c, struct gguf *g, uint64_t n)
{
    size_t cap = 0;
    c->item = "tensor";
    for (uint64_t i = 0; i < n; i++) {
        c->item_no = i;
        c->name_len = 0;
        int r = array_grow(&g->tensor, &cap, g->n_tensors, sizeof(*g->tensor));
        if (r < 0)
            return cursor_fail(c, r, "info", c->pos, "no memory");
        r = parse_info(c, &g->tensor[g->n_tensors]);
        if (r < 0)
            return r;
        g->n_tensors++;
    }
    c->item = NULL;
    return 0;
}

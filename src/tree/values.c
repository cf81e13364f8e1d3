/* SPDX-License-Identifier: MIT */
/*
 * Files that are answered piecewise: tensor data as stored and as floats, and the model as one
 * file. See files.h.
 *
 * Bytes that need no work are answered from the mapping. Everything else is decoded into scratch
 * under map_guard(), and the file's size is looked at afterwards: a page that was cut in two reads
 * as zeros without a signal.
 */
#include "tree/files.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"

/* Bytes [first, last) of the tensor's data, straight from the mapping. */
static int reply_mapped(const struct gen *g, const struct gguf_tensor *t, uint64_t first,
                        uint64_t last, struct reply *r)
{
    const uint8_t *p = gen_data(g, t, first, last);
    if (!p || gen_check(g, t->off + last) < 0)
        return -EIO;
    reply_add(r, p, (size_t)(last - first));
    return 0;
}

uint64_t raw_size(const struct gen *g, const struct row *row, const struct gguf_tensor *t)
{
    (void)g;
    (void)row;
    return t->nbytes;
}

int raw_read(const struct gen *g, const struct row *row, const struct gguf_tensor *t, uint64_t off,
             size_t n, struct reply *r)
{
    (void)row;
    return reply_mapped(g, t, off, off + n, r);
}

const struct form form_f32 = {4, 0, "<f4", quant_read_f32};
const struct form form_f16 = {2, 1, "<f2", quant_read_f16};
const struct form form_bf16 = {2, 30, NULL, quant_read_bf16};

uint64_t value_size(const struct gen *g, const struct row *row, const struct gguf_tensor *t)
{
    (void)g;
    return t->n_elem * row->form->width;
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

int value_read(const struct gen *g, const struct row *row, const struct gguf_tensor *t,
               uint64_t off, size_t n, struct reply *r)
{
    const struct quant_type *type = gguf_type(t);
    uint64_t first, last;
    if (t->type_id == row->form->same && !g->gguf->fmt.big) /* stored as it is shown */
        return reply_mapped(g, t, off, off + n, r);
    quant_extent(type, row->form->width, off, n, &first, &last);
    if (!gen_data(g, t, first, last))
        return -EIO;
    struct decode d = {.form = row->form,
                       .type = type,
                       .big = g->gguf->fmt.big,
                       .data = gen_data(g, t, 0, 0),
                       .off = off,
                       .n = n,
                       .dst = reply_room(r, n)};
    int err = map_guard(decode, &d);
    return err < 0 ? err : gen_check(g, t->off + last);
}

/*
 * NumPy's format 1.0: magic, version, u16 length of what follows, a Python dict padded with spaces
 * and ended by a newline so that the data begins at a multiple of 64.
 */
#define NPY_ALIGN 64
#define NPY_FIXED 10 /* magic, version, length */

static size_t npy_header(const struct gen *g, const struct row *row, const struct gguf_tensor *t,
                         struct buf *out)
{
    buf_add(out, "\x93NUMPY\x01\x00\x00\x00", NPY_FIXED);
    buf_printf(out, "{'descr': '%s', 'fortran_order': False, 'shape': (", row->form->descr);
    shape_numpy(g, t, ", ", out);
    buf_str(out, t->n_dims == 1 ? ",), }" : "), }");
    for (size_t n = NPY_ALIGN - 1 - out->len % NPY_ALIGN; n > 0; n--)
        buf_char(out, ' ');
    buf_char(out, '\n');
    if (out->data && !buf_error(out))
        put_u16(out->data + NPY_FIXED - 2, (uint16_t)(out->len - NPY_FIXED), false);
    return out->len;
}

uint64_t npy_size(const struct gen *g, const struct row *row, const struct gguf_tensor *t)
{
    struct buf m = BUF_MEASURE;
    return npy_header(g, row, t, &m) + value_size(g, row, t);
}

int npy_read(const struct gen *g, const struct row *row, const struct gguf_tensor *t, uint64_t off,
             size_t n, struct reply *r)
{
    CLEANUP(buf_free) struct buf head = BUF_INIT;
    size_t len = npy_header(g, row, t, &head);
    if (buf_error(&head))
        return buf_error(&head);
    size_t from_head = off < len ? (size_t)min_u64(n, len - off) : 0;
    if (from_head)
        memcpy(reply_room(r, from_head), head.data + off, from_head);
    if (n == from_head)
        return 0;
    return value_read(g, row, t, off + from_head - len, n - from_head, r);
}

uint64_t model_size(const struct gen *g, const struct row *row, const struct gguf_tensor *t)
{
    (void)row;
    (void)t;
    return max_u64(g->gguf->file_size, g->gguf->data_end);
}

/* The header from memory, all else from the mapping. */
int model_read(const struct gen *g, const struct row *row, const struct gguf_tensor *t,
               uint64_t off, size_t n, struct reply *r)
{
    (void)row;
    (void)t;
    uint64_t end = off + n, head = g->gguf->head_len;
    if (off < head)
        reply_add(r, g->gguf->head + off, (size_t)(min_u64(end, head) - off));
    if (end <= head)
        return 0;
    uint64_t first = max_u64(off, head);
    if (end > g->map.size || gen_check(g, end) < 0)
        return -EIO;
    reply_add(r, g->map.data + first, (size_t)(end - first));
    return 0;
}

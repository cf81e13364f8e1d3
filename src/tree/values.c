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
static int reply_mapped(const struct view *v, const struct gguf_tensor *t, uint64_t first,
                        uint64_t last, struct reply *r)
{
    uint32_t i = gen_tensor_no(v->gen, t);
    const uint8_t *p = store_data(v->store, i, first, last);
    if (!p || store_check(v->store, i, last) < 0)
        return -EIO;
    reply_add(r, p, (size_t)(last - first));
    return 0;
}

uint64_t raw_size(const struct view *v, const struct row *row, const struct gguf_tensor *t)
{
    (void)v;
    (void)row;
    return t->nbytes;
}

int raw_read(const struct view *v, const struct row *row, const struct gguf_tensor *t, uint64_t off,
             size_t n, struct reply *r)
{
    (void)row;
    return reply_mapped(v, t, off, off + n, r);
}

const struct form form_f32 = {4, 0, "<f4", quant_read_f32};
const struct form form_f16 = {2, 1, "<f2", quant_read_f16};
const struct form form_bf16 = {2, 30, NULL, quant_read_bf16};

uint64_t value_size(const struct view *v, const struct row *row, const struct gguf_tensor *t)
{
    (void)v;
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

bool value_decodes(const struct gen *g, const struct row *row, const struct gguf_tensor *t)
{
    return row->form && (t->type_id != row->form->same || g->gguf->fmt.big);
}

int value_read(const struct view *v, const struct row *row, const struct gguf_tensor *t,
               uint64_t off, size_t n, struct reply *r)
{
    const struct quant_type *type = gguf_type(t);
    uint32_t i = gen_tensor_no(v->gen, t);
    uint64_t first, last;
    if (!value_decodes(v->gen, row, t)) /* stored as it is shown */
        return reply_mapped(v, t, off, off + n, r);
    quant_extent(type, row->form->width, off, n, &first, &last);
    if (!store_data(v->store, i, first, last))
        return -EIO;
    struct decode d = {.form = row->form,
                       .type = type,
                       .big = v->gen->gguf->fmt.big,
                       .data = store_data(v->store, i, 0, 0),
                       .off = off,
                       .n = n,
                       .dst = reply_room(r, n)};
    int err = map_guard(decode, &d);
    return err < 0 ? err : store_check(v->store, i, last);
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

uint64_t npy_size(const struct view *v, const struct row *row, const struct gguf_tensor *t)
{
    struct buf m = BUF_MEASURE;
    return npy_header(v->gen, row, t, &m) + value_size(v, row, t);
}

int npy_read(const struct view *v, const struct row *row, const struct gguf_tensor *t, uint64_t off,
             size_t n, struct reply *r)
{
    CLEANUP(buf_free) struct buf head = BUF_INIT;
    size_t len = npy_header(v->gen, row, t, &head);
    if (buf_error(&head))
        return buf_error(&head);
    size_t from_head = off < len ? (size_t)min_u64(n, len - off) : 0;
    if (from_head)
        memcpy(reply_room(r, from_head), head.data + off, from_head);
    if (n == from_head)
        return 0;
    return value_read(v, row, t, off + from_head - len, n - from_head, r);
}

uint64_t model_size(const struct view *v, const struct row *row, const struct gguf_tensor *t)
{
    (void)row;
    (void)t;
    return max_u64(v->gen->gguf->file_size, v->gen->gguf->data_end);
}

/* The first tensor, in a regular layout, whose data ends behind `off`; n_tensors if none does. */
static uint32_t tensor_at(const struct gguf *m, uint64_t off)
{
    uint32_t low = 0, high = m->n_tensors;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (m->tensor[mid].off + m->tensor[mid].nbytes > off)
            high = mid;
        else
            low = mid + 1;
    }
    return low;
}

struct assemble {
    const struct view *v;
    uint64_t off;
    size_t n;
    uint8_t *dst;
};

/* Bytes [off, off + n) of the data section: tensors from the store, zeros between them. */
static int assemble(void *arg)
{
    const struct assemble *a = arg;
    const struct gguf *m = a->v->gen->gguf;
    uint64_t end = a->off + a->n;
    memset(a->dst, 0, a->n);
    for (uint32_t i = tensor_at(m, a->off); i < m->n_tensors && m->tensor[i].off < end; i++) {
        const struct gguf_tensor *t = &m->tensor[i];
        uint64_t first = max_u64(a->off, t->off), last = min_u64(end, t->off + t->nbytes);
        if (first >= last)
            continue;
        const uint8_t *p = store_data(a->v->store, i, first - t->off, last - t->off);
        if (!p)
            return -EIO;
        memcpy(a->dst + (first - a->off), p, (size_t)(last - first));
        if (store_check(a->v->store, i, last - t->off) < 0)
            return -EIO;
    }
    return 0;
}

/* Data of a regular generation. Most reads lie within one tensor: straight from the mapping. */
static int data_read(const struct view *v, uint64_t off, size_t n, struct reply *r)
{
    const struct gguf *m = v->gen->gguf;
    uint32_t i = tensor_at(m, off);
    if (i < m->n_tensors && m->tensor[i].off <= off &&
        off + n <= m->tensor[i].off + m->tensor[i].nbytes)
        return reply_mapped(v, &m->tensor[i], off - m->tensor[i].off, off + n - m->tensor[i].off,
                            r);
    struct assemble a = {.v = v, .off = off, .n = n, .dst = reply_room(r, n)};
    return map_guard(assemble, &a);
}

/* The header from memory, all else from the file itself or, if that is not needed, assembled. */
int model_read(const struct view *v, const struct row *row, const struct gguf_tensor *t,
               uint64_t off, size_t n, struct reply *r)
{
    uint64_t end = off + n, head = v->gen->gguf->head_len;
    (void)row;
    (void)t;
    if (off < head)
        reply_add(r, v->gen->gguf->head + off, (size_t)(min_u64(end, head) - off));
    if (end <= head)
        return 0;
    uint64_t first = max_u64(off, head), pad = head + v->gen->pad_len;
    const struct mapped *pinned = v->pin;
    if (!pinned)
        return data_read(v, first, (size_t)(end - first), r);
    if (first < pad) {
        reply_add(r, v->gen->pad + (first - head), (size_t)(min_u64(end, pad) - first));
        first = min_u64(end, pad);
    }
    if (first == end)
        return 0;
    if (end > pinned->map.size || map_check(&pinned->map, end) < 0)
        return -EIO;
    reply_add(r, pinned->map.data + first, (size_t)(end - first));
    return 0;
}

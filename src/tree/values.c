/* SPDX-License-Identifier: MIT */
/*
 * Files that are answered piecewise: tensor data as stored and as floats, and the model as one
 * file. See files.h.
 *
 * Values are decoded into scratch under map_guard(), and the file's size is looked at afterwards: a
 * page that was cut in two reads as zeros without a signal. Bytes that are shown as they are stored
 * are copied there in the same way, for which the kernel's own copy is faster by as much; but not
 * if they are more than fit the processor's cache: these it gets straight from the mapping.
 *
 * NAME_missing() tells where what is not there begins, so that a read can end before it; a read of
 * what is missing itself is -EIO.
 */
#include "tree/files.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"

struct copy {
    void *dst;
    const void *src;
    size_t n;
};

static int copy(void *arg)
{
    const struct copy *c = arg;
    memcpy(c->dst, c->src, c->n);
    return 0;
}

/* Bytes [first, first + n) of a mapped file. */
static int reply_mapped(struct mapped *m, uint64_t first, size_t n, struct reply *r)
{
    if (first > m->map.size || n > m->map.size - first)
        return -EIO;
    if (n > REPLY_COPY_MAX && r->len == 0) {
        reply_point(r, m, first, n);
        return mapped_check(m, first + n);
    }
    struct copy c = {reply_room(r, n), m->map.data + first, n};
    int err = map_guard(copy, &c), cut = mapped_check(m, first + n);
    return err < 0 ? err : cut;
}

/* Bytes [first, last) of the tensor's data, as they are stored. */
static int reply_stored(const struct view *v, const struct gguf_tensor *t, uint64_t first,
                        uint64_t last, struct reply *r)
{
    const struct place_in_store *place = &v->store->place[gen_tensor_no(v->gen, t)];
    return reply_mapped(v->store->file[place->file], place->off + first, (size_t)(last - first), r);
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
    return reply_stored(v, t, off, off + n, r);
}

uint64_t raw_missing(const struct view *v, const struct row *row, const struct gguf_tensor *t,
                     uint64_t off, uint64_t end)
{
    uint64_t there = store_there(v->store, gen_tensor_no(v->gen, t), t->nbytes);
    (void)row;
    return there == t->nbytes ? end : min_u64(end, max_u64(off, there));
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
    if (!value_decodes(v->gen, row, t))
        return reply_stored(v, t, off, off + n, r);
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
    int err = map_guard(decode, &d), cut = store_check(v->store, i, last);
    return err < 0 ? err : cut;
}

/* A block that is there in part has no values. */
uint64_t value_missing(const struct view *v, const struct row *row, const struct gguf_tensor *t,
                       uint64_t off, uint64_t end)
{
    const struct quant_type *type = gguf_type(t);
    uint64_t there = store_there(v->store, gen_tensor_no(v->gen, t), t->nbytes);
    uint64_t values = there / type->block_bytes * type->block_len;
    return there == t->nbytes ? end : min_u64(end, max_u64(off, values * row->form->width));
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
        reply_copy(r, head.data + off, from_head);
    if (n == from_head)
        return 0;
    return value_read(v, row, t, off + from_head - len, n - from_head, r);
}

uint64_t npy_missing(const struct view *v, const struct row *row, const struct gguf_tensor *t,
                     uint64_t off, uint64_t end)
{
    struct buf m = BUF_MEASURE;
    uint64_t len = npy_header(v->gen, row, t, &m);
    if (end <= len)
        return end;
    return len + value_missing(v, row, t, off > len ? off - len : 0, end - len);
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

/* Bytes [at, end) that lie before the tensor, and those of it; returns where they end, 0: -EIO. */
static uint64_t piece(const struct assemble *a, uint32_t i, uint64_t at, uint64_t end)
{
    const struct gguf_tensor *t = &a->v->gen->gguf->tensor[i];
    uint64_t first = min_u64(max_u64(at, t->off), end), last = min_u64(end, t->off + t->nbytes);
    memset(a->dst + (at - a->off), 0, (size_t)(first - at));
    if (first == end)
        return end;
    const uint8_t *p = store_data(a->v->store, i, first - t->off, last - t->off);
    if (!p)
        return 0;
    memcpy(a->dst + (first - a->off), p, (size_t)(last - first));
    return store_check(a->v->store, i, last - t->off) < 0 ? 0 : last;
}

/* Bytes [off, off + n) of a regular data section: tensors from the store, zeros between them. */
static int assemble(void *arg)
{
    const struct assemble *a = arg;
    const struct gguf *m = a->v->gen->gguf;
    uint64_t at = a->off, end = a->off + a->n;
    for (uint32_t i = tensor_at(m, at); i < m->n_tensors && at < end; i++) {
        at = piece(a, i, at, end);
        if (at == 0)
            return -EIO;
    }
    memset(a->dst + (at - a->off), 0, (size_t)(end - at));
    return 0;
}

/* Most reads lie within one tensor. */
static int data_read(const struct view *v, uint64_t off, size_t n, struct reply *r)
{
    const struct gguf *m = v->gen->gguf;
    uint32_t i = tensor_at(m, off);
    const struct gguf_tensor *t = i < m->n_tensors ? &m->tensor[i] : NULL;
    if (t && t->off <= off && off + n <= t->off + t->nbytes)
        return reply_stored(v, t, off - t->off, off + n - t->off, r);
    struct assemble a = {v, off, n, reply_room(r, n)};
    return map_guard(assemble, &a);
}

/* The header and the padding from memory, the data from the file itself or assembled. */
int model_read(const struct view *v, const struct row *row, const struct gguf_tensor *t,
               uint64_t off, size_t n, struct reply *r)
{
    uint64_t end = off + n, head = v->gen->gguf->head_len;
    uint64_t pad = head + (v->pin ? v->gen->pad_len : 0);
    (void)row;
    (void)t;
    if (off < head)
        reply_copy(r, v->gen->gguf->head + off, (size_t)(min_u64(end, head) - off));
    off = max_u64(off, head);
    if (off < end && off < pad)
        reply_copy(r, v->gen->pad + (off - head), (size_t)(min_u64(end, pad) - off));
    off = max_u64(off, pad);
    if (off >= end)
        return 0;
    return v->pin ? reply_mapped(v->pin, off, (size_t)(end - off), r)
                  : data_read(v, off, (size_t)(end - off), r);
}

/* Of a model in shards: what is between tensors is there. */
static uint64_t data_missing(const struct view *v, uint64_t off, uint64_t end)
{
    const struct gguf *m = v->gen->gguf;
    for (uint32_t i = tensor_at(m, off); i < m->n_tensors && m->tensor[i].off < end; i++) {
        const struct gguf_tensor *t = &m->tensor[i];
        uint64_t there = store_there(v->store, i, t->nbytes);
        if (there < t->nbytes)
            return min_u64(end, max_u64(off, t->off + there));
    }
    return end;
}

uint64_t model_missing(const struct view *v, const struct row *row, const struct gguf_tensor *t,
                       uint64_t off, uint64_t end)
{
    (void)row;
    (void)t;
    return v->pin ? min_u64(end, max_u64(off, v->pin->map.size)) : data_missing(v, off, end);
}

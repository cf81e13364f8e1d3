/* SPDX-License-Identifier: MIT */
/*
 * Files that are answered piecewise: tensor data as stored and as floats, and the model as one
 * file. See files.h.
 *
 * Values are decoded into scratch (model/form.h). Bytes that are shown as they are stored are
 * copied there, for which the kernel's own copy is faster by as much; but not if they are more than
 * fit the processor's cache: these it gets straight from the mapping.
 * A read of bytes that are missing is -EIO as a whole.
 */
#include "tree/files.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "model/npy.h"

/* Bytes [first, first + n) of a mapped file, of a part of it that ends at `end`. */
static int reply_mapped(struct mapped *m, uint64_t first, size_t n, uint64_t end, struct reply *r)
{
    if (n <= REPLY_COPY_MAX || r->len > 0)
        return mapped_copy_of(m, first, reply_room(r, n), n, end);
    if (first > m->map.size || n > m->map.size - first)
        return -EIO;
    mapped_want(m, first, n, end);
    reply_point(r, m, first, n);
    return mapped_check(m, first + n);
}

/* Bytes [first, last) of the tensor's data, as they are stored. */
static int reply_stored(const struct view *v, const struct gguf_tensor *t, uint64_t first,
                        uint64_t last, struct reply *r)
{
    const uint32_t i = snapshot_tensor_no(v->snap, t);
    const size_t n = (size_t)(last - first);
    uint64_t at;
    struct mapped *m = store_mapped(v->store, i, first, n, &at);
    if (m)
        return reply_mapped(m, at, n, at + (t->nbytes - first), r);
    return store_read(v->store, i, first, reply_room(r, n), n, t->nbytes);
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

uint64_t value_size(const struct view *v, const struct row *row, const struct gguf_tensor *t)
{
    (void)v;
    return form_size(row->form, t);
}

int value_read(const struct view *v, const struct row *row, const struct gguf_tensor *t,
               uint64_t off, size_t n, struct reply *r)
{
    if (!form_decodes(row->form, v->snap->gguf, t))
        return reply_stored(v, t, off, off + n, r);
    return form_read(row->form, v->snap->gguf, v->store, snapshot_tensor_no(v->snap, t), off,
                     reply_room(r, n), n);
}

static size_t header(const struct snapshot *g, const struct row *row, const struct gguf_tensor *t,
                     struct buf *out)
{
    uint64_t dims[GGUF_MAX_DIMS];
    for (uint32_t i = 0; i < t->n_dims; i++)
        dims[i] = gguf_dim(g->gguf, t, i);
    return npy_header(out, row->form->descr, t->n_dims, dims);
}

uint64_t npy_size(const struct view *v, const struct row *row, const struct gguf_tensor *t)
{
    struct buf m = BUF_MEASURE;
    return header(v->snap, row, t, &m) + value_size(v, row, t);
}

void npy_head(const struct view *v, const struct row *row, const struct gguf_tensor *t,
              struct buf *out)
{
    (void)header(v->snap, row, t, out);
}

uint64_t model_size(const struct view *v, const struct row *row, const struct gguf_tensor *t)
{
    (void)row;
    (void)t;
    const struct gguf *g = v->snap->gguf;
    return max_u64(g->file_size, g->data_end) - image_cut(g);
}

/* Of the first snapshot of a file with a reserve: that file, without it. */
int model_row_image(const struct view *v, const struct row *row, struct image **ret)
{
    const struct gguf *g = v->snap->gguf;
    (void)row;
    if (!v->file || v->snap->shards || !image_hides(g))
        return 0;
    struct image *im = image_new(NULL);
    if (!im)
        return -ENOMEM;
    const uint64_t end = model_size(v, row, NULL), cut = image_cut(g);
    image_add_header(im, g);
    image_add_zeros(im, g->data_off - cut - im->size);
    image_add_file(im, image_file(im, v->file->file[0]), im->size + cut, end - im->size);
    int r = image_end(im);
    if (r < 0)
        image_unref(im);
    else
        *ret = im;
    return r;
}

/* The first snapshot of a model in one file shows that file, the others what is made of them. */
static const struct image *model_image(const struct view *v)
{
    return v->file && !v->snap->shards ? v->file : snapshot_whole(v->snap);
}

/* Most reads lie within one tensor. */
static int reply_image(const struct view *v, const struct image *im, uint64_t off, size_t n,
                       struct reply *r)
{
    uint64_t at;
    struct mapped *m = im ? image_mapped(im, v->store, off, n, &at) : NULL;
    if (m)
        return reply_mapped(m, at, n, m->map.size, r);
    return im ? image_read(im, v->store, off, reply_room(r, n), n) : -ENOMEM;
}

int model_read(const struct view *v, const struct row *row, const struct gguf_tensor *t,
               uint64_t off, size_t n, struct reply *r)
{
    (void)row;
    (void)t;
    return reply_image(v, model_image(v), off, n, r);
}

/* Without memory to measure it the file is there, and its size is -ENOMEM. */
bool safetensors_row_possible(struct snapshot *g, const struct row *row)
{
    uint64_t size;
    return safetensors_size(g, row->as, &size) != -EFBIG;
}

uint64_t safetensors_row_size(const struct view *v, const struct row *row,
                              const struct gguf_tensor *t)
{
    (void)t;
    uint64_t size;
    return safetensors_size(v->snap, row->as, &size) < 0 ? UINT64_MAX : size;
}

int safetensors_row_image(const struct view *v, const struct row *row, struct image **ret)
{
    return safetensors_image(v->snap, row->as, ret);
}

int safetensors_row_read(const struct view *v, const struct row *row, const struct gguf_tensor *t,
                         uint64_t off, size_t n, struct reply *r)
{
    (void)row;
    (void)t;
    return reply_image(v, v->file, off, n, r);
}

/* SPDX-License-Identifier: MIT */
/* A tensor before an edit: see tensor_base.h. */
#include "live/tensor_base.h"

#include <errno.h>
#include <stdlib.h>

#include "base/bytes.h"
#include "quant/encode.h"

/* ---- made ---- */

static void take_shape(struct tensor_base *b, const struct tensor_shape *s, uint64_t nbytes)
{
    b->type = s->type;
    b->n_dims = s->n_dims;
    b->n_elem = 1;
    b->nbytes = nbytes;
    for (uint32_t i = 0; i < s->n_dims; i++) {
        b->dims[i] = s->dims[i];
        b->n_elem *= s->dims[i];
    }
}

static void take_tensor(struct tensor_base *b, const struct gguf *g, const struct gguf_tensor *t)
{
    b->type = t->type_id;
    b->n_dims = t->n_dims;
    b->n_elem = t->n_elem;
    b->nbytes = t->nbytes;
    for (uint32_t i = 0; i < t->n_dims; i++)
        b->dims[i] = gguf_dim(g, t, i);
}

int tensor_base_make(const struct gguf *g, uint32_t i, struct store *store, uint32_t place,
                     struct tensor_content *content, struct tensor_base **ret)
{
    struct tensor_base *b = calloc(1, sizeof(*b));
    if (!b)
        return -ENOMEM;
    atomic_init(&b->refs, 1);
    b->big = g->fmt.big;
    b->exists = true;
    if (content && content->shape.n_dims > 0)
        take_shape(b, &content->shape, content->nbytes);
    else
        take_tensor(b, g, &g->tensor[i]);
    b->store = store ? store_ref(store) : NULL;
    b->place = place;
    b->content = tensor_content_ref(content);
    *ret = b;
    return 0;
}

int tensor_base_none(bool big, struct tensor_base **ret)
{
    struct tensor_base *b = calloc(1, sizeof(*b));
    if (!b)
        return -ENOMEM;
    atomic_init(&b->refs, 1);
    b->big = big;
    *ret = b;
    return 0;
}

struct tensor_base *tensor_base_ref(struct tensor_base *b)
{
    atomic_fetch_add(&b->refs, 1);
    return b;
}

void tensor_base_unref(struct tensor_base *b)
{
    if (!b || atomic_fetch_sub(&b->refs, 1) != 1)
        return;
    store_unref(b->store);
    tensor_content_unref(b->content);
    free(b);
}

uint64_t tensor_base_offset(const struct tensor_base *b)
{
    return b->store && b->place < b->store->n ? b->store->place[b->place].off : 0;
}

/* ---- views ---- */

static const struct {
    const char *name;
    const struct form *form;
    bool npy;
} views[TENSOR_VIEWS] = {
    [TENSOR_RAW] = {"raw", NULL, false},
    [TENSOR_F32] = {"f32", &form_f32, false},
    [TENSOR_F16] = {"f16", &form_f16, false},
    [TENSOR_BF16] = {"bf16", &form_bf16, false},
    [TENSOR_F32_NPY] = {"f32.npy", &form_f32, true},
    [TENSOR_F16_NPY] = {"f16.npy", &form_f16, true},
};

const char *tensor_view_name(enum tensor_view view)
{
    return views[view].name;
}

const struct form *tensor_view_form(enum tensor_view view)
{
    return views[view].form;
}

bool tensor_view_is_npy(enum tensor_view view)
{
    return views[view].npy;
}

enum quant_view tensor_view_values(enum tensor_view view)
{
    const struct form *form = views[view].form;
    return form == &form_f16 ? QUANT_F16 : form == &form_bf16 ? QUANT_BF16 : QUANT_F32;
}

enum quant_view tensor_npy_values(const struct npy *npy)
{
    return npy->width == 2 ? QUANT_F16 : QUANT_F32;
}

unsigned tensor_values_width(enum quant_view values)
{
    return values == QUANT_F32 ? 4 : 2;
}

bool tensor_view_exists(const struct tensor_base *b, enum tensor_view view)
{
    return b->exists && (!views[view].form || quant_has_values(quant_find(b->type), b->big));
}

static size_t header(const struct tensor_base *b, enum tensor_view view, struct buf *out)
{
    return views[view].npy ? npy_header(out, views[view].form->descr, b->n_dims, b->dims) : 0;
}

uint64_t tensor_view_size(const struct tensor_base *b, enum tensor_view view)
{
    struct buf measure = BUF_MEASURE;
    if (!tensor_view_exists(b, view))
        return 0;
    if (!views[view].form)
        return b->nbytes;
    return header(b, view, &measure) + b->n_elem * views[view].form->width;
}

/* ---- bytes ---- */

/* From here on to copy it by a system call is faster than to touch its pages. */
#define MUCH ((size_t)32 << 10)

static int read_store(const struct tensor_base *b, uint64_t off, void *dst, size_t n)
{
    uint64_t at;
    if (!b->store || b->place >= b->store->n)
        return -EIO;
    struct mapped *m = n < MUCH ? NULL : store_mapped(b->store, b->place, off, n, &at);
    const struct source file = m ? mapped_source(m) : (struct source){0};
    int r = m && !m->far ? file.read(&file, at, dst, n) : -EIO;
    /* It notes that the file was cut. */
    return r == -EIO ? store_read(b->store, b->place, off, dst, n, b->nbytes) : r;
}

static int read_raw(const struct tensor_base *b, uint64_t off, uint8_t *dst, size_t n)
{
    const struct tensor_piece *p;
    for (uint64_t len; n > 0; off += len, dst += len, n -= (size_t)len) {
        len = tensor_content_stretch(b->content, off, n, &p);
        int r =
            p ? tensor_piece_read(p, off, dst, (size_t)len) : read_store(b, off, dst, (size_t)len);
        if (r < 0)
            return r;
    }
    return 0;
}

/* Stored bytes that are decoded at once. */
enum { ROOM = 64 * 1024 };

static int read_values(const struct tensor_base *b, const struct form *form, uint64_t off,
                       uint8_t *dst, size_t n)
{
    const struct quant_type *t = quant_find(b->type);
    const uint64_t blocks = ROOM / t->block_bytes, step = blocks * t->block_len * form->width;
    uint8_t *raw = malloc(ROOM);
    int r = raw ? 0 : -ENOMEM;
    for (size_t done = 0; r == 0 && done < n;) {
        uint64_t at = off + done, first, last, skip = at / step * step;
        size_t len = (size_t)min_u64(n - done, step - (at - skip));
        quant_extent(t, form->width, at, len, &first, &last);
        r = read_raw(b, first, raw, (size_t)(last - first));
        /* The stream from the first block that was read on. */
        uint64_t start = first / t->block_bytes * t->block_len * form->width;
        if (r == 0)
            form->read(t, b->big, raw, at - start, len, dst + done);
        done += len;
    }
    free(raw);
    return r;
}

int tensor_view_read(const struct tensor_base *b, enum tensor_view view, uint64_t off, void *dst,
                     size_t n)
{
    CLEANUP(buf_free) struct buf head = BUF_INIT;
    if (!views[view].form)
        return read_raw(b, off, dst, n);
    size_t len = header(b, view, &head), done = 0;
    if (buf_error(&head))
        return buf_error(&head);
    if (off < len) {
        done = (size_t)min_u64(n, len - off);
        memcpy(dst, head.data + off, done);
    }
    return read_values(b, views[view].form, off + done - len, (uint8_t *)dst + done, n - done);
}

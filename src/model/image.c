/* SPDX-License-Identifier: MIT */
/* Files put together from segments: see image.h. */
#include "model/image.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/bytes.h"
#include "gguf/keys.h"

/* ---- made ---- */

struct image *image_new(const struct gguf *g)
{
    struct image *im = calloc(1, sizeof(*im));
    if (!im)
        return NULL;
    atomic_init(&im->refs, 1);
    im->g = g;
    return im;
}

struct image *image_ref(struct image *im)
{
    atomic_fetch_add(&im->refs, 1);
    return im;
}

void image_unref(struct image *im)
{
    if (!im || atomic_fetch_sub(&im->refs, 1) != 1)
        return;
    for (size_t i = 0; i < im->files; i++)
        mapped_unref(mapped_of(&im->file[i]));
    free(im->file);
    free(im->seg);
    free(im->own);
    free(im);
}

uint32_t image_file(struct image *im, struct source src)
{
    struct mapped *m = mapped_of(&src);
    if (array_grow(&im->file, &im->cap_files, im->files, sizeof(*im->file)) < 0) {
        im->err = -ENOMEM;
        return 0;
    }
    if (m)
        (void)mapped_ref(m);
    im->file[im->files] = src;
    return (uint32_t)im->files++;
}

void image_own(struct image *im, void *memory)
{
    assert(!im->own);
    im->own = memory;
}

/* I2. Returns true if b continues a. */
static bool continues(const struct segment *a, const struct segment *b)
{
    if (a->from != b->from || a->no != b->no || a->from == IMAGE_VALUES)
        return false;
    if (a->from == IMAGE_MEMORY)
        return a->bytes + a->len == b->bytes;
    return a->from == IMAGE_ZERO || a->src + a->len == b->src;
}

static void add(struct image *im, struct segment s)
{
    struct segment *last = im->n ? &im->seg[im->n - 1] : NULL;
    uint64_t size;
    if (im->err || s.len == 0)
        return;
    s.at = im->size;
    if (!add_u64(im->size, s.len, &size) || size > INT64_MAX) {
        im->err = -EFBIG;
        return;
    }
    if (last && continues(last, &s)) {
        last->len += s.len;
    } else if (array_grow(&im->seg, &im->cap, im->n, sizeof(*im->seg)) < 0) {
        im->err = -ENOMEM;
        return;
    } else {
        im->seg[im->n++] = s;
    }
    im->size = size;
}

void image_add_memory(struct image *im, const void *bytes, uint64_t n)
{
    add(im, (struct segment){.from = IMAGE_MEMORY, .len = n, .bytes = bytes});
}

void image_add_file(struct image *im, uint32_t file, uint64_t off, uint64_t n)
{
    add(im, (struct segment){.from = IMAGE_FILE, .no = file, .len = n, .src = off});
}

void image_add_tensor(struct image *im, uint32_t i, uint64_t off, uint64_t n)
{
    add(im, (struct segment){.from = IMAGE_TENSOR, .no = i, .len = n, .src = off});
}

void image_add_values(struct image *im, uint32_t i, const struct form *form)
{
    const struct gguf_tensor *t = &im->g->tensor[i];
    struct segment s = {.from = IMAGE_VALUES, .no = i, .len = form_size(form, t), .form = form};
    if (form_decodes(form, im->g, t))
        add(im, s);
    else
        image_add_tensor(im, i, 0, t->nbytes);
}

void image_add_zeros(struct image *im, uint64_t n)
{
    add(im, (struct segment){.from = IMAGE_ZERO, .len = n});
}

/* I3. Checks one segment. */
static bool is_inside(const struct image *im, const struct segment *s)
{
    uint64_t end = 0;
    if (s->from == IMAGE_FILE)
        return s->no < im->files && add_u64(s->src, s->len, &end);
    if (s->from != IMAGE_TENSOR && s->from != IMAGE_VALUES)
        return true;
    if (!im->g || s->no >= im->g->n_tensors)
        return false;
    const struct gguf_tensor *t = &im->g->tensor[s->no];
    if (s->from == IMAGE_VALUES)
        return quant_has_values(gguf_type(t), im->g->fmt.big) && s->len == form_size(s->form, t);
    return add_u64(s->src, s->len, &end) && end <= t->nbytes;
}

int image_end(struct image *im)
{
    uint64_t at = 0;
    for (size_t i = 0; i < im->n && im->err == 0; i++) {
        const struct segment *s = &im->seg[i];
        assert(s->at == at && s->len > 0 && (i == 0 || !continues(s - 1, s)));
        if (!is_inside(im, s))
            im->err = -EINVAL;
        at += s->len;
    }
    assert(im->err || at == im->size);
    return im->err;
}

/*
 * Finds the reserve's entry, or returns NULL if the header has no reserve. Version 1 is never
 * written.
 */
static const struct gguf_kv *reserve_of(const struct gguf *g)
{
    uint32_t i =
        g->fmt.version > 1 ? gguf_find_key(g, KEY_RESERVE, strlen(KEY_RESERVE)) : UINT32_MAX;
    return i == UINT32_MAX ? NULL : &g->kv[i];
}

bool image_hides(const struct gguf *g)
{
    return reserve_of(g) != NULL;
}

void image_add_header(struct image *im, const struct gguf *g)
{
    const struct gguf_kv *r = reserve_of(g);
    const uint64_t count = 8 + g->fmt.len_width, keys = count + g->fmt.len_width;
    if (!r) {
        image_add_memory(im, g->head, g->head_len);
        return;
    }
    put_uint(im->count, g->n_kv - 1, g->fmt.len_width, g->fmt.big);
    image_add_memory(im, g->head, count);
    image_add_memory(im, im->count, g->fmt.len_width);
    image_add_memory(im, g->head + keys, r->off - keys);
    image_add_memory(im, g->head + r->end, g->head_len - r->end);
}

uint64_t image_cut(const struct gguf *g)
{
    const struct gguf_kv *r = reserve_of(g);
    uint64_t at = g->head_len - (r ? r->end - r->off : 0);
    if (!r || (g->n_tensors && !align_u64(at, g->alignment, &at)))
        return 0;
    return g->data_off - at;
}

int image_of_model(const struct gguf *g, struct image **ret)
{
    const uint64_t cut = image_cut(g);
    struct image *im = image_new(g);
    if (!im)
        return -ENOMEM;
    image_add_header(im, g);
    for (uint32_t i = 0; i < g->n_tensors && im->err == 0; i++) {
        const uint64_t at = g->tensor[i].off - cut;
        if (g->tensor[i].nbytes == 0)
            continue;
        if (at < im->size)
            im->err = -EINVAL;
        else
            image_add_zeros(im, at - im->size);
        image_add_tensor(im, i, 0, g->tensor[i].nbytes);
    }
    image_add_zeros(im, max_u64(g->file_size - cut, im->size) - im->size);
    int r = image_end(im);
    if (r == 0)
        *ret = im;
    else
        image_unref(im);
    return r;
}

/* ---- read ---- */

const struct segment *image_at(const struct image *im, uint64_t off)
{
    return &im->seg[UPTO(im->seg, at, im->n, off) - 1];
}

/*
 * Finds where in a mapping a segment's n bytes from `in` on lie. Returns NULL if they are not in a
 * mapping.
 */
static struct mapped *find_mapped(const struct image *im, const struct store *s,
                                  const struct segment *seg, uint64_t in, size_t n, uint64_t *at)
{
    *at = in;
    if (seg->from == IMAGE_FILE) {
        *at += seg->src;
        return mapped_of(&im->file[seg->no]);
    }
    if (seg->from != IMAGE_TENSOR || !s)
        return NULL;
    return store_mapped(s, seg->no, seg->src + in, n, at);
}

static int read_segment(const struct image *im, const struct store *s, const struct segment *seg,
                        uint64_t in, void *dst, size_t n)
{
    const struct source *src = seg->from == IMAGE_FILE ? &im->file[seg->no] : NULL;
    uint64_t at;
    struct mapped *m = find_mapped(im, s, seg, in, n, &at);
    if (m && s)
        return mapped_copy(m, at, dst, n, m->map.size);
    if (seg->from == IMAGE_TENSOR && s)
        return store_read(s, seg->no, seg->src + in, dst, n, im->g->tensor[seg->no].nbytes);
    if (seg->from == IMAGE_VALUES && s)
        return form_read(seg->form, im->g, s, seg->no, in, dst, n);
    if (src && src->read)
        return at > src->size || n > src->size - at ? -EIO : src->read(src, at, dst, n);
    if (seg->from == IMAGE_MEMORY)
        memcpy(dst, seg->bytes + in, n);
    else
        memset(dst, 0, n);
    return 0;
}

int image_read(const struct image *im, const struct store *s, uint64_t off, void *dst, size_t n)
{
    uint8_t *to = dst;
    if (off > im->size || n > im->size - off)
        return -EIO;
    for (const struct segment *seg = n ? image_at(im, off) : NULL; n > 0; seg++) {
        uint64_t in = off - seg->at;
        size_t part = (size_t)min_u64(n, seg->len - in);
        int r = read_segment(im, s, seg, in, to, part);
        if (r < 0)
            return r;
        to += part;
        off += part;
        n -= part;
    }
    return 0;
}

struct mapped *image_mapped(const struct image *im, const struct store *s, uint64_t off, size_t n,
                            uint64_t *at)
{
    const struct segment *seg = off < im->size ? image_at(im, off) : NULL;
    if (!seg || n > seg->len - (off - seg->at))
        return NULL;
    return find_mapped(im, s, seg, off - seg->at, n, at);
}

static int read_source(const struct source *src, uint64_t off, void *dst, size_t n)
{
    return image_read(src->mem, NULL, off, dst, n);
}

struct source image_source(const struct image *im)
{
    return (struct source){.size = im->size, .read = read_source, .mem = im, .fd = -1};
}

/* SPDX-License-Identifier: MIT */
/* Contents of tensors and drafts: see content.h. */
#include "edit/content.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "edit/temp.h"

/* ---- shapes ---- */

int edit_shape_bytes(const struct edit_shape *s, uint64_t *ret, struct err *e)
{
    const struct quant_type *type = quant_find(s->type);
    uint64_t elements = 1;
    if (!type || type->block_len == 0)
        return err_set(e, -EOPNOTSUPP, "a tensor of unknown type %u cannot be made", s->type);
    if (s->n_dims == 0 || s->n_dims > EDIT_MAX_DIMS)
        return err_set(e, -EINVAL, "a shape has 1 to %d dimensions, not %u", EDIT_MAX_DIMS,
                       s->n_dims);
    for (uint32_t i = 0; i < s->n_dims; i++) {
        if (s->dims[i] == 0)
            return err_set(e, -EINVAL, "a dimension is 0");
        if (s->dims[i] > INT64_MAX || !mul_u64(elements, s->dims[i], &elements) ||
            elements > GGUF_MAX_ELEMENTS)
            return err_set(e, -EINVAL, "the number of elements overflows");
    }
    if (s->dims[0] % type->block_len)
        return err_set(e, -EINVAL,
                       "a row of %llu elements is not a whole number of blocks of %u (%s)",
                       (unsigned long long)s->dims[0], type->block_len, type->name);
    if (!mul_u64(elements / type->block_len, type->block_bytes, ret) || *ret > INT64_MAX)
        return err_set(e, -EINVAL, "the size in bytes overflows");
    return 0;
}

/* ---- drafts ---- */

int edit_draft_open(const struct edit_file *f, struct err *e)
{
    return temp_unnamed(f, e);
}

int edit_draft_file(int fd, struct edit_draft **ret, struct err *e)
{
    struct edit_draft *d = calloc(1, sizeof(*d));
    int r = d ? source_fd(fd, &d->src, e) : err_set(e, -ENOMEM, "no memory for a draft");
    if (r < 0) {
        free(d);
        return r;
    }
    atomic_init(&d->refs, 1);
    *ret = d;
    return 0;
}

struct edit_draft *edit_draft_part(struct edit_draft *of, uint64_t size)
{
    struct edit_draft *d = calloc(1, sizeof(*d));
    if (!d)
        return NULL;
    atomic_init(&d->refs, 1);
    d->src = of->src;
    d->src.size = size;
    d->whole = edit_draft_ref(of);
    return d;
}

static _Atomic(uint64_t) in_memory; /* bytes of all drafts */

static bool take_memory(uint64_t n)
{
    bool fits = atomic_fetch_add(&in_memory, n) + n <= EDIT_DRAFT_MEMORY;
    if (!fits)
        atomic_fetch_sub(&in_memory, n);
    return fits;
}

int edit_draft_memory(size_t n, struct edit_draft **ret)
{
    if (!take_memory(n))
        return -EFBIG;
    struct edit_draft *d = calloc(1, sizeof(*d));
    uint8_t *bytes = d ? calloc(n + 1, 1) : NULL;
    if (!bytes) {
        atomic_fetch_sub(&in_memory, n);
        free(d);
        return -ENOMEM;
    }
    atomic_init(&d->refs, 1);
    d->bytes = bytes;
    d->room = n;
    d->src = source_mem(bytes, n);
    *ret = d;
    return 0;
}

struct edit_draft *edit_draft_ref(struct edit_draft *d)
{
    atomic_fetch_add(&d->refs, 1);
    return d;
}

void edit_draft_unref(struct edit_draft *d)
{
    if (!d || atomic_fetch_sub(&d->refs, 1) != 1)
        return;
    if (d->whole)
        edit_draft_unref(d->whole);
    else if (d->src.fd >= 0)
        (void)close(d->src.fd);
    atomic_fetch_sub(&in_memory, d->room);
    free(d->bytes);
    free(d);
}

/* ---- contents ---- */

struct edit_content *edit_content_ref(struct edit_content *k)
{
    if (k)
        atomic_fetch_add(&k->refs, 1);
    return k;
}

void edit_content_unref(struct edit_content *k)
{
    if (!k || atomic_fetch_sub(&k->refs, 1) != 1)
        return;
    for (size_t i = 0; i < k->n; i++)
        edit_draft_unref(k->piece[i].draft);
    free(k);
}

static bool are_valid(const struct edit_piece *p, size_t n, uint64_t nbytes)
{
    uint64_t at = 0, end, src;
    for (size_t i = 0; i < n; i++) {
        if (p[i].len == 0 || p[i].at < at || !add_u64(p[i].at, p[i].len, &end) || end > nbytes ||
            !add_u64(p[i].src, p[i].len, &src) || src > p[i].draft->src.size)
            return false;
        at = end;
    }
    return true;
}

static void append(struct edit_content *k, struct edit_piece p)
{
    struct edit_piece *last = k->n ? &k->piece[k->n - 1] : NULL;
    if (last && last->draft == p.draft && last->at + last->len == p.at &&
        last->src + last->len == p.src) {
        last->len += p.len;
        return;
    }
    (void)edit_draft_ref(p.draft);
    k->piece[k->n++] = p;
}

/* What of an old piece lies in [lo, hi). */
static void append_part(struct edit_content *k, const struct edit_piece *p, uint64_t lo,
                        uint64_t hi)
{
    lo = max_u64(lo, p->at);
    hi = min_u64(hi, p->at + p->len);
    if (lo < hi)
        append(k, (struct edit_piece){lo, hi - lo, p->src + (lo - p->at), p->draft});
}

/* Both lists are in order: what of the old pieces no new one covers, and the new ones. */
static void merge(struct edit_content *k, const struct edit_content *old,
                  const struct edit_piece *piece, size_t n)
{
    uint64_t at = 0; /* up to where everything is done */
    size_t o = 0, last = old ? old->n : 0;
    for (size_t i = 0; i <= n; i++) {
        uint64_t upto = i < n ? piece[i].at : k->nbytes;
        while (o < last && old->piece[o].at < upto) {
            append_part(k, &old->piece[o], at, upto);
            if (old->piece[o].at + old->piece[o].len > upto)
                break;
            o++;
        }
        if (i < n) {
            append(k, piece[i]);
            at = piece[i].at + piece[i].len;
        }
    }
}

int edit_content_make(const struct edit_shape *shape, uint64_t nbytes,
                      const struct edit_content *old, const struct edit_piece *piece, size_t n,
                      struct edit_content **ret)
{
    if (!are_valid(piece, n, nbytes))
        return -EINVAL;
    /* A new piece cuts at most one of the old ones in two. */
    size_t most = 2 * n + (old ? old->n : 0);
    struct edit_content *k = calloc(1, sizeof(*k) + most * sizeof(*piece));
    if (!k)
        return -ENOMEM;
    atomic_init(&k->refs, 1);
    if (shape)
        k->shape = *shape;
    k->nbytes = nbytes;
    merge(k, old, piece, n);
    *ret = k;
    return 0;
}

bool edit_content_covers(const struct edit_content *k)
{
    uint64_t at = 0;
    for (size_t i = 0; i < k->n && k->piece[i].at == at; i++)
        at += k->piece[i].len;
    return at == k->nbytes;
}

/* SPDX-License-Identifier: MIT */
/* Contents of tensors, and logs: see content.h. */
#include "model/content.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"

/* Ranges of at least this many bytes keep their phase. */
#define LOG_ALIGNED ((uint64_t)4096)

/* ---- shapes ---- */

int tensor_shape_bytes(const struct tensor_shape *s, uint64_t *ret, struct err *e)
{
    const struct quant_type *type = quant_find(s->type);
    uint64_t elements = 1;
    if (!type || type->block_len == 0)
        return err_set(e, -EOPNOTSUPP, "a tensor of unknown type %u cannot be made", s->type);
    if (s->n_dims == 0 || s->n_dims > TENSOR_MAX_DIMS)
        return err_set(e, -EINVAL, "a shape has 1 to %d dimensions, not %u", TENSOR_MAX_DIMS,
                       s->n_dims);
    for (uint32_t i = 0; i < s->n_dims; i++) {
        if (s->dims[i] == 0)
            return err_set(e, -EINVAL, "a dimension is 0");
        if (!mul_u64(elements, s->dims[i], &elements) || elements > GGUF_MAX_ELEMENTS)
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

/* ---- logs ---- */

int log_make(int fd, struct log **ret, struct err *e)
{
    struct log *s = calloc(1, sizeof(*s));
    int r = s ? source_fd(fd, &s->src, e) : err_set(e, -ENOMEM, "no memory for a draft");
    if (r < 0) {
        free(s);
        return r;
    }
    atomic_init(&s->refs, 1);
    atomic_init(&s->end, s->src.size);
    *ret = s;
    return 0;
}

struct log *log_ref(struct log *s)
{
    atomic_fetch_add(&s->refs, 1);
    return s;
}

void log_unref(struct log *s)
{
    if (!s || atomic_fetch_sub(&s->refs, 1) != 1)
        return;
    (void)close(s->src.fd);
    free(s);
}

int log_take(struct log *s, uint64_t n, uint64_t phase, uint64_t *at)
{
    uint64_t end = atomic_load(&s->end);
    do {
        if (end & LOG_CLOSED)
            return -EBUSY;
        *at = n < LOG_ALIGNED ? end : end + ((phase - end) & (LOG_ROOM - 1));
    } while (!atomic_compare_exchange_weak(&s->end, &end, *at + n));
    return 0;
}

bool log_close(struct log *s, uint64_t *end)
{
    *end = atomic_fetch_or(&s->end, LOG_CLOSED);
    return !(*end & LOG_CLOSED);
}

struct source log_source(const struct log *s)
{
    struct source ret = s->src;
    ret.size = log_end(s);
    return ret;
}

/* ---- contents ---- */

struct tensor_content *tensor_content_ref(struct tensor_content *k)
{
    if (k)
        atomic_fetch_add(&k->refs, 1);
    return k;
}

void tensor_content_unref(struct tensor_content *k)
{
    if (!k || atomic_fetch_sub(&k->refs, 1) != 1)
        return;
    for (size_t i = 0; i < k->n; i++)
        log_unref(k->piece[i].log);
    free(k);
}

static bool are_valid(const struct tensor_piece *p, size_t n, uint64_t nbytes)
{
    uint64_t at = 0, end, src;
    for (size_t i = 0; i < n; i++) {
        if (p[i].len == 0 || p[i].at < at || !add_u64(p[i].at, p[i].len, &end) || end > nbytes ||
            !add_u64(p[i].src, p[i].len, &src) || src > log_end(p[i].log))
            return false;
        at = end;
    }
    return true;
}

static void append(struct tensor_content *k, struct tensor_piece p)
{
    struct tensor_piece *last = k->n ? &k->piece[k->n - 1] : NULL;
    if (last && last->log == p.log && last->at + last->len == p.at &&
        last->src + last->len == p.src) {
        last->len += p.len;
        return;
    }
    (void)log_ref(p.log);
    k->piece[k->n++] = p;
}

/* Append the part of an old piece that lies in [lo, hi). */
static void append_part(struct tensor_content *k, const struct tensor_piece *p, uint64_t lo,
                        uint64_t hi)
{
    lo = max_u64(lo, p->at);
    hi = min_u64(hi, p->at + p->len);
    if (lo < hi)
        append(k, (struct tensor_piece){lo, hi - lo, p->src + (lo - p->at), p->log});
}

/* Both lists are in order. Keeps the new pieces, and whatever they leave uncovered of the old ones. */
static void merge(struct tensor_content *k, const struct tensor_content *old,
                  const struct tensor_piece *piece, size_t n)
{
    uint64_t at = 0; /* everything before this is done */
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

int tensor_content_make(const struct tensor_shape *shape, uint64_t nbytes,
                        const struct tensor_content *old, const struct tensor_piece *piece,
                        size_t n, struct tensor_content **ret)
{
    if (!are_valid(piece, n, nbytes))
        return -EINVAL;
    /* A new piece splits at most one old piece in two. */
    size_t most = 2 * n + (old ? old->n : 0);
    struct tensor_content *k = calloc(1, sizeof(*k) + most * sizeof(*piece));
    if (!k)
        return -ENOMEM;
    atomic_init(&k->refs, 1);
    if (shape)
        k->shape = *shape;
    k->nbytes = nbytes;
    merge(k, old, piece, n);
    for (size_t i = 0; i < k->n; i++)
        k->fresh += k->piece[i].len;
    *ret = k;
    return 0;
}

uint64_t tensor_content_stretch(const struct tensor_content *k, uint64_t off, uint64_t n,
                                const struct tensor_piece **ret)
{
    const size_t i = k ? UPTO(k->piece, at, k->n, off) : 0;
    const struct tensor_piece *p = i ? &k->piece[i - 1] : NULL;
    *ret = p && off - p->at < p->len ? p : NULL;
    if (*ret)
        return min_u64(n, p->at + p->len - off);
    return k && i < k->n ? min_u64(n, k->piece[i].at - off) : n;
}

int tensor_piece_read(const struct tensor_piece *p, uint64_t off, void *dst, size_t n)
{
    return p->log->src.read(&p->log->src, p->src + (off - p->at), dst, n);
}

bool tensor_content_covers(const struct tensor_content *k)
{
    uint64_t at = 0;
    for (size_t i = 0; i < k->n && k->piece[i].at == at; i++)
        at += k->piece[i].len;
    return at == k->nbytes;
}

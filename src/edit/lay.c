/* SPDX-License-Identifier: MIT */
/* Where the data goes: see lay.h. */
#include "edit/lay.h"

#include <errno.h>
#include <stdlib.h>

#include "base/bytes.h"
#include "gguf/keys.h"

#define DEFAULT_BLOCK 4096
#define LARGEST_BLOCK 65536

/* Bytes of the reserve's entry without its spaces: key length, key, type, value length. */
#define RESERVE_ENTRY (8 + sizeof(KEY_RESERVE) - 1 + 4 + 8)
/* Bytes between the end of the header and the data where there is a reserve. */
#define RESERVE_SLACK 4

static uint64_t bare_length(const struct draft *d)
{
    uint64_t n = 8 + 2 * 8;
    for (size_t i = 0; i < d->keys->n; i++)
        n += edit_entry_bytes(&d->keys->entry[i]);
    for (size_t i = 0; i < d->n; i++) {
        const struct tensor_content *k = d->info[i].content;
        bool made = k && k->shape.n_dims;
        uint32_t n_dims = made ? k->shape.n_dims : d->g->tensor[d->info[i].place].n_dims;
        n += 8 + d->info[i].name_len + 4 + (uint64_t)n_dims * 8 + 4 + 8;
    }
    return n;
}

/* Network file systems name their favourite transfer size instead, which says nothing. */
uint32_t lay_block(const struct edit_options *o)
{
    bool block = is_pow2(o->block) && o->block >= DEFAULT_BLOCK && o->block <= LARGEST_BLOCK;
    return block ? o->block : DEFAULT_BLOCK;
}

/* The spaces of the reserve that the file has; false: it has none. */
static bool present_reserve(const struct gguf *g, uint64_t *ret)
{
    uint32_t i = gguf_find_key(g, KEY_RESERVE, sizeof(KEY_RESERVE) - 1);
    if (i == UINT32_MAX)
        return false;
    struct gguf_value v = gguf_value(g, &g->kv[i]);
    *ret = v.type == GGUF_STRING ? v.len : 0;
    return true;
}

static bool reserve_in_use(const struct draft *d)
{
    uint64_t n;
    if (d->o->reserve == 0 || d->n == 0)
        return false;
    return d->o->reserve != EDIT_RESERVE_AUTO || d->g->file_size > EDIT_RESERVE_FROM ||
           present_reserve(d->g, &n);
}

/* A small file that has a reserve, although it would not be given one, keeps one of that size. */
static uint64_t wanted_reserve(const struct draft *d)
{
    uint64_t n = EDIT_RESERVE_DEFAULT;
    if (d->o->reserve != EDIT_RESERVE_AUTO)
        return min_u64(d->o->reserve, EDIT_RESERVE_MAX);
    if (d->g->file_size <= EDIT_RESERVE_FROM)
        (void)present_reserve(d->g, &n);
    return min_u64(n, EDIT_RESERVE_DEFAULT);
}

/* The spaces that make the header end a little before `data_off`; false: they do not fit. */
static bool fit_reserve(const struct draft *d, uint64_t data_off, uint64_t *ret)
{
    uint64_t slack = min_u64(RESERVE_SLACK, d->keys->alignment - 1);
    uint64_t least = d->bare + RESERVE_ENTRY;
    if (least > data_off - min_u64(1, slack))
        return false;
    *ret = data_off - slack > least ? data_off - slack - least : 0;
    return true;
}

/* A file that is edited in place, if that is possible at all. */
static bool wants_inplace(const struct draft *d)
{
    return d->o->strategy == EDIT_INPLACE ||
           (d->o->strategy == EDIT_AUTO && d->g->file_size > EDIT_INPLACE_FROM);
}

/* Where old bytes want the data to begin, modulo the block, so that they can be cloned. */
struct lean {
    uint64_t *weight; /* by multiple of the alignment below the block: bytes */
    uint64_t best;    /* the heaviest of them, in bytes */
};

/* How many bytes of a tensor are the old ones. */
static uint64_t kept_bytes(const struct draft *d, const struct edit_info *t)
{
    uint64_t n = info_size(d, t);
    for (size_t i = 0; t->content && i < t->content->n; i++)
        n -= t->content->piece[i].len;
    return n;
}

/* A tensor without old bytes weighs nothing. Without any the data begins as before, as far as it can. */
static void weigh(const struct draft *d, struct lean *l)
{
    uint64_t block = d->p->block, align = d->keys->alignment, at = 0;
    if (align >= block)
        return;
    l->best = d->g->data_off & (block - 1) & ~(align - 1);
    for (size_t i = 0; i < d->n; i++) {
        uint64_t kept = kept_bytes(d, &d->info[i]);
        uint64_t old = kept ? d->g->tensor[d->info[i].place].off : 0;
        if ((old - at) % align == 0) {
            uint64_t lean = (old - at) & (block - 1);
            l->weight[lean / align] += kept;
            if (l->weight[lean / align] > l->weight[l->best / align])
                l->best = lean;
        }
        at = (at + info_size(d, &d->info[i]) + align - 1) & ~(align - 1);
    }
}

/* R1. Padding that a huge alignment has put before the data is not used for a reserve. */
static bool keep_data_off(struct draft *d, const struct lean *l)
{
    uint64_t old = d->g->data_off, n;
    if (d->g->alignment > EDIT_MAX_ALIGNMENT)
        return false;
    if (old % d->keys->alignment || (old & (d->p->block - 1)) != l->best)
        return false;
    if (!fit_reserve(d, old, &n))
        return false;
    if (!wants_inplace(d) && n < wanted_reserve(d) / 2)
        return false;
    d->has_reserve = true;
    d->reserve = n;
    d->data_off = old;
    return true;
}

/* R2. With alignments over the block the data offset is a multiple of it anyway. */
static void move_data(struct draft *d, const struct lean *l)
{
    uint64_t block = d->p->block, align = d->keys->alignment;
    uint64_t least = d->bare + RESERVE_ENTRY + wanted_reserve(d) + RESERVE_SLACK;
    uint64_t at = (least + align - 1) & ~(align - 1);
    if (align < block)
        at += (l->best - at) & (block - 1);
    d->has_reserve = true;
    d->data_off = at;
    (void)fit_reserve(d, at, &d->reserve);
}

/* Where there is a reserve. No room for it, but none is needed either: the data stays. */
static void lay(struct draft *d, const struct lean *l)
{
    if (!keep_data_off(d, l) && !(wants_inplace(d) && d->data_off == d->g->data_off))
        move_data(d, l);
}

static void begin(struct draft *d)
{
    uint64_t align = d->keys->alignment;
    d->p->block = lay_block(d->o);
    d->data_off = d->n ? (d->bare + align - 1) & ~(align - 1) : d->bare;
}

int lay_data(struct draft *d)
{
    uint64_t align = d->keys->alignment;
    d->bare = bare_length(d);
    begin(d);
    if (!reserve_in_use(d))
        return 0;
    struct lean l = {.weight =
                         calloc(d->p->block / min_u64(align, d->p->block), sizeof(*l.weight))};
    if (!l.weight)
        return -ENOMEM;
    weigh(d, &l);
    lay(d, &l);
    free(l.weight);
    return 0;
}

/* All tensors lean as the data offset does. */
void lay_keys(struct draft *d)
{
    const uint64_t align = d->keys->alignment, block = lay_block(d->o);
    const struct lean l = {.best = align < block ? d->g->data_off & (block - 1) : 0};
    begin(d);
    if (reserve_in_use(d))
        lay(d, &l);
}

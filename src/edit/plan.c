/* SPDX-License-Identifier: MIT */
/* The new file, planned: see plan.h, whose numbers the comments here refer to. */
#include "edit/plan.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "gguf/keys.h"

#define DEFAULT_BLOCK 4096
#define LARGEST_BLOCK 65536

/* Bytes of the reserve's entry without its spaces: key length, key, type, value length. */
#define RESERVE_ENTRY (8 + sizeof(KEY_RESERVE) - 1 + 4 + 8)
/* Bytes between the end of the header and the data where there is a reserve. */
#define RESERVE_SLACK 4

/* A plan while it is made. */
struct draft {
    const struct gguf *g;
    const struct edit_options *o;
    const struct edit_keys *keys;
    struct edit_plan *p;
    uint64_t bare;     /* bytes of the header without reserve and padding */
    bool has_reserve;  /* a reserve is written ... */
    uint64_t reserve;  /* ... of so many spaces */
    uint64_t data_off; /* of the new file */
};

int edit_allowed(const struct gguf *g, struct err *e)
{
    if (g->fmt.version == 1)
        return err_set(e, -EROFS, "files of version 1 are read-only");
    if (g->fmt.nul)
        return err_set(e, -EROFS, "files whose strings count a trailing NUL are read-only");
    if (g->odd & GGUF_ODD_PARTIAL)
        return err_set(e, -EROFS, "data is missing, such a file is read-only");
    return 0;
}

static bool unknown_type(const struct gguf_tensor *t)
{
    const struct quant_type *type = gguf_type(t);
    return !type || type->block_len == 0;
}

/* P2 and P3 hold, as far as a parser sees (it looks into no padding). */
static bool is_regular(const struct gguf *g)
{
    unsigned fine = GGUF_ODD_UNKNOWN;
    if (g->n_tensors && unknown_type(&g->tensor[g->n_tensors - 1]))
        fine |= GGUF_ODD_NO_TAIL;
    return (g->odd & ~fine) == 0;
}

/* Where the data goes, and the reserve that leads there (R1, R2). */

static uint64_t bare_length(const struct draft *d)
{
    uint64_t n = 8 + 2 * 8;
    for (size_t i = 0; i < d->keys->n; i++)
        n += edit_entry_bytes(&d->keys->entry[i]);
    return n + (d->g->head_len - d->g->info_off);
}

/* Network file systems name their favourite transfer size instead, which says nothing. */
static uint32_t block_of(const struct edit_options *o)
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
    if (d->o->reserve == 0 || d->g->n_tensors == 0)
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

/* R1. What stood before the data for the sake of a huge alignment is no room for a reserve. */
static bool keep_data_off(struct draft *d)
{
    uint64_t old = d->g->data_off, n;
    if (d->g->alignment > EDIT_MAX_ALIGNMENT)
        return false;
    if (old % d->keys->alignment || !fit_reserve(d, old, &n))
        return false;
    if (!wants_inplace(d) && n < wanted_reserve(d) / 2)
        return false;
    d->has_reserve = true;
    d->reserve = n;
    d->data_off = old;
    return true;
}

/* R2. With alignments over the block the data offset is a multiple of it anyway. */
static void move_data(struct draft *d)
{
    uint64_t block = d->p->block, align = d->keys->alignment;
    uint64_t least = d->bare + RESERVE_ENTRY + wanted_reserve(d) + RESERVE_SLACK;
    uint64_t at = (least + align - 1) & ~(align - 1);
    if (align < block && d->g->data_off % align == 0)
        at += (d->g->data_off - at) & (block - 1);
    d->has_reserve = true;
    d->data_off = at;
    (void)fit_reserve(d, at, &d->reserve);
}

static void place_data(struct draft *d)
{
    uint64_t align = d->keys->alignment;
    d->data_off = d->g->n_tensors ? (d->bare + align - 1) & ~(align - 1) : d->bare;
    if (!reserve_in_use(d))
        return;
    /* No room for the reserve, but none is needed either. */
    if (!keep_data_off(d) && !(wants_inplace(d) && d->data_off == d->g->data_off))
        move_data(d);
}

/* The header's bytes. */

static void put_reserve(struct buf *b, const struct draft *d)
{
    bool big = d->g->fmt.big;
    buf_uint(b, sizeof(KEY_RESERVE) - 1, 8, big);
    buf_str(b, KEY_RESERVE);
    buf_uint(b, GGUF_STRING, 4, big);
    buf_uint(b, d->reserve, 8, big);
    uint8_t *at = buf_extend(b, (size_t)d->reserve);
    if (at)
        memset(at, ' ', (size_t)d->reserve);
}

static void put_keys(struct buf *b, const struct draft *d)
{
    for (size_t i = 0; i < d->keys->n; i++) {
        const struct edit_entry *entry = &d->keys->entry[i];
        const uint8_t *from = entry->made ? d->keys->bytes.data : d->g->head;
        buf_add(b, from + entry->off, (size_t)(entry->end - entry->off));
        if (entry->value)
            buf_add(b, entry->value->bytes.data, entry->value->bytes.len);
    }
    if (d->has_reserve)
        put_reserve(b, d);
}

/* P2. The infos are the old ones but for the offsets, each the last 8 bytes of its info. */
static void put_infos(struct buf *b, const struct draft *d)
{
    const struct gguf *g = d->g;
    size_t base = b->len;
    uint64_t at = 0;
    buf_add(b, g->head + g->info_off, (size_t)(g->head_len - g->info_off));
    for (uint32_t i = 0; i < g->n_tensors && !buf_error(b); i++) {
        const struct gguf_tensor *t = &g->tensor[i];
        uint64_t word = t->dims_off + (uint64_t)t->n_dims * 8 + 4 - g->info_off;
        put_u64(b->data + base + word, at, g->fmt.big);
        at = (at + t->nbytes + d->keys->alignment - 1) & ~(d->keys->alignment - 1);
    }
}

static int make_head(const struct draft *d, struct err *e)
{
    struct buf *b = &d->p->head;
    if (d->data_off > GGUF_MAX_HEADER)
        return err_set(e, -EFBIG, "the header would be over %llu bytes",
                       (unsigned long long)GGUF_MAX_HEADER);
    buf_add(b, d->g->head, 8); /* magic and version */
    buf_uint(b, d->g->n_tensors, 8, d->g->fmt.big);
    buf_uint(b, d->keys->n + d->has_reserve, 8, d->g->fmt.big);
    put_keys(b, d);
    put_infos(b, d);
    if (!buf_error(b))
        buf_zero(b, (size_t)(d->data_off - b->len));
    return buf_error(b) ? err_set(e, buf_error(b), "no memory for the new header") : 0;
}

/* Zeros after tensor i. */
static uint64_t padding_after(const struct draft *d, uint32_t i)
{
    const struct gguf_tensor *t = &d->g->tensor[i];
    if (i + 1 == d->g->n_tensors && unknown_type(t))
        return 0;
    return (0 - t->nbytes) & (d->keys->alignment - 1);
}

/* P1, P3. */
static int make_image(const struct draft *d)
{
    struct edit_plan *p = d->p;
    p->image = image_new(d->g);
    if (!p->image)
        return -ENOMEM;
    uint32_t old = image_file(p->image, (struct source){.size = d->g->file_size, .fd = -1});
    assert(old == EDIT_OLD_FILE);
    image_add_memory(p->image, p->head.data, p->head.len);
    for (uint32_t i = 0; i < d->g->n_tensors; i++) {
        image_add_file(p->image, old, d->g->tensor[i].off, d->g->tensor[i].nbytes);
        image_add_zeros(p->image, padding_after(d, i));
    }
    return image_end(p->image);
}

/* What the strategies ask. */
static void judge(const struct draft *d)
{
    const struct gguf *g = d->g;
    struct edit_plan *p = d->p;
    uint64_t mask = p->block - 1;
    p->inplace = g->n_tensors > 0 && is_regular(g) && p->image->size == g->file_size &&
                 d->data_off == g->data_off;
    p->clonable = true;
    for (size_t i = 0; i < p->image->n; i++) {
        const struct segment *s = &p->image->seg[i];
        if (s->from != IMAGE_FILE)
            continue;
        p->inplace &= s->at == s->src;
        p->clonable &= ((s->at - s->src) & mask) == 0;
    }
    uint64_t n = g->head_len;
    p->same = (p->inplace || g->n_tensors == 0) && p->image->size == g->file_size &&
              memcmp(p->head.data, g->head, (size_t)n) == 0;
}

/* P5. */

static int check_keys(const struct draft *d, const struct gguf *next)
{
    uint64_t at = 8 + 2 * 8;
    if (next->n_kv != d->keys->n + d->has_reserve)
        return -EINVAL;
    for (size_t i = 0; i < d->keys->n; i++) {
        if (next->kv[i].off != at)
            return -EINVAL;
        at += edit_entry_bytes(&d->keys->entry[i]);
        if (next->kv[i].end != at)
            return -EINVAL;
    }
    return 0;
}

static int check_tensors(const struct draft *d, const struct gguf *next)
{
    uint64_t at = d->data_off;
    if (next->n_tensors != d->g->n_tensors || next->alignment != d->keys->alignment ||
        next->data_off != d->data_off || !is_regular(next))
        return -EINVAL;
    for (uint32_t i = 0; i < next->n_tensors; i++) {
        const struct gguf_tensor *t = &d->g->tensor[i], *u = &next->tensor[i];
        bool grown = unknown_type(t) && u->nbytes > t->nbytes;
        if (u->off != at || (u->nbytes != t->nbytes && !grown))
            return -EINVAL;
        at = (at + t->nbytes + d->keys->alignment - 1) & ~(d->keys->alignment - 1);
    }
    return 0;
}

static int check(struct draft *d, struct err *e)
{
    struct source s = image_source(d->p->image);
    int r = gguf_parse_head(&s, d->p->head.data, d->p->head.len, &d->p->next, e);
    d->p->head_lent = r == 0;
    if (r == -EBADMSG) {
        r = -EINVAL;
        if (e)
            e->code = r;
        (void)err_prefix(e, "the new header would not be valid");
    }
    if (r < 0)
        return r;
    const struct gguf *next = d->p->next;
    if (memcmp(&next->fmt, &d->g->fmt, sizeof(next->fmt)) != 0 || check_keys(d, next) < 0 ||
        check_tensors(d, next) < 0)
        return err_set(e, -EINVAL,
                       "the new header would not be read as it is meant: the bytes of "
                       "a value are not one value of its type");
    return 0;
}

/* The ranks of the new header's keys: the reserve is last. */
static int make_ranks(const struct draft *d, struct err *e)
{
    d->p->rank = malloc((d->keys->n + 1) * sizeof(*d->p->rank));
    if (!d->p->rank)
        return err_set(e, -ENOMEM, "no memory for %zu keys", d->keys->n);
    for (size_t i = 0; i < d->keys->n; i++)
        d->p->rank[i] = d->keys->entry[i].rank;
    d->p->rank[d->keys->n] = EDIT_LAST;
    return 0;
}

static int make(struct draft *d, struct err *e)
{
    d->p->old_size = d->g->file_size;
    d->p->block = block_of(d->o);
    d->bare = bare_length(d);
    place_data(d);
    int r = make_head(d, e);
    if (r < 0)
        return r;
    r = make_image(d);
    if (r < 0)
        return err_set(e, r, "cannot lay out %u tensors: %s", d->g->n_tensors, strerror(-r));
    judge(d);
    r = make_ranks(d, e);
    return r < 0 ? r : check(d, e);
}

int edit_plan_make(const struct edit_change *c, const struct edit_options *o, struct edit_plan *ret,
                   struct err *e)
{
    const struct gguf *g = c->base;
    CLEANUP(edit_keys_free) struct edit_keys keys = EDIT_KEYS_INIT;
    CLEANUP(edit_plan_free) struct edit_plan p = EDIT_PLAN_INIT;
    int r = edit_allowed(g, e);
    if (r < 0)
        return r;
    r = edit_change_keys(c, &keys);
    if (r < 0)
        return err_set(e, r, "no memory for the new header");
    /* The padding of the header is held in memory. */
    if (keys.alignment > EDIT_MAX_ALIGNMENT)
        return err_set(e, -EFBIG,
                       "general.alignment is %llu: files with more than 1 MiB are not "
                       "edited, but for that key",
                       (unsigned long long)keys.alignment);
    struct draft d = {.g = g, .o = o, .keys = &keys, .p = &p};
    r = make(&d, e);
    if (r < 0)
        return r;
    *ret = p;
    p = EDIT_PLAN_INIT;
    return 0;
}

void edit_plan_free(struct edit_plan *p)
{
    if (!p->head_lent)
        buf_free(&p->head);
    image_unref(p->image);
    free(p->rank);
    gguf_free(p->next);
    *p = EDIT_PLAN_INIT;
}

struct gguf *edit_plan_steal(struct edit_plan *p)
{
    struct gguf *next = p->next;
    p->next = NULL;
    return next;
}

uint64_t *edit_plan_steal_ranks(struct edit_plan *p)
{
    uint64_t *rank = p->rank;
    p->rank = NULL;
    return rank;
}

/* SPDX-License-Identifier: MIT */
/* Plans the new file: see plan.h, whose invariants are cited here. */
#include "edit/plan.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "edit/journal.h"
#include "gguf/value.h"

#define DEFAULT_BLOCK 4096
#define LARGEST_BLOCK 65536

/*
 * Size of the reserve's entry without its spaces (key length, key, type, value length).
 */
#define RESERVE_ENTRY (8 + sizeof(KEY_RESERVE) - 1 + 4 + 8)
/* Extra space that a new file needs for the file system's own data. */
#define SPACE_SLACK ((uint64_t)1 << 20)
/* The gap between the end of the header and the data if there is a reserve. */
#define RESERVE_SLACK 4

/* A plan in progress. */
struct layout {
    const struct gguf *g;
    const struct edit_options *o;
    uint64_t alignment; /* alignment of the new file */
    uint64_t *key_end;  /* owned: ends of the keys except the reserve */
    size_t n_keys;
    const struct edit_tensor *info; /* the tensors */
    size_t n;
    struct edit_plan *p;
    uint64_t bare;     /* size of the header without reserve and padding */
    bool has_reserve;  /* the new header has a reserve */
    uint64_t reserve;  /* number of spaces in it */
    uint64_t data_off; /* data offset of the new file */
};

/* Returns the size of a tensor in the new file. */
static inline uint64_t info_size(const struct layout *d, const struct edit_tensor *t)
{
    return t->content ? t->content->nbytes : d->g->tensor[t->old].nbytes;
}

int edit_allowed(const struct gguf *g, struct err *e)
{
    if (g->fmt.version == 1)
        return err_set(e, -EROFS, "GGUF version 1 files are read-only");
    if (g->fmt.nul)
        return err_set(e, -EROFS, "files whose strings count a trailing NUL are read-only");
    if (g->anomalies & GGUF_ANOMALY_PARTIAL)
        return err_set(e, -EROFS, "data is missing: an incomplete file is read-only");
    for (uint32_t i = 0; i < g->n_tensors; i++)
        if (g->tensor[i].n_elem > 0 && g->tensor[i].nbytes == 0)
            return err_set(e, -EROFS,
                           "data is missing: a tensor of unknown type begins where the file ends");
    return 0;
}

static bool unknown_type(const struct gguf_tensor *t)
{
    const struct quant_type *type = gguf_type(t);
    return !type || type->block_len == 0;
}

/* Returns true if P2 and P3 hold as far as the parser, which does not read padding, can see. */
static bool is_regular(const struct gguf *g)
{
    unsigned fine = GGUF_ANOMALY_UNKNOWN;
    if (g->n_tensors && unknown_type(&g->tensor[g->n_tensors - 1]))
        fine |= GGUF_ANOMALY_NO_TAIL;
    return (g->anomalies & ~fine) == 0;
}

/* ---- the data offset, and the reserve: R1, R2 ---- */

/*
 * Network file systems report a preferred transfer size instead of the block size. Such a value is
 * not used.
 */
uint32_t edit_block(const struct edit_options *o)
{
    bool block = is_pow2(o->block) && o->block >= DEFAULT_BLOCK && o->block <= LARGEST_BLOCK;
    return block ? o->block : DEFAULT_BLOCK;
}

/* Returns the size of the file's reserve, or UINT64_MAX if it has none. */
static uint64_t present_reserve(const struct gguf *g)
{
    uint32_t i = gguf_find_key(g, KEY_RESERVE, sizeof(KEY_RESERVE) - 1);
    if (i == UINT32_MAX)
        return UINT64_MAX;
    struct gguf_value v = gguf_value(g, &g->kv[i]);
    return v.type == GGUF_STRING ? v.len : 0;
}

static bool reserve_in_use(const struct layout *d)
{
    return d->o->reserve != 0 && d->n != 0 &&
           (d->o->reserve != EDIT_RESERVE_AUTO || d->g->file_size > EDIT_RESERVE_FROM ||
            present_reserve(d->g) != UINT64_MAX);
}

/*
 * Returns the requested size of the reserve. A small file keeps the size of an existing reserve,
 * but does not get a new one.
 */
static uint64_t wanted_reserve(const struct layout *d)
{
    if (d->o->reserve != EDIT_RESERVE_AUTO)
        return min_u64(d->o->reserve, EDIT_RESERVE_MAX);
    return d->g->file_size > EDIT_RESERVE_FROM
               ? EDIT_RESERVE_DEFAULT
               : min_u64(present_reserve(d->g), EDIT_RESERVE_DEFAULT);
}

/*
 * Finds how many spaces make the header end a little before `data_off`. Returns false if not even
 * an empty reserve fits.
 */
static bool fit_reserve(const struct layout *d, uint64_t data_off, uint64_t *ret)
{
    uint64_t slack = min_u64(RESERVE_SLACK, d->alignment - 1);
    uint64_t least = d->bare + RESERVE_ENTRY;
    if (least > data_off - min_u64(1, slack))
        return false;
    *ret = data_off - slack > least ? data_off - slack - least : 0;
    return true;
}

/*
 * Returns where the data must begin, modulo the block, so that the longest run of old bytes can be
 * cloned. Without old bytes this is where it begins now.
 */
static uint64_t find_phase(const struct layout *d)
{
    const uint64_t block = d->p->block, align = d->alignment;
    uint64_t ret = d->g->data_off & (block - 1) & ~(align - 1), at = 0, run = 0, longest = 0;
    for (size_t i = 0, last = 0; i < d->n && align < block; i++) {
        const struct edit_tensor *t = &d->info[i];
        uint64_t kept = info_size(d, t); /* number of its old bytes */
        for (size_t k = 0; t->content && k < t->content->n; k++)
            kept -= t->content->piece[k].len;
        const uint64_t shift = kept ? d->g->tensor[t->old].off - at : 0;
        if (kept && shift % align == 0) {
            run = (shift & (block - 1)) == last ? run + kept : kept;
            last = shift & (block - 1);
            ret = run > longest ? last : ret;
            longest = max_u64(longest, run);
        }
        at = round_up(at + info_size(d, t), align);
    }
    return ret;
}

/*
 * R1. Keeps the data offset, or returns false if the data must move. Padding that a huge alignment
 * puts before the data is not kept.
 */
static bool keep_data_off(struct layout *d, uint64_t phase)
{
    uint64_t old = d->g->data_off;
    if (d->g->alignment > EDIT_MAX_ALIGNMENT || old % d->alignment ||
        (old & (d->p->block - 1)) != phase)
        return false;
    d->has_reserve = fit_reserve(d, old, &d->reserve);
    if (d->has_reserve)
        d->data_off = old;
    return d->data_off == old &&
           (d->o->strategy != EDIT_COPY || (d->has_reserve && d->reserve >= wanted_reserve(d) / 2));
}

/*
 * R2. If the alignment is larger than the block, the data offset is a multiple of the block anyway.
 */
static void move_data(struct layout *d, uint64_t phase)
{
    uint64_t block = d->p->block, align = d->alignment;
    uint64_t least = d->bare + RESERVE_ENTRY + wanted_reserve(d) + RESERVE_SLACK;
    uint64_t at = round_up(least, align);
    if (align < block)
        at += (phase - at) & (block - 1);
    d->has_reserve = true;
    d->data_off = at;
    (void)fit_reserve(d, at, &d->reserve);
}

/* Sets p->block, has_reserve, reserve and data_off. */
static void lay_data(struct layout *d)
{
    d->p->block = edit_block(d->o);
    d->data_off = d->n ? round_up(d->bare, d->alignment) : d->bare;
    const uint64_t phase = find_phase(d);
    if (reserve_in_use(d) && !keep_data_off(d, phase))
        move_data(d, phase);
}

static void put_reserve(struct buf *b, const struct layout *d)
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

static void put_shape(struct buf *b, const struct tensor_shape *s, bool big)
{
    buf_uint(b, s->n_dims, 4, big);
    for (uint32_t i = 0; i < s->n_dims; i++)
        buf_uint(b, s->dims[i], 8, big);
    buf_uint(b, s->type, 4, big);
}

/* P2. Copies unchanged infos except for their offsets. */
static void put_infos(struct buf *b, const struct layout *d)
{
    bool big = d->g->fmt.big;
    uint64_t at = 0;
    for (size_t i = 0; i < d->n && !buf_error(b); i++) {
        const struct edit_tensor *t = &d->info[i];
        buf_uint(b, t->name_len, 8, big);
        buf_add(b, t->name, t->name_len);
        if (t->content && t->content->shape.n_dims) {
            put_shape(b, &t->content->shape, big);
        } else {
            const struct gguf_tensor *old = &d->g->tensor[t->old];
            buf_add(b, d->g->head + old->dims_off - 4, 4 + (size_t)old->n_dims * 8 + 4);
        }
        buf_uint(b, at, 8, big);
        at = round_up(at + info_size(d, t), d->alignment);
    }
}

static int make_head(struct layout *d, const struct edit_change *c, struct err *e)
{
    struct buf *b = &d->p->head;
    if (d->data_off > GGUF_MAX_HEADER)
        return err_set(e, -EFBIG, "the header would be over %llu bytes",
                       (unsigned long long)GGUF_MAX_HEADER);
    buf_add(b, d->g->head, 8); /* magic and version */
    buf_uint(b, d->n, 8, d->g->fmt.big);
    buf_zero(b, 8);
    if (edit_change_keys(c, b, &d->key_end, &d->n_keys) < 0)
        return err_set(e, -ENOMEM, "no memory for the new header");
    put_u64(b->data + 16, d->n_keys + d->has_reserve, d->g->fmt.big);
    if (d->has_reserve)
        put_reserve(b, d);
    put_infos(b, d);
    if (!buf_error(b))
        buf_zero(b, (size_t)(d->data_off - b->len));
    return buf_error(b) ? err_set(e, buf_error(b), "no memory for the new header") : 0;
}

/* Returns true if a tensor's size in the new file is known only from its extent in the old one. */
static bool has_unknown_type(const struct layout *d, const struct edit_tensor *t)
{
    return !(t->content && t->content->shape.n_dims) && unknown_type(&d->g->tensor[t->old]);
}

/* Returns the number of zeros after tensor i. */
static uint64_t padding_after(const struct layout *d, size_t i)
{
    if (i + 1 == d->n && has_unknown_type(d, &d->info[i]))
        return 0;
    return (0 - info_size(d, &d->info[i])) & (d->alignment - 1);
}

/* Adds bytes from a log, which becomes a file of the image. */
static void add_draft(const struct layout *d, const struct tensor_piece *piece)
{
    struct edit_plan *p = d->p;
    struct image *im = p->image;
    const struct source src = log_source(piece->log);
    bool last = im->file[im->files - 1].fd == src.fd; /* the old file has no fd */
    uint32_t no = last ? (uint32_t)im->files - 1 : image_file(im, src);
    image_add_file(im, no, piece->src, piece->len);
    p->changed += piece->len;
    p->journal += piece->len + 2 * (uint64_t)JOURNAL_SECTOR; /* it is extended to whole sectors */
}

static void add_old(const struct layout *d, const struct edit_tensor *t, uint64_t lo, uint64_t hi)
{
    if (lo < hi)
        image_add_file(d->p->image, EDIT_OLD_FILE, d->g->tensor[t->old].off + lo, hi - lo);
}

static void lay_tensor(const struct layout *d, const struct edit_tensor *t)
{
    const struct tensor_content *k = t->content;
    uint64_t at = 0;
    for (size_t i = 0; k && i < k->n; i++) {
        add_old(d, t, at, k->piece[i].at);
        add_draft(d, &k->piece[i]);
        at = k->piece[i].at + k->piece[i].len;
    }
    add_old(d, t, at, info_size(d, t));
}

/* P1, P3. */
static int make_image(const struct layout *d)
{
    struct edit_plan *p = d->p;
    p->image = image_new(d->g);
    if (!p->image)
        return -ENOMEM;
    uint32_t old = image_file(p->image, (struct source){.size = d->g->file_size, .fd = -1});
    assert(old == EDIT_OLD_FILE);
    (void)old;
    image_add_memory(p->image, p->head.data, p->head.len);
    for (size_t i = 0; i < d->n && p->image->err == 0; i++) {
        lay_tensor(d, &d->info[i]);
        image_add_zeros(p->image, padding_after(d, i));
    }
    return image_end(p->image);
}

/*
 * Returns true if any tensor is shorter than before, so that old bytes lie where the new file has
 * padding.
 */
static bool shrinks(const struct layout *d)
{
    for (size_t i = 0; i < d->n; i++) {
        const struct edit_tensor *t = &d->info[i];
        if (t->old != EDIT_NONE && info_size(d, t) < d->g->tensor[t->old].nbytes)
            return true;
    }
    return false;
}

/* Determines how the plan can be written. */
static void judge_ways(const struct layout *d)
{
    const struct gguf *g = d->g;
    struct edit_plan *p = d->p;
    const uint64_t mask = p->block - 1;
    bool still = true;
    for (size_t i = 0; i < p->image->n; i++) {
        const struct segment *s = &p->image->seg[i];
        if (s->from != IMAGE_FILE || s->no != EDIT_OLD_FILE)
            continue;
        still &= s->at == s->src;
        const uint64_t lo = round_up(s->at, p->block), hi = (s->at + s->len) & ~mask;
        const bool clonable = ((s->at ^ s->src) & mask) == 0 && hi > lo;
        p->copied += s->len - (clonable ? hi - lo : 0);
    }
    bool stays =
        g->n_tensors > 0 && is_regular(g) && d->data_off == g->data_off && still && !shrinks(d);
    p->inplace = stays && (p->changed == 0 ? p->image->size == g->file_size
                                           : p->image->size >= g->file_size &&
                                                 !(g->anomalies & GGUF_ANOMALY_NO_TAIL));
    uint64_t n = g->head_len;
    p->same = (p->inplace || g->n_tensors == 0) && p->changed == 0 &&
              p->image->size == g->file_size && memcmp(p->head.data, g->head, (size_t)n) == 0;
}

/* P5. */

static bool keys_fit(const struct layout *d, const struct gguf *next)
{
    bool fit = next->n_kv == d->n_keys + d->has_reserve;
    for (size_t i = 0; i < d->n_keys && fit; i++)
        fit = next->kv[i].end == d->key_end[i];
    return fit;
}

static int check(struct layout *d, struct err *e)
{
    struct source s = image_source(d->p->image);
    int r = gguf_parse_head(&s, d->p->head.data, d->p->head.len, NULL, &d->p->next, e);
    if (r == -EBADMSG)
        r = err_prefix(e, -EINVAL, "the new header would not be valid");
    if (r < 0)
        return r;
    const struct gguf *next = d->p->next;
    if (memcmp(&next->fmt, &d->g->fmt, sizeof(next->fmt)) != 0 || !keys_fit(d, next) ||
        next->n_tensors != d->n || next->alignment != d->alignment ||
        next->data_off != d->data_off || !is_regular(next))
        return err_set(e, -EINVAL,
                       "the new header would not be read as intended: the bytes of a value are not "
                       "one value of its type");
    for (size_t i = 0; i < d->n; i++)
        d->p->next->tensor[i].nbytes = info_size(d, &d->info[i]);
    return 0;
}

static int make_plan(struct layout *d, const struct edit_change *c, struct err *e)
{
    d->p->old_size = d->g->file_size;
    lay_data(d);
    int r = make_head(d, c, e);
    if (r < 0)
        return r;
    r = make_image(d);
    if (r < 0)
        return err_sys(e, r, "cannot lay out %zu tensors", d->n);
    judge_ways(d);
    return check(d, e);
}

static void drop_tensors(struct edit_plan *p)
{
    for (size_t i = 0; i < p->n_tensors; i++)
        tensor_content_unref(p->tensor[i].content);
    free(p->tensor);
    p->tensor = NULL;
    p->n_tensors = 0;
}

int edit_plan_make(const struct edit_change *c, const struct edit_options *o, struct edit_plan *ret,
                   struct err *e)
{
    const struct gguf *g = c->on.g;
    CLEANUP(edit_plan_free) struct edit_plan p = EDIT_PLAN_INIT;
    int r = edit_allowed(g, e);
    if (r < 0)
        return r;
    /* The header is built in memory, with its padding, so the alignment must be limited. */
    struct layout d = {.g = g, .o = o, .p = &p, .bare = c->bytes, .alignment = edit_alignment(c)};
    if (d.alignment > EDIT_MAX_ALIGNMENT)
        return err_set(e, -EFBIG,
                       "general.alignment is %llu: files aligned to more than 1 MiB are read-only, "
                       "except for that key",
                       (unsigned long long)d.alignment);
    r = edit_change_tensors(c, &p.tensor, &p.n_tensors);
    if (r < 0)
        return err_set(e, r, "no memory for the new header");
    for (size_t i = 0; i < p.n_tensors; i++)
        (void)REF(p.tensor[i].content);
    d.info = p.tensor;
    d.n = p.n_tensors;
    r = make_plan(&d, c, e);
    free(d.key_end);
    if (r < 0)
        return r;
    for (size_t i = 0; i < p.n_tensors; i++)
        p.tensor[i].name = NULL;
    if (!c->tensors)
        drop_tensors(&p);
    *ret = p;
    p = EDIT_PLAN_INIT;
    return 0;
}

void edit_plan_free(struct edit_plan *p)
{
    if (!p->next) /* p->next owns the head */
        buf_free(&p->head);
    image_unref(p->image);
    drop_tensors(p);
    gguf_free(p->next);
    *p = EDIT_PLAN_INIT;
}

/* ---- the state that it leads to ---- */

/* True if these are already the ids of the plan's tensors. */
static bool has_ids(const struct edit_plan *p, const struct snapshot *g)
{
    uint32_t i = 0;
    if (g->gguf->n_tensors != p->n_tensors)
        return false;
    while (i < p->n_tensors && ids_of(g->ids, i).number == p->tensor[i].id.number &&
           ids_of(g->ids, i).version == p->tensor[i].id.version)
        i++;
    return i == p->n_tensors;
}

/* Get the place of a tensor's bytes: its content over the base. *ret holds a reference. */
static int place_over(const struct store *base, const struct edit_tensor *t,
                      struct place_in_store *ret)
{
    struct tensor_content *k = t->content, *below;
    *ret = t->old == EDIT_NONE ? (struct place_in_store){0} : base->place[t->old];
    below = ret->over;
    ret->over = NULL;
    if (k && below && !tensor_content_covers(k))
        return tensor_content_make(&k->shape, k->nbytes, below, k->piece, k->n, &ret->over);
    ret->over = REF(k ? k : below);
    return 0;
}

int edit_plan_tensors(const struct edit_plan *p, const struct view *base,
                      const struct snapshot *shown, struct ids **ids, struct store **ret)
{
    const struct store *b = base->store;
    if (!p->tensor) {
        *ids = REF(base->snap->ids);
        *ret = REF(base->store);
        return 0;
    }
    const bool same = has_ids(p, shown);
    *ids = same ? REF(shown->ids) : ids_new((uint32_t)p->n_tensors);
    struct store *s = store_new(NULL, b->file, b->files, p->n_tensors);
    int r = s && (same || *ids) ? 0 : -ENOMEM;
    for (size_t i = 0; r == 0 && i < p->n_tensors; i++) {
        if (!same)
            (*ids)->of[i] = p->tensor[i].id;
        r = place_over(b, &p->tensor[i], &s->place[i]);
    }
    *ret = s;
    return r;
}

/* ---- how it is written ---- */

const char *edit_strategy_name(enum edit_strategy s)
{
    static const char *const names[] = {
        [EDIT_AUTO] = "auto", [EDIT_INPLACE] = "inplace", [EDIT_COPY] = "copy"};
    return names[s];
}

int edit_check_room(uint64_t found, uint64_t needed, const char *what, struct err *e)
{
    if (needed == 0)
        return 0;
    needed = needed > UINT64_MAX - SPACE_SLACK ? UINT64_MAX : needed + SPACE_SLACK;
    if (found >= needed)
        return 0;
    return err_set(e, -ENOSPC, "%s: %llu bytes are needed, but only %llu are free", what,
                   (unsigned long long)needed, (unsigned long long)found);
}

/* Returns true if an edit in place costs less than a new file. */
static bool prefers_inplace(const struct edit_plan *p, const struct edit_disk *d)
{
    const uint64_t size = p->image->size;
    return p->inplace && d->clone != EDIT_CLONE_YES && size > EDIT_INPLACE_FROM &&
           p->changed <= min_u64(EDIT_INPLACE_MAX, size / EDIT_INPLACE_PART);
}

/* Checks the room for one way, and sets *copies. Returns 0 or -ENOSPC. */
static int check_way(const struct edit_plan *p, const struct edit_disk *d, enum edit_strategy how,
                     uint64_t *copies, struct err *e)
{
    const bool clones = d->clone == EDIT_CLONE_YES;
    const uint64_t size = p->image->size, backup = d->backup && !clones ? d->used : 0;
    uint64_t needed = backup;
    *copies = backup;
    if (how == EDIT_INPLACE && (p->changed || clones)) {
        needed += p->head.len + p->journal + 2 * (size - p->old_size);
        if (clones || d->used < p->old_size) /* what lies there, or a hole, is not written over */
            needed += p->changed;
    } else if (how == EDIT_COPY && clones) {
        *copies += p->copied;
        needed += p->copied + p->changed;
    } else if (how == EDIT_COPY) {
        const uint64_t n = min_u64(size, d->used + p->head.len + p->changed); /* holes stay holes */
        *copies += d->known ? n : size;
        needed += n;
    }
    return d->known ? edit_check_room(d->free, needed, edit_strategy_name(how), e) : 0;
}

int edit_plan_way(const struct edit_plan *p, const struct edit_options *o,
                  const struct edit_disk *d, enum edit_strategy *ret, uint64_t *copies,
                  struct err *e)
{
    const enum edit_strategy asked = o->strategy;
    struct err why = {0};
    *copies = 0;
    *ret = EDIT_AUTO;
    if (p->same)
        return 0;
    if (asked == EDIT_INPLACE && !p->inplace)
        return err_set(e, -EOPNOTSUPP, "inplace: data would move, or tensors be removed");
    *ret = asked != EDIT_AUTO ? asked : prefers_inplace(p, d) ? EDIT_INPLACE : EDIT_COPY;
    int r = check_way(p, d, *ret, copies, &why);
    if (r < 0 && asked == EDIT_AUTO && p->inplace) {
        *ret = *ret == EDIT_COPY ? EDIT_INPLACE : EDIT_COPY;
        r = check_way(p, d, *ret, copies, &why);
    }
    return r < 0 ? err_set(e, r, "%s%s", why.msg,
                           p->inplace ? "" : "; it cannot be made in place, as data would move")
                 : 0;
}

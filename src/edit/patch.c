/* SPDX-License-Identifier: MIT */
/* The journal of bytes of tensors: see patch.h. */
#include "edit/patch_units.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/bytes.h"
#include "base/hash.h"

void patch_free(struct patch *p)
{
    if (p->sys)
        sys_close(p->sys, &p->fd);
    free(p->range);
    free(p->sum);
    free(p->room);
    *p = PATCH_INIT;
}

/* ---- units ---- */

void patch_find(const struct patch *p, uint64_t i, struct patch_stretch *u)
{
    size_t lo = 0, hi = p->n_range;
    while (hi - lo > 1) {
        size_t mid = lo + (hi - lo) / 2;
        if (p->range[mid].stretch <= i)
            lo = mid;
        else
            hi = mid;
    }
    const struct patch_range *range = &p->range[lo];
    const uint64_t off = (i - range->stretch) * PATCH_STRETCH;
    u->no = range->unit + off / PATCH_UNIT;
    u->at = range->lo + off;
    u->src = range->src + off;
    u->n = (size_t)min_u64(PATCH_STRETCH, range->n - off);
    u->old_n = (size_t)within_u64(u->at, u->n, p->before);
    u->units = (u->n + PATCH_UNIT - 1) / PATCH_UNIT;
}

int patch_each(const struct patch *p, patch_fn *fn, void *arg)
{
    struct patch_stretch *u = p->room ? p->room : malloc(sizeof(*u));
    int r = u ? 0 : -ENOMEM;
    for (uint64_t i = 0; i < p->stretches && r == 0; i++) {
        patch_find(p, i, u);
        r = fn(arg, u);
    }
    if (u != p->room)
        free(u);
    return r;
}

uint64_t patch_sum(uint64_t before, const void *bytes, size_t n)
{
    return xxh64(before, bytes, n);
}

uint64_t patch_sector_sum(const uint8_t *old, size_t n, size_t i)
{
    size_t at = i * PATCH_SECTOR;
    return at < n ? patch_sum(0, old + at, (size_t)min_u64(PATCH_SECTOR, n - at)) : 0;
}

uint64_t patch_unit_sum(const struct patch_stretch *u, size_t i)
{
    size_t at = i * PATCH_UNIT;
    return patch_sum(patch_sum(0, u->row + i * PATCH_ROW, PATCH_ROW), u->new + at,
                     (size_t)min_u64(PATCH_UNIT, u->n - at));
}

/* False: the journal's bytes are not those that its head speaks of. */
static bool sums_fit(const struct patch *p, const struct patch_stretch *u)
{
    bool fit = true;
    for (size_t i = 0; i < u->units && fit; i++)
        fit = patch_unit_sum(u, i) == p->sum[u->no + i];
    return fit;
}

static int read_new(const struct sys *s, const struct patch *p, struct patch_stretch *u)
{
    return sys_read_all(s, p->fd, u->new, u->n, u->src);
}

static int read_journal(const struct sys *s, const struct patch *p, struct patch_stretch *u)
{
    int r = sys_read_all(s, p->fd, u->row, u->units * PATCH_ROW, p->table + u->no * PATCH_ROW);
    return r < 0 ? r : read_new(s, p, u);
}

void patch_number(struct patch *p)
{
    p->units = p->stretches = 0;
    for (size_t i = 0; i < p->n_range; i++) {
        p->range[i].unit = p->units;
        p->range[i].stretch = p->stretches;
        p->units += (p->range[i].n + PATCH_UNIT - 1) / PATCH_UNIT;
        p->stretches += (p->range[i].n + PATCH_STRETCH - 1) / PATCH_STRETCH;
    }
}

uint64_t patch_rest_bytes(const struct patch *p, size_t name_len)
{
    return p->n_range * PATCH_RANGE + p->units * 8 + name_len + 8;
}

/* ---- applied ---- */

struct applying {
    const struct edit_file *f;
    const struct patch *p;
    int undo;
    bool known; /* the journal was just written: its sums are right */
};

static int apply_stretch(void *arg, struct patch_stretch *u)
{
    const struct applying *a = arg;
    const struct sys *s = a->f->sys;
    int r = a->known ? read_new(s, a->p, u) : read_journal(s, a->p, u);
    if (r == 0 && !a->known && !sums_fit(a->p, u))
        r = -EIO;
    if (r == 0)
        r = sys_write_all(s, a->f->fd, u->new, u->n, u->at);
    if (r == 0)
        sys_begin_sync(s, a->f->fd, u->at, u->n);
    return r;
}

static int apply(const struct edit_file *f, const struct patch *p, bool known)
{
    struct applying a = {f, p, -1, known};
    int r = patch_each(p, apply_stretch, &a);
    return r < 0 ? r : sys_sync(f->sys, f->fd);
}

int patch_apply(const struct edit_file *f, const struct patch *p)
{
    return apply(f, p, true);
}

int patch_redo(const struct edit_file *f, const struct patch *p)
{
    return apply(f, p, false);
}

static int undo_stretch(void *arg, struct patch_stretch *u)
{
    const struct applying *a = arg;
    int r = sys_read_all(a->f->sys, a->undo, u->old, u->old_n, u->no * PATCH_UNIT);
    if (r == 0)
        r = sys_read_all(a->f->sys, a->f->fd, u->new, u->old_n, u->at);
    if (r < 0 || memcmp(u->old, u->new, u->old_n) == 0)
        return r;
    return sys_write_all(a->f->sys, a->f->fd, u->old, u->old_n, u->at);
}

int patch_undo(const struct edit_file *f, const struct patch *p, int undo)
{
    struct applying a = {f, p, undo, false};
    struct stat st;
    int r = f->sys->fstat(f->sys, f->fd, &st);
    if (r == 0 && (uint64_t)st.st_size > p->before)
        r = f->sys->ftruncate(f->sys, f->fd, p->before);
    if (r == 0)
        r = patch_each(p, undo_stretch, &a);
    return r < 0 ? r : sys_sync(f->sys, f->fd);
}

/* ---- loaded ---- */

/* The first part of the head. */
struct fixed {
    uint64_t name_len, ranges, units, rest;
    uint64_t n; /* bytes of the rest */
    uint64_t sum;
};

/* False: the sum is wrong, or the rest, or the table, does not lie in a file of that size. */
static bool decode_fixed(const uint8_t b[PATCH_FIXED], uint64_t file, struct fixed *h,
                         struct patch *p)
{
    uint64_t ranges, units, end;
    *h = (struct fixed){get_u32(b + 12, false),
                        get_u64(b + 32, false),
                        get_u64(b + 40, false),
                        get_u64(b + 48, false),
                        0,
                        patch_sum(0, b, PATCH_FIXED - 8)};
    p->before = get_u64(b + 16, false);
    p->after = get_u64(b + 24, false);
    p->rest = h->rest;
    return get_u64(b + PATCH_FIXED - 8, false) == h->sum && get_u32(b + 8, false) == PATCH_UNIT &&
           h->units <= file / PATCH_ROW && mul_u64(h->ranges, PATCH_RANGE, &ranges) &&
           mul_u64(h->units, 8, &units) && add_u64(ranges, units, &h->n) &&
           add_u64(h->n, h->name_len + 8, &h->n) && add_u64(h->rest, h->n, &end) && end <= file;
}

/* The rest, whose sum is right. False: it means nothing, or not what a journal of ours says. */
static bool decode_rest(const uint8_t *b, const struct fixed *h, uint64_t file, struct patch *p)
{
    uint64_t end = 0;
    if (p->before > p->after || p->after > INT64_MAX)
        return false;
    for (size_t i = 0; i < h->ranges; i++, b += PATCH_RANGE) {
        struct patch_range r = {
            .lo = get_u64(b, false), .n = get_u64(b + 8, false), .src = get_u64(b + 16, false)};
        uint64_t hi, src_end;
        if (r.lo % PATCH_UNIT || r.n == 0 || r.lo < end || !add_u64(r.lo, r.n, &hi) ||
            hi > p->after || (r.n % PATCH_UNIT && hi != p->after))
            return false;
        if (r.src % PATCH_UNIT || r.src == 0 || !add_u64(r.src, r.n, &src_end) || src_end > file)
            return false;
        p->range[p->n_range++] = r;
        end = hi;
    }
    /* What was not there before is in the journal, to the last byte. */
    if (p->after > p->before &&
        (h->ranges == 0 || end != p->after || p->range[p->n_range - 1].lo > p->before))
        return false;
    patch_number(p);
    p->table = h->rest + h->n;
    return p->units == h->units && p->units > 0;
}

/* Why nothing of the rest is read: a sparse file can be of any size. NULL: it is not too much. */
static const char *too_much(const struct fixed *h)
{
    return h->units > PATCH_MAX_UNITS || h->ranges > PATCH_MAX_UNITS ? "it is too large"
           : h->name_len > NAME_MAX                                  ? "it names another file"
                                                                     : NULL;
}

/* Read the head. b is empty: it is foreign, or was not written to its end. */
static int load_head(const struct sys *s, int fd, uint64_t file, struct fixed *h, struct patch *p,
                     struct buf *b, const char **foreign)
{
    uint8_t fixed[PATCH_FIXED];
    int r = file < PATCH_FIXED ? 0 : sys_read_all(s, fd, fixed, PATCH_FIXED, 0);
    if (r < 0 || file < PATCH_FIXED || !decode_fixed(fixed, file, h, p))
        return r;
    *foreign = too_much(h);
    if (*foreign)
        return 0;
    uint8_t *at = buf_extend(b, (size_t)h->n);
    r = buf_error(b);
    if (r == 0 && at)
        r = sys_read_all(s, fd, at, b->len, h->rest);
    if (r == 0 && at && get_u64(at + h->n - 8, false) != patch_sum(h->sum, at, (size_t)h->n - 8))
        b->len = 0;
    return r;
}

static int decode_head(const struct buf *b, const struct fixed *h, uint64_t file, const char *name,
                       uint64_t size, struct patch *p, const char **foreign)
{
    const uint8_t *sums = b->data + h->ranges * PATCH_RANGE, *own = sums + h->units * 8;
    p->range = calloc((size_t)h->ranges + 1, sizeof(*p->range));
    p->sum = calloc((size_t)h->units + 1, sizeof(*p->sum));
    if (!p->range || !p->sum)
        return -ENOMEM;
    if (!decode_rest(b->data, h, file, p))
        *foreign = "its ranges lie outside";
    else if (h->name_len != strlen(name) || memcmp(own, name, h->name_len) != 0)
        *foreign = "it names another file";
    else if (size < p->before || size > p->after)
        *foreign = "it is for a file of another size";
    for (uint64_t i = 0; i < h->units; i++)
        p->sum[i] = get_u64(sums + 8 * i, false);
    return 0;
}

int patch_load(const struct sys *s, int fd, const char *name, uint64_t size, struct patch *ret,
               bool *whole, const char **foreign)
{
    CLEANUP(buf_free) struct buf b = BUF_INIT;
    struct patch p = PATCH_INIT;
    struct fixed h = {0};
    struct stat st;
    *whole = false;
    *foreign = NULL;
    int r = s->fstat(s, fd, &st);
    const uint64_t file = r == 0 ? (uint64_t)st.st_size : 0;
    if (r == 0)
        r = load_head(s, fd, file, &h, &p, &b, foreign);
    if (r < 0 || (b.len == 0 && !*foreign))
        return r;
    if (b.len > 0)
        r = decode_head(&b, &h, file, name, size, &p, foreign);
    *whole = r == 0 && (*foreign || p.table + p.units * PATCH_ROW == file);
    if (!*whole) {
        patch_free(&p);
        return r;
    }
    p.sys = s;
    p.fd = fd;
    *ret = p;
    return 0;
}

struct comparing {
    const struct edit_file *f;
    const struct patch *p;
    uint64_t size; /* of the model now */
    bool *whole, *fits, *done;
};

static bool all_zero(const uint8_t *p, size_t n)
{
    return n == 0 || (p[0] == 0 && memcmp(p, p + 1, n - 1) == 0);
}

/* `have`: bytes of the stretch that the model has now. What it did not have before is new or zero. */
static void compare_sector(const struct comparing *c, const struct patch_stretch *u, size_t have,
                           size_t i)
{
    size_t at = i * PATCH_SECTOR, end = (size_t)min_u64(at + PATCH_SECTOR, u->n);
    size_t mid = (size_t)min_u64(max_u64(at, u->old_n), end); /* up to here it was there before */
    size_t last = (size_t)max_u64(mid, min_u64(end, have));
    if (end > have || memcmp(u->old + at, u->new + at, end - at) != 0)
        *c->done = false;
    if (memcmp(u->old + at, u->new + at, mid - at) != 0 &&
        patch_sector_sum(u->old, u->old_n, i) != get_u64(u->row + 8 * i, false))
        *c->fits = false;
    if (memcmp(u->old + mid, u->new + mid, last - mid) != 0 && !all_zero(u->old + mid, last - mid))
        *c->fits = false;
}

/* u->old: what the model has there now. */
static int compare_stretch(void *arg, struct patch_stretch *u)
{
    const struct comparing *c = arg;
    size_t have = (size_t)within_u64(u->at, u->n, c->size);
    int r = read_journal(c->f->sys, c->p, u);
    if (r == 0 && !sums_fit(c->p, u)) {
        *c->whole = false;
        return 1;
    }
    if (r == 0)
        r = sys_read_all(c->f->sys, c->f->fd, u->old, have, u->at);
    for (size_t i = 0; i * PATCH_SECTOR < u->n && r == 0; i++)
        compare_sector(c, u, have, i);
    return r;
}

int patch_compare(const struct edit_file *f, const struct patch *p, bool *whole, bool *fits,
                  bool *done, struct err *e)
{
    struct stat st;
    struct comparing c = {f, p, 0, whole, fits, done};
    *whole = *fits = *done = true;
    int r = f->sys->fstat(f->sys, f->fd, &st);
    c.size = r == 0 ? (uint64_t)st.st_size : 0;
    if (r == 0)
        r = patch_each(p, compare_stretch, &c);
    return r < 0 ? err_set(e, r, "cannot compare the journal with the model: %s", strerror(-r)) : 0;
}

int patch_map(const struct patch *p, struct map *m)
{
    for (size_t i = 0; i < p->n_range; i++) {
        const struct patch_range *r = &p->range[i];
        void *at = (void *)(uintptr_t)(m->data + r->lo);
        if (r->lo >= m->size)
            continue;
        size_t n = (size_t)min_u64(r->n, m->size - r->lo);
        if (mmap(at, n, PROT_READ, MAP_SHARED | MAP_FIXED, p->fd, (off_t)r->src) == MAP_FAILED)
            return -errno;
    }
    m->own = min_u64(m->size, p->before);
    return 0;
}

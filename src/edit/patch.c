/* SPDX-License-Identifier: MIT */
/* The journal of bytes of tensors: see patch.h. */
#include "edit/patch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/bytes.h"
#include "base/hash.h"

#define FIXED 48
#define ROW ((size_t)(PATCH_UNIT / PATCH_SECTOR * 8)) /* bytes of a row of the table */

static const uint64_t sum_key[2] = {0x6a6f75726e616c20, 0x6f66206767756673}; /* any, but fixed */

void patch_free(struct patch *p)
{
    if (p->sys)
        sys_close(p->sys, &p->fd);
    free(p->range);
    free(p->sum);
    *p = PATCH_INIT;
}

/* ---- units ---- */

/* One unit, in memory. */
struct unit {
    uint64_t no, at; /* in the journal, and of its first byte in the model */
    size_t n, old_n; /* its bytes after and before */
    uint8_t row[ROW];
    uint8_t old[PATCH_UNIT], new[PATCH_UNIT];
};

typedef int unit_fn(void *arg, struct unit *u);

/* Call fn with each unit, until it returns other than 0. */
static int each_unit(const struct patch *p, unit_fn *fn, void *arg)
{
    struct unit *u = calloc(1, sizeof(*u));
    int r = u ? 0 : -ENOMEM;
    for (size_t i = 0; i < p->n_range && r == 0; i++) {
        const struct patch_range *range = &p->range[i];
        for (uint64_t off = 0; off < range->n && r == 0; off += PATCH_UNIT) {
            u->no = range->unit + off / PATCH_UNIT;
            u->at = range->lo + off;
            u->n = (size_t)min_u64(PATCH_UNIT, range->n - off);
            u->old_n = (size_t)within_u64(u->at, u->n, p->before);
            r = fn(arg, u);
        }
    }
    free(u);
    return r;
}

/* The sum of the old bytes of sector i of a unit. */
static uint64_t sector_sum(const uint8_t *old, size_t n, size_t i)
{
    size_t at = i * PATCH_SECTOR;
    return at < n ? siphash(sum_key, old + at, (size_t)min_u64(PATCH_SECTOR, n - at)) : 0;
}

static uint64_t unit_sum(const struct unit *u)
{
    return siphash_two(sum_key, u->row, ROW, u->new, u->n);
}

static int read_journal(const struct sys *s, const struct patch *p, struct unit *u)
{
    int r = sys_read_all(s, p->fd, u->row, ROW, p->table + u->no * ROW);
    return r < 0 ? r : sys_read_all(s, p->fd, u->new, u->n, p->data + u->no * PATCH_UNIT);
}

/* ---- the ranges of a plan ---- */

static int add_range(struct patch *p, uint64_t lo, uint64_t hi)
{
    struct patch_range *last = p->n_range ? &p->range[p->n_range - 1] : NULL;
    lo &= ~(PATCH_UNIT - 1);
    hi = min_u64((hi + PATCH_UNIT - 1) & ~(PATCH_UNIT - 1), p->after);
    if (last && lo <= last->lo + last->n) {
        last->n = max_u64(last->lo + last->n, hi) - last->lo;
        return 0;
    }
    int r = array_grow(&p->range, &p->cap_range, p->n_range, sizeof(*p->range));
    if (r == 0)
        p->range[p->n_range++] = (struct patch_range){.lo = lo, .n = hi - lo};
    return r;
}

static void number_units(struct patch *p)
{
    p->units = 0;
    for (size_t i = 0; i < p->n_range; i++) {
        p->range[i].unit = p->units;
        p->units += (p->range[i].n + PATCH_UNIT - 1) / PATCH_UNIT;
    }
}

/* The header, what comes from drafts, and what was not in the old file. */
static int find_ranges(const struct edit_plan *plan, struct patch *p)
{
    *p = (struct patch){.before = plan->old_size, .after = plan->image->size};
    int r = add_range(p, 0, plan->head.len);
    for (size_t i = 1; i < plan->image->n && r == 0; i++) {
        const struct segment *s = &plan->image->seg[i];
        bool old = s->from == IMAGE_FILE && s->no == EDIT_OLD_FILE;
        if (s->from == IMAGE_MEMORY || (s->from == IMAGE_FILE && !old))
            r = add_range(p, s->at, s->at + s->len);
    }
    if (r == 0 && p->after > p->before)
        r = add_range(p, p->before, p->after);
    number_units(p);
    return r;
}

int patch_bytes(const struct edit_plan *plan, uint64_t *ret)
{
    struct patch p;
    int r = find_ranges(plan, &p);
    *ret = p.units * PATCH_UNIT;
    free(p.range);
    return r;
}

/* ---- written ---- */

struct writing {
    const struct edit_file *f;
    const struct edit_plan *plan;
    const struct edit_hooks *hooks;
    struct patch *p;
    int undo;
};

/* What of a segment lies in the unit. */
static int put_segment(const struct writing *w, const struct segment *s, struct unit *u)
{
    uint64_t lo = max_u64(s->at, u->at), hi = min_u64(s->at + s->len, u->at + u->n);
    uint8_t *dst = u->new + (lo - u->at);
    size_t n = (size_t)(hi - lo);
    if (s->from == IMAGE_MEMORY)
        memcpy(dst, s->bytes + (lo - s->at), n);
    else if (s->from == IMAGE_ZERO)
        memset(dst, 0, n);
    else if (s->no != EDIT_OLD_FILE)
        return sys_read_all(w->f->sys, w->plan->image->file[s->no].fd, dst, n,
                            s->src + (lo - s->at));
    return 0;
}

static int make_new(const struct writing *w, struct unit *u)
{
    const struct image *im = w->plan->image;
    const struct segment *last = im->seg + im->n;
    int r = 0;
    memcpy(u->new, u->old, u->old_n);
    memset(u->new + u->old_n, 0, u->n - u->old_n);
    for (const struct segment *s = image_at(im, u->at); s < last && s->at < u->at + u->n && r == 0;
         s++)
        r = put_segment(w, s, u);
    return r;
}

static int write_unit(void *arg, struct unit *u)
{
    struct writing *w = arg;
    const struct sys *s = w->f->sys;
    if (w->hooks && w->hooks->cancel && atomic_load(w->hooks->cancel))
        return -EINTR;
    int r = sys_read_all(s, w->f->fd, u->old, u->old_n, u->at);
    if (r == 0)
        r = make_new(w, u);
    for (size_t i = 0; i < ROW / 8; i++)
        put_u64(u->row + 8 * i, sector_sum(u->old, u->old_n, i), false);
    w->p->sum[u->no] = unit_sum(u);
    if (r == 0)
        r = sys_write_all(s, w->undo, u->old, u->old_n, u->no * PATCH_UNIT);
    if (r == 0)
        r = sys_write_all(s, w->p->fd, u->row, ROW, w->p->table + u->no * ROW);
    if (r == 0)
        r = sys_write_all(s, w->p->fd, u->new, u->n, w->p->data + u->no * PATCH_UNIT);
    if (r == 0 && w->hooks && w->hooks->progress)
        w->hooks->progress(min_u64((u->no + 1) * PATCH_UNIT, w->plan->changed), w->plan->changed,
                           w->hooks->arg);
    return r;
}

static uint64_t head_bytes(const struct patch *p, size_t name_len)
{
    return FIXED + p->n_range * 16 + p->units * 8 + name_len + 8;
}

static void place_parts(struct patch *p, size_t name_len)
{
    p->table = head_bytes(p, name_len);
    p->data = (p->table + p->units * ROW + PATCH_UNIT - 1) & ~(PATCH_UNIT - 1);
}

static int write_head(const struct writing *w)
{
    const struct patch *p = w->p;
    CLEANUP(buf_free) struct buf b = BUF_INIT;
    size_t name_len = strlen(w->f->name);
    buf_str(&b, PATCH_MAGIC);
    buf_uint(&b, PATCH_UNIT, 4, false);
    buf_uint(&b, name_len, 4, false);
    buf_uint(&b, p->before, 8, false);
    buf_uint(&b, p->after, 8, false);
    buf_uint(&b, p->n_range, 8, false);
    buf_uint(&b, p->units, 8, false);
    for (size_t i = 0; i < p->n_range; i++) {
        buf_uint(&b, p->range[i].lo, 8, false);
        buf_uint(&b, p->range[i].n, 8, false);
    }
    for (uint64_t i = 0; i < p->units; i++)
        buf_uint(&b, p->sum[i], 8, false);
    buf_add(&b, w->f->name, name_len);
    if (!buf_error(&b))
        buf_uint(&b, siphash(sum_key, b.data, b.len), 8, false);
    return buf_error(&b) ? buf_error(&b) : sys_write_all(w->f->sys, p->fd, b.data, b.len, 0);
}

/* All of step 1 but for the files being made. */
static int fill(struct writing *w)
{
    struct patch *p = w->p;
    place_parts(p, strlen(w->f->name));
    p->sum = malloc((size_t)(p->units + 1) * sizeof(*p->sum));
    int r = p->sum ? each_unit(p, write_unit, w) : -ENOMEM;
    if (r == 0)
        r = write_head(w);
    if (r == 0)
        r = sys_sync(w->f->sys, p->fd);
    return r < 0 ? r : sys_sync_dir(w->f->sys, w->f->dir);
}

int patch_write(const struct edit_file *f, const struct edit_plan *plan,
                const struct edit_hooks *hooks, int fd, int undo, struct patch *ret, struct err *e)
{
    struct patch p = PATCH_INIT;
    struct writing w = {f, plan, hooks, &p, undo};
    int r = find_ranges(plan, &p);
    p.fd = fd;
    if (r == 0)
        r = fill(&w);
    if (r == 0) {
        p.sys = f->sys;
        *ret = p;
        return 0;
    }
    patch_free(&p);
    if (r == -EINTR)
        return err_set(e, r, "the edit was interrupted");
    return err_set(e, r, "cannot write the journal: %s", strerror(-r));
}

/* ---- applied ---- */

struct applying {
    const struct edit_file *f;
    const struct patch *p;
    int undo;
};

static int apply_unit(void *arg, struct unit *u)
{
    const struct applying *a = arg;
    int r = read_journal(a->f->sys, a->p, u);
    if (r == 0 && unit_sum(u) != a->p->sum[u->no])
        r = -EIO;
    return r < 0 ? r : sys_write_all(a->f->sys, a->f->fd, u->new, u->n, u->at);
}

int patch_apply(const struct edit_file *f, const struct patch *p)
{
    struct applying a = {f, p, -1};
    int r = each_unit(p, apply_unit, &a);
    return r < 0 ? r : sys_sync(f->sys, f->fd);
}

static int undo_unit(void *arg, struct unit *u)
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
    struct applying a = {f, p, undo};
    struct stat st;
    int r = f->sys->fstat(f->sys, f->fd, &st);
    if (r == 0 && (uint64_t)st.st_size > p->before)
        r = f->sys->ftruncate(f->sys, f->fd, p->before);
    if (r == 0)
        r = each_unit(p, undo_unit, &a);
    return r < 0 ? r : sys_sync(f->sys, f->fd);
}

/* ---- loaded ---- */

/* The head, whose sum is right. False: it means nothing, or not what a journal of ours says. */
static bool decode(const uint8_t *b, size_t n, struct patch *p, uint32_t name_len)
{
    uint64_t end = 0, ranges = get_u64(b + 32, false), units = get_u64(b + 40, false);
    p->before = get_u64(b + 16, false);
    p->after = get_u64(b + 24, false);
    if (p->before > p->after || p->after > INT64_MAX || ranges > n / 16 || units > n / 8)
        return false;
    for (size_t i = 0; i < ranges; i++) {
        const uint8_t *at = b + FIXED + 16 * i;
        uint64_t lo = get_u64(at, false), len = get_u64(at + 8, false), hi;
        if (lo % PATCH_UNIT || len == 0 || lo < end || !add_u64(lo, len, &hi) || hi > p->after ||
            (len % PATCH_UNIT && hi != p->after))
            return false;
        p->range[p->n_range++] = (struct patch_range){.lo = lo, .n = len};
        end = hi;
    }
    /* What was not there before is in the journal, to the last byte. */
    if (p->after > p->before &&
        (ranges == 0 || end != p->after || p->range[p->n_range - 1].lo > p->before))
        return false;
    number_units(p);
    if (p->units != units || head_bytes(p, name_len) != n)
        return false;
    place_parts(p, name_len);
    return units > 0;
}

/* Bytes of the journal. */
static uint64_t journal_bytes(const struct patch *p)
{
    uint64_t last = (p->range[p->n_range - 1].n - 1) % PATCH_UNIT + 1;
    return p->data + (p->units - 1) * PATCH_UNIT + last;
}

/* The length of the head, by its first bytes; 0 if they are not one. */
static uint64_t head_length(const uint8_t fixed[FIXED], uint64_t file)
{
    uint64_t n, ranges, units;
    bool fits = get_u32(fixed + 8, false) == PATCH_UNIT &&
                mul_u64(get_u64(fixed + 32, false), 16, &ranges) &&
                mul_u64(get_u64(fixed + 40, false), 8, &units) && add_u64(ranges, units, &n) &&
                add_u64(n, (uint64_t)FIXED + get_u32(fixed + 12, false) + 8, &n);
    return fits && n <= file ? n : 0;
}

static int load_head(const struct sys *s, int fd, uint64_t file, struct buf *b)
{
    uint8_t fixed[FIXED];
    int r = file < FIXED ? 0 : sys_read_all(s, fd, fixed, FIXED, 0);
    uint64_t n = r < 0 || file < FIXED ? 0 : head_length(fixed, file);
    uint8_t *at = n ? buf_extend(b, (size_t)n) : NULL;
    if (r == 0)
        r = buf_error(b);
    if (r == 0 && at)
        r = sys_read_all(s, fd, at, b->len, 0);
    if (r == 0 && b->len &&
        get_u64(b->data + b->len - 8, false) != siphash(sum_key, b->data, b->len - 8))
        b->len = 0;
    return r;
}

static int decode_head(const struct buf *b, const char *name, uint64_t size, struct patch *p,
                       const char **foreign)
{
    uint32_t name_len = get_u32(b->data + 12, false);
    uint64_t ranges = get_u64(b->data + 32, false), units = get_u64(b->data + 40, false);
    const uint8_t *sums = b->data + FIXED + ranges * 16, *own = sums + units * 8;
    p->range = calloc((size_t)ranges + 1, sizeof(*p->range));
    p->sum = calloc((size_t)units + 1, sizeof(*p->sum));
    if (!p->range || !p->sum)
        return -ENOMEM;
    if (!decode(b->data, b->len, p, name_len))
        *foreign = "its ranges lie outside";
    else if (name_len != strlen(name) || memcmp(own, name, name_len) != 0)
        *foreign = "it names another file";
    else if (size < p->before || size > p->after)
        *foreign = "it is for a file of another size";
    for (uint64_t i = 0; i < units; i++)
        p->sum[i] = get_u64(sums + 8 * i, false);
    return 0;
}

int patch_load(const struct sys *s, int fd, const char *name, uint64_t size, struct patch *ret,
               bool *whole, const char **foreign)
{
    CLEANUP(buf_free) struct buf b = BUF_INIT;
    struct patch p = PATCH_INIT;
    struct stat st;
    *whole = false;
    *foreign = NULL;
    int r = s->fstat(s, fd, &st);
    if (r == 0)
        r = load_head(s, fd, (uint64_t)st.st_size, &b);
    if (r < 0 || b.len == 0)
        return r;
    r = decode_head(&b, name, size, &p, foreign);
    *whole = r == 0 && (*foreign || journal_bytes(&p) == (uint64_t)st.st_size);
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

/* `have`: bytes of the unit that the model has now. What it did not have before is new or zero. */
static void compare_sector(const struct comparing *c, const struct unit *u, size_t have, size_t i)
{
    size_t at = i * PATCH_SECTOR, end = (size_t)min_u64(at + PATCH_SECTOR, u->n);
    size_t mid = (size_t)min_u64(max_u64(at, u->old_n), end); /* up to here it was there before */
    size_t last = (size_t)max_u64(mid, min_u64(end, have));
    if (end > have || memcmp(u->old + at, u->new + at, end - at) != 0)
        *c->done = false;
    if (memcmp(u->old + at, u->new + at, mid - at) != 0 &&
        sector_sum(u->old, u->old_n, i) != get_u64(u->row + 8 * i, false))
        *c->fits = false;
    if (memcmp(u->old + mid, u->new + mid, last - mid) != 0 && !all_zero(u->old + mid, last - mid))
        *c->fits = false;
}

/* u->old: what the model has there now. */
static int compare_unit(void *arg, struct unit *u)
{
    const struct comparing *c = arg;
    size_t have = (size_t)within_u64(u->at, u->n, c->size);
    int r = read_journal(c->f->sys, c->p, u);
    if (r == 0 && unit_sum(u) != c->p->sum[u->no]) {
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
        r = each_unit(p, compare_unit, &c);
    return r < 0 ? err_set(e, r, "cannot compare the journal with the model: %s", strerror(-r)) : 0;
}

int patch_map(const struct patch *p, struct map *m)
{
    for (size_t i = 0; i < p->n_range; i++) {
        const struct patch_range *r = &p->range[i];
        void *at = (void *)(uintptr_t)(m->data + r->lo);
        uint64_t off = p->data + r->unit * PATCH_UNIT;
        if (r->lo >= m->size)
            continue;
        size_t n = (size_t)min_u64(r->n, m->size - r->lo);
        if (mmap(at, n, PROT_READ, MAP_SHARED | MAP_FIXED, p->fd, (off_t)off) == MAP_FAILED)
            return -errno;
    }
    m->own = min_u64(m->size, p->before);
    return 0;
}

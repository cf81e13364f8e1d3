/* SPDX-License-Identifier: MIT */
/* The journal of bytes of tensors, written: see patch.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/units.h"
#include "edit/patch_units.h"

/* ---- the ranges of a plan ---- */

_Static_assert(LOG_ROOM >= PATCH_UNIT, "the head of a journal fits before a draft");

static uint64_t round_up(uint64_t n)
{
    return (n + PATCH_UNIT - 1) & ~(PATCH_UNIT - 1);
}

static int new_range(struct patch *p, struct patch_range range)
{
    int r = array_grow(&p->range, &p->cap_range, p->n_range, sizeof(*p->range));
    if (r == 0)
        p->range[p->n_range++] = range;
    return r;
}

/* The units with these bytes: the journal gets new bytes of its own for them. */
static int add_range(struct patch *p, uint64_t lo, uint64_t hi)
{
    struct patch_range *last = p->n_range ? &p->range[p->n_range - 1] : NULL;
    lo &= ~(PATCH_UNIT - 1);
    hi = min_u64(round_up(hi), p->after);
    if (last && last->src == 0 && lo <= last->lo + last->n) {
        last->n = max_u64(last->lo + last->n, hi) - last->lo;
        return 0;
    }
    return new_range(p, (struct patch_range){.lo = lo, .n = hi - lo});
}

/* A segment of the draft that has become the journal: its whole units stay where they are, if they lie
 * there as in the model. */
static int add_lent(struct patch *p, const struct segment *s)
{
    const uint64_t end = s->at + s->len;
    uint64_t lo = round_up(s->at), hi = min_u64(end, p->before) & ~(PATCH_UNIT - 1);
    if ((s->at ^ s->src) & (PATCH_UNIT - 1) || s->src < PATCH_UNIT || lo >= hi)
        return add_range(p, s->at, end);
    int r = lo > s->at ? add_range(p, s->at, lo) : 0;
    if (r == 0)
        r = new_range(p,
                      (struct patch_range){.lo = lo, .n = hi - lo, .src = s->src + (lo - s->at)});
    return r == 0 && hi < end ? add_range(p, hi, end) : r;
}

/* What comes from drafts, and all that the old file did not have, padding too, behind the ranges of the
 * header. */
static int find_ranges(const struct edit_plan *plan, const struct log *lent, struct patch *p)
{
    int r = 0;
    for (size_t i = 1; i < plan->image->n && r == 0; i++) {
        const struct segment *s = &plan->image->seg[i];
        const bool file = s->from == IMAGE_FILE && s->no != EDIT_OLD_FILE;
        const bool draft = file || s->from == IMAGE_MEMORY;
        const uint64_t lo = draft ? s->at : max_u64(s->at, p->before), end = s->at + s->len;
        if (file && lent && plan->image->file[s->no].fd == lent->src.fd)
            r = add_lent(p, s);
        else if (lo < end)
            r = add_range(p, lo, end);
    }
    patch_number(p);
    return r;
}

/* The units of the header that differ; the first in any case. */
static int find_header(const struct edit_file *f, const struct edit_plan *plan, struct patch *p)
{
    const struct buf *head = &plan->head;
    uint8_t *old = malloc(PATCH_UNIT);
    int r = old ? 0 : -ENOMEM;
    for (uint64_t at = 0; at < head->len && r == 0; at += PATCH_UNIT) {
        size_t n = (size_t)min_u64(PATCH_UNIT, head->len - at);
        r = sys_read_all(f->sys, f->fd, old, n, at);
        if (r == 0 && (at == 0 || memcmp(old, head->data + at, n) != 0))
            r = add_range(p, at, at + n);
    }
    free(old);
    return r;
}

static struct patch make_patch(const struct edit_plan *plan)
{
    return (struct patch){.before = plan->old_size, .after = plan->image->size};
}

int patch_bytes(const struct edit_plan *plan, uint64_t *ret)
{
    struct patch p = make_patch(plan);
    int r = add_range(&p, 0, plan->head.len);
    if (r == 0)
        r = find_ranges(plan, NULL, &p);
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
    uint64_t zero_sum; /* of a sector of zeros */
};

/* What of a segment lies in the stretch. */
static int put_segment(const struct writing *w, const struct segment *s, struct patch_stretch *u)
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

static int make_new(const struct writing *w, struct patch_stretch *u)
{
    const struct image *im = w->plan->image;
    const struct segment *last = im->seg + im->n;
    const struct segment *s = image_at(im, u->at);
    int r = 0;
    if (s->from != IMAGE_FILE || s->no == EDIT_OLD_FILE || s->at + s->len < u->at + u->n) {
        memcpy(u->new, u->old, u->old_n);
        memset(u->new + u->old_n, 0, u->n - u->old_n);
    }
    for (; s < last && s->at < u->at + u->n && r == 0; s++)
        r = put_segment(w, s, u);
    return r;
}

/* Whether the model has nothing but a hole there. What cannot be found out is taken for data. */
static bool is_hole(const struct writing *w, uint64_t at, uint64_t end)
{
    const struct sys *s = w->f->sys;
    uint64_t data = at;
    int r = s->seek(s, w->f->fd, at, SEEK_DATA, &data);
    return r == -ENXIO || (r == 0 && data >= end);
}

/* What the model has there now, its sums, and a copy of it. */
static int keep_old(const struct writing *w, struct patch_stretch *u)
{
    const struct sys *s = w->f->sys;
    const size_t sectors = u->units * (PATCH_ROW / 8);
    bool hole = is_hole(w, u->at, u->at + u->old_n);
    int r = 0;
    if (hole)
        memset(u->old, 0, u->old_n);
    else
        r = sys_read_all(s, w->f->fd, u->old, u->old_n, u->at);
    for (size_t i = 0; i < sectors && r == 0; i++) {
        bool whole = (i + 1) * PATCH_SECTOR <= u->old_n;
        uint64_t sum = hole && whole ? w->zero_sum : patch_sector_sum(u->old, u->old_n, i);
        put_u64(u->row + 8 * i, sum, false);
    }
    if (r == 0 && !hole)
        r = sys_write_all(s, w->undo, u->old, u->old_n, u->no * PATCH_UNIT);
    return r;
}

static int write_stretch(const struct writing *w, struct patch_stretch *u)
{
    const struct sys *s = w->f->sys;
    int r = keep_old(w, u);
    if (r == 0)
        r = make_new(w, u);
    for (size_t i = 0; i < u->units && r == 0; i++)
        w->p->sum[u->no + i] = patch_unit_sum(u, i);
    if (r == 0)
        r = sys_write_all(s, w->p->fd, u->row, u->units * PATCH_ROW,
                          w->p->table + u->no * PATCH_ROW);
    if (r == 0 && u->src >= w->p->own)
        r = sys_write_all(s, w->p->fd, u->new, u->n, u->src);
    if (r == 0)
        sys_begin_sync(s, w->p->fd, u->src, u->n);
    return r;
}

static void on_progress(void *arg, uint64_t done, uint64_t all)
{
    const struct writing *w = arg;
    const uint64_t bytes = w->plan->changed;
    (void)all;
    w->hooks->progress(min_u64(done * PATCH_STRETCH, bytes), bytes, w->hooks->arg);
}

static int write_one(void *arg, struct patch_stretch *u)
{
    const struct writing *w = arg;
    if (w->hooks && w->hooks->cancel && atomic_load(w->hooks->cancel))
        return -EINTR;
    int r = write_stretch(w, u);
    if (r == 0 && w->hooks && w->hooks->progress)
        on_progress(arg, u->no / PATCH_UNITS + 1, 0);
    return r;
}

static int write_unit(void *arg, uint64_t i, void *room)
{
    const struct writing *w = arg;
    struct patch_stretch *u = room;
    patch_find(w->p, i, u);
    return write_stretch(w, u);
}

/* Most of the time bytes are read and summed: what is large takes all processors. */
static int write_all(struct writing *w)
{
    struct units c = {
        .unit = write_unit, .arg = w, .n = w->p->stretches, .room = sizeof(struct patch_stretch)};
    struct units_watch watch = {.arg = w};
    if (c.n < PATCH_LARGE)
        return patch_each(w->p, write_one, w);
    if (w->hooks) {
        watch.cancel = w->hooks->cancel;
        watch.progress = w->hooks->progress ? on_progress : NULL;
    }
    return units_run(&c, &watch);
}

/* Where the parts of the journal lie. */
static void place(struct patch *p, size_t name_len)
{
    uint64_t at = p->own;
    for (size_t i = 0; i < p->n_range; i++)
        if (p->range[i].src == 0) {
            p->range[i].src = at;
            at += round_up(p->range[i].n);
        }
    p->rest = at;
    p->table = at + patch_rest_bytes(p, name_len);
}

static void put_sum(struct buf *b, uint64_t before)
{
    if (!buf_error(b))
        buf_uint(b, patch_sum(before, b->data, b->len), 8, false);
}

static void put_fixed(struct buf *b, const struct patch *p, size_t name_len)
{
    buf_str(b, PATCH_MAGIC);
    buf_uint(b, PATCH_UNIT, 4, false);
    buf_uint(b, name_len, 4, false);
    buf_uint(b, p->before, 8, false);
    buf_uint(b, p->after, 8, false);
    buf_uint(b, p->n_range, 8, false);
    buf_uint(b, p->units, 8, false);
    buf_uint(b, p->rest, 8, false);
    put_sum(b, 0);
}

static int write_head(const struct writing *w)
{
    const struct patch *p = w->p;
    const struct sys *s = w->f->sys;
    CLEANUP(buf_free) struct buf fixed = BUF_INIT, b = BUF_INIT;
    size_t name_len = strlen(w->f->name);
    put_fixed(&fixed, p, name_len);
    for (size_t i = 0; i < p->n_range; i++) {
        buf_uint(&b, p->range[i].lo, 8, false);
        buf_uint(&b, p->range[i].n, 8, false);
        buf_uint(&b, p->range[i].src, 8, false);
    }
    for (uint64_t i = 0; i < p->units; i++)
        buf_uint(&b, p->sum[i], 8, false);
    buf_add(&b, w->f->name, name_len);
    int r = buf_error(&fixed);
    if (r == 0) {
        put_sum(&b, patch_sum(0, fixed.data, PATCH_FIXED - 8));
        r = buf_error(&b);
    }
    if (r == 0)
        r = sys_write_all(s, p->fd, b.data, b.len, p->rest);
    return r < 0 ? r : sys_write_all(s, p->fd, fixed.data, fixed.len, 0);
}

/* All of step 1 but for the files being made. */
static int fill(struct writing *w)
{
    struct patch *p = w->p;
    place(p, strlen(w->f->name));
    p->sum = malloc((size_t)(p->units + 1) * sizeof(*p->sum));
    int r = p->sum ? write_all(w) : -ENOMEM;
    if (r == 0) /* with its holes */
        r = w->f->sys->ftruncate(w->f->sys, w->undo, p->units * PATCH_UNIT);
    if (r == 0)
        r = write_head(w);
    if (r == 0)
        r = sys_sync(w->f->sys, p->fd);
    return r < 0 ? r : sys_sync_dir(w->f->sys, w->f->dir);
}

int patch_write(const struct edit_file *f, const struct edit_plan *plan,
                const struct edit_hooks *hooks, const struct log *lent, int fd, int undo,
                struct patch *ret, struct err *e)
{
    static const uint8_t zeros[PATCH_SECTOR];
    struct patch p = make_patch(plan);
    struct writing w = {f, plan, hooks, &p, undo, patch_sector_sum(zeros, PATCH_SECTOR, 0)};
    int r = find_header(f, plan, &p);
    if (r == 0)
        r = find_ranges(plan, lent, &p);
    p.own = lent ? round_up(log_end(lent)) : PATCH_UNIT;
    p.fd = fd;
    p.room = malloc(sizeof(*p.room));
    if (r == 0)
        r = p.room ? fill(&w) : -ENOMEM;
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

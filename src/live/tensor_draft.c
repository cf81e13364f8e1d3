/* SPDX-License-Identifier: MIT */
/* Drafts of tensors' views: see tensor_draft.h. */
#include "live/tensor_draft.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"

enum { GRANULE = TENSOR_GRANULE };

static uint64_t granules(uint64_t bytes)
{
    return bytes / GRANULE + (bytes % GRANULE > 0);
}

/* ---- read ---- */

/* Bytes of the file; behind its end they are zeros. */
static int read_file(const struct tensor_draft *d, uint64_t off, uint8_t *dst, size_t n)
{
    const struct sys *sys = d->f->sys;
    size_t done = 0;
    while (done < n) {
        ssize_t r = sys->pread(sys, d->fd, dst + done, n - done, off + done);
        if (r < 0 && r != -EINTR)
            return (int)r;
        if (r == 0)
            break;
        done += r > 0 ? (size_t)r : 0;
    }
    memset(dst + done, 0, n - done);
    return 0;
}

/* What stands where nothing was written. */
static int read_below(struct tensor_base *base, enum tensor_view view, uint64_t cut, uint64_t off,
                      uint8_t *dst, size_t n)
{
    size_t of_base = off < cut ? (size_t)min_u64(n, cut - off) : 0;
    memset(dst + of_base, 0, n - of_base);
    return of_base ? tensor_view_read(base, view, off, dst, of_base) : 0;
}

/* A stretch of a draft that comes from one place. */
struct stretch {
    bool present;
    size_t len;
    uint64_t cut;
    struct tensor_base *base; /* a reference */
};

/* Under the lock: the stretch at `off`, at most n bytes. */
static struct stretch stretch_at(struct tensor_draft *d, uint64_t off, size_t n)
{
    uint64_t lo, hi, end;
    struct stretch s = {.cut = d->cut, .base = tensor_base_ref(d->base)};
    bool any = bits_next(&d->present, off / GRANULE, &lo, &hi);
    s.present = any && lo <= off / GRANULE;
    end = s.present ? hi : any ? lo : UINT64_MAX / GRANULE;
    s.len = (size_t)min_u64(n, end * GRANULE - off);
    return s;
}

int tensor_draft_read(struct tensor_draft *d, uint64_t off, void *dst, size_t n, size_t *got)
{
    size_t done = 0;
    int r = 0;
    while (r == 0 && done < n) {
        lock_take(&d->lock);
        uint64_t at = off + done, left = at < d->size ? d->size - at : 0;
        struct stretch s = stretch_at(d, at, (size_t)min_u64(n - done, left));
        lock_drop(&d->lock);
        uint8_t *to = (uint8_t *)dst + done;
        if (s.present)
            r = read_file(d, at, to, s.len);
        else
            r = read_below(s.base, d->view, s.cut, at, to, s.len);
        tensor_base_unref(s.base);
        done += s.len;
        if (s.len == 0)
            break;
    }
    if (r == 0)
        *got = done;
    return r;
}

/* ---- written: all under the lock ---- */

/* Its file is made when something is to stand there: views are opened under a lock. */
static int need_file(struct tensor_draft *d)
{
    if (d->fd < 0)
        d->fd = edit_draft_open(d->f, NULL);
    return d->fd < 0 ? d->fd : 0;
}

static int put(struct tensor_draft *d, const void *bytes, size_t n, uint64_t off)
{
    int r = need_file(d);
    return r < 0 ? r : sys_write_all(d->f->sys, d->fd, bytes, n, off);
}

/* Fill a granule that is not in the file with what the draft shows there. */
static int fill(struct tensor_draft *d, uint64_t granule)
{
    uint8_t bytes[GRANULE];
    uint64_t at = granule * GRANULE;
    if (bits_has(&d->present, granule) || at >= d->size)
        return 0;
    size_t n = (size_t)min_u64(GRANULE, d->size - at);
    int r = read_below(d->base, d->view, d->cut, at, bytes, n);
    if (r == 0)
        r = put(d, bytes, n, at);
    return r ? r : bits_add(&d->present, granule, granule + 1);
}

/* Fill the granules that a write covers in part. */
static int fill_edges(struct tensor_draft *d, uint64_t off, uint64_t end)
{
    int r = 0;
    if (off % GRANULE)
        r = fill(d, off / GRANULE);
    if (r == 0 && end % GRANULE && end < d->size)
        r = fill(d, end / GRANULE);
    return r;
}

static int too_long(const struct tensor_draft *d, struct err *e)
{
    if (d->limit == TENSOR_DRAFT_MAX)
        return err_set(e, -EFBIG, "longer than any tensor");
    return err_set(e, -EFBIG, "%s of this tensor has %llu bytes, no more",
                   tensor_view_name(d->view), (unsigned long long)d->limit);
}

/* The bytes that the draft shows, which is not read by others meanwhile. */
static int show_bytes(const struct tensor_draft *d, uint8_t *dst, size_t n)
{
    int r = 0;
    for (uint64_t at = 0; r == 0 && at < n; at += GRANULE) {
        size_t len = (size_t)min_u64(GRANULE, n - at);
        if (bits_has(&d->present, at / GRANULE))
            r = read_file(d, at, dst + at, len);
        else
            r = read_below(d->base, d->view, d->cut, at, dst + at, len);
    }
    return r;
}

/* A NumPy header, as far as it is there, must be one. */
static int parse_header(struct tensor_draft *d, size_t most, struct err *e)
{
    uint8_t *head = malloc(NPY_MAX_HEADER);
    size_t n = (size_t)min_u64(most, d->size);
    if (!head)
        return err_set(e, -ENOMEM, "no memory");
    d->npy = (struct npy){0};
    int r = show_bytes(d, head, n);
    r = r < 0 ? err_set(e, r, "cannot read a draft: %s", strerror(-r))
              : npy_parse(head, n, &d->npy, e);
    free(head);
    return r;
}

/* Most headers are short. */
static int find_header(struct tensor_draft *d, struct err *e)
{
    int r = parse_header(d, GRANULE, e);
    return r == NPY_MORE && d->size > GRANULE ? parse_header(d, NPY_MAX_HEADER, e) : r;
}

static uint64_t npy_end(const struct npy *npy)
{
    return npy->header + npy->n_elem * npy->width;
}

/* After a write at `off`. */
static int check_header(struct tensor_draft *d, uint64_t off, struct err *e)
{
    int r = 0;
    if (off < (d->npy.header ? d->npy.header : NPY_MAX_HEADER))
        r = find_header(d, e);
    if (r == 0 && d->npy.header && d->size > npy_end(&d->npy))
        return err_set(e, -EFBIG, "longer than its header says: %llu bytes",
                       (unsigned long long)npy_end(&d->npy));
    return r < 0 ? r : 0;
}

/* It ends at `end` from now on, if that is more. */
static int grow(struct tensor_draft *d, uint64_t end)
{
    if (end <= d->size)
        return 0;
    int r = bits_add(&d->fresh, d->size / GRANULE, granules(end));
    if (r == 0)
        d->size = end;
    return r;
}

static int write_at(struct tensor_draft *d, uint64_t off, const void *bytes, size_t n,
                    struct err *e)
{
    uint64_t end;
    if (!add_u64(off, n, &end) || end > d->limit)
        return too_long(d, e);
    if (n == 0)
        return 0;
    int r = need_file(d);
    if (r == 0)
        r = fill_edges(d, off, end);
    if (r == -EIO)
        return err_set(e, r,
                       "cannot read the tensor around it, or write a draft beside the model: %s",
                       strerror(-r));
    if (r == 0)
        r = bits_add(&d->present, off / GRANULE, granules(end));
    if (r == 0)
        r = bits_add(&d->fresh, off / GRANULE, granules(end));
    if (r == 0)
        r = put(d, bytes, n, off);
    if (r == 0)
        r = grow(d, end);
    if (r < 0)
        return err_set(e, r, "cannot write a draft beside the model: %s", strerror(-r));
    view_event(&d->state, VIEW_WRITE);
    return 0;
}

int tensor_draft_write(struct tensor_draft *d, bool append, uint64_t off, const void *bytes,
                       size_t n, struct err *e)
{
    lock_take(&d->lock);
    off = append ? d->size : off;
    int r = write_at(d, off, bytes, n, e);
    if (r == 0 && tensor_view_is_npy(d->view))
        r = check_header(d, off, e);
    lock_drop(&d->lock);
    return r;
}

/* What it grows by are zeros, as if they were written: cp(1) leaves out those of a sparse file. */
static int extend(struct tensor_draft *d, uint64_t end, struct err *e)
{
    bool longer = end > d->size;
    if (grow(d, end) < 0)
        return err_set(e, -ENOMEM, "no memory for a draft");
    if (longer)
        view_event(&d->state, VIEW_WRITE);
    return 0;
}

static int truncate_to(struct tensor_draft *d, uint64_t size, struct err *e)
{
    if (size > d->limit)
        return too_long(d, e);
    if (size < d->size) {
        int r = d->fd < 0 ? 0 : d->f->sys->ftruncate(d->f->sys, d->fd, size);
        if (r < 0)
            return err_set(e, r, "cannot truncate a draft: %s", strerror(-r));
        bits_remove(&d->present, granules(size), BITS_MAX);
        bits_remove(&d->fresh, granules(size), BITS_MAX);
        d->cut = min_u64(d->cut, size);
        d->npy = size < d->npy.header ? (struct npy){0} : d->npy;
        d->truncations++;
        d->size = size;
        view_event(&d->state, VIEW_CUT);
    }
    return extend(d, size, e);
}

int tensor_draft_truncate(struct tensor_draft *d, uint64_t size, struct err *e)
{
    lock_take(&d->lock);
    int r = truncate_to(d, size, e);
    lock_drop(&d->lock);
    return r;
}

int tensor_draft_allocate(struct tensor_draft *d, uint64_t off, uint64_t n, bool keep_size,
                          struct err *e)
{
    uint64_t end;
    lock_take(&d->lock);
    int r = !add_u64(off, n, &end) || end > d->limit ? too_long(d, e) : 0;
    if (r == 0 && !keep_size)
        r = extend(d, end, e);
    lock_drop(&d->lock);
    return r;
}

/* ---- made ---- */

/* How long the view of a tensor that exists can be: a NumPy array may have any shape. */
static uint64_t limit_of(const struct tensor_base *base, enum tensor_view view)
{
    if (!base->exists || tensor_view_is_npy(view))
        return TENSOR_DRAFT_MAX;
    return tensor_view_size(base, view);
}

int tensor_draft_make(const struct edit_file *f, struct tensor_base *base, enum tensor_view view,
                      struct tensor_draft **ret, struct err *e)
{
    struct tensor_draft *d = calloc(1, sizeof(*d));
    if (!d)
        return err_set(e, -ENOMEM, "no memory for a draft");
    d->fd = -1;
    d->f = f;
    d->view = view;
    lock_init(&d->lock);
    d->base = tensor_base_ref(base);
    d->limit = limit_of(base, view);
    d->size = d->cut = tensor_view_size(base, view);
    /* Without a header that can be taken (of more dimensions, of a model that was cut) writes find out. */
    if (tensor_view_is_npy(view) && d->size > 0 && find_header(d, NULL) == -ENOMEM) {
        tensor_draft_free(d);
        return err_set(e, -ENOMEM, "no memory for a draft");
    }
    *ret = d;
    return 0;
}

void tensor_draft_free(struct tensor_draft *d)
{
    if (!d)
        return;
    sys_close(d->f->sys, &d->fd);
    tensor_base_unref(d->base);
    bits_free(&d->present);
    bits_free(&d->fresh);
    bits_free(&d->judging);
    spool_free(&d->spool);
    lock_destroy(&d->lock);
    free(d);
}

uint64_t tensor_draft_size(const struct tensor_draft *d)
{
    return atomic_load(&d->size);
}

enum view_state tensor_draft_state(const struct tensor_draft *d)
{
    return atomic_load(&d->state);
}

void tensor_draft_drop(struct tensor_draft *d)
{
    lock_take(&d->lock);
    view_event(&d->state, VIEW_DROP);
    lock_drop(&d->lock);
}

void tensor_draft_limit(struct tensor_draft *d, uint64_t limit)
{
    lock_take(&d->lock);
    d->limit = limit;
    lock_drop(&d->lock);
}

/* ---- judged ---- */

int tensor_draft_give(struct tensor_draft *d, struct edit_draft **ret, struct err *e)
{
    int r = need_file(d);
    if (r == 0)
        r = d->f->sys->ftruncate(d->f->sys, d->fd, d->size);
    if (r < 0)
        return err_set(e, r, "cannot truncate a draft: %s", strerror(-r));
    r = edit_draft_file(d->fd, ret, e);
    if (r == 0)
        d->fd = -1;
    return r;
}

bool tensor_draft_begin(struct tensor_draft *d, struct tensor_round *ret)
{
    lock_take(&d->lock);
    bool any = view_is_due(d->state);
    if (any) {
        struct bits none = d->judging;
        *ret = (struct tensor_round){tensor_base_ref(d->base), d->size, d->cut, d->truncations};
        d->judging = d->fresh;
        d->fresh = none;
        view_event(&d->state, VIEW_JUDGE);
    }
    lock_drop(&d->lock);
    return any;
}

int tensor_draft_hold(struct tensor_draft *d, uint64_t lo, uint64_t hi)
{
    int r = 0;
    for (uint64_t i = lo / GRANULE; r == 0 && i < granules(hi); i++) {
        lock_take(&d->lock);
        if (i * GRANULE < d->cut) /* else they are zeros in any case */
            r = fill(d, i);
        lock_drop(&d->lock);
    }
    return r;
}

int tensor_draft_detach(struct tensor_draft *d, struct tensor_round *round)
{
    int r = tensor_draft_hold(d, 0, round->cut);
    lock_take(&d->lock);
    if (r == 0)
        r = bits_add(&d->judging, 0, granules(d->size));
    if (r == 0)
        round->cut = d->cut = 0;
    lock_drop(&d->lock);
    return r;
}

/* All that was judged is to be judged again. */
static void put_back(struct tensor_draft *d, enum view_event event)
{
    bits_join(&d->fresh, &d->judging);
    view_event(&d->state, event);
}

int tensor_draft_end(struct tensor_draft *d, struct tensor_round *round, bool keep, int r)
{
    lock_take(&d->lock);
    bool gone = d->truncations != round->truncations;
    if (keep && gone)
        r = -EAGAIN;
    if (!keep || gone)
        put_back(d, r < 0 && r != -EAGAIN ? VIEW_REFUSE : VIEW_LEAVE);
    lock_drop(&d->lock);
    tensor_base_unref(round->base);
    return r;
}

void tensor_draft_passed(struct tensor_draft *d, struct tensor_base *now)
{
    lock_take(&d->lock);
    struct tensor_base *before = d->base;
    d->base = tensor_base_ref(now);
    bits_free(&d->judging);
    view_event(&d->state, VIEW_PASS);
    lock_drop(&d->lock);
    tensor_base_unref(before);
}

void tensor_draft_failed(struct tensor_draft *d)
{
    lock_take(&d->lock);
    put_back(d, VIEW_REFUSE);
    lock_drop(&d->lock);
}

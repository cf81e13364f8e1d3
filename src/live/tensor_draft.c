/* SPDX-License-Identifier: MIT */
/* Drafts of tensors' views: see tensor_draft.h. */
#include "live/tensor_draft.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"

enum { GRANULE = TENSOR_GRANULE };

/* Bytes of `raw` lie in the file as they lie in the model, up to a multiple of it: no page is larger, and
 * no block that can be cloned. */
#define SHIFT ((uint64_t)64 << 10)

static uint64_t granules(uint64_t bytes)
{
    return tensor_granules(bytes);
}

/* ---- read ---- */

/* Bytes of the file; behind its end they are zeros. */
static int read_file(const struct tensor_draft *d, const struct edit_draft *file, uint64_t off,
                     uint8_t *dst, size_t n)
{
    const struct sys *sys = d->f->sys;
    size_t done = 0;
    while (done < n) {
        ssize_t r = sys->pread(sys, file->src.fd, dst + done, n - done, d->shift + off + done);
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
struct below {
    struct tensor_base *base; /* a reference */
    struct tensor_seal *seal; /* a reference: what was sealed of the draft lies over it; or NULL */
    enum tensor_view view;
    uint64_t cut;
};

static void below_free(struct below *b)
{
    tensor_base_unref(b->base);
    tensor_seal_unref(b->seal);
}

/* Under `lock`. */
static struct below below_of(const struct tensor_draft *d)
{
    return (struct below){tensor_base_ref(d->base), tensor_seal_ref(d->seal), d->view, d->cut};
}

static int read_below(const struct below *b, uint64_t off, uint8_t *dst, size_t n)
{
    size_t there = off < b->cut ? (size_t)min_u64(n, b->cut - off) : 0;
    memset(dst + there, 0, n - there);
    if (there == 0)
        return 0;
    return b->seal ? tensor_seal_read(b->seal, off, dst, there)
                   : tensor_view_read(b->base, b->view, off, dst, there);
}

/* The stretch at `off` that comes from one place, at most n bytes; *present: the file. Under either
 * lock. */
static size_t stretch_at(const struct tensor_draft *d, uint64_t off, size_t n, bool *present)
{
    uint64_t lo, hi, end;
    bool any = bits_next(&d->present, off / GRANULE, &lo, &hi);
    *present = any && lo <= off / GRANULE;
    end = *present ? hi : any ? lo : UINT64_MAX / GRANULE;
    return (size_t)min_u64(n, end * GRANULE - off);
}

int tensor_draft_read(struct tensor_draft *d, uint64_t off, void *dst, size_t n, size_t *got)
{
    size_t done = 0;
    int r = 0;
    while (r == 0 && done < n) {
        lock_take(&d->lock);
        uint64_t at = off + done, left = at < d->size ? d->size - at : 0;
        bool present;
        size_t len = stretch_at(d, at, (size_t)min_u64(n - done, left), &present);
        uint8_t *to = (uint8_t *)dst + done;
        const bool memory = present && draft_bytes_in_memory(d->to);
        if (memory)
            memcpy(to, d->to->bytes + (at - d->first), len);
        struct edit_draft *file = present ? edit_draft_ref(d->to) : NULL;
        struct below below = below_of(d);
        lock_drop(&d->lock);
        if (!present)
            r = read_below(&below, at, to, len);
        else if (!memory)
            r = read_file(d, file, at, to, len);
        below_free(&below);
        edit_draft_unref(file);
        done += len;
        if (len == 0)
            break;
    }
    if (r == 0)
        *got = done;
    return r;
}

/* ---- written: one at a time, with `io` ---- */

static bool in_file(const struct tensor_draft *d)
{
    return d->to && !draft_bytes_in_memory(d->to);
}

/* Room for n bytes from `first` on, when something is to stand there: views are opened under a lock. */
static int make_room(struct tensor_draft *d, uint64_t first, uint64_t n)
{
    struct edit_draft *to, *old = d->to;
    assert(lock_held(&d->io));
    int r = draft_bytes_room(d->f, old, n, d->shift + first, &to, NULL);
    if (r < 0 || to == old)
        return r;
    lock_take(&d->lock);
    d->to = to;
    d->first = first;
    lock_drop(&d->lock);
    edit_draft_unref(old);
    return 0;
}

int tensor_draft_to_file(struct tensor_draft *d)
{
    return make_room(d, d->first, UINT64_MAX);
}

/* Memory has granules from the first one on, or from where the first write is. */
static int room_for(struct tensor_draft *d, uint64_t off, uint64_t end)
{
    uint64_t first = d->to ? d->first : end <= DRAFT_BYTES_FEW ? 0 : off / GRANULE * GRANULE;
    if (off < first)
        return tensor_draft_to_file(d);
    return make_room(d, first, granules(end) * GRANULE - first);
}

static int put(struct tensor_draft *d, const void *bytes, size_t n, uint64_t off)
{
    int r = room_for(d, off, off + n);
    if (r < 0)
        return r;
    if (in_file(d))
        return draft_bytes_write(d->f, d->to, bytes, n, d->shift + off);
    lock_take(&d->lock);
    r = draft_bytes_write(d->f, d->to, bytes, n, off - d->first);
    lock_drop(&d->lock);
    return r;
}

/* Bytes behind `size` are zeros again. */
static int clear_behind(struct tensor_draft *d, uint64_t size)
{
    int r = 0;
    if (in_file(d)) {
        r = draft_bytes_cut(d->f, d->to, d->shift + size);
    } else if (d->to) {
        lock_take(&d->lock);
        (void)draft_bytes_cut(d->f, d->to, size > d->first ? size - d->first : 0);
        lock_drop(&d->lock);
    }
    d->behind &= r < 0;
    return r;
}

/* Granules are in the file from now on. */
static int add_present(struct tensor_draft *d, uint64_t first, uint64_t last)
{
    lock_take(&d->lock);
    int r = bits_add(&d->present, first, last);
    lock_drop(&d->lock);
    d->untidy |= r < 0;
    return r;
}

int tensor_draft_fill(struct tensor_draft *d, uint64_t granule)
{
    uint8_t bytes[GRANULE];
    uint64_t at = granule * GRANULE;
    assert(lock_held(&d->io));
    if (bits_has(&d->present, granule) || at >= d->size)
        return 0;
    size_t n = (size_t)min_u64(GRANULE, d->size - at);
    lock_take(&d->lock);
    struct below below = below_of(d);
    lock_drop(&d->lock);
    int r = read_below(&below, at, bytes, n);
    below_free(&below);
    if (r == 0)
        r = put(d, bytes, n, at);
    return r ? r : add_present(d, granule, granule + 1);
}

/* Fill the granules that a write covers in part. */
static int fill_edges(struct tensor_draft *d, uint64_t off, uint64_t end)
{
    int r = 0;
    if (off % GRANULE)
        r = tensor_draft_fill(d, off / GRANULE);
    if (r == 0 && end % GRANULE && end < d->size)
        r = tensor_draft_fill(d, end / GRANULE);
    return r;
}

static int too_long(const struct tensor_draft *d, struct err *e)
{
    unsigned long long limit = atomic_load(&d->limit);
    if (limit == TENSOR_DRAFT_MAX)
        return err_set(e, -EFBIG, "longer than any tensor");
    return err_set(e, -EFBIG, "%s of this tensor has %llu bytes, no more",
                   tensor_view_name(d->view), limit);
}

/* A NumPy header, as far as it is there, must be one. */
static int parse_header(struct tensor_draft *d, size_t most, struct err *e)
{
    uint8_t *head = malloc(NPY_MAX_HEADER);
    size_t n = 0;
    struct npy npy = {0};
    if (!head)
        return err_set(e, -ENOMEM, "no memory");
    int r = tensor_draft_read(d, 0, head, most, &n);
    r = r < 0 ? err_set(e, r, "cannot read a draft: %s", strerror(-r))
              : npy_parse(head, n, &npy, e);
    free(head);
    lock_take(&d->lock);
    d->npy = npy;
    lock_drop(&d->lock);
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

/* Granules [first, last) are to be judged, and it ends at `end` from now on, if that is more. */
static int note_written(struct tensor_draft *d, uint64_t first, uint64_t last, uint64_t end)
{
    lock_take(&d->lock);
    int r = bits_add(&d->fresh, first, last);
    if (r == 0 && end > d->size)
        r = bits_add(&d->fresh, d->size / GRANULE, granules(end));
    if (r == 0)
        d->size = max_u64(d->size, end);
    if (r == 0)
        view_event(&d->state, VIEW_WRITE);
    lock_drop(&d->lock);
    return r;
}

/* Granules behind `size` are not there. Under `lock`. */
static void forget_behind(struct tensor_draft *d, uint64_t size)
{
    bits_remove(&d->present, granules(size), BITS_MAX);
    bits_remove(&d->fresh, granules(size), BITS_MAX);
}

/* A write failed halfway. */
static void give_up(struct tensor_draft *d)
{
    lock_take(&d->lock);
    forget_behind(d, d->size);
    lock_drop(&d->lock);
    d->untidy = d->behind = true;
}

static int write_at(struct tensor_draft *d, uint64_t off, const void *bytes, size_t n,
                    struct err *e)
{
    uint64_t end;
    if (!add_u64(off, n, &end) || end > atomic_load(&d->limit))
        return too_long(d, e);
    if (n == 0)
        return 0;
    int r = d->behind ? clear_behind(d, d->size) : 0;
    if (r == 0)
        r = fill_edges(d, off, end);
    if (r == -EIO)
        return err_set(e, r,
                       "cannot read the tensor around it, or write a draft beside the model: %s",
                       strerror(-r));
    if (r == 0)
        r = put(d, bytes, n, off);
    if (r == 0)
        r = add_present(d, off / GRANULE, granules(end));
    if (r == 0)
        r = note_written(d, off / GRANULE, granules(end), end);
    if (r == 0)
        draft_bytes_sent(d->f, d->to, &d->run, d->shift + off, d->shift + end);
    else
        give_up(d);
    return r < 0 ? err_set(e, r, "cannot write a draft beside the model: %s", strerror(-r)) : 0;
}

int tensor_draft_write(struct tensor_draft *d, bool append, uint64_t off, const void *bytes,
                       size_t n, struct err *e)
{
    lock_take(&d->io);
    off = append ? d->size : off;
    int r = write_at(d, off, bytes, n, e);
    if (r == 0 && tensor_view_is_npy(d->view))
        r = check_header(d, off, e);
    lock_drop(&d->io);
    return r;
}

/* What it grows by are zeros, as if they were written: cp(1) leaves out those of a sparse file. */
static int extend(struct tensor_draft *d, uint64_t end, struct err *e)
{
    uint64_t size = d->size;
    if (end <= size)
        return 0;
    int r = d->behind ? clear_behind(d, size) : 0;
    if (r < 0)
        return err_set(e, r, "cannot truncate a draft: %s", strerror(-r));
    r = note_written(d, size / GRANULE, granules(end), end);
    return r < 0 ? err_set(e, -ENOMEM, "no memory for a draft") : 0;
}

static int truncate_to(struct tensor_draft *d, uint64_t size, struct err *e)
{
    if (size > atomic_load(&d->limit))
        return too_long(d, e);
    if (size < d->size) {
        int r = clear_behind(d, size);
        if (r < 0)
            return err_set(e, r, "cannot truncate a draft: %s", strerror(-r));
        lock_take(&d->lock);
        forget_behind(d, size);
        d->cut = min_u64(d->cut, size);
        d->npy = size < d->npy.header ? (struct npy){0} : d->npy;
        d->truncations++;
        d->size = size;
        view_event(&d->state, VIEW_CUT);
        lock_drop(&d->lock);
    }
    return extend(d, size, e);
}

int tensor_draft_truncate(struct tensor_draft *d, uint64_t size, struct err *e)
{
    lock_take(&d->io);
    int r = truncate_to(d, size, e);
    lock_drop(&d->io);
    return r;
}

int tensor_draft_allocate(struct tensor_draft *d, uint64_t off, uint64_t n, bool keep_size,
                          struct err *e)
{
    uint64_t end;
    lock_take(&d->io);
    int r = !add_u64(off, n, &end) || end > atomic_load(&d->limit) ? too_long(d, e) : 0;
    if (r == 0 && !keep_size)
        r = extend(d, end, e);
    lock_drop(&d->io);
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

static uint64_t values_of(const struct tensor_base *base, enum tensor_view view)
{
    return base->n_elem * tensor_view_form(view)->width;
}

/* Where its bytes are in the model's file. */
static uint64_t place_of(const struct tensor_base *b)
{
    return b->store && b->place < b->store->n ? b->store->place[b->place].off : 0;
}

int tensor_draft_make(const struct edit_file *f, struct tensor_base *base, enum tensor_view view,
                      struct tensor_draft **ret, struct err *e)
{
    struct tensor_draft *d = calloc(1, sizeof(*d));
    if (!d)
        return err_set(e, -ENOMEM, "no memory for a draft");
    d->f = f;
    d->view = view;
    lock_init(&d->io);
    lock_init(&d->lock);
    d->base = tensor_base_ref(base);
    atomic_init(&d->limit, limit_of(base, view));
    d->size = d->cut = tensor_view_size(base, view);
    d->shift = view == TENSOR_RAW && base->exists ? EDIT_DRAFT_ROOM + place_of(base) % SHIFT : 0;
    /* The header alone is not read from the model. Without one that can be taken (of more dimensions)
     * writes find out. */
    if (tensor_view_is_npy(view) && d->size > 0 &&
        parse_header(d, (size_t)(d->size - values_of(base, view)), NULL) == -ENOMEM) {
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
    edit_draft_unref(d->to);
    tensor_seal_unref(d->seal);
    tensor_base_unref(d->base);
    bits_free(&d->present);
    bits_free(&d->fresh);
    bits_free(&d->judging);
    spool_free(&d->spool);
    lock_destroy(&d->io);
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
    atomic_store(&d->limit, limit);
}

/* ---- for judges ---- */

static int share(struct tensor_draft *d, struct edit_draft **ret, struct err *e)
{
    int r = room_for(d, 0, d->size);
    if (r == 0)
        r = clear_behind(d, d->size);
    if (r < 0)
        return err_set(e, r, "cannot truncate a draft: %s", strerror(-r));
    lock_take(&d->lock);
    d->to->src.size = (in_file(d) ? d->shift : 0) + d->size;
    *ret = edit_draft_ref(d->to);
    lock_drop(&d->lock);
    return 0;
}

int tensor_draft_share(struct tensor_draft *d, struct edit_draft **ret, struct err *e)
{
    lock_take(&d->io);
    int r = share(d, ret, e);
    lock_drop(&d->io);
    return r;
}

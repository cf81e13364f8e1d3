/* SPDX-License-Identifier: MIT */
/* Manages drafts: their states and bytes (draft.h). */
#include "live/draft.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/bytes.h"
#include "base/sys.h"
#include "edit/commit.h"

/* Maximum number of bytes copied to the log at once. */
#define HELD_MOST 4096

/* A sequential run is sent to the disk once it has this many bytes. */
#define RUN_LEAST ((uint64_t)4 << 20)

/* ---- the log ---- */

/* A log with at least this many bytes is no longer extended. */
#define LARGE ((uint64_t)1 << 30)
/* Limit on a log's length including holes; file systems allow files of 16 TiB or more. */
#define LONG ((uint64_t)1 << 36)

static int make(const struct logs *s, struct log **ret, struct err *e)
{
    int fd = edit_unnamed(s->f, e);
    if (fd < 0)
        return fd;
    int r = log_make(fd, ret, e);
    if (r < 0)
        sys_close(s->f->sys, &fd);
    return r;
}

/* True if nothing else refers to the log. Call with the lock held, so that no new references can be
 * made. */
static bool is_unused(const struct log *log)
{
    return atomic_load(&log->refs) == 1;
}

/* Replace the log. Returns the old one, to be closed without the lock. */
static struct log *swap(struct logs *s, struct log *now)
{
    struct log *old = s->now;
    s->now = now;
    return old;
}

int logs_take(struct logs *s, uint64_t n, uint64_t phase, struct log **ret, uint64_t *at,
              struct err *e)
{
    struct log *old = NULL, *made;
    lock_take(s->lock);
    if (s->now &&
        (is_unused(s->now) || atomic_load(&s->now->used) >= LARGE || log_end(s->now) >= LONG))
        old = swap(s, NULL);
    while (!s->now) {
        lock_drop(s->lock);
        log_unref(old);
        int r = make(s, &made, e);
        if (r < 0)
            return r;
        lock_take(s->lock);
        old = swap(s, made);
    }
    *at = log_take(s->now, n, phase);
    *ret = log_ref(s->now);
    lock_drop(s->lock);
    log_unref(old);
    return 0;
}

int logs_put(const struct logs *s, struct log *log, uint64_t at, const void *bytes, size_t n)
{
    atomic_fetch_add(&log->used, n);
    return sys_write_all(s->f->sys, log->src.fd, bytes, n, at);
}

int logs_failed(int r, struct err *e)
{
    return err_sys(e, r, "cannot write a draft beside the model");
}

int logs_take_zeros(struct logs *s, uint64_t n, struct log **ret, uint64_t *at, struct err *e)
{
    int r = logs_take(s, n, 0, ret, at, e);
    if (r < 0)
        return r;
    r = logs_put(s, *ret, *at + n - 1, "", 1); /* leaves a hole before this byte */
    if (r < 0)
        log_unref(*ret);
    return logs_failed(r, e);
}

void logs_rest(struct logs *s)
{
    lock_take(s->lock);
    struct log *old = s->now && is_unused(s->now) ? swap(s, NULL) : NULL;
    lock_drop(s->lock);
    log_unref(old);
}

/* ---- bytes written to a view ---- */

void extents_free(struct extents *s)
{
    for (size_t i = 0; i < s->n; i++)
        log_unref(s->of[i].log);
    free(s->of);
    *s = (struct extents){0};
}

static uint64_t end_of(const struct extent *x)
{
    return x->at + x->len;
}

/* Return the index of the first extent that ends after `off`, or the number of extents. */
static size_t find(const struct extents *s, uint64_t off)
{
    const size_t i = UPTO(s->of, at, s->n, off);
    return i && end_of(&s->of[i - 1]) > off ? i - 1 : i;
}

/* Return the part [lo, hi) of an extent, with a new reference. */
static struct extent part(const struct extent *x, uint64_t lo, uint64_t hi)
{
    struct extent ret = *x;
    ret.at = lo;
    ret.len = hi - lo;
    ret.src += lo - x->at;
    if (ret.log)
        (void)log_ref(ret.log);
    return ret;
}

/* Merge extent i with the next one if that one continues it. */
static void join(struct extents *s, size_t i)
{
    struct extent *x = &s->of[i], *next = x + 1;
    if (i + 1 >= s->n || next->at != end_of(x) || next->log != x->log || next->fresh != x->fresh ||
        (x->log && next->src != x->src + x->len))
        return;
    x->len += next->len;
    log_unref(next->log);
    memmove(next, next + 1, (s->n - i - 2) * sizeof(*next));
    s->n--;
}

/* Replace bytes [lo, hi) with this extent, taking ownership of its reference, or with nothing if n
 * is 0. The list must have room for two more extents. */
static void replace(struct extents *s, uint64_t lo, uint64_t hi, const struct extent *with,
                    size_t n)
{
    struct extent now[3] = {{0}};
    size_t first = find(s, lo), last = first, k = 0;
    if (first < s->n && s->of[first].at < lo)
        now[k++] = part(&s->of[first], s->of[first].at, lo);
    if (n)
        now[k++] = *with;
    for (; last < s->n && s->of[last].at < hi; last++) {
        if (end_of(&s->of[last]) > hi)
            now[k++] = part(&s->of[last], hi, end_of(&s->of[last]));
        log_unref(s->of[last].log);
    }
    memmove(s->of + first + k, s->of + last, (s->n - last) * sizeof(*s->of));
    memcpy(s->of + first, now, k * sizeof(*now));
    s->n = first + k + (s->n - last);
    for (size_t i = first + k + 1; i-- > 0 && i + 1 >= first;)
        join(s, i);
}

int extents_put(struct extents *s, const struct extent *x)
{
    int r = array_grow(&s->of, &s->cap, s->n + 2, sizeof(*s->of));
    if (r < 0)
        return r;
    const struct extent own = part(x, x->at, end_of(x));
    replace(s, x->at, end_of(x), &own, 1);
    return 0;
}

void extents_cut(struct extents *s, uint64_t size)
{
    if (s->n)
        replace(s, size, UINT64_MAX, NULL, 0);
}

int extents_copy(const struct extents *s, struct extents *ret)
{
    int r = array_grow(&ret->of, &ret->cap, s->n + 1, sizeof(*ret->of));
    if (r < 0)
        return r;
    for (size_t i = 0; i < s->n; i++)
        ret->of[i] = part(&s->of[i], s->of[i].at, end_of(&s->of[i]));
    ret->n = s->n;
    return 0;
}

uint64_t extents_stretch(const struct extents *s, uint64_t off, uint64_t n,
                         const struct extent **ret)
{
    const size_t i = find(s, off);
    const struct extent *x = i < s->n ? &s->of[i] : NULL;
    *ret = x && x->at <= off ? x : NULL;
    if (*ret)
        return min_u64(n, end_of(x) - off);
    return x ? min_u64(n, x->at - off) : n;
}

int extent_read(const struct extent *x, uint64_t off, void *dst, size_t n)
{
    if (x->log)
        return x->log->src.read(&x->log->src, x->src + (off - x->at), dst, n);
    memset(dst, 0, n);
    return 0;
}

/* ---- drafts and their states ---- */

struct draft *draft_new(void)
{
    struct draft *d = calloc(1, sizeof(*d));
    if (!d)
        return NULL;
    lock_init(&d->io);
    lock_init(&d->lock);
    return d;
}

void draft_free(struct draft *d)
{
    if (!d)
        return;
    buf_free(&d->text);
    shown_free(&d->before);
    free(d->helper);
    extents_free(&d->written);
    log_unref(d->room.log);
    tensor_base_unref(d->base);
    free(d->judging.of);
    lock_destroy(&d->io);
    lock_destroy(&d->lock);
    free(d);
}

/* Marks an event that cannot happen in a state. */
#define NEVER DRAFT_STATES

#define CLEAN DRAFT_CLEAN
#define EMPTIED DRAFT_EMPTIED
#define WRITTEN DRAFT_WRITTEN
#define JUDGED DRAFT_JUDGED
#define MORE DRAFT_MORE
#define SHORT DRAFT_SHORT
#define ACCEPTED DRAFT_ACCEPTED
#define REFUSED DRAFT_REFUSED
#define DROPPED DRAFT_DROPPED

// clang-format off
static const enum draft_state table[DRAFT_STATES][DRAFT_EVENTS] = {
    /* WRITE CUT EMPTY JUDGE PASS LEAVE LACK REFUSE TAKE_BACK REOPEN DROP */
    [CLEAN]    = {WRITTEN, CLEAN,   EMPTIED, NEVER,  NEVER,    NEVER,   NEVER, NEVER,   CLEAN,   CLEAN,  CLEAN},
    [EMPTIED]  = {WRITTEN, EMPTIED, EMPTIED, NEVER,  EMPTIED,  NEVER,   NEVER, EMPTIED, EMPTIED, NEVER,  EMPTIED},
    [WRITTEN]  = {WRITTEN, WRITTEN, EMPTIED, JUDGED, ACCEPTED, NEVER,   SHORT, REFUSED, WRITTEN, CLEAN,  DROPPED},
    [JUDGED]   = {MORE,    JUDGED,  JUDGED,  NEVER,  CLEAN,    WRITTEN, NEVER, REFUSED, JUDGED,  NEVER,  NEVER},
    [MORE]     = {MORE,    MORE,    JUDGED,  NEVER,  WRITTEN,  WRITTEN, NEVER, WRITTEN, MORE,    NEVER,  NEVER},
    [SHORT]    = {WRITTEN, NEVER,   EMPTIED, NEVER,  NEVER,    NEVER,   NEVER, NEVER,   NEVER,   CLEAN,  NEVER},
    [ACCEPTED] = {WRITTEN, NEVER,   EMPTIED, NEVER,  NEVER,    NEVER,   NEVER, NEVER,   NEVER,   CLEAN,  NEVER},
    [REFUSED]  = {WRITTEN, WRITTEN, EMPTIED, JUDGED, NEVER,    NEVER,   NEVER, NEVER,   CLEAN,   CLEAN,  DROPPED},
    [DROPPED]  = {DROPPED, DROPPED, DROPPED, NEVER,  NEVER,    NEVER,   NEVER, NEVER,   DROPPED, NEVER,  DROPPED},
};
// clang-format on

void draft_event(struct draft *d, enum draft_event event)
{
    const enum draft_state to = table[atomic_load(&d->state)][event];
    assert(to != NEVER);
    atomic_store(&d->state, to);
}

bool draft_is_due(enum draft_state state)
{
    return state == WRITTEN || state == REFUSED;
}

bool draft_is_unaccepted(enum draft_state state)
{
    return draft_is_due(state) || state == JUDGED || state == MORE;
}

/* ---- read ---- */

/* Read bytes of one stretch from x or, if x is NULL, from the base. Bytes past `cut` are zero: a
 * round that was detached after a truncation has no extents there. */
static int read_stretch(const struct extent *x, const struct tensor_base *base,
                        enum tensor_view view, uint64_t cut, uint64_t off, uint8_t *dst, size_t n)
{
    if (x)
        return extent_read(x, off, dst, n);
    const size_t there = (size_t)within_u64(off, n, cut);
    memset(dst + there, 0, n - there);
    return there ? tensor_view_read(base, view, off, dst, there) : 0;
}

int tensor_draft_read(struct draft *d, uint64_t off, void *dst, size_t n, size_t *got)
{
    size_t done = 0;
    int r = 0;
    while (r == 0 && done < n) {
        const struct extent *found;
        lock_take(&d->lock);
        uint64_t at = off + done, left = at < d->size ? d->size - at : 0;
        left = min_u64(left, n - done);
        size_t len = left ? (size_t)extents_stretch(&d->written, at, left, &found) : 0;
        struct extent x = len && found ? *found : (struct extent){0};
        const bool there = len && found;
        if (x.log)
            (void)log_ref(x.log);
        struct tensor_base *base = tensor_base_ref(d->base);
        const uint64_t cut = d->cut;
        const enum tensor_view view = d->view;
        lock_drop(&d->lock);
        if (len)
            r = read_stretch(there ? &x : NULL, base, view, cut, at, (uint8_t *)dst + done, len);
        log_unref(x.log);
        tensor_base_unref(base);
        done += len;
        if (len == 0)
            break;
    }
    if (r == 0)
        *got = done;
    return r;
}

int tensor_round_read(const struct draft *d, const struct tensor_round *round, uint64_t off,
                      void *dst, size_t n)
{
    const struct extent *x;
    uint8_t *to = dst;
    int r = 0;
    for (uint64_t len; r == 0 && n > 0; off += len, to += len, n -= (size_t)len) {
        len = extents_stretch(&round->shown, off, n, &x);
        r = read_stretch(x, round->base, d->view, round->cut, off, to, (size_t)len);
    }
    return r;
}

int tensor_round_piece(const struct draft *d, const struct tensor_round *round, uint64_t off,
                       uint64_t n, struct tensor_piece *ret, struct err *e)
{
    const struct extent *x;
    uint64_t len = extents_stretch(&round->shown, off, n, &x);
    *ret = (struct tensor_piece){.at = off, .len = len};
    assert(x || off + len <= round->cut);
    if (x && !x->log)
        return logs_take_zeros(d->logs, len, &ret->log, &ret->src, e);
    if (x) {
        ret->src = x->src + (off - x->at);
        ret->log = log_ref(x->log);
    }
    return 0;
}

/* ---- writes: one at a time, with `io` held ---- */

static void drop_room(struct draft *d)
{
    log_unref(d->room.log);
    d->room = (struct extent){0};
}

/*
 * Reserve space for bytes [off, off + n), aligned as in the model. If the view's length is limited,
 * reserve space for the whole view, so that contiguous bytes of the view are contiguous in the log;
 * otherwise only for these bytes, because the next write usually continues after them.
 */
static int make_room(struct draft *d, uint64_t off, uint64_t n, struct err *e)
{
    const bool known = d->limit < TENSOR_DRAFT_MAX;
    assert(lock_held(&d->io));
    if (d->room.log && off >= d->room.at && off + n <= d->room.at + d->room.len)
        return 0;
    drop_room(d);
    struct extent room = {.at = known ? 0 : off, .len = known ? d->limit : n};
    lock_take(&d->lock);
    const uint64_t phase = d->view == TENSOR_RAW ? tensor_base_offset(d->base) : 0;
    lock_drop(&d->lock);
    int r = logs_take(d->logs, room.len, phase + room.at, &room.log, &room.src, e);
    if (r < 0)
        return r;
    d->room = room;
    return 0;
}

static void release_log(void *log)
{
    log_unref(log);
}

/* Record that bytes [off, end) of the reserved space have been written. Send long sequential runs
 * to the disk early, so that a commit does not have to wait for them. */
static void note_run(struct draft *d, uint64_t off, uint64_t end)
{
    if (off != d->run)
        d->sent = off;
    d->run = end;
    if (end - d->sent < RUN_LEAST)
        return;
    write_out(d->logs->f->sys, d->room.log->src.fd, d->sent, end - d->sent, log_ref(d->room.log),
              release_log);
    d->sent = end;
}

/* Write bytes to the log, and add them to the list of extents. */
static int put(struct draft *d, uint64_t off, const void *bytes, size_t n, bool fresh,
               struct err *e)
{
    int r = make_room(d, off, n, e);
    if (r < 0)
        return r;
    const struct extent x = {off, n, d->room.src + (off - d->room.at), d->room.log, fresh};
    r = logs_put(d->logs, x.log, x.src, bytes, n);
    if (r == 0) {
        note_run(d, x.src, x.src + n);
        lock_take(&d->lock);
        r = extents_put(&d->written, &x);
        lock_drop(&d->lock);
    }
    return logs_failed(r, e);
}

/* Extend the draft with zeros as if they had been written, because cp(1) skips the zeros of a
 * sparse file. */
static int grow(struct draft *d, uint64_t end, struct err *e)
{
    const struct extent zeros = {.at = d->size, .len = end - d->size, .fresh = true};
    if (end <= d->size)
        return 0;
    lock_take(&d->lock);
    int r = extents_put(&d->written, &zeros);
    if (r == 0) {
        d->size = end;
        draft_event(d, DRAFT_WRITE);
    }
    lock_drop(&d->lock);
    return r < 0 ? err_set(e, r, "no memory for a draft") : 0;
}

static int too_long(const struct draft *d, struct err *e)
{
    if (d->limit == TENSOR_DRAFT_MAX)
        return err_set(e, -EFBIG, "longer than any tensor");
    if (draft_is_text(d))
        return err_set(e, -EINVAL, "%s is longer than %d bytes", tensor_views[d->view].name,
                       TENSOR_TEXT_MAX);
    return err_set(e, -EFBIG, "%s of this tensor holds at most %llu bytes",
                   tensor_views[d->view].name, (unsigned long long)d->limit);
}

/* Check the NumPy header in the first `most` bytes, which must be valid as far as it has been
 * written. */
static int parse_header(struct draft *d, size_t most, struct err *e)
{
    uint8_t *head = malloc(NPY_MAX_HEADER);
    size_t n = 0;
    struct npy npy = {0};
    if (!head)
        return err_set(e, -ENOMEM, "no memory");
    int r = tensor_draft_read(d, 0, head, most, &n);
    r = r < 0 ? err_sys(e, r, "cannot read a draft") : npy_parse(head, n, &npy, e);
    free(head);
    lock_take(&d->lock);
    d->npy = npy;
    lock_drop(&d->lock);
    return r;
}

static uint64_t npy_end(const struct npy *npy)
{
    return npy->header + npy->n_elem * npy->width;
}

/* Check the header after a write at `off`, if the write may have changed it. */
static int check_header(struct draft *d, uint64_t off, struct err *e)
{
    int r = 0;
    if (off < (d->npy.header ? d->npy.header : NPY_MAX_HEADER))
        r = parse_header(d, NPY_MAX_HEADER, e);
    if (r == 0 && d->npy.header && d->size > npy_end(&d->npy))
        return err_set(e, -EFBIG, "longer than its header says: %llu bytes",
                       (unsigned long long)npy_end(&d->npy));
    return r < 0 ? r : 0;
}

static int write_at(struct draft *d, uint64_t off, const void *bytes, size_t n, struct err *e)
{
    uint64_t end;
    if (!add_u64(off, n, &end) || end > d->limit)
        return too_long(d, e);
    if (draft_is_text(d) && off > d->size)
        return err_set(e, -EINVAL, "%s has a hole", tensor_views[d->view].name);
    if (n == 0)
        return 0;
    int r = put(d, off, bytes, n, true, e);
    if (r < 0)
        return r;
    r = grow(d, off, e);
    lock_take(&d->lock);
    if (r < 0) {
        extents_cut(&d->written, d->size);
    } else {
        d->size = max_u64(d->size, end);
        draft_event(d, DRAFT_WRITE);
    }
    lock_drop(&d->lock);
    return r;
}

int tensor_draft_write(struct draft *d, bool append, uint64_t off, const void *bytes, size_t n,
                       struct err *e)
{
    lock_take(&d->io);
    off = append ? d->size : off;
    int r = write_at(d, off, bytes, n, e);
    if (r == 0 && tensor_views[d->view].npy)
        r = check_header(d, off, e);
    /* A line with text after it is not yet the whole value, because the program may truncate the
     * text next. */
    if (r == 0 && draft_is_text(d) && n > 0 && off + n >= d->size)
        r = memchr(bytes, '\n', n) != NULL;
    lock_drop(&d->io);
    return r;
}

static int truncate_to(struct draft *d, uint64_t size, struct err *e)
{
    const enum draft_event event = !draft_is_text(d) ? DRAFT_CUT : size ? DRAFT_WRITE : DRAFT_EMPTY;
    if (size > d->limit)
        return too_long(d, e);
    if (size < d->size) {
        lock_take(&d->lock);
        extents_cut(&d->written, size);
        d->cut = min_u64(d->cut, size);
        d->npy = size < d->npy.header ? (struct npy){0} : d->npy;
        d->truncations++;
        d->size = size;
        draft_event(d, event);
        lock_drop(&d->lock);
    }
    return grow(d, size, e);
}

int tensor_draft_truncate(struct draft *d, uint64_t size, struct err *e)
{
    lock_take(&d->io);
    int r = truncate_to(d, size, e);
    lock_drop(&d->io);
    return r;
}

int tensor_draft_allocate(struct draft *d, uint64_t off, uint64_t n, bool keep_size, struct err *e)
{
    uint64_t end;
    lock_take(&d->io);
    int r = !add_u64(off, n, &end) || end > d->limit ? too_long(d, e) : 0;
    if (r == 0 && !keep_size)
        r = grow(d, end, e);
    lock_drop(&d->io);
    return r;
}

/* ---- making drafts ---- */

/* Return the maximum length of a view. A NumPy array may have any shape. */
static uint64_t limit_of(const struct tensor_base *base, enum tensor_view view)
{
    if (view == TENSOR_TYPE || view == TENSOR_SHAPE)
        return TENSOR_TEXT_MAX;
    if (!base->exists || tensor_views[view].npy)
        return TENSOR_DRAFT_MAX;
    return tensor_view_size(base, view);
}

static uint64_t values_of(const struct tensor_base *base, enum tensor_view view)
{
    return base->n_elem * tensor_views[view].form->width;
}

int tensor_draft_make(struct logs *logs, struct tensor_base *base, enum tensor_view view,
                      struct draft **ret, struct err *e)
{
    struct draft *d = draft_new();
    if (!d)
        return err_set(e, -ENOMEM, "no memory for a draft");
    d->logs = logs;
    d->view = view;
    d->base = tensor_base_ref(base);
    d->limit = limit_of(base, view);
    d->size = d->cut = tensor_view_size(base, view);
    /* Only the header is read from the model. If it is unusable (too many dimensions), a later
     * write detects that. */
    if (tensor_views[view].npy && d->size > 0 &&
        parse_header(d, (size_t)(d->size - values_of(base, view)), NULL) == -ENOMEM) {
        draft_free(d);
        return err_set(e, -ENOMEM, "no memory for a draft");
    }
    *ret = d;
    return 0;
}

void tensor_draft_become(struct draft *d, enum tensor_view view, struct tensor_base *base)
{
    struct tensor_base *before = d->base;
    assert(lock_held(&d->io));
    drop_room(d);
    lock_take(&d->lock);
    d->view = view;
    d->base = tensor_base_ref(base);
    d->limit = limit_of(base, view);
    d->npy = (struct npy){0};
    d->layout = (struct tensor_layout){0};
    for (size_t i = 0; i < d->written.n; i++)
        d->written.of[i].fresh = true;
    lock_drop(&d->lock);
    tensor_base_unref(before);
}

int tensor_draft_check(struct draft *d, struct err *e)
{
    if (d->size > d->limit)
        return too_long(d, e);
    return tensor_views[d->view].npy ? check_header(d, 0, e) : 0;
}

/* ---- a judgement ---- */

int tensor_draft_hold(struct draft *d, uint64_t lo, uint64_t hi)
{
    uint8_t bytes[HELD_MOST];
    const struct extent *x;
    int r = 0;
    for (uint64_t len; r == 0 && lo < hi; lo += len) {
        lock_take(&d->io);
        len = extents_stretch(&d->written, lo, hi - lo, &x);
        /* True if these bytes come from the base: they are neither in the log nor past `cut`. */
        const bool is_below = !x && lo < d->cut;
        if (is_below) {
            len = min_u64(min_u64(len, d->cut - lo), sizeof(bytes));
            r = tensor_view_read(d->base, d->view, lo, bytes, (size_t)len);
        }
        if (r == 0 && is_below)
            r = put(d, lo, bytes, (size_t)len, false, NULL);
        lock_drop(&d->io);
    }
    return r;
}

static int find_fresh(const struct extents *s, struct tensor_ranges *ret)
{
    ret->of = malloc((s->n + 1) * sizeof(*ret->of));
    if (!ret->of)
        return -ENOMEM;
    for (size_t i = 0; i < s->n; i++) {
        const struct extent *x = &s->of[i];
        struct tensor_range *last = ret->n ? &ret->of[ret->n - 1] : NULL;
        if (!x->fresh)
            continue;
        if (last && last->hi == x->at)
            last->hi += x->len;
        else
            ret->of[ret->n++] = (struct tensor_range){x->at, x->at + x->len};
    }
    return 0;
}

void tensor_round_free(struct tensor_round *round)
{
    tensor_base_unref(round->base);
    extents_free(&round->shown);
    free(round->fresh.of);
}

/* Collect all bytes written so far for a judgement; later writes do not change them. Call with `io`
 * held. */
static int take_round(struct draft *d, struct tensor_round *ret)
{
    drop_room(d);
    *ret = (struct tensor_round){.base = tensor_base_ref(d->base),
                                 .size = d->size,
                                 .cut = d->cut,
                                 .truncations = d->truncations};
    int r = extents_copy(&d->written, &ret->shown);
    if (r == 0)
        r = find_fresh(&d->written, &ret->fresh);
    if (r < 0)
        tensor_round_free(ret);
    return r;
}

int tensor_draft_round(struct draft *d, struct tensor_round *ret)
{
    lock_take(&d->io);
    int r = take_round(d, ret);
    lock_drop(&d->io);
    return r;
}

static int begin(struct draft *d, struct tensor_round *ret)
{
    int r = take_round(d, ret);
    lock_take(&d->lock);
    draft_event(d, DRAFT_JUDGE);
    if (r < 0)
        draft_event(d, DRAFT_REFUSE);
    for (size_t i = 0; r == 0 && i < d->written.n; i++)
        d->written.of[i].fresh = false;
    lock_drop(&d->lock);
    return r < 0 ? r : 1;
}

int tensor_draft_begin(struct draft *d, struct tensor_round *ret)
{
    lock_take(&d->io);
    int r = draft_is_due(d->state) ? begin(d, ret) : 0;
    lock_drop(&d->io);
    return r;
}

int tensor_draft_detach(struct draft *d, struct tensor_round *round, const struct npy *npy)
{
    struct extents all = {0};
    struct tensor_range *one = malloc(sizeof(*one));
    int r = one ? tensor_draft_hold(d, 0, round->cut) : -ENOMEM;
    lock_take(&d->io);
    lock_take(&d->lock);
    if (r == 0)
        r = extents_copy(&d->written, &all);
    if (r == 0)
        round->cut = d->cut = 0;
    lock_drop(&d->lock);
    lock_drop(&d->io);
    if (r < 0) {
        free(one);
        return r;
    }
    extents_free(&round->shown);
    round->shown = all;
    free(round->fresh.of);
    *one = (struct tensor_range){0, round->size};
    round->fresh = (struct tensor_ranges){one, 1};
    d->layout = (struct tensor_layout){npy->header, npy->width};
    return 0;
}

/* Mark the ranges being judged as not judged yet. Call with `lock` held. */
static void put_back(struct draft *d, const struct tensor_ranges *judged, enum draft_event event)
{
    size_t k = 0;
    for (size_t i = 0; i < d->written.n; i++) {
        struct extent *x = &d->written.of[i];
        while (k < judged->n && judged->of[k].hi <= x->at)
            k++;
        x->fresh |= k < judged->n && judged->of[k].lo < x->at + x->len;
    }
    draft_event(d, event);
}

static void judged(struct draft *d)
{
    free(d->judging.of);
    d->judging = (struct tensor_ranges){NULL, 0};
}

int tensor_draft_end(struct draft *d, struct tensor_round *round, bool keep, int r)
{
    lock_take(&d->lock);
    bool gone = d->truncations != round->truncations && !draft_is_text(d);
    if (keep && gone)
        r = -EAGAIN;
    if (!keep || gone) {
        put_back(d, &round->fresh, r < 0 && r != -EAGAIN ? DRAFT_REFUSE : DRAFT_LEAVE);
    } else {
        d->judging = round->fresh;
        round->fresh = (struct tensor_ranges){NULL, 0};
    }
    lock_drop(&d->lock);
    tensor_round_free(round);
    return r;
}

void tensor_draft_passed(struct draft *d, struct tensor_base *now)
{
    lock_take(&d->lock);
    struct tensor_base *before = d->base;
    d->base = tensor_base_ref(now);
    judged(d);
    draft_event(d, DRAFT_PASS);
    lock_drop(&d->lock);
    tensor_base_unref(before);
}

void tensor_draft_failed(struct draft *d)
{
    lock_take(&d->lock);
    put_back(d, &d->judging, DRAFT_REFUSE);
    judged(d);
    lock_drop(&d->lock);
}

void tensor_draft_take_back(struct draft *d, bool judged, bool all)
{
    lock_take(&d->io);
    lock_take(&d->lock);
    if (judged || all)
        draft_event(d, judged ? DRAFT_TAKE_BACK : DRAFT_EMPTY);
    if (!draft_is_due(d->state) && d->state != DRAFT_MORE) {
        extents_cut(&d->written, 0);
        d->size = d->cut = 0;
    }
    lock_drop(&d->lock);
    lock_drop(&d->io);
}

/* SPDX-License-Identifier: MIT */
/* Views of tensors, with their drafts and handles (views.h, objects.h). */
#include "live/views.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/sys.h"
#include "live/objects.h"
#include "live/overlay.h"

/* Seconds that a NumPy header alone waits for the rest: open_memmap() closes it, and opens the view
 * again. */
#define BEGUN_SECONDS 10

/* ---- drafts ---- */

static struct view_draft *draft_make(struct object *o, enum tensor_view view)
{
    struct view_draft *d = calloc(1, sizeof(*d));
    if (!d)
        return NULL;
    lock_init(&d->io);
    d->object = o;
    d->view = view;
    d->next = o->drafts;
    o->drafts = d;
    return d;
}

/* Return the view's largest size. A NumPy array may have any shape. */
static uint64_t limit_of(const struct tensor_base *b, enum tensor_view view)
{
    if (view_is_text(view))
        return TENSOR_TEXT_MAX;
    return !b->t || tensor_views[view].npy ? DRAFT_MAX : tensor_view_size(b, view);
}

/*
 * Drop what was accepted. But an array whose values lie elsewhere than in the view (of another width
 * or order) stays as long as it is open, because programs may have it mapped, and until all of it was
 * judged: what they store later would be taken for other values.
 */
static void view_settle(const struct live *l, struct view_draft *d, uint64_t epoch)
{
    const struct tensor_base b = object_base(l, d->object);
    if ((d->writers || d->touched > epoch) && tensor_array_differs(&b, d->view, &d->npy))
        d->settled = epoch;
    else
        draft_settle(d, epoch);
}

/* Begin a draft over the tensor as it is, unless it has begun. */
static void begin(const struct live *l, struct view_draft *d)
{
    const struct tensor_base b = object_base(l, d->object);
    if (!d->changed)
        d->size = tensor_view_size(&b, d->view);
    d->changed = true;
}

/* Note a write or a truncation. */
static void touch(struct live_view *h)
{
    struct view_draft *d = h->d;
    d->dirty = true;
    d->touched = h->wrote = h->o->epoch;
    d->begun.tv_sec = 0;
    h->o->owing += !h->owes;
    h->owes = true;
    h->o->news = true;
}

static void flushed(struct live *l, struct live_view *h)
{
    h->d->dirty = false;
    h->o->owing -= h->owes;
    if (h->owes && h->o->fresh)
        object_touch(l, h->o);
    h->owes = false;
}

/* True if something was written that was neither accepted nor refused. */
static bool draft_is_due(const struct view_draft *d)
{
    return d->changed && d->touched > d->refused && d->touched > d->settled;
}

/* True if the line of a text is being judged. If a signal has ended that, it is not judged again. */
static bool is_judging_line(const struct view_draft *d)
{
    return view_is_text(d->view) && d->judging && d->touched <= d->copied;
}

/* True if all that was written was accepted or refused, and nobody is writing on: a release may come
 * late. */
static bool draft_is_over(const struct view_draft *d)
{
    return !d->dirty && !draft_is_due(d);
}

void object_expire(struct live *l, struct object *o, bool all)
{
    const struct err e = {.code = -EINVAL, .msg = "only the header of a NumPy array was written"};
    for (struct view_draft *d = o->drafts, *next; d; d = next) {
        next = d->next;
        if (!d->begun.tv_sec || !(all || when_past(&d->begun, 0)))
            continue;
        (void)object_refused(l, o, &e);
        draft_reset(d);
        draft_reap(l, d);
    }
}

void views_expire(struct live *l, bool all)
{
    for (struct link *k = NULL; (k = table_each(&l->tensors.by_number, k));)
        object_expire(l, (struct object *)k, all);
}

/* Return the draft of a view as it is shown, or NULL: a type that is being converted to is not true yet. */
static const struct view_draft *shown_draft(struct live *l, uint32_t tensor, enum tensor_view view)
{
    struct object *o = object_find(l, tensor);
    if (o)
        object_expire(l, o, false);
    const struct view_draft *d = object_draft(o, view);
    return d && !o->fresh && is_judging_line(d) ? NULL : d;
}

/* Drop a draft that is over, for another view or program. What those that have it open store later in an
 * array whose values lie elsewhere would be taken for other values. */
static void drop_over(const struct live *l, struct view_draft *d)
{
    const struct tensor_base b = object_base(l, d->object);
    if (d->changed && tensor_array_differs(&b, d->view, &d->npy))
        d->outdated = d->object->epoch++;
    draft_reset(d);
}

/* True if another view of the tensor has bytes that are not accepted. Drops those that are over. */
static bool is_busy(struct live *l, struct object *o, enum tensor_view view)
{
    bool busy = false;
    object_expire(l, o, false);
    for (struct view_draft *d = o->drafts, *next; d && !o->fresh; d = next) {
        next = d->next;
        if (d->view == view || !(d->changed || d->dirty))
            continue;
        if (!d->writers && d->judging) /* before what is written from now on */
            continue;
        busy |= !draft_is_over(d);
        if (!draft_is_over(d))
            continue;
        drop_over(l, d);
        draft_reap(l, d);
    }
    return busy;
}

/* ---- refused writes ---- */

/* Record a refused write. */
static int refuse_write(struct live *l, struct view_draft *d, const struct err *e)
{
    LOCKED(&l->lock);
    d->why = *e;
    return object_refused(l, d->object, e);
}

/* ---- write ---- */

/*
 * Reserve space for bytes [off, off + n). If the view's length is known, reserve space for the
 * whole view, so that contiguous bytes of the view are contiguous in the log, aligned as in the
 * model; otherwise only for these bytes, because the next write usually continues after them.
 */
static int draft_room(struct live *l, struct view_draft *d, uint64_t off, uint64_t n,
                      uint64_t limit, uint64_t phase, struct err *e)
{
    const uint64_t whole = view_is_text(d->view) ? 0
                           : limit < DRAFT_MAX   ? limit
                                                 : npy_size(&d->npy);
    if (d->room.log && off >= d->room.at && off + n <= d->room.at + d->room.len)
        return 0;
    struct extent room = {.at = off, .len = n};
    if (off + n <= whole)
        room = (struct extent){.at = 0, .len = whole};
    int r = logs_take(&l->logs, room.len, phase + room.at, &room.log, &room.src, e);
    if (r < 0)
        return r;
    log_unref(d->room.log);
    d->room = room;
    return 0;
}

/* Extend the draft with zeros as if they had been written, because cp(1) skips the zeros of a
 * sparse file. */
static int grow(struct view_draft *d, uint64_t end)
{
    const struct extent zeros = {.at = d->size, .len = end - d->size, .epoch = d->object->epoch};
    const int r = end > d->size ? extents_put(&d->written, &zeros) : 0;
    d->size = r == 0 ? max_u64(d->size, end) : d->size;
    return r;
}

static int too_long(const struct view_draft *d, uint64_t limit, struct err *e)
{
    if (limit == DRAFT_MAX)
        return err_set(e, -EFBIG, "longer than any tensor");
    return err_set(e, -EFBIG, "%s of this tensor holds at most %llu bytes",
                   tensor_views[d->view].name, (unsigned long long)limit);
}

/* Read bytes of a draft, over a tensor. *got < n only at its end. Drops and retakes the lock. */
static int read_draft(struct live *l, const struct view_draft *d, const struct tensor_base *b,
                      uint64_t off, void *dst, size_t n, size_t *got)
{
    struct tensor_round round = {.view = d->view};
    *got = (size_t)within_u64(off, n, d->changed ? d->size : tensor_view_size(b, d->view));
    int r = d->changed ? extents_copy(&d->written, off, *got, &round.written) : 0;
    lock_drop(&l->lock);
    if (r == 0)
        r = tensor_round_read(&round, b, off, dst, *got);
    tensor_round_free(&round);
    lock_take(&l->lock);
    return r;
}

/* Check the NumPy header after a write at `off`, if it is not known or the write may have changed it.
 * Call with `io` held. */
static int check_npy(struct live *l, struct view_draft *d, const struct tensor_base *b,
                     uint64_t off, struct err *e)
{
    struct npy npy = {0};
    size_t n = 0;
    int r = 0;
    if (off < d->npy.header || d->npy.header == 0) {
        uint8_t *head = malloc(NPY_MAX_HEADER);
        lock_take(&l->lock);
        r = head ? read_draft(l, d, b, 0, head, NPY_MAX_HEADER, &n) : -ENOMEM;
        lock_drop(&l->lock);
        r = r < 0 ? err_sys(e, r, "cannot read what was written") : npy_parse(head, n, &npy, e);
        free(head);
        LOCKED(&l->lock);
        d->npy = npy;
    }
    if (r == -EINVAL && off >= NPY_MAX_HEADER) { /* the header may be written later */
        *e = (struct err){0};
        return 0;
    }
    const uint64_t end = npy_size(&d->npy);
    if (r >= 0 && d->npy.header && d->size > end)
        return err_set(e, -EFBIG, "longer than its header says: %llu bytes",
                       (unsigned long long)end);
    return r < 0 ? r : 0;
}

/* Write bytes to the log, and lay them over the tensor. Call with `io` held. Returns 1 if they
 * complete the line of a text. */
static int write_bytes(struct live *l, struct live_view *h, const struct tensor_base *b,
                       uint64_t off, const void *bytes, size_t n, struct err *e)
{
    struct view_draft *d = h->d;
    const uint64_t limit = limit_of(b, d->view);
    uint64_t end;
    if (!add_u64(off, n, &end) || end > limit)
        return too_long(d, limit, e);
    if (n == 0)
        return 0;
    const uint64_t phase = d->view == TENSOR_RAW ? tensor_data_offset(b) : 0;
    int r = draft_room(l, d, off, n, limit, phase, e);
    if (r < 0)
        return r;
    struct extent x = {off, n, d->room.src + (off - d->room.at), d->room.log, 0};
    r = logs_put(&l->logs, x.log, x.src, bytes, n);
    if (r < 0)
        return logs_failed(r, e);
    lock_take(&l->lock);
    touch(h); /* another view of a new tensor may have been copied meanwhile */
    begin(l, d);
    x.epoch = h->o->epoch;
    r = grow(d, off);
    if (r == 0)
        r = extents_put(&d->written, &x);
    d->size = r == 0 ? max_u64(d->size, end) : d->size;
    lock_drop(&l->lock);
    if (r < 0)
        return err_set(e, r, "no memory for a draft");
    if (tensor_views[d->view].npy)
        return check_npy(l, d, b, off, e);
    /* A line with text after it is not yet the whole value: the program may truncate it next. */
    return view_is_text(d->view) && end == d->size && memchr(bytes, '\n', n);
}

static int ask(struct live *l, struct view_draft *d, enum when when, bool last,
               struct live_wait *w);

/* Check that the view can be written now, and note that it is. *b: the tensor as it is. Call with both
 * locks held. Returns 0, 1 (it is left aside) or -errno. */
static int begin_write(struct live *l, struct live_view *h, bool anew, struct tensor_base *b)
{
    const struct err busy = {.code = -EBUSY, .msg = "another view of the tensor is being written"};
    const struct err old = {.code = -ESTALE, .msg = "the view was written anew: open it again"};
    struct view_draft *d = h->d;
    object_base_get(l, h->o, b);
    if (l->stop)
        return -EROFS;
    if (h->o->fresh ? h->opened <= d->outdated : !b->t)
        return 1; /* what is written to a removed file is gone with it */
    if (object_leaves(h->o, d->view)) {
        object_chill(h->o, (uint32_t)1 << d->view);
        return 1;
    }
    if (is_busy(l, h->o, d->view))
        return h->lost = object_refused(l, h->o, &busy);
    if (anew) {
        d->why = (struct err){0};
        h->opened = h->o->epoch;
        h->lost = 0;
    }
    if (!h->lost && h->opened <= d->outdated)
        h->lost = object_refused(l, h->o, &old);
    if (h->lost)
        return h->lost; /* what it wrote before is gone, so this alone would be half of it */
    touch(h);           /* before the write: nobody may take the draft for over meanwhile */
    return 0;
}

/* Check the text of a new tensor's `type` or `shape`. Drops and retakes the lock. */
static int check_new_text(struct live *l, struct view_draft *d)
{
    CLEANUP(tensor_round_free)
    struct tensor_round round = {.view = d->view, .size = d->size};
    struct tensor_edit none;
    struct err e = {0};
    int r = extents_copy(&d->written, 0, UINT64_MAX, &round.written);
    lock_drop(&l->lock);
    r = r < 0 ? err_sys(&e, r, "cannot read what was written")
              : tensor_judge(&round, &(struct tensor_base){0}, &l->logs, NULL, &none, &e);
    lock_take(&l->lock);
    if (r < 0)
        d->why = e;
    return r < 0 ? object_refused(l, d->object, &e) : 0;
}

int live_view_write(struct live *l, struct live_view *h, uint64_t off, const void *bytes, size_t n,
                    struct live_wait *w)
{
    struct view_draft *d = h->d;
    CLEANUP(tensor_base_free) struct tensor_base b = {0};
    struct err e = {0};
    if (!d)
        return 0;
    lock_take(&d->io);
    const uint64_t size = d->changed ? d->size : 0;
    lock_take(&l->lock);
    int r = begin_write(l, h, view_is_text(d->view) && (h->append ? size : off) == 0, &b);
    const bool begun = r == 0;
    if (begun) {
        lock_drop(&l->lock);
        if (h->append)
            off = d->changed ? d->size : tensor_view_size(&b, d->view);
        r = write_bytes(l, h, &b, off, bytes, n, &e);
        lock_take(&l->lock);
    }
    if (r < 0) /* the kernel may have them in its pages */
        object_chill(h->o, (uint32_t)1 << d->view);
    if (r > 0 && begun && h->o->fresh)
        r = check_new_text(l, d); /* shells hear of it here, but not at close(2) */
    else if (r > 0 && (r = begun && w ? ask(l, d, WHEN_MODE, false, w) : 0) > 0)
        h->asked = h->wrote;
    lock_drop(&l->lock);
    lock_drop(&d->io);
    return e.code ? refuse_write(l, d, &e) : r;
}

/* Cut the draft off, or extend it. Call with both locks held. */
static int draft_resize(const struct live *l, struct view_draft *d, const struct tensor_base *b,
                        uint64_t size, struct err *e)
{
    const uint64_t limit = limit_of(b, d->view);
    if (size > limit)
        return too_long(d, limit, e);
    begin(l, d);
    if (size < d->size) {
        extents_cut(&d->written, size);
        d->npy = size < d->npy.header ? (struct npy){0} : d->npy;
        d->size = size;
    }
    return grow(d, size);
}

int live_view_truncate(struct live *l, struct live_view *h, uint64_t size)
{
    CLEANUP(tensor_base_free) struct tensor_base b = {0};
    struct view_draft *d = h->d;
    struct err e = {0};
    if (!d)
        return 0;
    lock_take(&d->io);
    lock_take(&l->lock);
    int r = begin_write(l, h, size == 0, &b);
    if (r == 0)
        r = draft_resize(l, d, &b, size, &e);
    const bool resized = r == 0 && d->changed;
    lock_drop(&l->lock);
    if (resized && tensor_views[d->view].npy) /* the header may be the tensor's own */
        (void)check_npy(l, d, &b, NPY_MAX_HEADER, &(struct err){0});
    lock_drop(&d->io);
    return e.code ? refuse_write(l, d, &e) : r > 0 ? 0 : r;
}

/* ---- judging ---- */

/* Add the edit to `pending`. Returns 1 or -errno. */
static int apply_edit(struct live *l, uint32_t number, const struct tensor_edit *edit,
                      struct err *e)
{
    struct edit_tensor t;
    if (!edit_tensor_numbered(&l->pending, number, &t))
        return err_set(e, -ENOENT, "the tensor was removed");
    const int r = edit_tensor_set(&l->pending, t.name, t.name_len,
                                  edit->shaped ? &edit->shape : NULL, edit->piece, edit->n, e);
    return r < 0 ? r : 1;
}

static int accept_view(struct live *l, struct request *q, struct err *e)
{
    struct object *o = q->object;
    struct view_draft *d = q->view;
    CLEANUP(tensor_edit_free) struct tensor_edit edit = TENSOR_EDIT_INIT;
    CLEANUP(tensor_base_free) struct tensor_base b = {0};
    const struct units_watch watch = object_watch(l);
    object_base_get(l, o, &b);
    q->verdict = TENSOR_SAME;
    if (!b.t) /* what is written to a removed file is gone with it */
        return 0;
    q->converts = d->view == TENSOR_TYPE;
    if (q->converts && l->stop)
        atomic_store(&l->queue.cancel, true);
    const long long begun = when_ms();
    const bool waits = l->queue.first_at.tv_sec;
    lock_drop(&l->lock);
    const int r = tensor_judge(&q->round, &b, &l->logs, &watch, &edit, e);
    lock_take(&l->lock);
    if (q->converts && waits && l->queue.first_at.tv_sec) /* time spent converting does not count */
        l->queue.first_at = when_later(&l->queue.first_at, (unsigned)(when_ms() - begun));
    q->converts = false;
    q->verdict = r;
    if (r == TENSOR_CHANGED)
        return apply_edit(l, o->number, &edit, e);
    return r == TENSOR_SHORT ? -EINVAL : r == TENSOR_BEGUN ? 0 : r;
}

static int view_refused(struct live *l, const struct request *q, int r, const struct err *e)
{
    struct view_draft *d = q->view;
    if (q->verdict == -EINTR || (q->verdict == TENSOR_SHORT && !q->last))
        return r;
    d->refused = max_u64(d->refused, q->round.epoch);
    d->refusal = r;
    if (q->last && d->touched <= q->round.epoch) /* who has it open did not write it */
        drop_over(l, d);
    else if (view_is_text(d->view) && d->touched <= q->round.epoch)
        d->why = *e;
    return object_refused(l, q->object, e);
}

static int view_accepted(struct live *l, struct request *q, int r, const struct err *e)
{
    struct view_draft *d = q->view;
    if (r < 0 && !q->done)
        return view_refused(l, q, r, e);
    if (q->verdict == TENSOR_BEGUN) {
        if (q->last && d->touched <= q->round.epoch && !d->writers)
            d->begun = when_after(BEGUN_SECONDS * 1000);
        return r;
    }
    (void)overlay_freshen(l, &(struct err){0}); /* before the draft goes */
    view_settle(l, d, q->round.epoch);
    object_set_error(l, q->object, NULL);
    if (q->changed)
        object_changed(q->object);
    object_chill(q->object, (uint32_t)1 << d->view);
    return r;
}

/* Have a draft judged as it is now. last: no more writes will come. Call with d->io held as well. */
static int ask(struct live *l, struct view_draft *d, enum when when, bool last, struct live_wait *w)
{
    struct request *q = object_request(l, d->object);
    if (!q)
        return -ENOMEM;
    q->view = d;
    q->last = last;
    d->judging++;
    q->when = when;
    q->apply = accept_view;
    q->end = view_accepted;
    const int r = draft_take(d, &q->round);
    if (r < 0) {
        request_free(l, q);
        return r;
    }
    return queue_add(l, q, w);
}

/* Have a draft judged for nobody. If that cannot be, drop it, and say so. */
static bool ask_or_tell(struct live *l, struct view_draft *d, bool last)
{
    struct err e = {0};
    if (err_sys(&e, ask(l, d, WHEN_MODE, last, NULL), "cannot be judged") == 0)
        return true;
    (void)object_refused(l, d->object, &e);
    draft_reset(d);
    return false;
}

/* True if a flush has left something to be judged. */
static bool draft_is_flushed(const struct view_draft *d)
{
    return !d->dirty && !d->judging && !d->why.code && draft_is_written(d) && draft_is_due(d);
}

/* Have what was just asked served before an fsync that waits. */
static void hasten(struct live *l)
{
    struct queue *s = &l->queue;
    struct request *q = TAILQ_LAST(&s->waiting, requests);
    if (q == s->running)
        return;
    TAILQ_REMOVE(&s->waiting, q, in_queue);
    TAILQ_INSERT_AFTER(&s->waiting, s->running, q, in_queue);
}

void views_added(struct live *l, struct object *o)
{
    for (struct view_draft *d = o->drafts; d; d = d->next)
        view_settle(l, d, d->copied);
    for (struct view_draft *d = o->drafts, *next; d; d = next) {
        next = d->next;
        if (!draft_is_flushed(d)) {
            draft_reap(l, d);
            continue;
        }
        draft_enter(l, d);
        if (draft_is_flushed(d) && ask_or_tell(l, d, !d->writers)) /* still */
            hasten(l);
        draft_leave(l, d);
        next = o->drafts; /* the lock was dropped */
    }
}

/* ---- open ---- */

static int open_view_locked(struct live *l, uint32_t tensor, enum tensor_view view, bool writes,
                            const struct err *unready, struct live_view *h)
{
    struct object *o = h->o = object_get(l, tensor);
    if (!o)
        return -ENOMEM;
    const bool there = !o->gone && (o->fresh || object_base(l, o).t);
    int r = !there              ? -ESTALE
            : writes && l->stop ? -EROFS
            : unready->code     ? object_refused(l, o, unready)
                                : 0;
    if (r == 0 && writes)
        o->hidden &= ~((uint32_t)1 << view);
    if (r == 0 && writes && !view_is_computed(view)) {
        r = is_busy(l, o, view) ? -EBUSY : 0;
        h->d = object_draft(o, view);
        if (r == 0 && !h->d && !(h->d = draft_make(o, view)))
            r = -ENOMEM;
    }
    if (r < 0) {
        object_reap(l, o);
        return r;
    }
    o->pins++;
    if (!h->d)
        return 0;
    struct view_draft *d = h->d;
    /* What was refused begins with what is stored. */
    if (!o->fresh && d->refused && d->touched <= d->refused && draft_is_over(d))
        drop_over(l, d);
    d->begun.tv_sec = 0;
    d->writers++;
    LIST_INSERT_HEAD(&d->handles, h, in_draft);
    h->opened = o->epoch;
    h->owes = true;
    o->owing++;
    return 0;
}

int live_view_open(struct live *l, uint32_t tensor, enum tensor_view view, int flags,
                   struct live_view **ret)
{
    struct err unready = {0};
    const bool writes = (flags & O_ACCMODE) != O_RDONLY || flags & O_TRUNC;
    struct live_view *h = calloc(1, sizeof(*h));
    if (!h)
        return -ENOMEM;
    h->append = flags & O_APPEND;
    if (writes && !view_is_computed(view))
        overlay_ready(l, true, &unready);
    lock_take(&l->lock);
    int r = open_view_locked(l, tensor, view, writes, &unready, h);
    lock_drop(&l->lock);
    if (r < 0) {
        free(h);
        return r;
    }
    if (flags & O_TRUNC && (r = live_view_truncate(l, h, 0)) < 0) {
        live_view_release(l, h);
        return r;
    }
    *ret = h;
    return 0;
}

uint64_t live_view_cold(struct live *l, uint32_t tensor, enum tensor_view view)
{
    if (!atomic_load(&l->tensors.any))
        return 0;
    LOCKED(&l->lock);
    const struct object *o = object_find(l, tensor);
    if (!o || !(o->cold >> view & 1))
        return 0;
    return l->as_shown == l->changes ? o->chilled : UINT64_MAX; /* an older state may be read now */
}

void live_view_warm(struct live *l, uint32_t tensor, enum tensor_view view, uint64_t cold)
{
    LOCKED(&l->lock);
    struct object *o = object_find(l, tensor);
    if (o && o->chilled == cold)
        o->cold &= ~((uint32_t)1 << view);
}

bool live_view_size(struct live *l, uint32_t tensor, enum tensor_view view, uint64_t *ret)
{
    if (!atomic_load(&l->tensors.any))
        return false;
    LOCKED(&l->lock);
    const struct view_draft *d = shown_draft(l, tensor, view);
    if (!d || !(d->changed || d->object->fresh))
        return false;
    *ret = d->changed ? d->size : 0;
    return true;
}

/* ---- read ---- */

int live_view_read(struct live *l, uint32_t tensor, enum tensor_view view, const struct view *v,
                   uint64_t off, void *dst, size_t n, size_t *got)
{
    CLEANUP(tensor_base_free) struct tensor_base now = {0};
    const struct tensor_base before = tensor_base_in(v, tensor);
    LOCKED(&l->lock);
    const struct view_draft *d = shown_draft(l, tensor, view);
    if (!d || !d->changed)
        return -ESTALE;
    object_base_get(l, d->object, &now);
    return read_draft(l, d, now.t ? &now : &before, off, dst, n, got);
}

/* ---- close ---- */

/* What a flush or fsync does to what was written to a view. Call with both locks held. Returns
 * LIVE_PARKED, 0 if nothing is to be judged, or -errno. */
static int judge_now(struct live *l, struct live_view *h, enum when when, struct live_wait *w)
{
    struct view_draft *d = h->d;
    if (l->ending && d->dirty) /* the rest may have been refused */
        return -EROFS;
    flushed(l, h);
    if (h->lost)
        return h->lost;
    if (d->why.code || !draft_is_written(d) || d->touched <= d->settled ||
        (is_judging_line(d) && h->asked == h->wrote))
        return d->why.code;
    if (!h->o->fresh)
        return ask(l, d, when, false, w);
    return view_is_text(d->view) ? check_new_text(l, d) : 0;
}

static int flush_view(struct live *l, struct live_view *h, enum when when, struct live_wait *w)
{
    struct view_draft *d = h->d;
    if (!d)
        return 0;
    lock_take(&d->io);
    lock_take(&l->lock);
    const int r = judge_now(l, h, when, w);
    lock_drop(&l->lock); /* from now on the handle may be released, but `d` needs its lock to go */
    lock_drop(&d->io);
    return r;
}

int live_view_flush(struct live *l, struct live_view *h, struct live_wait *w)
{
    return flush_view(l, h, WHEN_MODE, w);
}

int live_view_fsync(struct live *l, struct live_view *h, struct live_wait *w)
{
    const int r = h ? flush_view(l, h, WHEN_NOW, w) : 0;
    if (r)
        return r;
    LOCKED(&l->lock);
    return queue_sync(l, false, w);
}

/* The last writer goes: judge what no flush has judged. Call with both locks held. */
static void end_writing(struct live *l, struct view_draft *d)
{
    const struct err never = {.code = -ECANCELED, .msg = "the file was written but never closed"};
    struct object *o = d->object;
    const bool due = draft_is_written(d) && draft_is_due(d) && !d->why.code && !is_judging_line(d);
    if (o->fresh) {
        d->dirty &= l->ending;
        return;
    }
    const bool asks = due && !(l->ending && d->dirty);
    if (asks)
        (void)ask_or_tell(l, d, true);
    if (due && !asks)
        (void)object_refused(l, o, &never);
    /* Who opens the view before it is judged goes on with it. */
    if (!asks && !d->judging)
        draft_reset(d);
}

void live_view_release(struct live *l, struct live_view *h)
{
    struct object *o = h->o;
    struct view_draft *d = h->d;
    lock_take(&l->lock);
    if (d) {
        o->owing -= h->owes;
        if (o->fresh)
            object_touch(l, o);
        if (d->writers == 1) {
            draft_enter(l, d);
            if (d->writers == 1) /* nobody has opened it meanwhile */
                end_writing(l, d);
            draft_leave(l, d);
        }
        d->writers--;
        LIST_REMOVE(h, in_draft);
        draft_reap(l, d);
    }
    object_unpin(l, o);
    lock_drop(&l->lock);
    logs_rest(&l->logs);
    free(h);
}

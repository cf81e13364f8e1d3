/* SPDX-License-Identifier: MIT */
/* Views of tensors opened to be written, written and closed: see tensors.h. */
#include "base/when.h"
#include "base/lock.h"
#include "live/view.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "live/batch.h"
#include "live/tensor_helpers.h"
#include "live/new_tensor.h"
#include "live/tensor.h"

/* ---- drafts ---- */

static time_t seconds(void)
{
    struct timespec now = when_now();
    return now.tv_sec;
}

/* It waited for its program long enough. */
static bool is_left(const struct draft *d)
{
    return d->begun && d->handles == 0 && seconds() - d->begun > VIEW_BEGUN;
}

/* What it was begun from is no longer what the tensor is: it is never accepted. */
static bool is_outdated(const struct draft *d)
{
    if (d->made)
        return d->object->state != OBJECT_NEW;
    if (d->state == DRAFT_DROPPED || is_left(d))
        return true;
    return draft_is_data(d) && (d->edits != d->object->edits || d->losses != d->object->losses);
}

struct draft *view_find(const struct live *l, uint32_t tensor, uint32_t row)
{
    struct draft *d = view_drafts(l, tensor);
    while (d && (d->unlinked || d->row != row || is_outdated(d)))
        d = d->inside;
    return d;
}

/* Another view of the tensor that holds what is not accepted. */
bool view_is_busy(const struct live *l, uint32_t tensor, uint32_t row)
{
    if (row == VIEW_NO_ROW)
        return false;
    for (const struct draft *d = view_drafts(l, tensor); d; d = d->inside)
        if (!d->made && d->handles && d->row != row && draft_is_unaccepted(d->state) &&
            !is_outdated(d))
            return true;
    return false;
}

/* The draft of a view that is being written just now: programs that open it are to share that. */
static struct draft *in_work(const struct live *l, uint32_t tensor, uint32_t row)
{
    struct draft *d = view_drafts(l, tensor);
    while (d && (d->row != row || d->unlinked || is_outdated(d) ||
                 (!d->unsettled && !draft_is_unaccepted(d->state))))
        d = d->inside;
    return d;
}

/* *ret: a new draft that holds what the view shows. */
static int make(struct live *l, struct tensor_base *base, enum live_view_kind kind,
                struct draft **ret)
{
    struct err e = {0};
    if (kind <= LIVE_F16_NPY)
        return tensor_draft_make(&l->logs, base, (enum tensor_view)kind, ret, &e);
    *ret = draft_new();
    if (!*ret)
        return -ENOMEM;
    view_text(kind, base, &(*ret)->text);
    return buf_error(&(*ret)->text);
}

int view_make(struct live *l, uint32_t node, uint32_t tensor, uint32_t row,
              enum live_view_kind kind, struct draft **ret)
{
    struct tensor_base *base = NULL;
    struct draft *d = NULL;
    struct object *o = tensor_object(l, tensor);
    const bool new = o && o->state == OBJECT_NEW;
    int r = !o    ? -ENOMEM
            : new ? tensor_base_none(l->newest->view.snap->gguf->fmt.big, &base)
                  : view_base(l, tensor, &base);
    if (r == 0)
        r = make(l, base, kind, &d);
    if (r == 0) {
        d->node = node != IDS_NONE ? node : atomic_fetch_add(&l->newest->numbers, 1);
        d->n_elem = base->n_elem;
        r = view_draft_add(l, d, o);
    }
    tensor_base_unref(base);
    if (r < 0) {
        draft_free(d);
        return r;
    }
    d->live = l;
    d->tensor = tensor;
    d->row = row;
    d->kind = kind;
    d->made = new;
    d->of = draft_is_data(d) ? &view_data : &view_line;
    d->edits = o->edits;
    d->losses = o->losses;
    *ret = d;
    return 0;
}

/* ---- open ---- */

/* One more handle of a draft. */
int view_join(struct live *l, struct draft *d, uint32_t node, int flags, struct live_view **ret)
{
    struct live_view *h = calloc(1, sizeof(*h));
    if (!h)
        return -ENOMEM;
    *h = (struct live_view){.d = d,
                            .node = node,
                            .writes = (flags & O_ACCMODE) != O_RDONLY,
                            .append = flags & O_APPEND};
    if (node != d->node && table_add(&l->shared, &h->link, hash_number(node)) < 0) {
        free(h);
        return -ENOMEM;
    }
    d->handles++;
    d->writers += h->writes;
    d->unsettled += h->writes;
    d->unflushed += d->helper && h->writes;
    if (h->writes)
        d->begun = 0;
    if (d->made) {
        const bool writes = h->writes || flags & O_TRUNC; /* see empty() */
        d->object->open += writes;
        d->object->unclosed += writes;
        new_tensor_queue(l, d->object);
    }
    *ret = h;
    return 0;
}

/* It was closed, or is written: of several threads one notes that. */
static void note_closed(struct live *l, struct live_view *h, bool closed)
{
    struct draft *d = h->d;
    if (atomic_exchange(&h->closed, closed) == closed || !h->writes)
        return;
    lock_take(&l->lock);
    d->unsettled += closed ? -1U : 1U;
    if (d->made)
        new_tensor_closed(l, d->object, closed);
    lock_drop(&l->lock);
}

/* A handle that was opened so; if it fails it is released. One that only reads wrote until here. */
static int empty(struct live *l, struct live_view *h)
{
    int r = live_view_truncate(l, h, 0);
    note_closed(l, h, false);
    if (h->d->made && !h->writes) {
        lock_take(&l->lock);
        new_tensor_released(l, h->d->object, false);
        lock_drop(&l->lock);
    }
    if (r < 0)
        live_view_release(l, h);
    return r;
}

static int open_aside(int flags, struct live_view **ret)
{
    struct live_view *h = calloc(1, sizeof(*h));
    if (!h)
        return -ENOMEM;
    h->writes = (flags & O_ACCMODE) != O_RDONLY;
    *ret = h;
    return 0;
}

/* The draft of a node, but for one that waited long enough for its program. */
static struct draft *draft_at(struct live *l, uint32_t node, uint32_t row)
{
    struct draft *d = view_at(l, node, row);
    if (!d || !is_left(d))
        return d;
    d->begun = 0;
    struct draft *dead = view_draft_reap(l, d);
    if (dead)
        view_draft_end(dead);
    return NULL;
}

/* *current: the node shows the tensor as it is now. */
static int is_current(const struct live *l, uint32_t tensor, uint32_t node, bool *current)
{
    struct edit_tensor t;
    bool there = edit_tensor_numbered(&l->next.change, tensor, &t);
    *current = there && t.id.version == node;
    return there ? 0 : -ESTALE;
}

/* Of a node that is written from now on. What is in the kernel's cache may be what was written to it before. */
static int begin_draft(struct live *l, uint32_t tensor, uint32_t node, uint32_t row,
                       enum live_view_kind kind, struct draft **ret, bool *cold)
{
    bool current;
    int r = view_is_busy(l, tensor, row) ? -EBUSY : is_current(l, tensor, node, &current);
    if (r == 0)
        r = view_make(l, node, tensor, row, kind, ret);
    if (r < 0)
        return r;
    struct object *o = (*ret)->object;
    *cold = (*ret)->cold = !current || o->spent >> row & 1;
    if (current)
        o->spent |= (uint32_t)1 << row;
    return 0;
}

/* The draft by which a view is written that is opened. A program that found the node a moment before another one
 * began to write the view by its next node shares that draft. */
static int draft_to_open(struct live *l, uint32_t tensor, uint32_t row, enum live_view_kind kind,
                         uint32_t node, struct draft **ret, bool *cold)
{
    struct draft *d = *ret = draft_at(l, node, row);
    struct draft *other = d && (d->helper || d->made) ? NULL : in_work(l, tensor, row);
    bool current;
    if (d && d->state == DRAFT_DROPPED && is_current(l, tensor, node, &current) == 0 && current)
        d = *ret = NULL; /* another one begins */
    if (d && (is_outdated(d) || (other && other != d)))
        return -ESTALE; /* what is written to it now is never accepted */
    *cold = d ? d->handles == 0 || d->cold || d->node != node : true;
    if (d)
        return 0;
    if (!other)
        return begin_draft(l, tensor, node, row, kind, ret, cold);
    int r = is_current(l, tensor, node, &current);
    if (r == 0 && current)
        other->object->spent |= (uint32_t)1 << row;
    *ret = other;
    return r;
}

static int open_locked(struct live *l, uint32_t tensor, uint32_t row, enum live_view_kind kind,
                       int flags, uint32_t *node, struct live_view **ret, bool *cold)
{
    struct draft *d = NULL;
    int r = 0;
    if (*node != IDS_NONE)
        r = draft_to_open(l, tensor, row, kind, *node, &d, cold);
    else if (!(d = view_find(l, tensor, row)))
        r = view_make(l, IDS_NONE, tensor, row, kind, &d);
    if (r == 0 && view_is_busy(l, d->tensor, d->row))
        r = -EBUSY;
    if (r == 0) {
        *node = *node == IDS_NONE ? d->node : *node;
        r = view_join(l, d, *node, flags, ret);
    }
    return r;
}

int live_view_open(struct live *l, uint32_t tensor, uint32_t row, enum live_view_kind kind,
                   int flags, uint32_t *node, struct live_view **ret, bool *cold)
{
    struct err unready = {0};
    *cold = false;
    if (kind == LIVE_ASIDE)
        return open_aside(flags, ret);
    writer_ready(l, &unready);
    if (unready.code)
        return unready.code;
    lock_take(&l->lock);
    int r = open_locked(l, tensor, row, kind, flags, node, ret, cold);
    lock_drop(&l->lock);
    return r == 0 && flags & O_TRUNC ? empty(l, *ret) : r;
}

/* What its node shows. */
static bool is_shown(const struct draft *d)
{
    return d && d->state != DRAFT_DROPPED && !is_left(d);
}

int live_view_join(struct live *l, uint32_t node, uint32_t row, struct live_view **ret)
{
    LOCKED(&l->lock);
    struct draft *d = draft_at(l, node, row);
    return is_shown(d) ? view_join(l, d, node, O_RDONLY, ret) : -ESTALE;
}

bool live_view_written(struct live *l, uint32_t tensor, uint32_t node, uint32_t row, bool *cold)
{
    *cold = false;
    if (!atomic_load_explicit(&l->touched, memory_order_acquire))
        return false;
    LOCKED(&l->lock);
    const struct object *o = object_find(&l->objects, tensor);
    const struct draft *d = view_at(l, node, row);
    const bool shown = is_shown(d);
    *cold = shown ? d->cold : o && o->spent >> row & 1;
    return shown;
}

void live_view_look(struct live *l, uint32_t tensor, uint32_t row, uint32_t *node)
{
    if (!atomic_load_explicit(&l->touched, memory_order_acquire))
        return;
    LOCKED(&l->lock);
    const struct draft *d = in_work(l, tensor, row);
    if (d)
        *node = d->node;
}

int live_view_attr(struct live *l, uint32_t node, uint32_t row, struct live_view_attr *ret)
{
    if (!atomic_load_explicit(&l->touched, memory_order_acquire))
        return -ESTALE;
    LOCKED(&l->lock);
    const struct draft *d = view_at(l, node, row);
    if (d && d->into)
        d = d->into->d;
    if (!is_shown(d))
        return -ESTALE;
    *ret = (struct live_view_attr){d->tensor, d->row, draft_size(d), d->helper != NULL};
    return 0;
}

/* ---- read and write ---- */

int live_view_read(struct live *l, struct live_view *h, uint64_t off, void *dst, size_t n,
                   size_t *got)
{
    *got = 0;
    int r = h->d ? h->d->of->read(l, h->d, off, dst, n, got) : 0;
    return r == VIEW_INTO ? live_view_read(l, h->d->into, off, dst, n, got) : r;
}

int live_view_read_node(struct live *l, uint32_t node, uint32_t row, uint64_t off, void *dst,
                        size_t n, size_t *got)
{
    lock_take(&l->lock);
    struct draft *d = view_at(l, node, row), *dead;
    const bool shown = is_shown(d);
    if (shown)
        d->users++;
    lock_drop(&l->lock);
    if (!shown)
        return -ESTALE;
    int r = d->of->read(l, d, off, dst, n, got);
    lock_take(&l->lock);
    d->users--;
    dead = view_draft_reap(l, d);
    lock_drop(&l->lock);
    if (dead)
        view_draft_end(dead);
    return r;
}

/* A line is whole. */
static int line_asked(struct live *l, struct live_wait *w, bool stopped)
{
    struct draft *d = w->view->d;
    int r = stopped ? -EINTR : d->of->judge(l, d, false, w);
    if (r == -EINTR) { /* so it was not written */
        lock_take(&l->lock);
        if (!stopped)
            draft_event(d, DRAFT_TAKE_BACK);
        else if (!waits_judged_by(l, d, line_asked))
            draft_event(d, DRAFT_EMPTY);
        if (!draft_is_due(d->state) && d->state != DRAFT_MORE)
            d->text.len = 0;
        lock_drop(&l->lock);
    }
    return r < 0 ? r : 0;
}

static int write_to(struct live *l, struct live_view *h, bool append, uint64_t off,
                    const void *bytes, size_t n, struct live_wait *w)
{
    struct draft *d = h->d;
    note_closed(l, h, false);
    int r = d->of->write(l, d, append, off, bytes, n);
    if (r == VIEW_INTO)
        return write_to(l, d->into, append, off, bytes, n, w);
    if (r > 0 && w)
        r = waits_judge(l, h, line_asked, w);
    else if (r > 0)
        r = 0;
    return r;
}

int live_view_write(struct live *l, struct live_view *h, uint64_t off, const void *bytes, size_t n,
                    struct live_wait *w)
{
    if (!h->d)
        return h->writes ? 0 : -EBADF;
    return write_to(l, h, h->append, off, bytes, n, w);
}

int live_view_truncate(struct live *l, struct live_view *h, uint64_t size)
{
    struct draft *d = h->d;
    if (!d)
        return 0;
    note_closed(l, h, false);
    if (size == 0) {
        lock_take(&l->lock);
        d->why = (struct err){0};
        lock_drop(&l->lock);
    }
    int r = d->of->truncate(l, d, size);
    return r == VIEW_INTO ? live_view_truncate(l, d->into, size) : r;
}

int live_view_allocate(struct live *l, struct live_view *h, uint64_t off, uint64_t n,
                       bool keep_size)
{
    if (!h->writes)
        return -EBADF;
    return h->d && h->d->of->allocate ? h->d->of->allocate(l, h->d, off, n, keep_size) : 0;
}

/* ---- closed ---- */

int view_flushed(struct live *l, struct live_view *h, struct live_wait *w)
{
    note_closed(l, h, true);
    LOCKED(&l->lock);
    return writer_flush(l, &h->d->promise, h->d->promise.edit, w);
}

static int view_flush(struct live *l, struct live_view *h, struct live_wait *w)
{
    int r = h->d->of->judge(l, h->d, h->d->of->ends, w);
    if (r >= 0)
        return view_flushed(l, h, w);
    note_closed(l, h, true);
    return r;
}

static int flush_asked(struct live *l, struct live_wait *w, bool stopped)
{
    return stopped ? -EINTR : view_flush(l, w->view, w);
}

int live_view_flush(struct live *l, struct live_view *h, struct live_wait *w)
{
    struct draft *d = h->d;
    if (!d || !h->writes)
        return 0;
    if (d->helper) {
        struct live_view *into = helper_flushed(l, h);
        return into ? live_view_flush(l, into, w) : 0;
    }
    return waits_judge(l, h, flush_asked, w);
}

/* Of a draft that nothing was accepted of it is what the tensor has, whichever file it was written to; of one in the
 * making there is nothing to wait for. */
static int sync_asked(struct live *l, struct live_wait *w, bool stopped)
{
    struct live_view *h = w->view;
    struct draft *d = h->d;
    if (stopped)
        return -EINTR;
    lock_take(&l->lock);
    const bool judged = d->writers || d->made;
    lock_drop(&l->lock);
    int r = judged ? d->of->judge(l, d, d->of->ends || d->made, w) : 0;
    if (r < 0 || d->made)
        return r;
    note_closed(l, h, true); /* before it is answered: its program may write then */
    lock_take(&l->lock);
    const struct promise *p = d->promise.edit ? &d->promise : &d->object->promise;
    r = writer_sync(l, p, p->edit, w);
    lock_drop(&l->lock);
    return r;
}

int live_view_fsync(struct live *l, struct live_view *h, struct live_wait *w)
{
    struct draft *d = h->d;
    if (d && d->helper) {
        struct live_view *into = helper_flushed(l, h);
        return into ? live_view_fsync(l, into, w) : 0;
    }
    return d ? waits_judge(l, h, sync_asked, w) : 0;
}

/* Dropped with what was written to it. With the lock. */
static void drop(struct live *l, struct draft *d)
{
    struct err e = {0};
    (void)err_set(&e, -ECANCELED, "what was written was not closed");
    if (draft_is_unaccepted(d->state))
        (void)tensor_refused(l, d->object, &e);
}

/* The last judgement, but of what a close has reported as refused. What was accepted stays. */
static void end_writing(struct live *l, struct draft *d)
{
    lock_take(&l->lock);
    bool refused = d->state == DRAFT_REFUSED;
    lock_drop(&l->lock);
    if (!refused)
        refused = d->of->judge(l, d, true, NULL) < 0;
    lock_take(&l->lock);
    if (d->writers == 0)
        d->accepted = false;
    if (d->writers == 0 && refused && !d->made)
        view_drop(d);
    lock_drop(&l->lock);
}

/* Drafts that have waited for their program long enough. With the lock. */
static void reap_begun(struct live *l)
{
    for (struct draft *d = l->views, *next; d; d = next) {
        next = d->next;
        if (!d->begun || seconds() - d->begun <= VIEW_BEGUN)
            continue;
        d->begun = 0;
        struct draft *dead = view_draft_reap(l, d);
        if (dead)
            view_draft_end(dead);
    }
}

/* The last writer goes: what was written is judged, unless a program still had it open when the
 * mount was ended. */
void view_release(struct live *l, struct live_view *h)
{
    struct live_view *into = NULL;
    struct draft *d = h->d;
    lock_take(&l->lock);
    d->unclosed |= h->writes && !h->closed;
    d->writers -= h->writes;
    d->unsettled -= h->writes && !h->closed;
    if (h->node != d->node)
        table_remove(&l->shared, &h->link);
    bool last = h->writes && d->writers == 0 && d->of->judge, ending = l->ending;
    if (last && ending && d->unclosed && !d->made)
        drop(l, d);
    bool judged = last && !(ending && d->unclosed);
    lock_drop(&l->lock);
    if (judged)
        end_writing(l, d);
    lock_take(&l->lock);
    d->handles--;
    if (d->made && h->writes)
        new_tensor_released(l, d->object, h->closed);
    if (d->helper)
        into = helper_released(d, h);
    if (d->begun) /* it may be among them */
        reap_begun(l);
    lock_drop(&l->lock);
    if (into)
        live_view_release(l, into);
    free(h);
}

static int release_asked(struct live *l, struct live_wait *w, bool stopped)
{
    (void)stopped;
    view_release(l, w->view);
    return 0;
}

void live_view_release(struct live *l, struct live_view *h)
{
    if (h->d)
        (void)waits_judge(l, h, release_asked, &h->end);
    else
        free(h);
}

/* Those that wait for their programs, and helpers. */
void views_close(struct live *l)
{
    while (l->views) {
        struct draft *d = l->views;
        l->views = d->next;
        view_draft_end(d);
    }
}

/* SPDX-License-Identifier: MIT */
/* Opening views of tensors for writing, writing and closing them; and helpers: see views.h. */
#include "live/views.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/lock.h"
#include "base/when.h"
#include "live/new_tensor.h"
#include "live/view.h"

/* ---- drafts ---- */

static time_t seconds(void)
{
    struct timespec now = when_now();
    return now.tv_sec;
}

/* True if it waited for its program long enough. */
static bool is_left(const struct draft *d)
{
    return d->begun && d->handles == 0 && seconds() - d->begun > VIEW_BEGUN;
}

/* True if the tensor is no longer what the draft was begun from: it will never be accepted. */
static bool is_outdated(const struct draft *d)
{
    if (d->made || d->replaced)
        return d->replaced || d->object->state != OBJECT_NEW;
    if (d->state == DRAFT_DROPPED || is_left(d))
        return true;
    return d->view < TENSOR_VIEWS &&
           (d->edits != d->object->edits || d->losses != d->object->losses);
}

/* The newest draft of a view that is not outdated. */
static struct draft *find(const struct live *l, uint32_t tensor, uint32_t row)
{
    struct draft *d = view_drafts(l, tensor);
    while (d && (d->unlinked || d->row != row || is_outdated(d)))
        d = d->inside;
    return d;
}

/* True if another view of the tensor holds something not accepted. */
static bool is_busy(const struct live *l, uint32_t tensor, uint32_t row)
{
    if (row == VIEW_NO_ROW)
        return false;
    for (const struct draft *d = view_drafts(l, tensor); d; d = d->inside)
        if (!d->made && !draft_is_helper(d) && d->handles && d->row != row &&
            draft_is_unaccepted(d->state) && !is_outdated(d))
            return true;
    return false;
}

/* The draft of a view that is being written just now: programs that open the view share it. */
static struct draft *in_work(const struct live *l, uint32_t tensor, uint32_t row)
{
    struct draft *d = view_drafts(l, tensor);
    while (d && (d->row != row || d->unlinked || is_outdated(d) ||
                 (!d->unsettled && !draft_is_unaccepted(d->state))))
        d = d->inside;
    return d;
}

/* What a draft is begun from. */
static int base_of(struct live *l, const struct object *o, enum tensor_view view,
                   struct tensor_base **ret)
{
    if (o->state == OBJECT_NEW || view == TENSOR_HELPER)
        return tensor_base_none(l->newest->view.snap->gguf->fmt.big, ret);
    return view_base(l, o->number, ret);
}

/* A new draft that holds what the view shows, for a node that has none; IDS_NONE: for a node of its own. */
static int make(struct live *l, uint32_t node, uint32_t tensor, uint32_t row, enum tensor_view view,
                struct draft **ret)
{
    struct err e = {0};
    struct tensor_base *base = NULL;
    struct draft *d = NULL;
    struct object *o = tensor_object(l, tensor);
    int r = o ? base_of(l, o, view, &base) : -ENOMEM;
    if (r == 0)
        r = tensor_draft_make(&l->logs, base, view, &d, &e);
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
    d->made = o->state == OBJECT_NEW && view != TENSOR_HELPER;
    d->edits = o->edits;
    d->losses = o->losses;
    *ret = d;
    return 0;
}

/* ---- open ---- */

/* Add a handle to a draft. */
static int join(struct live *l, struct draft *d, uint32_t node, int flags, struct live_view **ret)
{
    struct live_view *h = calloc(1, sizeof(*h));
    if (!h)
        return -ENOMEM;
    *h = (struct live_view){.d = d,
                            .node = node,
                            .writes = (flags & O_ACCMODE) != O_RDONLY,
                            .append = flags & O_APPEND};
    if (node != d->node && table_add(&l->objects.shared, &h->link, hash_number(node)) < 0) {
        free(h);
        return -ENOMEM;
    }
    d->handles++;
    d->writers += h->writes;
    d->unsettled += h->writes;
    d->emptied += !h->writes && flags & O_TRUNC;
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

/* It was closed, or is written: one of several threads records that. */
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

/* For a handle opened with truncation; on failure it is released. A read-only handle counts as a writer until here. */
static int empty(struct live *l, struct live_view *h)
{
    int r = live_view_truncate(l, h, 0);
    note_closed(l, h, false);
    lock_take(&l->lock);
    h->d->emptied -= !h->writes;
    if (h->d->made && !h->writes)
        new_tensor_released(l, h->d->object, false);
    lock_drop(&l->lock);
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

/* The draft of a node, unless it has waited long enough for its program. */
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

/* For a node that is written from now on. The kernel's cache may hold what was written to it before. */
static int begin_draft(struct live *l, uint32_t tensor, uint32_t node, uint32_t row,
                       enum tensor_view view, struct draft **ret, bool *cold)
{
    bool current;
    int r = is_busy(l, tensor, row) ? -EBUSY : is_current(l, tensor, node, &current);
    if (r == 0)
        r = make(l, node, tensor, row, view, ret);
    if (r < 0)
        return r;
    struct object *o = (*ret)->object;
    *cold = (*ret)->cold = !current || o->spent >> row & 1;
    if (current)
        o->spent |= (uint32_t)1 << row;
    return 0;
}

/*
 * The draft through which a view being opened is written. If a program found the node just before another one began
 * to write the view through its next node, it shares that draft.
 */
static int draft_to_open(struct live *l, uint32_t tensor, uint32_t row, enum tensor_view view,
                         uint32_t node, struct draft **ret, bool *cold)
{
    struct draft *d = *ret = draft_at(l, node, row);
    struct draft *other = d && (d->helper || d->made) ? NULL : in_work(l, tensor, row);
    bool current;
    if (d && d->state == DRAFT_DROPPED && is_current(l, tensor, node, &current) == 0 && current)
        d = *ret = NULL; /* another one begins */
    if (d && (is_outdated(d) || (other && other != d)))
        return -ESTALE; /* what is written to it now will never be accepted */
    *cold = d ? d->handles == 0 || d->cold || d->node != node : true;
    if (d)
        return 0;
    if (!other)
        return begin_draft(l, tensor, node, row, view, ret, cold);
    int r = is_current(l, tensor, node, &current);
    if (r == 0 && current)
        other->object->spent |= (uint32_t)1 << row;
    *ret = other;
    return r;
}

static int open_locked(struct live *l, uint32_t tensor, uint32_t row, enum tensor_view view,
                       int flags, uint32_t *node, struct live_view **ret, bool *cold)
{
    struct draft *d = NULL;
    int r = 0;
    if (*node != IDS_NONE)
        r = draft_to_open(l, tensor, row, view, *node, &d, cold);
    else if (!(d = find(l, tensor, row)))
        r = make(l, IDS_NONE, tensor, row, view, &d);
    if (r == 0 && is_busy(l, d->tensor, d->row))
        r = -EBUSY;
    if (r == 0) {
        *node = *node == IDS_NONE ? d->node : *node;
        r = join(l, d, *node, flags, ret);
    }
    return r;
}

int live_view_open(struct live *l, uint32_t tensor, uint32_t row, enum tensor_view view, int flags,
                   uint32_t *node, struct live_view **ret, bool *cold)
{
    struct err unready = {0};
    *cold = false;
    if (view == TENSOR_ASIDE)
        return open_aside(flags, ret);
    writer_ready(l, &unready);
    if (unready.code)
        return unready.code;
    lock_take(&l->lock);
    int r = open_locked(l, tensor, row, view, flags, node, ret, cold);
    lock_drop(&l->lock);
    return r == 0 && flags & O_TRUNC ? empty(l, *ret) : r;
}

/* True if its node shows it. */
static bool is_shown(const struct draft *d)
{
    return d && d->state != DRAFT_DROPPED && !is_left(d);
}

int live_view_join(struct live *l, uint32_t node, uint32_t row, struct live_view **ret)
{
    LOCKED(&l->lock);
    struct draft *d = draft_at(l, node, row);
    return is_shown(d) ? join(l, d, node, O_RDONLY, ret) : -ESTALE;
}

bool live_view_written(struct live *l, uint32_t tensor, uint32_t node, uint32_t row, bool *cold)
{
    *cold = false;
    if (!atomic_load_explicit(&l->objects.touched, memory_order_acquire))
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
    if (!atomic_load_explicit(&l->objects.touched, memory_order_acquire))
        return;
    LOCKED(&l->lock);
    const struct draft *d = in_work(l, tensor, row);
    if (d)
        *node = d->node;
}

int live_view_attr(struct live *l, uint32_t node, uint32_t row, struct live_view_attr *ret)
{
    if (!atomic_load_explicit(&l->objects.touched, memory_order_acquire))
        return -ESTALE;
    LOCKED(&l->lock);
    const struct draft *d = view_at(l, node, row);
    if (!is_shown(d))
        return -ESTALE;
    *ret = (struct live_view_attr){d->tensor, d->row, d->size, draft_is_helper(d)};
    return 0;
}

/* ---- read and write ---- */

int live_view_read(struct live *l, struct live_view *h, uint64_t off, void *dst, size_t n,
                   size_t *got)
{
    (void)l;
    *got = 0;
    return h->d ? tensor_draft_read(h->d, off, dst, n, got) : 0;
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
    int r = tensor_draft_read(d, off, dst, n, got);
    lock_take(&l->lock);
    d->users--;
    dead = view_draft_reap(l, d);
    lock_drop(&l->lock);
    if (dead)
        view_draft_end(dead);
    return r;
}

/* A line is complete. */
static int line_asked(struct live *l, struct live_wait *w, bool stopped)
{
    struct draft *d = w->view->d;
    int r = stopped ? -EINTR : view_judge(l, d, false, w);
    if (r == -EINTR) { /* so it was not written */
        lock_take(&l->lock);
        const bool all = stopped && !waits_judged_by(l, d, line_asked);
        lock_drop(&l->lock);
        tensor_draft_take_back(d, !stopped, all);
    }
    return r < 0 ? r : 0;
}

int live_view_write(struct live *l, struct live_view *h, uint64_t off, const void *bytes, size_t n,
                    struct live_wait *w)
{
    if (!h->d)
        return h->writes ? 0 : -EBADF;
    note_closed(l, h, false);
    int r = view_write(l, h->d, h->append, off, bytes, n);
    if (r > 0)
        r = w ? waits_judge(l, h, line_asked, w) : 0;
    return r;
}

int live_view_truncate(struct live *l, struct live_view *h, uint64_t size)
{
    if (!h->d)
        return 0;
    note_closed(l, h, false);
    return view_truncate(l, h->d, size);
}

int live_view_allocate(struct live *l, struct live_view *h, uint64_t off, uint64_t n,
                       bool keep_size)
{
    struct err e = {0};
    (void)l;
    if (!h->writes)
        return -EBADF;
    return h->d && !draft_is_text(h->d) ? tensor_draft_allocate(h->d, off, n, keep_size, &e) : 0;
}

/* ---- closed ---- */

/* The draft was judged: wait according to the commit mode. */
static int flushed(struct live *l, struct live_view *h, struct live_wait *w)
{
    note_closed(l, h, true);
    LOCKED(&l->lock);
    return writer_flush(l, &h->d->promise, h->d->promise.edit, w);
}

static int view_flush(struct live *l, struct live_view *h, struct live_wait *w)
{
    /* Each close may be the end of a text, which may lack its newline. */
    int r = view_judge(l, h->d, draft_is_text(h->d), w);
    if (r >= 0)
        return flushed(l, h, w);
    note_closed(l, h, true);
    return r;
}

static int flush_asked(struct live *l, struct live_wait *w, bool stopped)
{
    return stopped ? -EINTR : view_flush(l, w->view, w);
}

/* Record the close of a helper, which judges nothing. False: it is not a helper. */
static bool helper_closed(struct live *l, struct live_view *h)
{
    LOCKED(&l->lock);
    if (draft_is_helper(h->d) && !atomic_exchange(&h->closed, true))
        h->d->unsettled -= h->writes;
    return draft_is_helper(h->d);
}

int live_view_flush(struct live *l, struct live_view *h, struct live_wait *w)
{
    if (!h->d || !h->writes || helper_closed(l, h))
        return 0;
    return waits_judge(l, h, flush_asked, w);
}

/*
 * If nothing was accepted from the draft, sync whatever the tensor has, whichever file it was written to; for a
 * tensor being made there is nothing to wait for.
 */
static int sync_asked(struct live *l, struct live_wait *w, bool stopped)
{
    struct live_view *h = w->view;
    struct draft *d = h->d;
    if (stopped)
        return -EINTR;
    lock_take(&l->lock);
    const bool judged = d->writers || d->made;
    lock_drop(&l->lock);
    int r = judged ? view_judge(l, d, draft_is_text(d) || d->made, w) : 0;
    if (r < 0 || d->made)
        return r;
    note_closed(l, h, true); /* before it is answered, because then its program may write */
    lock_take(&l->lock);
    const struct promise *p = d->promise.edit ? &d->promise : &d->object->promise;
    r = writer_sync(l, p, p->edit, w);
    lock_drop(&l->lock);
    return r;
}

int live_view_fsync(struct live *l, struct live_view *h, struct live_wait *w)
{
    return h->d && !helper_closed(l, h) ? waits_judge(l, h, sync_asked, w) : 0;
}

/* Drop it with what was written to it. With the lock. */
static void drop(struct live *l, struct draft *d)
{
    struct err e = {0};
    (void)err_set(&e, -ECANCELED, "what was written was not closed");
    if (draft_is_unaccepted(d->state))
        (void)tensor_refused(l, d->object, &e);
}

/* The last judgement, unless a close has reported a refusal. What was accepted stays. */
static void end_writing(struct live *l, struct draft *d)
{
    lock_take(&l->lock);
    bool refused = d->state == DRAFT_REFUSED;
    lock_drop(&l->lock);
    if (!refused)
        refused = view_judge(l, d, true, NULL) < 0;
    lock_take(&l->lock);
    if (d->writers == 0)
        d->accepted = false;
    if (d->writers == 0 && refused && !d->made)
        view_drop(d);
    lock_drop(&l->lock);
}

/* Drop drafts that have waited for their program long enough. With the lock. */
static void reap_begun(struct live *l)
{
    for (struct draft *d = l->objects.views, *next; d; d = next) {
        next = d->next;
        if (!d->begun || seconds() - d->begun <= VIEW_BEGUN)
            continue;
        d->begun = 0;
        struct draft *dead = view_draft_reap(l, d);
        if (dead)
            view_draft_end(dead);
    }
}

/* The last writer leaves: what was written is judged, unless a program still had it open when the mount was ended. */
static void release(struct live *l, struct live_view *h)
{
    struct draft *d = h->d;
    lock_take(&l->lock);
    d->unclosed |= h->writes && !h->closed;
    d->writers -= h->writes;
    d->unsettled -= h->writes && !h->closed;
    if (h->node != d->node)
        table_remove(&l->objects.shared, &h->link);
    const bool last = h->writes && d->writers == 0 && !draft_is_helper(d);
    const bool judged = last && !(h->late && d->unclosed);
    if (last && !judged && !d->made)
        drop(l, d);
    lock_drop(&l->lock);
    if (judged)
        end_writing(l, d);
    lock_take(&l->lock);
    d->handles--;
    if (d->made && h->writes)
        new_tensor_released(l, d->object, h->closed);
    if (d->begun) /* it may be among them */
        reap_begun(l);
    lock_drop(&l->lock);
    free(h);
}

static int release_asked(struct live *l, struct live_wait *w, bool stopped)
{
    (void)stopped;
    release(l, w->view);
    return 0;
}

void live_view_release(struct live *l, struct live_view *h)
{
    if (!h->d) {
        free(h);
        return;
    }
    lock_take(&l->lock);
    h->late = l->ending;
    lock_drop(&l->lock);
    (void)waits_judge(l, h, release_asked, &h->end);
}

/* ---- helpers ---- */

static struct draft *helper_named(const struct live *l, uint32_t tensor, const char *name)
{
    struct draft *d = view_drafts(l, tensor);
    while (d && (!draft_is_helper(d) || d->unlinked || strcmp(d->helper, name) != 0))
        d = d->inside;
    return d;
}

/* With its own name. */
static int make_helper(struct live *l, uint32_t tensor, const char *name, struct draft **ret)
{
    char *own = strdup(name);
    int r = own ? make(l, IDS_NONE, tensor, VIEW_NO_ROW, TENSOR_HELPER, ret) : -ENOMEM;
    if (r < 0)
        free(own);
    else
        (*ret)->helper = own;
    return r;
}

int live_helper_create(struct live *l, uint32_t tensor, const char *name, int flags,
                       struct live_view **ret, uint32_t *node)
{
    LOCKED(&l->lock);
    struct draft *d = helper_named(l, tensor, name);
    int r = d && flags & O_EXCL ? -EEXIST : d ? 0 : make_helper(l, tensor, name, &d);
    if (r == 0)
        r = join(l, d, d->node, O_RDWR | flags, ret);
    if (r == 0)
        *node = d->node;
    return r;
}

int live_helper_find(struct live *l, uint32_t tensor, const char *name, uint32_t *node)
{
    LOCKED(&l->lock);
    const struct draft *d = helper_named(l, tensor, name);
    if (d)
        *node = d->node;
    return d ? 0 : -ENOENT;
}

bool live_helper_at(struct live *l, uint32_t tensor, uint64_t i, char name[TREE_NAME_MAX + 1],
                    uint32_t *node)
{
    if (!atomic_load_explicit(&l->objects.touched, memory_order_acquire))
        return false;
    LOCKED(&l->lock);
    const struct draft *d = view_drafts(l, tensor);
    while (d && (!draft_is_helper(d) || d->unlinked || i-- > 0))
        d = d->inside;
    if (d) {
        (void)strcpy(name, d->helper);
        *node = d->node;
    }
    return d;
}

/* Remove its name. Returns what nothing needs any more, followed by `more`, for view_drafts_end(). */
static struct draft *forget(struct live *l, struct draft *d, struct draft *more)
{
    d->unlinked = true;
    d->begun = 0;
    struct draft *dead = view_draft_reap(l, d);
    if (dead)
        dead->next = more;
    return dead ? dead : more;
}

int live_helper_unlink(struct live *l, uint32_t tensor, const char *name)
{
    lock_take(&l->lock);
    struct draft *d = helper_named(l, tensor, name), *dead = d ? forget(l, d, NULL) : NULL;
    lock_drop(&l->lock);
    view_drafts_end(dead);
    return d ? 0 : -ENOENT;
}

static int rename_helper(struct live *l, struct draft *d, const char *to, struct draft **dead)
{
    struct draft *over = helper_named(l, d->tensor, to);
    char *name = strdup(to);
    if (!name)
        return -ENOMEM;
    free(d->helper);
    d->helper = name;
    if (over && over != d)
        *dead = forget(l, over, NULL);
    return 0;
}

/* Turn it into the draft of this view, or into a helper again. With `io` and the lock. */
static void become(struct live *l, struct draft *d, enum tensor_view view, uint32_t row,
                   struct tensor_base *base)
{
    struct object *o = d->object;
    const bool made = view != TENSOR_HELPER && o->state == OBJECT_NEW;
    tensor_draft_become(d, view, base);
    if (made || d->made) {
        const unsigned writers = d->writers + d->emptied, unclosed = d->unsettled + d->emptied;
        o->open = made ? o->open + writers : o->open - writers;
        o->unclosed = made ? o->unclosed + unclosed : o->unclosed - unclosed;
        new_tensor_touch(l, o);
    }
    d->row = row;
    d->made = made;
    d->n_elem = base->n_elem;
    d->why = (struct err){0};
    d->promise = (struct promise){0};
    d->accepted = false;
    d->edits = o->edits;
    d->losses = o->losses;
}

/* Mark the other drafts of the view as replaced, and unlink them. Returns the same as forget(). */
static struct draft *replace_others(struct live *l, const struct draft *by)
{
    struct draft *dead = NULL;
    for (struct draft *d = by->object->drafts, *next; d; d = next) {
        next = d->inside;
        if (d == by || d->row != by->row || draft_is_helper(d))
            continue;
        d->replaced = true;
        dead = forget(l, d, dead);
    }
    return dead;
}

/*
 * Turn a helper into the draft of a view, and judge it, unless a program still has to close it. 1: judged; 0; -errno.
 */
static int take_place(struct live *l, struct live_view *h, struct live_wait *w)
{
    struct draft *d = h->d;
    struct tensor_base *base = NULL;
    struct err e = {0};
    lock_take(&d->io);
    lock_take(&l->lock);
    const bool whole = d->unsettled == 0;
    int r = d->unlinked                                                          ? -ENOENT
            : d->object->state != OBJECT_NEW && is_busy(l, d->tensor, h->to_row) ? -EBUSY
                                                                                 : 0;
    if (r == 0)
        r = base_of(l, d->object, h->to, &base);
    if (r == 0) { /* it may become a helper again: programs must not find it meanwhile */
        become(l, d, h->to, h->to_row, base);
        d->unlinked = true;
    }
    lock_drop(&l->lock);
    if (r == 0 && (r = tensor_draft_check(d, &e)) < 0)
        (void)view_refused(l, d, r, &e);
    lock_drop(&d->io);
    tensor_base_unref(base);
    if (r == 0 && whole)
        r = view_judge(l, d, true, w);
    return r < 0 ? r : whole;
}

/* The view refused it: it is a helper again, with its name unless that was taken. */
static void give_back(struct live *l, struct draft *d, struct tensor_base *own)
{
    lock_take(&d->io);
    lock_take(&l->lock);
    if (!draft_is_helper(d)) {
        d->unlinked = helper_named(l, d->tensor, d->helper) != NULL;
        become(l, d, TENSOR_HELPER, VIEW_NO_ROW, own);
    }
    lock_drop(&l->lock);
    lock_drop(&d->io);
}

static int rename_asked(struct live *l, struct live_wait *w, bool stopped)
{
    struct live_view *h = w->view;
    if (stopped) { /* another request of its draft is being carried out */
        live_view_release(l, h);
        return -EINTR;
    }
    struct tensor_base *own = tensor_base_ref(h->d->base);
    int r = take_place(l, h, w);
    if (r < 0) {
        give_back(l, h->d, own);
    } else {
        lock_take(&l->lock);
        h->d->unlinked = false;
        struct draft *dead = replace_others(l, h->d);
        lock_drop(&l->lock);
        view_drafts_end(dead);
    }
    if (r > 0)
        r = flushed(l, h, w);
    tensor_base_unref(own);
    release(l, h);
    return r;
}

/* The rename holds a writable handle, so that a new tensor is not judged before it is over. */
static int rename_over(struct live *l, struct draft *d, uint32_t row, enum tensor_view view,
                       struct live_view **ret)
{
    int r = join(l, d, d->node, O_RDWR, ret);
    if (r < 0)
        return r;
    object_unhide(d->object, row);
    d->unsettled--;
    (*ret)->closed = true;
    (*ret)->to = view;
    (*ret)->to_row = row;
    return 0;
}

int live_helper_rename(struct live *l, uint32_t tensor, const char *name, const char *to,
                       uint32_t row, enum tensor_view view, struct live_wait *w)
{
    struct live_view *h = NULL;
    struct draft *dead = NULL;
    const bool aside =
        view == TENSOR_ASIDE || (view != TENSOR_HELPER && live_making_leaves(l, tensor, row, view));
    int r = 0;
    lock_take(&l->lock);
    struct draft *d = helper_named(l, tensor, name);
    if (!d)
        r = -ENOENT;
    else if (view == TENSOR_HELPER)
        r = rename_helper(l, d, to, &dead);
    else if (aside) {
        object_unhide(d->object, row);
        dead = forget(l, d, NULL);
    } else
        r = rename_over(l, d, row, view, &h);
    lock_drop(&l->lock);
    view_drafts_end(dead);
    return h ? waits_judge(l, h, rename_asked, w) : r;
}

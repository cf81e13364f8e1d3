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

#include "live/helpers.h"
#include "live/makings.h"
#include "live/tensor_batch.h"

/* ---- drafts ---- */

static time_t seconds(void)
{
    struct timespec now = when_now();
    return now.tv_sec;
}

/* It waits for its program, which is not this one, or has waited long enough. */
static bool is_left(const struct view_draft *d)
{
    return d->begun && d->handles == 0 &&
           (!caller_program() || d->program != caller_program() ||
            seconds() - d->begun > VIEW_BEGUN);
}

/* What it was begun from is no longer what the tensor is: it is never accepted. */
static bool is_outdated(const struct view_draft *d)
{
    if (d->making)
        return d->making->gone;
    if (view_state(d) == VIEW_DROPPED || is_left(d))
        return true;
    return d->data && (d->edits != d->folder->edits || d->losses != d->folder->losses);
}

struct view_draft *view_find(const struct live *l, uint32_t tensor, uint32_t row)
{
    struct view_draft *d = view_drafts(l, tensor);
    while (d && (d->unlinked || d->row != row || is_outdated(d)))
        d = d->inside;
    return d;
}

/* Another view of the tensor that holds what is not accepted. */
bool view_is_busy(const struct live *l, uint32_t tensor, uint32_t row)
{
    if (row == VIEW_NO_ROW)
        return false;
    for (const struct view_draft *d = view_drafts(l, tensor); d; d = d->inside)
        if (!d->making && d->handles && d->row != row && view_is_unaccepted(view_state(d)) &&
            !is_outdated(d))
            return true;
    return false;
}

/* A program that was given the node of one that has ended since will open it: then it has this one.
 * No page of it is valid (see live_view_open_node()). */
static uint32_t node_for(const struct live *l, uint32_t tensor, uint32_t row)
{
    uint32_t node = lookers_node(l->lookers, tensor, row);
    return node && !view_of_node(l, node) ? node : atomic_fetch_add(&l->newest->numbers, 1);
}

/* node 0: a new one. */
static int make_with(struct live *l, uint32_t node, uint32_t tensor, uint32_t row,
                     enum live_view_kind kind, struct view_draft **ret)
{
    struct tensor_base *base = NULL;
    struct err e = {0};
    struct folder *f = tensor_folder(l, tensor);
    struct making *m = making_of(l, tensor);
    struct view_draft *d = f ? calloc(1, sizeof(*d)) : NULL;
    int r = !d  ? -ENOMEM
            : m ? tensor_base_none(l->newest->view.snap->gguf->fmt.big, &base)
                : view_base(l, tensor, &base);
    if (r == 0 && kind <= LIVE_F16_NPY)
        r = tensor_draft_make(&l->logs, base, (enum tensor_view)kind, &d->data, &e);
    if (r == 0)
        view_text(kind, base, &d->text);
    const uint64_t n_elem = base ? base->n_elem : 0;
    tensor_base_unref(base);
    if (r == 0)
        r = buf_error(&d->text);
    if (r < 0) {
        if (d)
            buf_free(&d->text);
        free(d);
        return r;
    }
    d->live = l;
    d->n_elem = n_elem;
    d->node = node ? node : node_for(l, tensor, row);
    d->tensor = tensor;
    d->row = row;
    d->folder = f;
    d->kind = kind;
    d->making = m;
    d->of = view_kind_of(d);
    d->edits = f->edits;
    d->losses = f->losses;
    lock_init(&d->io);
    view_draft_add(l, d);
    *ret = d;
    return 0;
}

int view_make(struct live *l, uint32_t tensor, uint32_t row, enum live_view_kind kind,
              struct view_draft **ret)
{
    return make_with(l, 0, tensor, row, kind, ret);
}

/* ---- programs that look again ---- */

static struct looker *find_looker(struct live *l, uint32_t tensor, uint32_t row)
{
    return lookers_find(l->lookers, caller_program(), tensor, row);
}

uint32_t live_view_node(struct live *l, uint32_t tensor, uint32_t row)
{
    struct view_draft *d = NULL;
    if (!atomic_load_explicit(&l->touched, memory_order_acquire))
        return 0;
    lock_take(&l->lock);
    struct looker *k = find_looker(l, tensor, row);
    if (k)
        d = view_find(l, tensor, row);
    if (k && !d && view_make(l, tensor, row, (enum live_view_kind)k->kind, &d) < 0)
        d = NULL;
    uint32_t node = d ? d->node : 0;
    if (k)
        k->node = node;
    lock_drop(&l->lock);
    return node;
}

/* ---- open ---- */

/* One more handle of a draft. */
int view_join(struct live *l, struct view_draft *d, int flags, struct live_view **ret)
{
    struct live_view *h = calloc(1, sizeof(*h));
    if (!h)
        return -ENOMEM;
    *h = (struct live_view){
        .d = d, .writes = (flags & O_ACCMODE) != O_RDONLY, .append = flags & O_APPEND};
    d->handles++;
    d->writers += h->writes;
    d->unflushed += d->helper && h->writes;
    if (h->writes) {
        d->program = caller_program();
        d->begun = 0;
    }
    if (d->making) {
        const bool writes = h->writes || flags & O_TRUNC; /* see empty() */
        d->making->open += writes;
        d->making->unclosed += writes;
        making_queue(l, d->making);
    }
    *ret = h;
    return 0;
}

/* It was closed, or is written: of several threads one notes that. */
static void note_closed(struct live *l, struct live_view *h, bool closed)
{
    struct making *m = h->d->making;
    if (atomic_exchange(&h->closed, closed) == closed || !m || !h->writes)
        return;
    lock_take(&l->lock);
    making_closed(l, m, closed);
    lock_drop(&l->lock);
}

/* A handle that was opened so; if it fails it is released. One that only reads wrote until here. */
static int empty(struct live *l, struct live_view *h)
{
    struct making *m = h->d->making;
    int r = live_view_truncate(l, h, 0);
    note_closed(l, h, false);
    if (m && !h->writes) {
        lock_take(&l->lock);
        making_released(l, m, false);
        lock_drop(&l->lock);
    }
    if (r < 0)
        live_view_release(l, h);
    return r;
}

static int open_aside(int flags, struct live_view **ret, bool *direct)
{
    struct live_view *h = calloc(1, sizeof(*h));
    if (!h)
        return -ENOMEM;
    h->writes = (flags & O_ACCMODE) != O_RDONLY;
    *direct = true;
    *ret = h;
    return 0;
}

int live_view_open(struct live *l, uint32_t tensor, uint32_t row, enum live_view_kind kind,
                   int flags, struct live_view **ret, bool *direct)
{
    struct err unready = {0};
    *direct = false;
    if (kind == LIVE_ASIDE)
        return open_aside(flags, ret, direct);
    writer_ready(l, &unready);
    if (unready.code)
        return unready.code;
    lock_take(&l->lock);
    struct view_draft *d = NULL;
    struct tensor_now t;
    struct looker *k = find_looker(l, tensor, row);
    int r = tensor_of_number(l, tensor, &t) < 0 ? -ESTALE : 0;
    if (r == 0 && view_is_busy(l, tensor, row))
        r = -EBUSY;
    if (r == 0 && (!tensor_folder(l, tensor)))
        r = -ENOMEM;
    if (r == 0 && !k) {
        r = lookers_add(&l->lookers, caller_program(), tensor, row, (unsigned)kind);
        r = r < 0 ? r : -ESTALE;
    }
    if (r == 0 && !(d = view_find(l, tensor, row)))
        r = view_make(l, tensor, row, kind, &d);
    if (r == 0)
        r = view_join(l, d, flags, ret);
    if (r == 0)
        looker_done(&l->lookers, k);
    lock_drop(&l->lock);
    *direct = true;
    return r == 0 && flags & O_TRUNC ? empty(l, *ret) : r;
}

int live_view_create(struct live *l, uint32_t tensor, uint32_t row, enum live_view_kind kind,
                     struct live_view **ret, uint32_t *node)
{
    struct err unready = {0};
    writer_ready(l, &unready);
    if (unready.code)
        return unready.code;
    lock_take(&l->lock);
    struct folder *f = tensor_folder(l, tensor);
    struct view_draft *d = view_find(l, tensor, row);
    int r = !f ? -ENOMEM : view_is_busy(l, tensor, row) ? -EBUSY : 0;
    if (r == 0 && !d)
        r = view_make(l, tensor, row, kind, &d);
    if (r == 0)
        r = view_join(l, d, O_RDWR, ret);
    if (r == 0) {
        folder_unhide(f, row);
        *node = d->node;
    }
    lock_drop(&l->lock);
    return r < 0 ? r : empty(l, *ret);
}

/* What is written to it from now on is never accepted; a tensor that was in the making has its bytes. */
static bool is_over(const struct view_draft *d)
{
    return d->making ? d->making->gone : view_state(d) == VIEW_DROPPED;
}

/* -ESTALE: the kernel looks the name up again, for what is there now. */
static int look_again(struct live *l, const struct view_draft *d)
{
    int r = lookers_add(&l->lookers, caller_program(), d->tensor, d->row, (unsigned)d->kind);
    return r < 0 ? r : -ESTALE;
}

/* The draft of a node, begun anew if it has ended. */
static int draft_of_node(struct live *l, uint32_t node, struct view_draft **ret)
{
    struct view_draft *d = *ret = view_of_node(l, node);
    const struct ended *x = d ? NULL : view_ended(l, node);
    if (d || !x || x->row == VIEW_NO_ROW || view_find(l, x->tensor, x->row))
        return d ? 0 : -ESTALE;
    return make_with(l, node, x->tensor, x->row, (enum live_view_kind)x->kind, ret);
}

int live_view_open_node(struct live *l, uint32_t node, int flags, struct live_view **ret,
                        bool *first)
{
    struct view_draft *d;
    bool writes = sys_open_changes(flags);
    lock_take(&l->lock);
    int r = draft_of_node(l, node, &d);
    if (r == 0 && writes && is_over(d))
        r = d->making ? look_again(l, d) : -ESTALE;
    if (r == 0 && writes && view_is_busy(l, d->tensor, d->row))
        r = -EBUSY;
    *first = r == 0 && d->handles == 0;
    if (r == 0)
        r = view_join(l, d, flags, ret);
    if (r == 0)
        looker_done(&l->lookers, find_looker(l, d->tensor, d->row));
    lock_drop(&l->lock);
    return r == 0 && flags & O_TRUNC ? empty(l, *ret) : r;
}

/* ---- read and write ---- */

int live_view_read(struct live *l, struct live_view *h, uint64_t off, void *dst, size_t n,
                   size_t *got)
{
    *got = 0;
    int r = h->d ? h->d->of->read(l, h->d, off, dst, n, got) : 0;
    return r == VIEW_INTO ? live_view_read(l, h->d->into, off, dst, n, got) : r;
}

/* A line is whole. */
static int line_asked(struct live *l, struct live_wait *w, bool stopped)
{
    struct view_draft *d = w->view->d;
    int r = stopped ? -EINTR : d->of->judge(l, d, false, w);
    if (r == -EINTR) { /* so it was not written */
        lock_take(&l->lock);
        if (!stopped)
            view_event(&d->state, VIEW_TAKE_BACK);
        else if (!waits_judged_by(l, d, line_asked))
            view_event(&d->state, VIEW_EMPTY);
        lock_drop(&l->lock);
    }
    return r < 0 ? r : 0;
}

static int write_to(struct live *l, struct live_view *h, bool append, uint64_t off,
                    const void *bytes, size_t n, struct live_wait *w)
{
    struct view_draft *d = h->d;
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
    struct view_draft *d = h->d;
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

int view_flush(struct live *l, struct live_view *h, struct live_wait *w)
{
    struct view_draft *d = h->d;
    int r = d->of->judge(l, d, d->of->ends, w);
    note_closed(l, h, true);
    lock_take(&l->lock);
    if (r >= 0)
        r = writer_flush(l, &d->promise, d->promise.edit, w);
    lock_drop(&l->lock);
    return r;
}

static int flush_asked(struct live *l, struct live_wait *w, bool stopped)
{
    return stopped ? -EINTR : view_flush(l, w->view, w);
}

int live_view_flush(struct live *l, struct live_view *h, struct live_wait *w)
{
    struct view_draft *d = h->d;
    if (!d || !h->writes)
        return 0;
    if (d->helper) {
        struct live_view *into = helper_flushed(l, h);
        return into ? live_view_flush(l, into, w) : 0;
    }
    return waits_judge(l, h, flush_asked, w);
}

static int sync_asked(struct live *l, struct live_wait *w, bool stopped)
{
    struct view_draft *d = w->view->d;
    return stopped ? -EINTR : d->of->sync(l, d, w);
}

int live_view_fsync(struct live *l, struct live_view *h, struct live_wait *w)
{
    struct view_draft *d = h->d;
    if (d && d->helper) {
        struct live_view *into = helper_flushed(l, h);
        return into ? live_view_fsync(l, into, w) : 0;
    }
    return d && d->of->sync ? waits_judge(l, h, sync_asked, w) : 0;
}

/* Dropped with what was written to it. With the lock. */
static void drop(struct live *l, struct view_draft *d)
{
    struct err e = {0};
    (void)err_set(&e, -ECANCELED, "what was written was not closed");
    if (view_is_unaccepted(view_state(d)))
        view_refused(l, d, &e);
}

/* The last judgement, but of what a close has reported as refused. What was accepted stays. */
static void end_writing(struct live *l, struct view_draft *d)
{
    lock_take(&l->lock);
    bool refused = view_state(d) == VIEW_REFUSED;
    lock_drop(&l->lock);
    if (!refused)
        refused = d->of->judge(l, d, true, NULL) < 0;
    lock_take(&l->lock);
    if (d->writers == 0)
        d->accepted = false;
    if (d->writers == 0 && refused && !d->making)
        view_drop(d);
    lock_drop(&l->lock);
}

/* Drafts that have waited for their program long enough. With the lock. */
static void reap_begun(struct live *l)
{
    for (struct view_draft *d = l->views, *next; d; d = next) {
        next = d->next;
        if (!d->begun || seconds() - d->begun <= VIEW_BEGUN)
            continue;
        d->begun = 0;
        struct view_draft *dead = view_draft_reap(l, d);
        if (dead)
            view_draft_end(dead);
    }
}

/* The last writer goes: what was written is judged, unless a program still had it open when the
 * mount was ended. */
void view_release(struct live *l, struct live_view *h)
{
    struct live_view *into = NULL;
    struct view_draft *d = h->d;
    lock_take(&l->lock);
    d->unclosed |= h->writes && !h->closed;
    d->writers -= h->writes;
    bool last = h->writes && d->writers == 0 && d->of->judge, ending = l->ending;
    if (last && ending && d->unclosed && !d->making)
        drop(l, d);
    bool judged = last && !(ending && d->unclosed);
    lock_drop(&l->lock);
    if (judged)
        end_writing(l, d);
    lock_take(&l->lock);
    d->handles--;
    if (d->making && h->writes)
        making_released(l, d->making, h->closed);
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

/* Drafts that were given to a program which never opened them. */
void views_close(struct live *l)
{
    while (l->views) {
        struct view_draft *d = l->views;
        l->views = d->next;
        view_draft_end(d);
    }
    lookers_free(&l->lookers);
}

/* SPDX-License-Identifier: MIT */
/* Manages views of tensors and helpers, with their drafts, handles and judgements (views.h). */
#include "live/views.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>
#include <time.h>

#include "base/bytes.h"
#include "base/lock.h"
#include "live/batch.h"
#include "live/draft.h"
#include "live/tensor_judge.h"
#include "live/writer.h"

#define VIEW_NO_ROW UINT32_MAX /* the row of helpers */
/* Seconds that a draft with only a NumPy header waits for a program to continue it. */
#define VIEW_BEGUN 10

static int view_base(struct live *l, uint32_t tensor, struct tensor_base **ret)
{
    const struct edit_change *c = &l->next.change;
    struct edit_tensor t;
    assert(lock_held(&l->lock));
    if (!edit_tensor_numbered(c, tensor, &t))
        return -ENOENT;
    bool new = t.old == EDIT_NONE;
    int r = tensor_base_make(c->on.g, t.old, new ? NULL : base_store(l), t.content, ret);
    if (r == 0)
        (*ret)->imp = imatrix_find(l->opt.imatrix, t.name, t.name_len);
    return r;
}

static time_t seconds(void)
{
    struct timespec now = when_now();
    return now.tv_sec;
}

/* ---- drafts ---- */

static struct draft *draft_of(struct link *k)
{
    return k ? (struct draft *)((char *)k - offsetof(struct draft, link)) : NULL;
}

struct draft *views_each(const struct live *l, const struct draft *d)
{
    return draft_of(table_each(&l->objects.nodes, d ? &d->link : NULL));
}

void view_reap(struct live *l, struct draft *d)
{
    struct draft **at = &d->object->drafts;
    bool kept = !d->unlinked &&
                (draft_is_helper(d) || d->begun || (d->made && d->object->state == OBJECT_NEW));
    bool judged = d->made && d->object == l->objects.judging;
    assert(lock_held(&l->lock));
    if (d->handles || d->asked || judged || kept)
        return;
    table_remove(&l->objects.nodes, &d->link);
    while (*at != d)
        at = &(*at)->inside;
    *at = d->inside;
    d->inside = l->objects.dead;
    l->objects.dead = d;
}

void views_bury(struct live *l)
{
    lock_take(&l->lock);
    struct draft *dead = l->objects.dead;
    l->objects.dead = NULL;
    lock_drop(&l->lock);
    for (struct draft *next; dead; dead = next) {
        next = dead->inside;
        draft_free(dead);
    }
    logs_rest(&l->logs);
}

/* Remove the draft's name. */
static void forget(struct live *l, struct draft *d)
{
    d->unlinked = true;
    d->begun = 0;
    view_reap(l, d);
}

void view_helpers_drop(struct live *l, const struct object *o)
{
    for (struct draft *d = o->drafts, *next; d; d = next) {
        next = d->inside;
        if (draft_is_helper(d))
            forget(l, d);
    }
}

void view_drafts_reap(struct live *l, const struct object *o)
{
    for (struct draft *d = o->drafts, *next; d; d = next) {
        next = d->inside;
        if (d->made)
            view_reap(l, d);
    }
}

void views_close(struct live *l)
{
    for (struct draft *d = views_each(l, NULL), *next; d; d = next) {
        next = views_each(l, d);
        d->inside = l->objects.dead;
        l->objects.dead = d;
    }
    views_bury(l);
}

static int add_draft(struct live *l, struct draft *d, struct object *o)
{
    int r = table_add(&l->objects.nodes, &d->link, hash_number(d->node));
    if (r < 0)
        return r;
    d->object = o;
    d->inside = o->drafts;
    o->drafts = d;
    return 0;
}

/* Return the drafts of a tensor, linked by `inside`. */
static struct draft *drafts_of(const struct live *l, uint32_t tensor)
{
    const struct object *o = object_find(&l->objects, tensor);
    return o ? o->drafts : NULL;
}

static struct live_view *handle_of(struct link *k)
{
    return k ? (struct live_view *)((char *)k - offsetof(struct live_view, link)) : NULL;
}

/* True if the draft has waited long enough for a program to continue it. */
static bool is_left(const struct draft *d)
{
    return d->begun && d->handles == 0 && seconds() - d->begun > VIEW_BEGUN;
}

/* Return a node's draft: its own draft, else the draft that a handle of the node shares, else a
 * dropped draft. Returns NULL if there is no draft, or if it has waited long enough (is_left()). */
static struct draft *view_at(const struct live *l, uint32_t node, uint32_t row)
{
    const uint64_t hash = hash_number(node);
    struct draft *dropped = NULL, *d = draft_of(table_first(&l->objects.nodes, hash));
    for (; d; d = draft_of(table_next(&d->link))) {
        if (d->node != node || (d->row != row && !d->helper) || is_left(d))
            continue;
        if (d->state != DRAFT_DROPPED)
            return d;
        dropped = d;
    }
    struct live_view *h = handle_of(table_first(&l->objects.shared, hash));
    while (h && (h->node != node || h->d->row != row))
        h = handle_of(table_next(&h->link));
    return h ? h->d : dropped;
}

/* ---- writes ---- */

/* Record a refused write or judgement. stays: the error stays with the draft. Call with the lock
 * held. */
static int refuse(struct live *l, struct draft *d, bool stays, int r, struct err *e)
{
    if (!e->code)
        (void)err_set(e, r, "%s", strerror(-r));
    e->code = r;
    if (stays)
        d->why = *e;
    return tensor_refused(l, d->object, e);
}

/* Record a refused write, unless the draft is a helper, which is not judged. The same error is
 * recorded only once, because a full disk refuses each page of a mapping. */
static int refused(struct live *l, struct draft *d, int r, struct err *e)
{
    LOCKED(&l->lock);
    const bool again = d->why.code == r && strcmp(d->why.msg, e->msg) == 0;
    return again || draft_is_helper(d) ? r : refuse(l, d, true, r, e);
}

/* Forget the error of a draft that is being rewritten. */
static void forget_why(struct live *l, struct draft *d)
{
    LOCKED(&l->lock);
    d->why = (struct err){0};
}

/* ---- judging ---- */

/* A judgement in progress. */
struct round {
    struct live *l;
    struct draft *d;
    bool end;                 /* no more writes will come */
    time_t told;              /* when progress was last reported; 0: never */
    struct tensor_base *base; /* for a text: a reference to the tensor's current state */
    struct tensor_edit edit;
    struct err e;
};

static void on_progress(void *arg, uint64_t done, uint64_t all)
{
    struct round *o = arg;
    const time_t now = seconds();
    struct edit_tensor t;
    char name[SHOW_MAX] = "?";
    if (now == o->told)
        return;
    if (o->told) {
        lock_take(&o->l->lock);
        if (edit_tensor_numbered(&o->l->next.change, o->d->object->number, &t))
            (void)show(name, t.name, t.name_len);
        lock_drop(&o->l->lock);
        live_log(o->l, LOG_INFO, "encoding '%s': %llu %%", name,
                 (unsigned long long)(done * 100 / all));
    }
    o->told = now;
}

/* True if the text is the one that the tensor shows, even if that type or shape cannot be set. */
static bool is_what_it_has(const struct round *o, const char *text, size_t n)
{
    CLEANUP(buf_free) struct buf shown = BUF_INIT;
    tensor_text(o->base, o->d->view, &shown);
    return shown.len == n && memcmp(shown.data, text, n) == 0;
}

static int judge_type(struct round *o, const char *text, size_t n, const struct units_watch *watch)
{
    uint32_t type;
    int r = tensor_type_parse(text, n, &type, &o->e);
    if (r < 0)
        return r;
    return tensor_convert(o->base, type, &o->l->logs, watch, &o->edit, &o->e);
}

static int judge_shape(struct round *o, const char *text, size_t n)
{
    struct tensor_shape shape;
    int r = tensor_shape_parse(text, n, &shape, &o->e);
    if (r == 0)
        r = tensor_reshape(o->base, &shape, &o->e);
    if (r == TENSOR_CHANGED)
        o->edit = (struct tensor_edit){.shaped = true, .shape = shape};
    return r;
}

/* Judge a text, as tensor_draft_judge() does for values. A new tensor's text is judged on its own
 * and immediately. */
static int judge_text(struct round *o, const struct units_watch *watch)
{
    struct draft *d = o->d;
    char text[TENSOR_TEXT_MAX];
    struct tensor_round round;
    int r = tensor_draft_begin(d, &round);
    if (r <= 0)
        return r == 0 ? TENSOR_SAME : err_sys(&o->e, r, "cannot read the draft");
    const size_t n = (size_t)round.size;
    r = tensor_round_read(d, &round, 0, text, n);
    if (r < 0) {
        (void)err_sys(&o->e, r, "cannot read the draft");
    } else if (!o->end && !memchr(text, '\n', n)) { /* a truncation has removed the newline */
        r = TENSOR_SHORT;
    } else if (d->made) {
        lock_take(&o->l->lock);
        r = new_tensor_text(o->l, d, text, n, &o->e);
        if (r < 0) /* while this text is refused, the tensor is not added */
            d->why = o->e;
        lock_drop(&o->l->lock);
    } else if (!is_what_it_has(o, text, n)) {
        r = d->view == TENSOR_TYPE ? judge_type(o, text, n, watch) : judge_shape(o, text, n);
    }
    r = tensor_draft_end(d, &round, r == TENSOR_CHANGED || r == TENSOR_SAME, r);
    if (r == TENSOR_SAME)
        tensor_draft_passed(d, d->base);
    return r;
}

/* Check that the draft's base is still the tensor's current state. */
static int check_base(const struct draft *d, struct err *e)
{
    if (d->replaced)
        return err_set(e, -ESTALE, "another file has taken its place: open it again");
    if (d->losses != d->object->losses)
        return err_set(e, -EIO, "the edit before it failed: open it again");
    if (d->edits != d->object->edits)
        return err_set(e, -ESTALE, "the tensor was edited by another file: open it again");
    return 0;
}

static int apply(const struct tensor_edit *edit, struct edit_change *c, const struct edit_tensor *t,
                 struct err *e)
{
    int r = 0;
    if (edit->shaped)
        r = edit_tensor_set(c, t->name, t->name_len, &edit->shape, edit->whole ? edit->piece : NULL,
                            edit->whole ? edit->n : 0, e);
    if (r == 0 && edit->n > 0 && !edit->whole)
        r = edit_tensor_write(c, t->name, t->name_len, edit->piece, edit->n, e);
    return r;
}

/* Make the edit part of the change. Returns 0 or -errno. Call with the lock held. */
static int accept(struct round *o)
{
    struct live *l = o->l;
    struct draft *d = o->d;
    struct edit_tensor t;
    struct tensor_base *now = NULL;
    size_t mark = edit_mark(&l->next.change);
    int r = check_base(d, &o->e);
    if (r == 0 && !edit_tensor_numbered(&l->next.change, d->object->number, &t))
        r = err_set(&o->e, -ENOENT, "the tensor was removed");
    if (r == 0)
        r = apply(&o->edit, &l->next.change, &t, &o->e);
    if (r == 0)
        r = batch_check(l, &o->e);
    if (r == 0 && (r = view_base(l, d->object->number, &now)) < 0)
        (void)err_set(&o->e, r, "no memory for the edit");
    if (r < 0) {
        edit_undo(&l->next.change, mark);
        return r;
    }
    tensor_draft_passed(d, draft_is_text(d) ? d->base : now);
    tensor_base_unref(now);
    d->edits = ++d->object->edits;
    d->object->spent = 0;
    d->accepted = true;
    (void)tensor_accepted(l, d->object, NULL);
    promise_make(&d->promise, l->edits);
    return 0;
}

/* Record an error from a judgement. A text keeps its error until it is rewritten; an error in data
 * is found again until the data changes. Call with the lock held. */
static int report(struct round *o, int r)
{
    return refuse(o->l, o->d, r != -EINTR && draft_is_text(o->d), r, &o->e);
}

/* Handle content that the tensor already has, perhaps because of a pending edit, or had when the
 * draft was started. */
static int same(struct round *o)
{
    struct draft *d = o->d;
    int r = check_base(d, &o->e);
    if (r < 0) /* the error is permanent, whatever is written to the draft */
        return refuse(o->l, d, true, r, &o->e);
    promise_make(&d->promise, d->object->promise.edit);
    return 0;
}

/* Act on a verdict. Call with the lock held. */
static int settle(struct round *o, int r)
{
    struct draft *d = o->d;
    if (r == TENSOR_CHANGED) {
        r = accept(o);
        if (r == 0)
            return 1;
        tensor_draft_failed(d);
    }
    if (r < 0)
        return report(o, r);
    if (d->made || (r == TENSOR_BEGUN && !o->end))
        return 0;
    if (r == TENSOR_SAME) {
        if (draft_is_text(d))
            object_set_error(&o->l->objects, d->object, NULL);
        return same(o);
    }
    /* the program will open the view again (numpy's open_memmap) */
    if (r == TENSOR_BEGUN && !d->accepted) {
        d->begun = seconds();
        object_set_error(&o->l->objects, d->object, "only the header of a NumPy array was written");
        return 0;
    }
    if (!o->e.code)
        (void)err_set(&o->e, -EINVAL, "it is too short");
    return o->end ? report(o, -EINVAL) : -EINVAL;
}

/* Prepare a judgement. Returns 1 if there is something to judge, 0 if not, or -errno if the draft
 * was refused. A text will be compared with the tensor's current state. */
static int prepare(struct round *o)
{
    struct draft *d = o->d;
    LOCKED(&o->l->lock);
    if (draft_is_helper(d))
        return 0;
    /* The error with which a write was refused or the new tensor was lost. */
    int r = d->made && d->object->lost ? d->object->lost : d->why.code;
    const bool wrote = draft_is_due(d->state);
    if (d->replaced)
        return wrote ? report(o, check_base(d, &o->e)) : 0;
    if (!draft_is_text(d)) /* a new tensor's data is judged together with its other views */
        return r < 0 ? r : wrote && !d->made;
    d->losses = d->object->losses;
    d->edits = d->object->edits;
    if (r == 0 && wrote && !d->made && (r = view_base(o->l, d->object->number, &o->base)) < 0) {
        (void)err_set(&o->e, r, "%s",
                      r == -ENOENT ? "the tensor was removed" : "no memory for the edit");
        return report(o, r);
    }
    if (o->base && d->view == TENSOR_TYPE)
        writer_converts(o->l, true);
    return r < 0 ? r : wrote;
}

int view_judge(struct live *l, struct draft *d, bool end, struct live_wait *w)
{
    struct round o = {.l = l, .d = d, .end = end, .edit = TENSOR_EDIT_INIT};
    const struct units_watch watch = {w ? &w->cancel : NULL, on_progress, &o};
    int r = prepare(&o);
    if (r <= 0)
        return r;
    do
        r = draft_is_text(d) ? judge_text(&o, &watch)
                             : tensor_draft_judge(d, &watch, &o.edit, &o.e);
    while (r == -EAGAIN);
    lock_take(&l->lock);
    if (o.base && d->view == TENSOR_TYPE)
        writer_converts(l, false);
    r = settle(&o, r);
    lock_drop(&l->lock);
    tensor_edit_free(&o.edit);
    tensor_base_unref(o.base);
    return r;
}

/* ---- drafts for a view ---- */

/* True if the draft will never be accepted, because the tensor has changed since it was started. */
static bool is_outdated(const struct draft *d)
{
    if (d->made || d->replaced)
        return d->replaced || d->object->state != OBJECT_NEW;
    if (d->state == DRAFT_DROPPED || is_left(d))
        return true;
    return d->view < TENSOR_VIEWS &&
           (d->edits != d->object->edits || d->losses != d->object->losses);
}

/* Return the newest draft of a view that is not outdated. in_work: find only a draft that is being
 * written, and is thus shared by programs that open the view. */
static struct draft *find(const struct live *l, uint32_t tensor, uint32_t row, bool in_work)
{
    struct draft *d = drafts_of(l, tensor);
    while (d && (d->unlinked || d->row != row || is_outdated(d) ||
                 (in_work && !d->unsettled && !draft_is_unaccepted(d->state))))
        d = d->inside;
    return d;
}

/* True if another view of the tensor has bytes that have not been accepted. */
static bool is_busy(const struct live *l, uint32_t tensor, uint32_t row)
{
    if (row == VIEW_NO_ROW)
        return false;
    for (const struct draft *d = drafts_of(l, tensor); d; d = d->inside)
        if (!d->made && !draft_is_helper(d) && d->handles && d->row != row &&
            draft_is_unaccepted(d->state) && !is_outdated(d))
            return true;
    return false;
}

/* Get the base for a new draft. */
static int base_of(struct live *l, const struct object *o, enum tensor_view view,
                   struct tensor_base **ret)
{
    if (o->state == OBJECT_NEW || view == TENSOR_HELPER)
        return tensor_base_none(l->newest->view.snap->gguf->fmt.big, ret);
    return view_base(l, o->number, ret);
}

/* Make a draft with the view's content, for a node without one. If node is IDS_NONE, the draft gets
 * a new node. */
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
        r = add_draft(l, d, o);
    }
    tensor_base_unref(base);
    if (r < 0) {
        draft_free(d);
        return r;
    }
    d->live = l;
    d->row = row;
    d->made = o->state == OBJECT_NEW && view != TENSOR_HELPER;
    d->edits = o->edits;
    d->losses = o->losses;
    *ret = d;
    return 0;
}

/* ---- open ---- */

/* Make a handle; O_TRUNC implies writing. Returns NULL if out of memory. */
static struct live_view *new_handle(struct draft *d, uint32_t node, int flags)
{
    struct live_view *h = calloc(1, sizeof(*h));
    if (h)
        *h = (struct live_view){.d = d,
                                .node = node,
                                .writes = (flags & O_ACCMODE) != O_RDONLY || flags & O_TRUNC,
                                .append = flags & O_APPEND};
    return h;
}

/* Add a handle to a draft. */
static int join(struct live *l, struct draft *d, uint32_t node, int flags, struct live_view **ret)
{
    struct live_view *h = new_handle(d, node, flags);
    if (!h || (node != d->node && table_add(&l->objects.shared, &h->link, hash_number(node)) < 0)) {
        free(h);
        return -ENOMEM;
    }
    d->handles++;
    d->writers += h->writes;
    d->unsettled += h->writes;
    if (h->writes)
        d->begun = 0;
    if (d->made) {
        d->object->open += h->writes;
        d->object->unclosed += h->writes;
    }
    *ret = h;
    return 0;
}

/* Record, once per change, that the handle was closed or is being written. */
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

/* Return 1 if the node shows the tensor's current state, 0 for an earlier one, or -ESTALE. */
static int is_current(const struct live *l, uint32_t tensor, uint32_t node)
{
    struct edit_tensor t;
    return edit_tensor_numbered(&l->next.change, tensor, &t) ? t.id.version == node : -ESTALE;
}

/* Start a draft for a node that is about to be written. The kernel's cache may hold earlier writes
 * to the node. */
static int begin_draft(struct live *l, uint32_t tensor, uint32_t node, uint32_t row,
                       enum tensor_view view, struct draft **ret, bool *cold)
{
    const int current = is_busy(l, tensor, row) ? -EBUSY : is_current(l, tensor, node);
    int r = current < 0 ? current : make(l, node, tensor, row, view, ret);
    if (r < 0)
        return r;
    struct object *o = (*ret)->object;
    *cold = (*ret)->cold = !current || o->spent >> row & 1;
    if (current)
        o->spent |= (uint32_t)1 << row;
    return 0;
}

/*
 * Find the draft for a view being opened for writing. If another program has begun to write the
 * view through a newer node since this program found its node, both share the newer node's draft.
 */
static int draft_to_open(struct live *l, uint32_t tensor, uint32_t row, enum tensor_view view,
                         uint32_t node, struct draft **ret, bool *cold)
{
    struct draft *d = *ret = view_at(l, node, row);
    struct draft *other = d && (d->helper || d->made) ? NULL : find(l, tensor, row, true);
    if (d && d->state == DRAFT_DROPPED && is_current(l, tensor, node) > 0)
        d = *ret = NULL; /* start a new draft */
    if (d && (is_outdated(d) || (other && other != d)))
        return -ESTALE; /* writes to that draft will never be accepted */
    *cold = d ? d->handles == 0 || d->cold || d->node != node : true;
    if (d)
        return 0;
    if (!other)
        return begin_draft(l, tensor, node, row, view, ret, cold);
    const int current = is_current(l, tensor, node);
    if (current > 0)
        other->object->spent |= (uint32_t)1 << row;
    *ret = other;
    return current < 0 ? current : 0;
}

static int open_locked(struct live *l, uint32_t tensor, uint32_t row, enum tensor_view view,
                       int flags, uint32_t *node, struct live_view **ret, bool *cold)
{
    struct draft *d = NULL;
    int r = 0;
    if (*node != IDS_NONE)
        r = draft_to_open(l, tensor, row, view, *node, &d, cold);
    else if (!(d = find(l, tensor, row, false)))
        r = make(l, IDS_NONE, tensor, row, view, &d);
    if (r == 0 && is_busy(l, d->object->number, d->row))
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
        return (*ret = new_handle(NULL, IDS_NONE, flags)) ? 0 : -ENOMEM;
    writer_ready(l, &unready);
    if (unready.code)
        return unready.code;
    lock_take(&l->lock);
    int r = open_locked(l, tensor, row, view, flags, node, ret, cold);
    lock_drop(&l->lock);
    if (r == 0 && flags & O_TRUNC)
        (void)live_view_truncate(l, *ret, 0); /* a view can always be emptied */
    return r;
}

/* True if the draft's node shows this draft. */
static bool is_shown(const struct draft *d)
{
    return d && d->state != DRAFT_DROPPED;
}

int live_view_join(struct live *l, uint32_t node, uint32_t row, struct live_view **ret)
{
    LOCKED(&l->lock);
    struct draft *d = view_at(l, node, row);
    return is_shown(d) ? join(l, d, node, O_RDONLY, ret) : -ESTALE;
}

bool live_view_written(struct live *l, uint32_t tensor, uint32_t node, uint32_t row, bool *cold)
{
    *cold = false;
    if (objects_untouched(&l->objects))
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
    if (objects_untouched(&l->objects))
        return;
    LOCKED(&l->lock);
    const struct draft *d = find(l, tensor, row, true);
    if (d)
        *node = d->node;
}

int live_view_attr(struct live *l, uint32_t node, uint32_t row, struct live_view_attr *ret)
{
    if (objects_untouched(&l->objects))
        return -ESTALE;
    LOCKED(&l->lock);
    const struct draft *d = view_at(l, node, row);
    if (!is_shown(d))
        return -ESTALE;
    *ret = (struct live_view_attr){d->object->number, d->row, d->size, draft_is_helper(d)};
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

/* Judge a complete line. */
static int line_asked(struct live *l, struct live_wait *w, bool stopped)
{
    struct draft *d = w->view->d;
    int r = stopped ? -EINTR : view_judge(l, d, false, w);
    if (r == -EINTR) { /* the line then counts as not written */
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
    struct draft *d = h->d;
    struct err e = {0};
    if (!d)
        return 0;
    note_closed(l, h, false);
    if (draft_is_text(d) && (h->append ? d->size == 0 : off == 0))
        forget_why(l, d);
    int r = tensor_draft_write(d, h->append, off, bytes, n, &e);
    if (r < 0)
        return refused(l, d, r, &e);
    return r > 0 && w ? waits_judge(l, h, line_asked, w) : 0;
}

int live_view_truncate(struct live *l, struct live_view *h, uint64_t size)
{
    struct draft *d = h->d;
    struct err e = {0};
    if (!d)
        return 0;
    note_closed(l, h, false);
    if (size == 0)
        forget_why(l, d);
    if (draft_is_text(d) && size > d->size)
        return -EINVAL;
    int r = tensor_draft_truncate(d, size, &e);
    return r < 0 ? refused(l, d, r, &e) : 0;
}

int live_view_allocate(struct live *l, struct live_view *h, uint64_t off, uint64_t n,
                       bool keep_size)
{
    struct err e = {0};
    (void)l;
    return h->d && !draft_is_text(h->d) ? tensor_draft_allocate(h->d, off, n, keep_size, &e) : 0;
}

/* ---- closes ---- */

/* After a draft is judged, wait as the commit mode requires. */
static int flushed(struct live *l, struct live_view *h, struct live_wait *w)
{
    note_closed(l, h, true);
    LOCKED(&l->lock);
    return writer_flush(l, &h->d->promise, h->d->promise.edit, w);
}

static int flush_asked(struct live *l, struct live_wait *w, bool stopped)
{
    struct live_view *h = w->view;
    if (stopped)
        return -EINTR;
    /* Any close may be the end of a text, which may lack its newline. */
    int r = view_judge(l, h->d, draft_is_text(h->d), w);
    if (r >= 0)
        return flushed(l, h, w);
    note_closed(l, h, true);
    return r;
}

/* Record the close of a helper, which is not judged. Returns false if it is not a helper. */
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

/* Judge and sync a draft. If the draft has no accepted edit, sync the edits to the tensor,
 * whichever file they were written to. For a new tensor, there is nothing to wait for. */
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
    note_closed(l, h, true); /* must precede the answer, after which the program may write */
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

/* Judge the draft for the last time, unless a close has reported a refusal. Accepted edits stay. */
static void end_writing(struct live *l, struct draft *d)
{
    const bool refuses = d->state == DRAFT_REFUSED || view_judge(l, d, true, NULL) < 0;
    LOCKED(&l->lock);
    if (d->writers > 0)
        return;
    d->accepted = false;
    if (refuses && !d->made) {
        lock_take(&d->lock);
        draft_event(d, DRAFT_DROP);
        lock_drop(&d->lock);
    }
}

/* Drop drafts that have waited long enough (is_left()). Call with the lock held. */
static void reap_begun(struct live *l)
{
    for (struct draft *d = views_each(l, NULL), *next; d; d = next) {
        next = views_each(l, d);
        if (is_left(d))
            forget(l, d);
    }
}

/* Remove a handle from its draft. Call with the lock held. */
static void drop_handle(struct live *l, struct live_view *h)
{
    struct draft *d = h->d;
    struct object *o = d->object;
    if (h->node != d->node)
        table_remove(&l->objects.shared, &h->link);
    d->handles--;
    const bool begun = d->begun;
    view_reap(l, d);
    if (begun) /* the draft may have waited long enough */
        reap_begun(l);
    new_tensor_reap(l, o);
}

/* Release a handle that may write. When the last one is released, the draft is judged, unless a
 * program still had it open when the mount ended. */
static void release(struct live *l, struct live_view *h)
{
    struct draft *d = h->d;
    lock_take(&l->lock);
    d->unclosed |= !h->closed;
    d->writers--;
    d->unsettled -= !h->closed;
    const bool last = d->writers == 0 && !draft_is_helper(d);
    const bool judged = last && !(h->late && d->unclosed);
    if (last && !judged && !d->made && draft_is_unaccepted(d->state))
        (void)tensor_refused(
            l, d->object,
            &(struct err){.code = -ECANCELED, .msg = "the file was written but never closed"});
    lock_drop(&l->lock);
    if (judged)
        end_writing(l, d);
    lock_take(&l->lock);
    if (d->made)
        new_tensor_released(l, d->object, h->closed);
    drop_handle(l, h);
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
    if (h->d && h->writes) {
        lock_take(&l->lock);
        h->late = l->ending;
        lock_drop(&l->lock);
        (void)waits_judge(l, h, release_asked, &h->end);
        return;
    }
    if (h->d) {
        lock_take(&l->lock);
        drop_handle(l, h);
        lock_drop(&l->lock);
        views_bury(l);
    }
    free(h);
}

/* ---- helpers ---- */

static struct draft *helper_named(const struct live *l, uint32_t tensor, const char *name)
{
    struct draft *d = drafts_of(l, tensor);
    while (d && (!draft_is_helper(d) || d->unlinked || strcmp(d->helper, name) != 0))
        d = d->inside;
    return d;
}

static int create_locked(struct live *l, uint32_t tensor, const char *name, int flags,
                         struct live_view **ret, uint32_t *node)
{
    int r = 0;
    LOCKED(&l->lock);
    struct draft *d = helper_named(l, tensor, name);
    if (d && flags & O_EXCL)
        return -EEXIST;
    if (!d && (r = make(l, IDS_NONE, tensor, VIEW_NO_ROW, TENSOR_HELPER, &d)) == 0 &&
        !(d->helper = strdup(name))) {
        forget(l, d);
        r = -ENOMEM;
    }
    if (r == 0)
        r = join(l, d, d->node, O_RDWR | flags, ret);
    if (r == 0)
        *node = d->node;
    return r;
}

int live_helper_create(struct live *l, uint32_t tensor, const char *name, int flags,
                       struct live_view **ret, uint32_t *node)
{
    int r = create_locked(l, tensor, name, flags, ret, node);
    if (r == 0 && flags & O_TRUNC) { /* another program may have made it since the lookup */
        r = live_view_truncate(l, *ret, 0);
        if (r < 0)
            live_view_release(l, *ret);
    }
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
    if (objects_untouched(&l->objects))
        return false;
    LOCKED(&l->lock);
    const struct draft *d = drafts_of(l, tensor);
    while (d && (!draft_is_helper(d) || d->unlinked || i-- > 0))
        d = d->inside;
    if (d) {
        (void)strcpy(name, d->helper);
        *node = d->node;
    }
    return d;
}

int live_helper_unlink(struct live *l, uint32_t tensor, const char *name)
{
    lock_take(&l->lock);
    struct draft *d = helper_named(l, tensor, name);
    if (d)
        forget(l, d);
    lock_drop(&l->lock);
    views_bury(l);
    return d ? 0 : -ENOENT;
}

static int rename_helper(struct live *l, struct draft *d, const char *to)
{
    struct draft *over = helper_named(l, d->object->number, to);
    char *name = strdup(to);
    if (!name)
        return -ENOMEM;
    free(d->helper);
    d->helper = name;
    if (over && over != d)
        forget(l, over);
    return 0;
}

/* Turn a helper into the draft of this view, or back into a helper. Call with `io` and the lock
 * held. */
static void become(struct live *l, struct draft *d, enum tensor_view view, uint32_t row,
                   struct tensor_base *base)
{
    struct object *o = d->object;
    const bool made = view != TENSOR_HELPER && o->state == OBJECT_NEW;
    tensor_draft_become(d, view, base);
    if (made || d->made) {
        o->open += made ? d->writers : -d->writers;
        o->unclosed += made ? d->unsettled : -d->unsettled;
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

/* Mark the other drafts of the view as replaced, and unlink them. */
static void replace_others(struct live *l, const struct draft *by)
{
    for (struct draft *d = by->object->drafts, *next; d; d = next) {
        next = d->inside;
        if (d == by || d->row != by->row)
            continue;
        d->replaced = true;
        forget(l, d);
    }
}

/* Turn a helper into the draft of a view, and judge it unless a program still has to close it.
 * Returns 1 if it was judged, 0 if not, or -errno. */
static int take_place(struct live *l, struct live_view *h, struct live_wait *w)
{
    struct draft *d = h->d;
    struct tensor_base *base = NULL;
    struct err e = {0};
    lock_take(&d->io);
    lock_take(&l->lock);
    const bool whole = d->unsettled == 0;
    int r = d->unlinked                                                                  ? -ENOENT
            : d->object->state != OBJECT_NEW && is_busy(l, d->object->number, h->to_row) ? -EBUSY
                                                                                         : 0;
    if (r == 0)
        r = base_of(l, d->object, h->to, &base);
    if (r == 0) { /* the draft may become a helper again, so hide it for now */
        become(l, d, h->to, h->to_row, base);
        d->unlinked = true;
    }
    lock_drop(&l->lock);
    if (r == 0 && (r = tensor_draft_check(d, &e)) < 0)
        (void)refused(l, d, r, &e);
    lock_drop(&d->io);
    tensor_base_unref(base);
    if (r == 0 && whole)
        r = view_judge(l, d, true, w);
    return r < 0 ? r : whole;
}

/* Turn a refused draft back into a helper, with its old name unless that has been taken. */
static void give_back(struct live *l, struct draft *d, struct tensor_base *own)
{
    lock_take(&d->io);
    lock_take(&l->lock);
    if (!draft_is_helper(d)) {
        d->unlinked = helper_named(l, d->object->number, d->helper) != NULL;
        become(l, d, TENSOR_HELPER, VIEW_NO_ROW, own);
    }
    lock_drop(&l->lock);
    lock_drop(&d->io);
}

static int rename_asked(struct live *l, struct live_wait *w, bool stopped)
{
    struct live_view *h = w->view;
    if (stopped) { /* a signal arrived before this request's turn */
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
        replace_others(l, h->d);
        lock_drop(&l->lock);
    }
    if (r > 0)
        r = flushed(l, h, w);
    tensor_base_unref(own);
    release(l, h);
    return r;
}

/* Rename a helper over a view. The rename holds a writable handle, so that a new tensor is not
 * judged before the rename is complete. */
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
    const bool aside =
        view == TENSOR_ASIDE || (view != TENSOR_HELPER && live_making_leaves(l, tensor, row, view));
    int r = 0;
    lock_take(&l->lock);
    struct draft *d = helper_named(l, tensor, name);
    if (!d)
        r = -ENOENT;
    else if (view == TENSOR_HELPER)
        r = rename_helper(l, d, to);
    else if (aside) {
        object_unhide(d->object, row);
        forget(l, d);
    } else
        r = rename_over(l, d, row, view, &h);
    lock_drop(&l->lock);
    views_bury(l);
    return h ? waits_judge(l, h, rename_asked, w) : r;
}

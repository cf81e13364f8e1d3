/* SPDX-License-Identifier: MIT */
/* Keeping and judging what was written to a view of a tensor, and turning it into an edit: see view.h. */
#include "live/view.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>
#include <time.h>

#include "base/bytes.h"
#include "base/lock.h"
#include "base/when.h"
#include "live/new_tensor.h"
#include "live/tensor.h"
#include "live/tensor_judge.h"

int view_base(struct live *l, uint32_t tensor, struct tensor_base **ret)
{
    const struct edit_change *c = &l->next.change;
    struct edit_tensor t;
    assert(lock_held(&l->lock));
    if (!edit_tensor_numbered(c, tensor, &t))
        return -ENOENT;
    bool new = t.old == EDIT_NONE;
    int r = tensor_base_make(c->on.g, t.old, new ? NULL : base_store(l), t.old, t.content, ret);
    if (r == 0)
        (*ret)->imp = imatrix_find(l->opt.imatrix, t.name, t.name_len);
    return r;
}

/* ---- drafts ---- */

void view_draft_end(struct draft *d)
{
    struct live *l = d->live;
    draft_free(d);
    logs_rest(&l->logs);
}

struct draft *view_draft_reap(struct live *l, struct draft *d)
{
    struct draft **at = &d->object->drafts;
    bool kept = !d->unlinked &&
                (draft_is_helper(d) || d->begun || (d->made && d->object->state == OBJECT_NEW));
    bool judged = d->made && d->object == l->objects.judging;
    assert(lock_held(&l->lock));
    if (d->handles || d->users || judged || kept)
        return NULL;
    *d->at = d->next;
    if (d->next)
        d->next->at = d->at;
    table_remove(&l->objects.nodes, &d->link);
    while (*at != d)
        at = &(*at)->inside;
    *at = d->inside;
    return d;
}

struct draft *view_helpers_drop(struct live *l, uint32_t tensor, struct draft *more)
{
    for (struct draft *d = view_drafts(l, tensor), *next; d; d = next) {
        next = d->inside;
        d->unlinked |= draft_is_helper(d);
        struct draft *dead = draft_is_helper(d) ? view_draft_reap(l, d) : NULL;
        if (dead) {
            dead->next = more;
            more = dead;
        }
    }
    return more;
}

void view_drafts_end(struct draft *dead)
{
    for (struct draft *next; dead; dead = next) {
        next = dead->next;
        view_draft_end(dead);
    }
}

int view_draft_add(struct live *l, struct draft *d, struct object *o)
{
    assert(lock_held(&l->lock));
    int r = table_add(&l->objects.nodes, &d->link, hash_number(d->node));
    if (r < 0)
        return r;
    d->next = l->objects.views;
    d->at = &l->objects.views;
    if (d->next)
        d->next->at = &d->next;
    l->objects.views = d;
    d->object = o;
    d->inside = o->drafts;
    o->drafts = d;
    return 0;
}

struct draft *view_drafts(const struct live *l, uint32_t tensor)
{
    const struct object *o = object_find(&l->objects, tensor);
    return o ? o->drafts : NULL;
}

static struct draft *draft_of(struct link *k)
{
    return k ? (struct draft *)((char *)k - offsetof(struct draft, link)) : NULL;
}

static struct live_view *handle_of(struct link *k)
{
    return k ? (struct live_view *)((char *)k - offsetof(struct live_view, link)) : NULL;
}

struct draft *view_at(const struct live *l, uint32_t node, uint32_t row)
{
    const uint64_t hash = hash_number(node);
    struct draft *dropped = NULL, *d = draft_of(table_first(&l->objects.nodes, hash));
    for (; d; d = draft_of(table_next(&d->link))) {
        if (d->node != node || (d->row != row && !d->helper))
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

void view_drafts_reap(struct live *l, const struct object *o)
{
    for (struct draft *d = o->drafts, *next; d; d = next) {
        next = d->inside;
        struct draft *dead = d->made ? view_draft_reap(l, d) : NULL;
        if (dead)
            view_draft_end(dead);
    }
}

/* Those that wait for their programs, and helpers. */
void views_close(struct live *l)
{
    while (l->objects.views) {
        struct draft *d = l->objects.views;
        l->objects.views = d->next;
        view_draft_end(d);
    }
}

/* ---- written ---- */

/*
 * A write was refused: the error stays with the draft, except for a helper, which is not judged. It is reported once,
 * although a full disk refuses each page of a mapping.
 */
int view_refused(struct live *l, struct draft *d, int r, struct err *e)
{
    if (!e->code)
        (void)err_set(e, r, "%s", strerror(-r));
    e->code = r;
    LOCKED(&l->lock);
    if (draft_is_helper(d))
        return r;
    bool again = d->why.code == r && strcmp(d->why.msg, e->msg) == 0;
    d->why = *e;
    if (!again)
        (void)tensor_refused(l, d->object, e);
    return r;
}

/* It is being rewritten. */
static void forget_why(struct live *l, struct draft *d)
{
    LOCKED(&l->lock);
    d->why = (struct err){0};
}

int view_write(struct live *l, struct draft *d, bool append, uint64_t off, const void *bytes,
               size_t n)
{
    struct err e = {0};
    if (draft_is_text(d) && (append ? d->size == 0 : off == 0))
        forget_why(l, d);
    int r = tensor_draft_write(d, append, off, bytes, n, &e);
    return r < 0 ? view_refused(l, d, r, &e) : r;
}

int view_truncate(struct live *l, struct draft *d, uint64_t size)
{
    struct err e = {0};
    if (size == 0)
        forget_why(l, d);
    if (draft_is_text(d) && size > d->size)
        return -EINVAL;
    int r = tensor_draft_truncate(d, size, &e);
    return r < 0 ? view_refused(l, d, r, &e) : 0;
}

/* ---- progress ---- */

struct progress {
    struct live *l;
    uint32_t tensor;
    time_t last; /* seconds; 0: none yet */
};

static void on_progress(void *arg, uint64_t done, uint64_t all)
{
    struct progress *p = arg;
    struct timespec now = when_now();
    struct edit_tensor t;
    char name[SHOW_MAX] = "?";
    if (now.tv_sec == p->last)
        return;
    if (p->last) {
        lock_take(&p->l->lock);
        if (edit_tensor_numbered(&p->l->next.change, p->tensor, &t))
            (void)show(name, t.name, t.name_len);
        lock_drop(&p->l->lock);
        live_log(p->l, LOG_INFO, "encoding '%s': %llu %%", name,
                 (unsigned long long)(done * 100 / all));
    }
    p->last = now.tv_sec;
}

/* ---- judged ---- */

/* A judgement in progress. */
struct round {
    struct live *l;
    struct draft *d;
    bool end;                 /* no more will come */
    bool wrote;               /* there is something to judge */
    struct tensor_base *base; /* for a text: a reference to the tensor as it is now */
    struct tensor_edit edit;
    struct err e;
};

void view_drop(struct draft *d)
{
    LOCKED(&d->lock);
    draft_event(d, DRAFT_DROP);
}

/* True if it is what is shown, even a type or shape that cannot be set. */
static bool is_shown(const struct round *o, const char *text, size_t n)
{
    CLEANUP(buf_free) struct buf shown = BUF_INIT;
    tensor_text(o->base, o->d->view, &shown);
    return shown.len == n && memcmp(shown.data, text, n) == 0;
}

static int judge_type(struct round *o, const char *text, size_t n, const struct units_watch *watch)
{
    uint32_t type;
    int r = tensor_type_parse(text, n, o->end, &type, &o->e);
    if (r != 0)
        return r == TENSOR_TEXT_MORE ? TENSOR_SHORT : r;
    lock_take(&o->l->lock);
    writer_converts(o->l, true);
    lock_drop(&o->l->lock);
    r = tensor_convert(o->base, type, &o->l->logs, watch, &o->edit, &o->e);
    lock_take(&o->l->lock);
    writer_converts(o->l, false);
    lock_drop(&o->l->lock);
    return r;
}

static int judge_shape(struct round *o, const char *text, size_t n)
{
    struct tensor_shape shape;
    int r = tensor_shape_parse(text, n, o->end, &shape, &o->e);
    if (r != 0)
        return r == TENSOR_TEXT_MORE ? TENSOR_SHORT : r;
    r = tensor_reshape(o->base, &shape, &o->e);
    if (r == TENSOR_CHANGED)
        o->edit = (struct tensor_edit){.shaped = true, .shape = shape};
    return r;
}

/* For a new tensor: alone, and at once. */
static int judge_new(struct round *o, const char *text, size_t n)
{
    LOCKED(&o->l->lock);
    int r = new_tensor_text(o->l, o->d, text, n, o->end, &o->e);
    if (r < 0) {
        o->d->why = o->e;
        (void)tensor_refused(o->l, o->d->object, &o->e);
    }
    return r == TENSOR_SHORT ? TENSOR_SHORT : r < 0 ? r : TENSOR_SAME;
}

/* As tensor_draft_judge(). */
static int judge_text(struct round *o, const struct units_watch *watch)
{
    struct draft *d = o->d;
    char text[TENSOR_TEXT_MAX];
    struct tensor_round round;
    int r = tensor_draft_begin(d, &round);
    if (r == 0)
        return TENSOR_SAME;
    const size_t n = r < 0 ? 0 : (size_t)round.size;
    const bool begun = r > 0;
    if (begun)
        r = tensor_round_read(d, &round, 0, text, n);
    if (r < 0)
        (void)err_sys(&o->e, r, "cannot read the draft");
    else if (d->made)
        r = judge_new(o, text, n);
    else if (is_shown(o, text, n))
        r = TENSOR_SAME;
    else
        r = d->view == TENSOR_TYPE ? judge_type(o, text, n, watch) : judge_shape(o, text, n);
    if (begun)
        r = tensor_draft_end(d, &round, r == TENSOR_CHANGED || r == TENSOR_SAME, r);
    if (r == TENSOR_SAME)
        tensor_draft_passed(d, d->base);
    return r;
}

/* Check that the draft's base is still what the model has. */
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

/* Make it part of the change. 1, -errno. With the lock. */
static int accept(struct round *o)
{
    struct live *l = o->l;
    struct draft *d = o->d;
    struct edit_tensor t;
    struct tensor_base *now = NULL;
    size_t mark = edit_mark(&l->next.change);
    int r = check_base(d, &o->e);
    if (r == 0 && !edit_tensor_numbered(&l->next.change, d->tensor, &t))
        r = err_set(&o->e, -ENOENT, "the tensor was removed");
    if (r == 0)
        r = tensor_edit_apply(&o->edit, &l->next.change, t.name, t.name_len, &o->e);
    if (r < 0)
        return r;
    r = batch_check(l, &o->e);
    if (r == 0 && (r = view_base(l, d->tensor, &now)) < 0)
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
    return 1;
}

/* Store its line, and `why` of the draft, which every later flush repeats. With the lock. */
static int report(struct round *o, int r)
{
    if (!o->e.code)
        (void)err_set(&o->e, r, "%s", strerror(-r));
    o->e.code = r;
    /* an error in data is found again as long as it is there */
    if (r != -EINTR && draft_is_text(o->d))
        o->d->why = o->e;
    (void)tensor_refused(o->l, o->d->object, &o->e);
    return r;
}

/* Its program opens it again (numpy's open_memmap). With the lock. */
static int leave_begun(struct round *o)
{
    struct timespec now = when_now();
    o->d->begun = now.tv_sec;
    object_set_error(&o->l->objects, o->d->object, "of a NumPy array only the header was written");
    return 0;
}

/* What was written is what the tensor has, perhaps through a pending edit; or what it had when the draft was begun. */
static int same(struct round *o)
{
    struct draft *d = o->d;
    int r = check_base(d, &o->e);
    if (r == 0) {
        promise_make(&d->promise, d->object->promise.edit);
        return 0;
    }
    (void)report(o, r);
    d->why = o->e; /* stays so whatever is written to it */
    return r;
}

/* Act on a verdict. With the lock. */
static int settle(struct round *o, int r)
{
    struct draft *d = o->d;
    const bool end = o->end;
    bool changed = r == TENSOR_CHANGED;
    if (changed)
        r = accept(o);
    if (changed && r < 0)
        tensor_draft_failed(d);
    if (r < 0)
        return report(o, r);
    if (changed)
        return 1;
    if (r == TENSOR_BEGUN && end && !d->accepted)
        return leave_begun(o);
    if (r == TENSOR_SHORT || (r == TENSOR_BEGUN && end)) {
        if (!o->e.code)
            (void)err_set(&o->e, -EINVAL, "it is too short");
        o->e.code = -EINVAL;
        return end ? report(o, -EINVAL) : -EINVAL;
    }
    if (r == TENSOR_SAME && draft_is_text(d))
        object_set_error(&o->l->objects, d->object, NULL);
    return r == TENSOR_SAME && o->wrote ? same(o) : 0;
}

/* Why a write of it was refused, or the new tensor that it belonged to was lost. With the lock. */
static int refused_before(const struct draft *d)
{
    return d->made && d->object->lost ? d->object->lost : d->why.code;
}

/*
 * Whether there is something to judge: 1; 0; -errno: it was refused. A text is compared with the tensor as it is now.
 */
static int prepare(struct round *o)
{
    struct draft *d = o->d;
    LOCKED(&o->l->lock);
    if (draft_is_helper(d))
        return 0;
    int r = refused_before(d);
    o->wrote = draft_is_due(d->state);
    if (d->replaced)
        return o->wrote ? report(o, check_base(d, &o->e)) : 0;
    if (!draft_is_text(d)) /* for a new tensor it is judged together with the other views */
        return r < 0 ? r : !d->made;
    d->losses = d->object->losses;
    d->edits = d->object->edits;
    if (r == 0 && o->wrote && !d->made && (r = view_base(o->l, d->tensor, &o->base)) < 0) {
        (void)err_set(&o->e, r, "%s",
                      r == -ENOENT ? "the tensor was removed" : "no memory for the edit");
        return report(o, r);
    }
    return r < 0 ? r : o->wrote;
}

int view_judge(struct live *l, struct draft *d, bool end, struct live_wait *w)
{
    struct round o = {.l = l, .d = d, .end = end, .edit = TENSOR_EDIT_INIT};
    struct progress p = {l, d->tensor, 0};
    const struct units_watch watch = {w ? &w->cancel : NULL, on_progress, &p};
    int r = prepare(&o);
    if (r <= 0)
        return r;
    do
        r = draft_is_text(d) ? judge_text(&o, &watch)
                             : tensor_draft_judge(d, &watch, &o.edit, &o.e);
    while (r == -EAGAIN);
    if (!d->made) {
        lock_take(&l->lock);
        r = settle(&o, r);
        lock_drop(&l->lock);
    } else if (r > 0) {
        r = 0;
    }
    tensor_edit_free(&o.edit);
    tensor_base_unref(o.base);
    return r;
}

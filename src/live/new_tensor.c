/* SPDX-License-Identifier: MIT */
/* New tensors: see new_tensor.h. */
#include "live/new_tensor.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/lock.h"
#include "base/when.h"
#include "live/batch.h"
#include "live/tensor_base.h"
#include "live/tensor_judge.h"

/* ---- to be judged ---- */

/* In the order in which they were last written: usually this is the last one. */
static void enqueue(struct object_list *due, struct object *o)
{
    struct object *before = due->last;
    while (before && when_before(&o->last, &before->last))
        before = before->before;
    object_enlist(due, o, before);
}

void new_tensor_queue(struct live *l, struct object *o)
{
    struct objects *s = &l->objects;
    const bool waits = o->dirty && o->state == OBJECT_NEW;
    const bool closing = waits && o->open && !o->unclosed,
               due = waits && (!o->open || l->writer.stop);
    assert(lock_held(&l->lock));
    s->closing += (size_t)closing - o->closing;
    o->closing = closing;
    if (!s->closing && waits_released_at(l))
        pool_call(&l->writer.job);
    if (due && !o->in)
        enqueue(&s->due, o);
    else if (!due && o->in == &s->due)
        object_unlist(o);
}

void new_tensors_hurry(struct live *l)
{
    assert(lock_held(&l->lock));
    for (struct object *o = NULL; (o = object_from(&l->objects, o ? o->number + 1ull : 0));)
        if (o->state == OBJECT_NEW)
            new_tensor_queue(l, o);
}

/* ---- found and made ---- */

struct object *new_tensor(const struct live *l, uint32_t number)
{
    struct object *o = object_find(&l->objects, number);
    return o && o->state == OBJECT_NEW ? o : NULL;
}

struct object *new_tensor_named(const struct live *l, const char *file)
{
    char name[TREE_NAME_MAX + 1];
    size_t n;
    return name_decode(file, name, &n) < 0 ? NULL : object_named(&l->objects, name, n, OBJECT_NEW);
}

void new_tensor_reap(struct live *l, struct object *o)
{
    assert(lock_held(&l->lock));
    if (o->state == OBJECT_GONE && o != l->objects.judging && !o->drafts)
        object_drop(&l->objects, o);
}

struct draft *new_tensor_draft(const struct object *o, uint32_t row)
{
    struct draft *d = o->drafts;
    while (d && (!d->made || d->row != row || d->unlinked))
        d = d->inside;
    return d;
}

static struct draft *draft_of(const struct object *o, enum tensor_view view)
{
    struct draft *d = o->drafts;
    while (d && (!d->made || d->view != view || d->unlinked))
        d = d->inside;
    return d;
}

bool new_tensor_leaves(const struct object *o, enum tensor_view view)
{
    bool values = view > TENSOR_RAW && view < TENSOR_VIEWS;
    return view == TENSOR_ASIDE || (values && draft_of(o, TENSOR_RAW));
}

int new_tensor_check_name(const char *name, size_t n)
{
    if (n == 0 || memchr(name, 0, n))
        return -EINVAL;
    return n > EDIT_MAX_TENSOR_NAME ? -ENAMETOOLONG : 0;
}

int new_tensor_rename(struct live *l, struct object *o, const char *name, size_t n)
{
    int r = new_tensor_check_name(name, n);
    if (r == 0)
        r = object_set_name(&l->objects, o, name, n);
    if (r == 0 && o->error) /* its name may have been the reason */
        new_tensor_touch(l, o);
    return r;
}

void new_tensor_remove(struct live *l, struct object *o)
{
    const uint32_t number = o->number;
    object_event(&l->objects, o, OBJECT_REMOVE);
    new_tensor_queue(l, o);
    view_drafts_reap(l, o);
    view_drafts_end(view_helpers_drop(l, number, NULL));
    new_tensor_reap(l, o);
    newest_touch(l->newest);
}

void new_tensor_touch(struct live *l, struct object *o)
{
    assert(lock_held(&l->lock));
    o->dirty = true;
    o->last = when_now();
    if (o->in == &l->objects.due)
        object_unlist(o);
    new_tensor_queue(l, o);
    struct timespec due = o->last;
    due.tv_sec += NEW_QUIET + 1;
    due.tv_nsec = 0;
    pool_call_at(&l->writer.job, &due);
}

void new_tensor_closed(struct live *l, struct object *o, bool closed)
{
    o->unclosed += closed ? -1U : 1U;
    if (closed)
        new_tensor_touch(l, o);
    else
        new_tensor_queue(l, o);
}

/* A closed file is as old as its close: so tensors are added in the order of the program. */
void new_tensor_released(struct live *l, struct object *o, bool closed)
{
    const struct timespec last = o->last;
    const bool before = closed && o->dirty;
    o->open--;
    o->unclosed -= !closed;
    new_tensor_touch(l, o);
    if (!before)
        return;
    if (o->in == &l->objects.due)
        object_unlist(o);
    o->last = last;
    new_tensor_queue(l, o);
}

void new_tensor_take_out(struct live *l, struct object *o, struct draft *d)
{
    d->unlinked = true;
    o->has_type &= d->view != TENSOR_TYPE;
    o->has_shape &= d->view != TENSOR_SHAPE;
    view_drafts_reap(l, o);
    new_tensor_touch(l, o); /* it may have been in the way */
}

int new_tensor_text(struct live *l, const struct draft *d, const char *text, size_t n, bool end,
                    struct err *e)
{
    struct object *o = d->object;
    int r;
    assert(lock_held(&l->lock));
    if (d->view == TENSOR_TYPE) {
        r = tensor_type_parse(text, n, end, &o->type, e);
        if (r == 0 || !d->unlinked) /* a refused helper is a helper again */
            o->has_type = r == 0;
    } else {
        r = tensor_shape_parse(text, n, end, &o->shape, e);
        if (r == 0 || !d->unlinked)
            o->has_shape = r == 0;
    }
    new_tensor_touch(l, o);
    return r == TENSOR_TEXT_MORE ? TENSOR_SHORT : r;
}

/* ---- judged ---- */

/* The one to judge first; NULL: none. The one being judged may have been written since. */
static struct object *next_due(const struct live *l)
{
    struct object *o = l->objects.due.first;
    if (o && o == l->objects.judging)
        o = o->next;
    return o && (l->writer.stop || l->objects.now || when_past(&o->last, NEW_QUIET)) ? o : NULL;
}

bool new_tensors_due(const struct live *l)
{
    return next_due(l);
}

const struct timespec *new_tensors_due_at(const struct live *l)
{
    static _Thread_local struct timespec at;
    const struct object *first = l->objects.due.first;
    if (!first)
        return NULL;
    at = first->last;
    at.tv_sec += NEW_QUIET + 1; /* everything from the same second together */
    at.tv_nsec = 0;
    return &at;
}

/*
 * The name is in use again: lost tensors with this name are no longer reported, and the place of removed ones is
 * forgotten.
 */
static void name_taken(struct live *l, const struct object *o)
{
    struct objects *s = &l->objects;
    struct object *other;
    while ((other = object_named(s, o->name, o->name_len, OBJECT_LOST))) {
        object_event(s, other, OBJECT_REGAIN);
        new_tensor_reap(l, other);
    }
    while ((other = object_named(s, o->name, o->name_len, OBJECT_ABSENT)))
        object_clear_name(s, other);
}

/* Make it a tensor: in the place of a removed one with its name, or as the last. */
static int add(struct live *l, struct object *o, const struct tensor_edit *edit, struct err *e)
{
    struct objects *s = &l->objects;
    struct edit_change *c = &l->next.change;
    struct edit_tensor t;
    const size_t mark = edit_mark(c);
    int r = 0;
    if (edit_tensor_find(c, o->name, o->name_len, &t)) /* removed a moment ago, or not */
        r = tensor_clear(l, &t, e);
    const struct object *placed = object_named(s, o->name, o->name_len, OBJECT_ABSENT);
    const uint64_t rank = placed ? placed->rank : l->objects.ranks;
    if (r == 0)
        r = edit_tensor_add(c, o->name, o->name_len, &edit->shape, edit->piece, edit->n, rank,
                            o->number, e);
    if (r == 0)
        r = batch_check(l, e);
    if (r < 0) {
        edit_undo(c, mark);
        tensors_follow(l);
        return r;
    }
    if (!placed)
        l->objects.ranks += EDIT_RANK_STEP;
    name_taken(l, o);
    object_event(s, o, OBJECT_ADD);
    new_tensor_queue(l, o);
    o->mtime = when_date();
    batch_note(l, NULL, NULL);
    promise_make(&o->promise, l->edits);
    return 0;
}

/*
 * Check whether one of the views that count lacks the data of a refused write. 0, or that write's error: the view
 * must be rewritten from the start.
 */
static int check_views(const struct object *o, struct err *e)
{
    const struct draft *d = o->drafts;
    while (d && (!d->made || d->unlinked || !d->why.code || new_tensor_leaves(o, d->view)))
        d = d->inside;
    if (d)
        *e = d->why;
    return e->code;
}

/* Judge its views as they are. The lock is released meanwhile. */
static int judge_views(struct live *l, struct object *o, struct tensor_edit *ret, struct err *e)
{
    struct tensor_new t = {.big = l->newest->view.snap->gguf->fmt.big,
                           .has_type = o->has_type,
                           .has_shape = o->has_shape,
                           .type = o->type,
                           .shape = o->shape,
                           .imp = imatrix_find(l->opt.imatrix, o->name, o->name_len)};
    for (int k = TENSOR_RAW; k < TENSOR_VIEWS; k++)
        t.draft[k] = draft_of(o, (enum tensor_view)k);
    l->objects.judging = o;
    lock_drop(&l->lock);
    int r = tensor_new_judge(&t, NULL, ret, e);
    lock_take(&l->lock);
    l->objects.judging = NULL;
    return r;
}

static int judge(struct live *l, struct object *o)
{
    struct tensor_edit edit = TENSOR_EDIT_INIT;
    struct err e = {0};
    o->dirty = false;
    new_tensor_queue(l, o);
    int r = check_views(o, &e);
    const bool reported = r < 0 && !l->objects.now; /* to the program that wrote it */
    if (r == 0)
        r = judge_views(l, o, &edit, &e);
    const bool again = !l->writer.stop && (o->open || o->dirty); /* a program continues with it */
    if (o->state != OBJECT_NEW || again) { /* removed meanwhile; or judged again when it is quiet */
        o->dirty |= again;
        new_tensor_queue(l, o);
        r = 0;
    } else {
        if (r == TENSOR_CHANGED &&
            (r = check_views(o, &e)) == 0) /* at the end it may be written meanwhile */
            r = add(l, o, &edit, &e);
        object_set_error(&l->objects, o, e.code ? e.msg : NULL);
        if (r < 0 && !reported)
            (void)tensor_refused(l, o, &e);
    }
    tensor_edit_free(&edit);
    if (o->state != OBJECT_NEW || again)
        view_drafts_reap(l, o);
    new_tensor_reap(l, o);
    return r < 0 && !reported ? r : 0;
}

int new_tensors_judge(struct live *l)
{
    int result = 0;
    struct object *o;
    assert(lock_held(&l->lock));
    const struct timespec begun = when_now();
    while ((o = next_due(l)) && !when_before(&begun, &o->last)) { /* each one once */
        int r = judge(l, o);
        if (r < 0)
            result = r;
    }
    return result;
}

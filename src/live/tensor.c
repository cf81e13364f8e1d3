/* SPDX-License-Identifier: MIT */
/* Which tensors the model has now: see tensor.h. */
#include "live/tensor.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>

#include "base/count.h"
#include "base/lock.h"
#include "base/when.h"
#include "live/new_tensor.h"

/* ---- found ---- */

/* Long names are found in the base. */
int tensor_find(const struct live *l, const char *file, struct edit_tensor *ret)
{
    const struct snapshot *base = base_snapshot(l);
    const struct gguf *g = base->gguf;
    char name[TREE_NAME_MAX + 1];
    const char *p = name;
    size_t n;
    assert(lock_held(&l->lock));
    int r = name_decode(file, name, &n);
    if (r == -ENAMETOOLONG) {
        const uint32_t i = snapshot_find_tensor(base, file);
        if (i == UINT32_MAX)
            return -ENOENT;
        p = gguf_name(g, &g->tensor[i]);
        n = g->tensor[i].name_len;
        r = 0;
    }
    return r == 0 && edit_tensor_find(&l->next.change, p, n, ret) ? 0 : -ENOENT;
}

struct object *tensor_object(struct live *l, uint32_t number)
{
    assert(lock_held(&l->lock));
    struct object *o = object_get(&l->objects, number);
    if (o)
        atomic_store(&l->objects.touched, true);
    return o;
}

/* Its place is remembered, if memory allows. */
static int drop(struct live *l, const struct edit_tensor *t, struct err *e)
{
    struct object *o = object_find(&l->objects, t->id.number);
    if (o && object_set_name(&l->objects, o, t->name, t->name_len) == 0)
        o->rank = t->rank;
    return edit_tensor_remove(&l->next.change, t->name, t->name_len, e);
}

int tensor_clear(struct live *l, const struct edit_tensor *t, struct err *e)
{
    struct object *o = object_find(&l->objects, t->id.number);
    assert(lock_held(&l->lock));
    if (!o || o->state != OBJECT_DOOMED)
        return err_set(e, -EEXIST, "a tensor of this name already exists");
    int r = drop(l, t, e);
    if (r == 0)
        object_event(&l->objects, o, OBJECT_REMOVE);
    return r;
}

int tensor_refused(struct live *l, struct object *o, const struct err *e)
{
    struct edit_tensor t = {.name = o->name, .name_len = o->name_len};
    char shown[SHOW_MAX];
    assert(lock_held(&l->lock));
    if (o->state != OBJECT_NEW && !edit_tensor_numbered(&l->next.change, o->number, &t))
        return e->code;
    live_log(l, LOG_WARNING, "tensors/%s: refused: %s", show(shown, t.name, t.name_len), e->msg);
    object_set_error(&l->objects, o, e->msg);
    return e->code;
}

int tensor_accepted(struct live *l, struct object *o, struct live_wait *w)
{
    assert(lock_held(&l->lock));
    batch_note(l, NULL, NULL);
    promise_make(&o->promise, l->edits);
    o->mtime = when_date();
    object_set_error(&l->objects, o, NULL);
    return writer_accepted(l, w);
}

/* ---- removals that are due ---- */

/* False: the change leaves the model without any tensor. */
static bool tensors_left(const struct live *l)
{
    struct edit_tensor *all = NULL;
    size_t n = 1; /* no memory: most probably */
    if (edit_change_tensors(&l->next.change, &all, &n) == 0)
        free(all);
    return n > 0;
}

bool tensors_remove_doomed(struct live *l)
{
    struct edit_change *c = &l->next.change;
    const size_t mark = edit_mark(c);
    struct edit_tensor t;
    for (const struct object *o = l->objects.doomed.first; o; o = o->next)
        if (edit_tensor_numbered(c, o->number, &t))
            (void)edit_tensor_remove(c, t.name, t.name_len, NULL);
    if (edit_mark(c) > mark && !tensors_left(l))
        edit_undo(c, mark);
    return edit_mark(c) > mark;
}

int tensors_remove_due(struct live *l)
{
    struct objects *s = &l->objects;
    struct edit_change *c = &l->next.change;
    struct edit_tensor t;
    struct err e = {0};
    struct object *o;
    assert(lock_held(&l->lock));
    if (!s->doomed.n || !(l->writer.stop || objects_due(s)))
        return 0;
    const size_t mark = edit_mark(c);
    int r = 0;
    for (o = s->doomed.first; o && r == 0; o = o->next)
        if (edit_tensor_numbered(c, o->number, &t))
            r = drop(l, &t, &e);
    if (r == 0 && !tensors_left(l))
        r = err_set(&e, -EPERM, "nothing was removed: the model would have no tensor left");
    if (r == 0)
        r = batch_check(l, &e);
    if (r == 0)
        batch_note(l, NULL, NULL);
    else
        edit_undo(c, mark);
    if (r < 0 && !e.code)
        (void)err_sys(&e, r, "nothing was removed");
    while ((o = s->doomed.first)) {
        object_event(s, o, r == 0 ? OBJECT_REMOVE : OBJECT_BACK);
        if (r == 0) {
            promise_make(&o->promise, l->edits);
        } else { /* it stays, and shows why */
            atomic_store(&l->names.other_doomed, true);
            (void)tensor_refused(l, o, &e);
        }
    }
    return r;
}

/* ---- after a failure ---- */

void tensors_follow(struct live *l)
{
    const struct edit_change *c = &l->next.change;
    struct edit_tensor t;
    assert(lock_held(&l->lock));
    for (struct object *o = object_from(&l->objects, 0); o;
         o = object_from(&l->objects, o->number + 1ull))
        if (o->state == OBJECT_ABSENT &&
            ids_find(c->on.ids, c->on.g->n_tensors, o->number) != IDS_NONE &&
            edit_tensor_numbered(c, o->number, &t))
            object_event(&l->objects, o, OBJECT_BACK);
}

/* The object for a slot, or NULL. */
static struct object *object_of(const struct live *l, const struct edit_slot *s)
{
    return s->kind == EDIT_TENSOR ? object_find(&l->objects, s->id.number) : NULL;
}

void tensors_lost(struct live *l, const struct batch *b)
{
    const struct edit_change *c = &b->change;
    struct object *o;
    assert(lock_held(&l->lock));
    for (size_t i = 0; i < c->n; i++)
        if ((o = object_of(l, c->slot[i])))
            o->losses++;
}

void tensors_failed(struct live *l, const struct batch *b, const struct err *e)
{
    const struct edit_change *c = &b->change;
    assert(lock_held(&l->lock));
    for (size_t i = 0; i < c->n; i++) {
        const struct edit_slot *s = c->slot[i];
        struct object *o = object_of(l, s);
        if (o && s->old == EDIT_NONE && !s->gone) {
            (void)object_set_name(&l->objects, o, s->name, s->name_len);
            object_event(&l->objects, o, OBJECT_LOSE);
            o->lost = e->code;
        }
        if (o)
            object_set_error(&l->objects, o, e->msg);
    }
}

struct draft *tensors_landed(struct live *l, const struct batch *b)
{
    const struct edit_change *c = &b->change;
    struct draft *dead = NULL;
    assert(lock_held(&l->lock));
    for (size_t i = 0; i < c->n; i++) {
        const struct edit_slot *s = c->slot[i];
        if (s->kind == EDIT_TENSOR && s->gone && s->old != EDIT_NONE)
            dead = view_helpers_drop(l, s->id.number, dead);
    }
    return dead;
}

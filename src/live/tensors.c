/* SPDX-License-Identifier: MIT */
/* Making, renaming and removing tensors: see tensors.h, and tensor.h. */
#include "live/tensors.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>

#include "base/when.h"
#include "base/lock.h"
#include "live/new_tensor.h"
#include "live/tensor.h"

/* ---- looked at ---- */

int live_tensor_of_version(struct live *l, uint32_t version, uint32_t *number)
{
    lock_take(&l->lock);
    const struct tensor_id *id = &l->objects.given[version % OBJECTS_KNOWN];
    bool first = version < l->objects.first_numbers, known = id->version == version && id->number;
    *number = known ? id->number - 1 : version;
    lock_drop(&l->lock);
    return known || first ? 0 : -ENOENT;
}

/* A visible tensor. */
static int find_shown(struct live *l, const char *file, struct edit_tensor *ret)
{
    const struct object *o = new_tensor_named(l, file);
    if (o) {
        *ret = (struct edit_tensor){.id = {o->number, o->number},
                                    .old = EDIT_NONE,
                                    .name = o->name,
                                    .name_len = o->name_len};
        return 0;
    }
    int r = tensor_find(l, file, ret);
    o = r == 0 ? object_find(&l->objects, ret->id.number) : NULL;
    return o && o->state == OBJECT_DOOMED ? -ENOENT : r;
}

int live_tensor_find(struct live *l, const char *file, uint32_t *number)
{
    struct edit_tensor t;
    struct err e = {0};
    LOCKED(&l->lock);
    int r = find_shown(l, file, &t);
    if (r == 0 && t.old == EDIT_NONE && !new_tensor(l, t.id.number))
        r = batch_freshen(l, &e); /* it is new, and perhaps in no snapshot yet */
    if (r == 0)
        *number = t.id.number;
    return r;
}

int live_tensor_folder(struct live *l, uint32_t number, bool fresh, struct live_folder *ret)
{
    struct err e = {0};
    int r = 0;
    *ret = (struct live_folder){0};
    if (!atomic_load_explicit(&l->objects.touched, memory_order_acquire))
        return 0;
    LOCKED(&l->lock);
    struct object *o = object_find(&l->objects, number);
    if (o && fresh && atomic_load(&l->shown.stale))
        r = batch_freshen(l, &e);
    if (o)
        *ret =
            (struct live_folder){o->generation, object_hidden(o),
                                 o->state == OBJECT_DOOMED || o->state == OBJECT_ABSENT, o->mtime};
    return r;
}

int live_tensor_error(struct live *l, uint32_t number, struct buf *out)
{
    LOCKED(&l->lock);
    const struct object *o = object_find(&l->objects, number);
    if (o && o->error)
        buf_str(out, o->error);
    else if (o && o->state == OBJECT_NEW)
        buf_str(out, "a new tensor: it is not whole yet");
    return buf_error(out);
}

void live_tensor_forgive(struct live *l, uint32_t number)
{
    LOCKED(&l->lock);
    struct object *o = object_find(&l->objects, number);
    if (o && o->state != OBJECT_NEW)
        object_set_error(&l->objects, o, NULL);
}

/* ---- edits ---- */

#define NOREPLACE (1u << 0) /* Linux's RENAME_NOREPLACE */

/* Check whether t may get the name in `text`. *cleared: it belongs to a doomed tensor. */
static int check_new(struct live *l, const char *to, unsigned flags, struct edit_tensor *t,
                     char text[TREE_NAME_MAX + 1], bool *cleared)
{
    int r = find_shown(l, to, t);
    if (r == 0)
        return flags & NOREPLACE ? -EEXIST : -ENOTEMPTY;
    if (r != -ENOENT)
        return r;
    *cleared = tensor_find(l, to, t) == 0;
    if (*cleared)
        return 0;
    r = name_decode(to, text, &t->name_len);
    t->name = text;
    return r == -ENOENT ? -EINVAL : r;
}

static int rename_locked(struct live *l, const char *from, const char *to, unsigned flags,
                         struct live_wait *w)
{
    struct edit_change *c = &l->next.change;
    struct edit_tensor t, now;
    char text[TREE_NAME_MAX + 1];
    struct object *o = NULL;
    struct err e = {0};
    bool cleared = false;
    if (flags & ~NOREPLACE)
        return -EINVAL;
    int r = find_shown(l, from, &t);
    if (r < 0 || (strcmp(from, to) == 0 && !(flags & NOREPLACE)))
        return r;
    r = check_new(l, to, flags, &now, text, &cleared);
    if (r == 0)
        r = (o = tensor_object(l, t.id.number)) ? 0 : -ENOMEM;
    if (r < 0)
        return r;
    if (o->state == OBJECT_NEW)
        return new_tensor_rename(l, o, now.name, now.name_len);
    const struct object *placed = object_named(&l->objects, t.name, t.name_len, OBJECT_ABSENT);
    size_t mark = edit_mark(c);
    if (cleared) /* what was just removed under the new name goes at once */
        r = tensor_clear(l, &now, &e);
    if (r == 0)
        r = edit_tensor_rename(c, t.name, t.name_len, now.name, now.name_len, &e);
    if (r == 0)
        r = batch_check(l, &e);
    if (r < 0) {
        edit_undo(c, mark);
        tensors_follow(l);
        return tensor_refused(l, o, &e);
    }
    if (placed) /* its place no longer belongs to the name */
        object_clear_name(&l->objects, object_find(&l->objects, placed->number));
    return tensor_accepted(l, o, w);
}

int live_tensor_rename(struct live *l, const char *from, const char *to, unsigned flags,
                       struct live_wait *w)
{
    struct err unready; /* the write reports it */
    writer_ready(l, &unready);
    LOCKED(&l->lock);
    return rename_locked(l, from, to, flags, w);
}

int live_tensor_fsync(struct live *l, uint32_t number, struct live_wait *w)
{
    LOCKED(&l->lock);
    const struct object *o = object_find(&l->objects, number);
    return o ? writer_sync(l, &o->promise, o->promise.edit, w) : 0;
}

/* ---- removed ---- */

/* Whether it can be removed is known at once. A strategy that was asked for may remove it only with the doomed ones. */
static int try_remove(struct live *l, const struct edit_tensor *t, struct err *e)
{
    struct edit_change *c = &l->next.change;
    size_t mark = edit_mark(c);
    int r = edit_tensor_remove(c, t->name, t->name_len, e);
    if (r < 0)
        return r;
    if (l->opt.edit.strategy != EDIT_AUTO)
        (void)tensors_remove_doomed(l);
    r = batch_check(l, e);
    edit_undo(c, mark);
    return r;
}

static int remove_locked(struct live *l, const char *file)
{
    struct edit_tensor t;
    struct object *o = NULL;
    struct err e = {0};
    int r = find_shown(l, file, &t);
    if (r == 0)
        r = (o = tensor_object(l, t.id.number)) ? 0 : -ENOMEM;
    if (r < 0)
        return r;
    if (o->state == OBJECT_NEW) {
        new_tensor_remove(l, o);
        return 0;
    }
    r = try_remove(l, &t, &e);
    if (r < 0)
        return tensor_refused(l, o, &e);
    object_event(&l->objects, o, OBJECT_DOOM);
    atomic_store(&l->names.other_doomed, true);
    object_set_error(&l->objects, o, NULL);
    newest_touch(l->newest);
    pool_call_at(&l->writer.job, &l->objects.removal);
    return 0;
}

int live_tensor_remove(struct live *l, const char *file)
{
    struct err unready; /* the write reports it */
    writer_ready(l, &unready);
    LOCKED(&l->lock);
    return remove_locked(l, file);
}

int live_view_unlink(struct live *l, uint32_t number, uint32_t row)
{
    LOCKED(&l->lock);
    struct object *o = tensor_object(l, number);
    int r = !o ? -ENOMEM : o->state == OBJECT_DOOMED || object_hidden(o) >> row & 1 ? -ENOENT : 0;
    if (r == 0)
        object_hide(o, row);
    return r;
}

void live_view_show(struct live *l, uint32_t number, uint32_t row)
{
    LOCKED(&l->lock);
    struct object *o = object_find(&l->objects, number);
    if (o)
        object_unhide(o, row);
}

/* ---- new tensors ---- */

/* The name of a new directory. -EEXIST, -EINVAL, -ENAMETOOLONG. */
static int take_name(const struct live *l, const char *file, char name[TREE_NAME_MAX + 1],
                     size_t *n)
{
    struct edit_tensor t;
    if (new_tensor_named(l, file))
        return -EEXIST;
    if (tensor_find(l, file, &t) == 0) {
        const struct object *o = object_find(&l->objects, t.id.number);
        if (!o || o->state != OBJECT_DOOMED)
            return -EEXIST;
    }
    int r = name_decode(file, name, n);
    return r < 0 ? (r == -ENOENT ? -EINVAL : r) : new_tensor_check_name(name, *n);
}

int live_tensor_make(struct live *l, const char *file, uint32_t *number)
{
    char name[TREE_NAME_MAX + 1];
    size_t n;
    LOCKED(&l->lock);
    int r = take_name(l, file, name, &n);
    if (r < 0)
        return r;
    struct object *o = tensor_object(l, atomic_fetch_add(&l->newest->numbers, 1));
    if (!o)
        return -ENOMEM;
    r = object_set_name(&l->objects, o, name, n);
    if (r < 0) {
        object_drop(&l->objects, o);
        return r;
    }
    object_event(&l->objects, o, OBJECT_MAKE);
    o->mtime = when_date();
    newest_touch(l->newest);
    *number = o->number;
    return 0;
}

bool live_making(struct live *l, uint32_t number, uint32_t *views)
{
    if (!atomic_load_explicit(&l->objects.touched, memory_order_acquire))
        return false;
    LOCKED(&l->lock);
    const struct object *o = new_tensor(l, number);
    *views = o ? o->aside : 0;
    for (const struct draft *d = o ? o->drafts : NULL; d; d = d->inside)
        if (d->made && !d->unlinked)
            *views |= (uint32_t)1 << d->row;
    return o;
}

bool live_making_at(struct live *l, uint64_t *i, char name[TREE_NAME_MAX + 1], uint32_t *number)
{
    LOCKED(&l->lock);
    const struct object *o = object_from(&l->objects, *i);
    while (o && o->state != OBJECT_NEW)
        o = object_from(&l->objects, o->number + 1ull);
    if (!o)
        return false;
    (void)name_encode(o->name, o->name_len, name);
    *i = *number = o->number;
    return true;
}

int live_making_view(struct live *l, uint32_t number, uint32_t row, uint32_t *node)
{
    LOCKED(&l->lock);
    const struct object *o = new_tensor(l, number);
    const struct draft *d = o ? new_tensor_draft(o, row) : NULL;
    if (!o || !(d || o->aside >> row & 1))
        return -ENOENT;
    *node = d ? d->node : number;
    return 0;
}

bool live_making_leaves(struct live *l, uint32_t number, uint32_t row, enum tensor_view view)
{
    LOCKED(&l->lock);
    struct object *o = new_tensor(l, number);
    const bool left = o && new_tensor_leaves(o, view);
    if (left)
        o->aside |= (uint32_t)1 << row;
    return left;
}

int live_making_unlink(struct live *l, uint32_t number, uint32_t row)
{
    const uint32_t bit = (uint32_t)1 << row;
    LOCKED(&l->lock);
    struct object *o = new_tensor(l, number);
    struct draft *d = o ? new_tensor_draft(o, row) : NULL;
    if (!d && !(o && o->aside & bit))
        return -ENOENT;
    o->aside &= ~bit;
    if (d)
        new_tensor_take_out(l, o, d);
    return 0;
}

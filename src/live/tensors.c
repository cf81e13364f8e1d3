/* SPDX-License-Identifier: MIT */
/* Tensors by name: finds, makes, renames and removes them (tensors.h, objects.h). */
#include "live/tensors.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "live/objects.h"
#include "live/overlay.h"
#include "live/views.h"

/* ---- tensors of the model ---- */

/* Find a tensor of the accepted state, even if it is gone. Returns false if there is none. */
static bool tensor_stored(const struct live *l, const char *file, uint32_t *number)
{
    const uint32_t i = snapshot_find(l->state, false, file);
    if (i != UINT32_MAX)
        *number = ids_of(l->state->ids, i).number;
    return i != UINT32_MAX;
}

/* Find a new tensor. One that was removed as it is added may have the same name. */
static struct object *fresh_named(const struct live *l, const char *name, size_t n)
{
    struct object *o = l->tensors.fresh;
    while (o && (o->gone || o->name_len != n || memcmp(o->name, name, n) != 0))
        o = o->next;
    return o;
}

/* Find a visible tensor. */
static int find_shown(const struct live *l, const char *file, uint32_t *number)
{
    char name[TREE_NAME_MAX + 1];
    size_t n;
    const struct object *o =
        l->tensors.fresh && name_decode(file, name, &n) == 0 ? fresh_named(l, name, n) : NULL;
    if (o) {
        *number = o->number;
        return 0;
    }
    if (!tensor_stored(l, file, number))
        return -ENOENT;
    o = object_find(l, *number);
    return o && o->gone ? -ENOENT : 0;
}

int live_tensor_find(struct live *l, const char *file, uint32_t *number)
{
    LOCKED(&l->lock);
    return find_shown(l, file, number);
}

static uint32_t hidden_rows(struct object *o)
{
    if (o->hidden && when_past(&o->hidden_until, 0))
        o->hidden = 0;
    return o->hidden;
}

void live_tensor_folder(struct live *l, uint32_t number, struct live_folder *ret)
{
    *ret = (struct live_folder){0};
    if (!atomic_load(&l->tensors.any))
        return;
    LOCKED(&l->lock);
    struct object *o = object_find(l, number);
    if (!o)
        return;
    *ret = (struct live_folder){o->generation, hidden_rows(o), o->gone, o->fresh, o->mtime};
    if (!o->fresh)
        return;
    ret->hidden = ~o->aside;
    for (const struct view_draft *d = o->drafts; d; d = d->next)
        ret->hidden &= ~((uint32_t)1 << d->row);
}

int live_tensor_error(struct live *l, uint32_t number, struct buf *out)
{
    LOCKED(&l->lock);
    const struct object *o = object_find(l, number);
    if (o && o->error)
        buf_str(out, o->error);
    else if (o && o->fresh)
        buf_str(out, TENSOR_INCOMPLETE);
    return buf_error(out);
}

void live_tensor_forgive(struct live *l, uint32_t number)
{
    LOCKED(&l->lock);
    struct object *o = object_find(l, number);
    if (o && !o->fresh)
        object_set_error(l, o, NULL);
}

/* ---- removal ---- */

static void spare(struct live *l, struct object *o)
{
    o->gone = false;
    o->hidden = 0;
    o->generation++; /* who is in the directory sees it as removed */
    l->tensors.n_gone--;
    l->changes++;
    queue_spared(l);
}

/* True if the write that runs removes a tensor. */
static bool is_removing(const struct live *l, const struct object *o)
{
    return l->busy && !edit_tensor_numbered(&l->pending, o->number, &(struct edit_tensor){0});
}

/* Bring all tensors back whose removal is neither written nor being written. */
static void spare_all(struct live *l)
{
    for (struct link *k = NULL; l->tensors.n_gone && (k = table_each(&l->tensors.by_number, k));) {
        struct object *o = (struct object *)k;
        if (o->gone && !is_removing(l, o))
            spare(l, o);
    }
}

void tensors_remove(const struct live *l, struct edit_change *c)
{
    struct edit_tensor t;
    for (struct link *k = NULL; (k = table_each(&l->tensors.by_number, k));) {
        struct object *o = (struct object *)k;
        if (o->gone && edit_tensor_numbered(c, o->number, &t))
            (void)edit_tensor_remove(c, t.name, t.name_len, NULL);
    }
}

void tensors_removed(struct live *l)
{
    const struct snapshot *g = l->state;
    for (struct link *k = table_each(&l->tensors.by_number, NULL), *next; k && l->tensors.n_gone;
         k = next) {
        struct object *o = (struct object *)k;
        next = table_each(&l->tensors.by_number, k);
        if (!o->gone || ids_find(g->ids, g->gguf->n_tensors, o->number) != IDS_NONE)
            continue;
        o->gone = false;
        l->tensors.n_gone--;
        object_set_error(l, o, NULL);
        o->mtime.tv_sec = 0;
        o->generation = o->cold = o->hidden = 0;
        object_reap(l, o);
    }
}

static void fresh_remove(struct live *l, struct object *o);

int live_tensor_remove(struct live *l, const char *file)
{
    const struct err last = {.code = -EPERM,
                             .msg = "nothing was removed: the model would have no tensor left"};
    const struct err place = {.code = -EOPNOTSUPP, .msg = "a tensor cannot be removed in place"};
    struct err unready;
    uint32_t number;
    overlay_ready(l, true, &unready);
    LOCKED(&l->lock);
    int r = find_shown(l, file, &number);
    struct object *o = r == 0 ? object_get(l, number) : NULL;
    if (!o)
        return r < 0 ? r : -ENOMEM;
    if (o->fresh && o != l->tensors.adding) {
        fresh_remove(l, o);
        return 0;
    }
    if (l->stop)
        return -EROFS;
    if (unready.code || l->opt.edit.strategy == EDIT_INPLACE)
        return object_refused(l, o, unready.code ? &unready : &place);
    if (l->state->gguf->n_tensors + (l->tensors.adding != NULL) - l->tensors.n_gone <= 1) {
        spare_all(l);
        return object_refused(l, o, &last);
    }
    o->gone = true;
    l->tensors.n_gone++;
    object_set_error(l, o, NULL);
    l->changes++;
    newest_touch(l->newest);
    queue_later(l, true);
    return 0;
}

int live_view_unlink(struct live *l, uint32_t number, uint32_t row)
{
    const uint32_t bit = (uint32_t)1 << row;
    LOCKED(&l->lock);
    struct object *o = object_get(l, number);
    if (!o)
        return -ENOMEM;
    if (o->gone || hidden_rows(o) & bit)
        return -ENOENT;
    o->hidden |= bit;
    o->hidden_until = when_after(1000);
    return 0;
}

void live_view_show(struct live *l, uint32_t number, uint32_t row)
{
    LOCKED(&l->lock);
    struct object *o = object_find(l, number);
    if (o)
        o->hidden &= ~((uint32_t)1 << row);
}

/* ---- new tensors ---- */

#define A_NAME "a tensor's name has 1 to 63 bytes, and no NUL"

/* Decode the name of a created or renamed directory. Returns 0, -EINVAL or -ENAMETOOLONG. */
static int decode_name(const char *file, char name[TREE_NAME_MAX + 1], size_t *n)
{
    int r = name_decode(file, name, n);
    if (r < 0)
        return r == -ENOENT ? -EINVAL : r;
    if (*n == 0 || memchr(name, 0, *n))
        return -EINVAL;
    return *n > EDIT_MAX_TENSOR_NAME ? -ENAMETOOLONG : 0;
}

/* Give a fresh tensor a name. */
static int set_name(struct object *o, const char *name, size_t n)
{
    char *copy = malloc(n + 1);
    if (!copy)
        return -ENOMEM;
    memcpy(copy, name, n);
    free(o->name);
    o->name = copy;
    o->name_len = n;
    return 0;
}

int live_tensor_make(struct live *l, const char *file, uint32_t *number)
{
    char name[TREE_NAME_MAX + 1];
    uint32_t other;
    size_t n;
    LOCKED(&l->lock);
    int r = find_shown(l, file, &other) == 0 ? -EEXIST : decode_name(file, name, &n);
    if (r == 0 && l->stop)
        r = -EROFS;
    struct object *o = r == 0 ? object_get(l, atomic_fetch_add(&l->newest->numbers, 1)) : NULL;
    if (!o)
        return r < 0 ? r : -ENOMEM;
    r = set_name(o, name, n);
    if (r < 0) {
        object_reap(l, o);
        return r;
    }
    struct object **last = &l->tensors.fresh;
    while (*last)
        last = &(*last)->next;
    *last = o;
    o->fresh = true;
    o->mtime = when_date();
    newest_touch(l->newest);
    *number = o->number;
    return 0;
}

/* It is fresh no longer: it has become a tensor, or was removed. */
static void fresh_end(struct live *l, struct object *o)
{
    struct object **at = &l->tensors.fresh;
    while (*at != o)
        at = &(*at)->next;
    *at = o->next;
    free(o->name);
    o->name = NULL;
    o->fresh = false;
}

static void fresh_remove(struct live *l, struct object *o)
{
    object_set_error(l, o, NULL);
    fresh_end(l, o);
    o->mtime.tv_sec = 0;
    for (struct view_draft *d = o->drafts, *next; d; d = next) {
        next = d->next;
        draft_reset(d);
        draft_reap(l, d);
    }
    o->cold = 0;
    newest_touch(l->newest);
    object_reap(l, o);
}

bool live_making_at(struct live *l, uint64_t *i, char name[TREE_NAME_MAX + 1], uint32_t *number)
{
    LOCKED(&l->lock);
    const struct object *o = l->tensors.fresh;
    while (o && (o->gone || o->number < *i)) /* it may be removed while it is added */
        o = o->next;
    if (!o)
        return false;
    (void)name_encode(o->name, o->name_len, name);
    *i = *number = o->number;
    return true;
}

/* True if this view does not count. */
static bool leaves(const struct object *o, enum tensor_view view)
{
    const bool values = view > TENSOR_RAW && view < TENSOR_VIEWS;
    return view == TENSOR_ASIDE || (values && object_draft(o, TENSOR_RAW));
}

bool live_making_leaves(struct live *l, uint32_t number, uint32_t row, enum tensor_view view)
{
    LOCKED(&l->lock);
    struct object *o = object_find(l, number);
    const bool left = o && o->fresh && leaves(o, view);
    if (left)
        o->aside |= (uint32_t)1 << row;
    return left;
}

int live_making_unlink(struct live *l, uint32_t number, uint32_t row, enum tensor_view view)
{
    const uint32_t bit = (uint32_t)1 << row;
    LOCKED(&l->lock);
    struct object *o = object_find(l, number);
    struct view_draft *d = o && o->fresh ? object_draft(o, view) : NULL;
    if (!d && !(o && o->aside & bit))
        return -ENOENT;
    o->aside &= ~bit;
    if (!d)
        return 0;
    draft_reset(d);
    draft_reap(l, d);
    object_touch(l, o); /* this view may have prevented the tensor from being added */
    return 0;
}

/* ---- judging new tensors ---- */

/* Check that no view that counts has a refused write. */
static int check_views(const struct object *o, struct err *e)
{
    const struct view_draft *d = o->drafts;
    while (d && (!d->why.code || leaves(o, d->view)))
        d = d->next;
    if (d)
        *e = d->why;
    return d ? d->why.code : 0;
}

/* Return the draft of the view that counts, or NULL; at the end of the daemon, not one that is still
 * being written. */
static struct view_draft *view_that_counts(const struct live *l, const struct object *o)
{
    /* Views of the same type are adjacent; the view that also defines the shape comes first. */
    static const enum tensor_view order[] = {TENSOR_RAW,     TENSOR_F32_NPY, TENSOR_F32,
                                             TENSOR_F16_NPY, TENSOR_F16,     TENSOR_BF16};
    struct view_draft *d = NULL;
    for (size_t i = 0; i < COUNT(order) && !(d && d->changed && d->size > 0); i++)
        d = object_draft(o, order[i]);
    return d && d->changed && d->size > 0 && !(l->ending && d->dirty) ? d : NULL;
}

/* Return the draft of a text that was flushed, or NULL. */
static struct view_draft *find_text(const struct object *o, enum tensor_view view)
{
    struct view_draft *d = object_draft(o, view);
    return d && draft_is_written(d) && !d->dirty ? d : NULL;
}

/* Copy what was written to a view. Drops and retakes the lock. *part: the copy, if d is not NULL. */
static int take_part(struct live *l, struct view_draft *d, struct tensor_round *ret,
                     const struct tensor_round **part)
{
    if (!d)
        return 0;
    draft_enter(l, d);
    const int r = draft_take(d, ret);
    draft_leave(l, d);
    *part = ret;
    return r;
}

/* Remove a tensor that is gone and has this name, so that the name can be taken. */
static int take_name(struct live *l, const char *name, size_t n, struct err *e)
{
    struct edit_tensor t;
    if (!edit_tensor_find(&l->pending, name, n, &t))
        return 0;
    struct object *o = object_find(l, t.id.number);
    if (!o || !o->gone)
        return err_set(e, -EEXIST, "a tensor has this name");
    return edit_tensor_remove(&l->pending, name, n, e);
}

/* Judge a fresh tensor as it is now. Drops and retakes the lock. Returns a verdict or -errno. */
static int judge_new(struct live *l, struct tensor_request *t, struct tensor_edit *ret,
                     struct err *e)
{
    struct object *o = t->o;
    struct tensor_round type = {0}, shape = {0}, data = {0};
    const struct units_watch watch = object_watch(t);
    struct tensor_new new = {.big = l->state->gguf->fmt.big,
                             .imp = imatrix_find(l->opt.imatrix, o->name, o->name_len)};
    t->touches = o->touches;
    o->due.tv_sec = 0;
    t->epoch = o->epoch++;
    int r = check_views(o, e);
    if (r < 0)
        return r;
    r = take_part(l, find_text(o, TENSOR_TYPE), &type, &new.type);
    if (r == 0)
        r = take_part(l, find_text(o, TENSOR_SHAPE), &shape, &new.shape);
    if (r == 0)
        r = take_part(l, view_that_counts(l, o), &data, &new.data);
    lock_drop(&l->lock);
    r = r < 0 ? err_sys(e, r, "cannot judge it") : tensor_judge_new(&new, &l->logs, &watch, ret, e);
    tensor_round_free(&type);
    tensor_round_free(&shape);
    tensor_round_free(&data);
    lock_take(&l->lock);
    return r;
}

static int accept_new(struct live *l, struct request *q, struct err *e)
{
    struct tensor_request *t = q->own;
    struct object *o = t->o;
    CLEANUP(tensor_edit_free) struct tensor_edit edit = TENSOR_EDIT_INIT;
    if (!o->fresh || o->touches == o->judged || (!t->hurry && o->owing))
        return 0;
    int r = t->verdict = judge_new(l, t, &edit, e);
    if (!o->fresh || (o->touches != t->touches && !t->hurry))
        return 0; /* it was removed, or is judged again once it rests */
    if (r == TENSOR_SHORT) {
        o->judged = t->touches;
        object_set_error(l, o, e->msg);
        return 0;
    }
    if (r == TENSOR_CHANGED)
        r = take_name(l, o->name, o->name_len, e);
    if (r == 0)
        r = edit_tensor_add(&l->pending, o->name, o->name_len, &edit.shape, edit.piece, edit.n,
                            o->number, e);
    l->tensors.adding = r == 0 ? o : NULL;
    return r < 0 ? r : 1;
}

/* A fresh tensor was refused, or could not be written: then fsync tries again. */
static int new_refused(struct live *l, struct tensor_request *t, int r, const struct err *e)
{
    struct object *o = t->o;
    if (t->hurry) {
        l->tensors.failed = t->hurry;
        l->tensors.failure = r;
    }
    if (o->gone) { /* it was removed meanwhile */
        o->gone = false;
        l->tensors.n_gone--;
        fresh_remove(l, o);
        return r;
    }
    if (t->verdict != TENSOR_CHANGED && r != -ENOSPC && r != -EDQUOT && r != -EIO && r != -ENOMEM)
        o->judged = t->touches;
    return o->error && strcmp(o->error, e->msg) == 0 ? r : object_refused(l, o, e);
}

static int new_accepted(struct live *l, struct request *q, int r, const struct err *e)
{
    struct tensor_request *t = q->own;
    struct object *o = t->o;
    l->tensors.adding = NULL;
    if (r < 0 && !q->done)
        return new_refused(l, t, r, e);
    if (!q->changed || !o->fresh)
        return r;
    fresh_end(l, o);
    object_set_error(l, o, NULL);
    object_changed(o);
    views_added(l, o, t->epoch);
    return r;
}

static void judge_fresh(struct live *l, struct object *o, uint64_t hurry)
{
    struct request *q = object_request(l, o);
    if (!q)
        return;
    ((struct tensor_request *)q->own)->hurry = hurry;
    q->apply = accept_new;
    q->end = new_accepted;
    (void)queue_add(l, q, NULL);
}

uint64_t tensors_hurry(struct live *l)
{
    const uint64_t hurry = l->tensors.hurry + 1;
    for (struct object *o = l->tensors.fresh; o; o = o->next)
        if (o->touches != o->judged) {
            judge_fresh(l, o, hurry);
            l->tensors.hurry = hurry;
        }
    return l->tensors.hurry == hurry ? hurry : 0;
}

const struct timespec *tensors_tick(struct live *l)
{
    const struct timespec *next = NULL;
    for (struct object *o = l->tensors.fresh; o; o = o->next) {
        if (!o->due.tv_sec || o->owing)
            continue;
        if (when_past(&o->due, 0)) {
            o->due.tv_sec = 0;
            judge_fresh(l, o, 0);
        } else if (!next || when_before(&o->due, next)) {
            next = &o->due;
        }
    }
    for (struct link *k = table_each(&l->tensors.by_number, NULL), *more; k; k = more) {
        more = table_each(&l->tensors.by_number, k);
        for (struct view_draft *d = ((struct object *)k)->drafts, *after; d; d = after) {
            after = d->next;
            if (d->begun.tv_sec && when_past(&d->begun, 0))
                draft_expire(l, d);
            else if (d->begun.tv_sec && (!next || when_before(&d->begun, next)))
                next = &d->begun;
        }
    }
    return next;
}

/* ---- rename ---- */

static int rename_fresh(struct live *l, struct object *o, const char *name, size_t n)
{
    const int r = set_name(o, name, n);
    if (r == 0 && o->error) /* the error may have been about the old name */
        object_touch(l, o);
    return r;
}

static int accept_rename(struct live *l, struct request *q, struct err *e)
{
    struct tensor_request *t = q->own;
    struct edit_tensor is;
    if (t->o->fresh && !t->o->gone) /* adding it failed meanwhile */
        return err_sys(e, rename_fresh(l, t->o, t->name, t->n), "cannot be renamed");
    if (!edit_tensor_numbered(&l->pending, t->o->number, &is) || t->o->gone)
        return err_set(e, -ENOENT, "the tensor was removed");
    int r = take_name(l, t->name, t->n, e);
    if (r == 0)
        r = edit_tensor_rename(&l->pending, is.name, is.name_len, t->name, t->n, e);
    return r < 0 ? r : 1;
}

static int tensor_renamed(struct live *l, struct request *q, int r, const struct err *e)
{
    struct tensor_request *t = q->own;
    if (r < 0 && !q->done)
        return object_refused(l, t->o, e);
    t->o->mtime = when_date();
    object_set_error(l, t->o, NULL);
    return r;
}

int live_tensor_rename(struct live *l, const char *from, const char *to, unsigned flags,
                       struct live_wait *w)
{
    char name[TREE_NAME_MAX + 1];
    uint32_t number, other;
    size_t n;
    LOCKED(&l->lock);
    if (flags & ~(unsigned)RENAME_NOREPLACE)
        return -EINVAL;
    int r = find_shown(l, from, &number);
    if (r < 0 || (strcmp(from, to) == 0 && !(flags & RENAME_NOREPLACE)))
        return r;
    if (find_shown(l, to, &other) == 0)
        return flags & RENAME_NOREPLACE ? -EEXIST : -ENOTEMPTY;
    r = decode_name(to, name, &n);
    struct object *o = object_get(l, number);
    if (!o)
        return -ENOMEM;
    if (r < 0)
        return object_refused(l, o, &(const struct err){.code = r, .msg = A_NAME});
    if (o->fresh && o != l->tensors.adding)
        return rename_fresh(l, o, name, n);
    struct request *q = object_request(l, o);
    if (!q)
        return -ENOMEM;
    struct tensor_request *t = q->own;
    memcpy(t->name, name, n);
    t->n = n;
    q->apply = accept_rename;
    q->end = tensor_renamed;
    return queue_add(l, q, w);
}

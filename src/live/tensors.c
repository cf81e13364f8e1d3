/* SPDX-License-Identifier: MIT */
/* Tensors by name: finds, makes, renames and removes them (tensors.h, objects.h). */
#include "live/tensors.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "live/objects.h"
#include "live/overlay.h"

/* ---- tensors of the model ---- */

/* Find a tensor of the accepted state, even if it is gone. Returns false if there is none. */
static bool find_stored(const struct live *l, const char *file, uint32_t *number)
{
    const uint32_t i = snapshot_find(l->state, false, file);
    if (i != UINT32_MAX)
        *number = ids_of(l->state->ids, i).number;
    return i != UINT32_MAX;
}

static struct object *fresh_named(const struct live *l, const char *name, size_t n)
{
    struct link *k = table_first(&l->tensors.by_name, hash_name(name, n));
    for (; k; k = table_next(k)) {
        struct object *o = (struct object *)((char *)k - offsetof(struct object, by_name));
        if (o->name_len == n && memcmp(o->name, name, n) == 0)
            return o;
    }
    return NULL;
}

/* Find a visible tensor. */
static int find_shown(const struct live *l, const char *file, uint32_t *number)
{
    char name[TREE_NAME_MAX + 1];
    size_t n;
    const struct object *o =
        l->tensors.n_fresh && name_decode(file, name, &n) == 0 ? fresh_named(l, name, n) : NULL;
    if (o && !o->gone) {
        *number = o->number;
        return 0;
    }
    if (!find_stored(l, file, number))
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
    overlay_ready(l, &unready);
    LOCKED(&l->lock);
    int r = find_shown(l, file, &number);
    struct object *o = r == 0 ? object_get(l, number) : NULL;
    if (!o)
        return r < 0 ? r : -ENOMEM;
    if (o->fresh && !o->adding) {
        fresh_remove(l, o);
        return 0;
    }
    if (l->stop)
        return -EROFS;
    if (unready.code || l->opt.edit.strategy == EDIT_INPLACE)
        return object_refused(l, o, unready.code ? &unready : &place);
    if (l->state->gguf->n_tensors + o->adding - l->tensors.n_gone <= 1) {
        spare_all(l);
        return object_refused(l, o, &last);
    }
    o->gone = true;
    l->tensors.n_gone++;
    object_set_error(l, o, NULL);
    l->changes++;
    newest_touch(l->newest);
    queue_later(l, QUEUE_TENSORS, true);
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
static int set_name(struct live *l, struct object *o, const char *name, size_t n)
{
    char *copy = malloc(n + 1);
    if (!copy)
        return -ENOMEM;
    memcpy(copy, name, n);
    if (o->name)
        table_remove(&l->tensors.by_name, &o->by_name);
    free(o->name);
    o->name = copy;
    o->name_len = n;
    const int r = table_add(&l->tensors.by_name, &o->by_name, hash_name(name, n));
    if (r < 0) { /* there was room for the old name, so this is a new tensor */
        free(o->name);
        o->name = NULL;
    }
    return r;
}

/* Return the index of the first fresh tensor with at least this number. */
static size_t fresh_from(const struct live *l, uint64_t number)
{
    size_t lo = 0, hi = l->tensors.n_fresh;
    while (lo < hi) {
        const size_t mid = (lo + hi) / 2;
        if (l->tensors.fresh[mid]->number < number)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

int live_tensor_make(struct live *l, const char *file, uint32_t *number)
{
    char name[TREE_NAME_MAX + 1];
    uint32_t other;
    size_t n;
    LOCKED(&l->lock);
    int r = find_shown(l, file, &other) == 0 ? -EEXIST : decode_name(file, name, &n);
    if (r == 0)
        r = l->stop ? -EROFS
                    : array_grow(&l->tensors.fresh, &l->tensors.cap, l->tensors.n_fresh,
                                 sizeof(*l->tensors.fresh));
    struct object *o = r == 0 ? object_get(l, atomic_fetch_add(&l->newest->numbers, 1)) : NULL;
    if (!o)
        return r < 0 ? r : -ENOMEM;
    r = set_name(l, o, name, n);
    if (r < 0) {
        object_reap(l, o);
        return r;
    }
    o->fresh = true;
    o->mtime = when_date();
    l->tensors.fresh[l->tensors.n_fresh++] = o;
    newest_touch(l->newest);
    *number = o->number;
    return 0;
}

/* It is fresh no longer: it has become a tensor, or was removed. */
static void fresh_end(struct live *l, struct object *o)
{
    const size_t i = fresh_from(l, o->number);
    struct object **at = &l->tensors.fresh[i];
    memmove(at, at + 1, (--l->tensors.n_fresh - i) * sizeof(*at));
    table_remove(&l->tensors.by_name, &o->by_name);
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
    const size_t at = fresh_from(l, *i);
    if (at == l->tensors.n_fresh)
        return false;
    const struct object *o = l->tensors.fresh[at];
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
    o->has_type &= d->view != TENSOR_TYPE;
    o->has_shape &= d->view != TENSOR_SHAPE;
    draft_reset(d);
    draft_reap(l, d);
    object_touch(l, o); /* this view may have prevented the tensor from being added */
    return 0;
}

/* ---- judging new tensors ---- */

/* What a request about a tensor by name needs. */
struct about {
    struct object *o; /* pinned */
    uint64_t hurry;   /* the call that has it judged even if a program still writes it, or 0 */
    int verdict;
    enum tensor_view view; /* what was judged, and its epoch */
    uint64_t epoch;
    char name[TREE_NAME_MAX + 1]; /* for a rename: the new name */
    size_t n;
};

static void about_free(struct live *l, struct request *q)
{
    struct about *a = q->own;
    a->o->pins--;
    object_reap(l, a->o);
    free(a);
}

/* Make a request about an object. Returns NULL if out of memory. */
static struct request *about(struct live *l, struct object *o)
{
    struct about *a = calloc(1, sizeof(*a));
    struct request *q = a ? request_new(l, NULL, NULL, NULL) : NULL;
    if (!q) {
        free(a);
        return NULL;
    }
    a->o = o;
    o->pins++;
    q->own = a;
    q->drop = about_free;
    return q;
}

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

/* Copy what was written to the view that counts. Drops and retakes the lock. Returns 0, 1 (nothing
 * was written) or -ENOMEM. */
static int take_view(struct live *l, struct about *a, struct tensor_round *ret)
{
    /* Views of the same type are adjacent; the view that also defines the shape comes first. */
    static const enum tensor_view order[] = {TENSOR_RAW,     TENSOR_F32_NPY, TENSOR_F32,
                                             TENSOR_F16_NPY, TENSOR_F16,     TENSOR_BF16};
    struct view_draft *d = NULL;
    for (size_t i = 0; i < COUNT(order) && !(d && d->changed && d->size > 0); i++)
        d = object_draft(a->o, order[i]);
    if (!d || !d->changed || d->size == 0)
        return 1;
    d->pins++;
    lock_drop(&l->lock);
    lock_take(&d->io);
    lock_take(&l->lock);
    const int r = draft_take(d, ret);
    lock_drop(&d->io);
    a->view = d->view;
    a->epoch = ret->epoch;
    d->pins--;
    draft_reap(l, d);
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

static int accept_new(struct live *l, struct request *q, struct err *e)
{
    struct about *a = q->own;
    struct object *o = a->o;
    CLEANUP(tensor_edit_free) struct tensor_edit edit = TENSOR_EDIT_INIT;
    CLEANUP(tensor_round_free) struct tensor_round round = {0};
    const struct units_watch watch = {.cancel = &l->queue.cancel};
    if (!o->fresh || !(o->touched || (a->hurry && o->failed)) || (!a->hurry && o->owing))
        return 0;
    o->touched = o->failed = false;
    o->judged = true;
    const struct tensor_new t = {.has_type = o->has_type,
                                 .has_shape = o->has_shape,
                                 .big = l->state->gguf->fmt.big,
                                 .type = o->type,
                                 .shape = o->shape,
                                 .imp = imatrix_find(l->opt.imatrix, o->name, o->name_len)};
    int r = check_views(o, e);
    if (r == 0 && (r = take_view(l, a, &round)) < 0)
        (void)err_sys(e, r, "cannot judge it");
    lock_drop(&l->lock);
    if (r >= 0)
        r = tensor_judge_new(&t, r == 0 ? &round : NULL, &l->logs, &watch, &edit, e);
    lock_take(&l->lock);
    a->verdict = r;
    if (!o->fresh || (o->touched && !a->hurry))
        return 0; /* it was removed, or is judged again once it rests */
    if (r == TENSOR_SHORT) {
        object_set_error(l, o, e->msg);
        return 0;
    }
    if (r == TENSOR_CHANGED)
        r = take_name(l, o->name, o->name_len, e);
    if (r == 0)
        r = edit_tensor_add(&l->pending, o->name, o->name_len, &edit.shape, edit.piece, edit.n,
                            o->number, e);
    o->adding = r == 0;
    return r < 0 ? r : 1;
}

static int new_accepted(struct live *l, struct request *q, int r, const struct err *e)
{
    struct about *a = q->own;
    struct object *o = a->o;
    const bool added = o->adding;
    o->adding = o->judged = false;
    if (r < 0 && !q->done) {
        if (a->hurry) {
            l->tensors.failed = a->hurry;
            l->tensors.failure = r;
        }
        if (added && o->gone) { /* it was removed meanwhile */
            o->gone = false;
            l->tensors.n_gone--;
            fresh_remove(l, o);
            return r;
        }
        o->failed = a->verdict == TENSOR_CHANGED || r == -ENOSPC || r == -EDQUOT || r == -EIO ||
                    r == -ENOMEM;
        return o->error && strcmp(o->error, e->msg) == 0 ? r : object_refused(l, o, e);
    }
    if (!q->changed || !o->fresh)
        return r;
    fresh_end(l, o);
    object_set_error(l, o, NULL);
    object_changed(l, o);
    for (struct view_draft *d = o->drafts, *next; d; d = next) {
        next = d->next;
        if (d->view == a->view)
            draft_settle(d, a->epoch);
        else if (!d->dirty && !d->judging)
            draft_reset(d);
        draft_reap(l, d);
    }
    return r;
}

static void judge_fresh(struct live *l, struct object *o, uint64_t hurry)
{
    struct request *q = about(l, o);
    if (!q)
        return;
    ((struct about *)q->own)->hurry = hurry;
    q->apply = accept_new;
    q->end = new_accepted;
    (void)queue_add(l, q, NULL);
}

/* True if a fresh tensor is to be judged, or is being judged and may have to be again. */
static bool is_owed(const struct object *o)
{
    return o->touched || o->failed || o->judged;
}

uint64_t tensors_hurry(struct live *l)
{
    const uint64_t hurry = l->tensors.hurry + 1;
    for (size_t i = 0; i < l->tensors.n_fresh; i++)
        if (is_owed(l->tensors.fresh[i])) {
            judge_fresh(l, l->tensors.fresh[i], hurry);
            l->tensors.hurry = hurry;
        }
    return l->tensors.hurry == hurry ? hurry : 0;
}

const struct timespec *tensors_tick(struct live *l)
{
    const struct timespec *next = NULL;
    for (size_t i = 0; i < l->tensors.n_fresh; i++) {
        struct object *o = l->tensors.fresh[i];
        if (!o->touched || o->owing)
            continue;
        if (when_past(&o->due, 0)) {
            judge_fresh(l, o, 0);
            o->due = when_after(NEW_QUIET * 1000); /* not before it has been judged */
        }
        if (!next || when_before(&o->due, next))
            next = &o->due;
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
    const int r = set_name(l, o, name, n);
    if (r == 0 && o->error) /* the error may have been about the old name */
        object_touch(l, o);
    return r;
}

static int accept_rename(struct live *l, struct request *q, struct err *e)
{
    struct about *a = q->own;
    struct edit_tensor t;
    if (a->o->fresh && !a->o->gone) /* adding it failed meanwhile */
        return err_sys(e, rename_fresh(l, a->o, a->name, a->n), "cannot be renamed");
    if (!edit_tensor_numbered(&l->pending, a->o->number, &t) || a->o->gone)
        return err_set(e, -ENOENT, "the tensor was removed");
    int r = take_name(l, a->name, a->n, e);
    if (r == 0)
        r = edit_tensor_rename(&l->pending, t.name, t.name_len, a->name, a->n, e);
    return r < 0 ? r : 1;
}

static int renamed(struct live *l, struct request *q, int r, const struct err *e)
{
    struct about *a = q->own;
    if (r < 0 && !q->done)
        return object_refused(l, a->o, e);
    a->o->mtime = when_date();
    object_set_error(l, a->o, NULL);
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
    if (o->fresh && !o->adding)
        return rename_fresh(l, o, name, n);
    struct request *q = about(l, o);
    if (!q)
        return -ENOMEM;
    struct about *a = q->own;
    memcpy(a->name, name, n);
    a->n = n;
    q->apply = accept_rename;
    q->end = renamed;
    return queue_add(l, q, w);
}

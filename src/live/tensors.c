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

/* Find a new tensor. One that was removed as it is added may have the same name. */
static struct object *fresh_named(const struct live *l, const char *name, size_t n)
{
    struct object *o;
    TAILQ_FOREACH (o, &l->tensors.fresh, in_fresh)
        if (!o->gone && o->name_len == n && memcmp(o->name, name, n) == 0)
            break;
    return o;
}

/* Find a visible tensor. */
static int find_shown(const struct live *l, const char *file, uint32_t *number)
{
    char name[TREE_NAME_MAX + 1];
    size_t n;
    const struct object *o = name_decode(file, name, &n) == 0 ? fresh_named(l, name, n) : NULL;
    const uint32_t i = o ? UINT32_MAX : snapshot_find(l->state, false, file);
    if (!o && i == UINT32_MAX)
        return -ENOENT;
    *number = o ? o->number : ids_of(l->state->ids, i).number;
    o = object_find(l, *number);
    return o && o->gone ? -ENOENT : 0;
}

/* True if a tensor has this name, or an edit that is being written gives it to one. */
static bool is_taken(const struct live *l, const char *file)
{
    char name[TREE_NAME_MAX + 1];
    struct edit_tensor t;
    uint32_t number;
    size_t n;
    if (find_shown(l, file, &number) == 0)
        return true;
    if (name_decode(file, name, &n) < 0 || !edit_tensor_find(&l->pending, name, n, &t))
        return false;
    const struct object *o = object_find(l, t.id.number);
    return !o || !o->gone;
}

int live_tensor_find(struct live *l, const char *file, uint32_t *number)
{
    LOCKED(&l->lock);
    return find_shown(l, file, number);
}

static uint32_t hidden_rows(struct object *o)
{
    if (!o->fresh && o->hidden && when_past(&o->hidden_until, 0))
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
    if (o)
        *ret = (struct live_folder){o->generation, hidden_rows(o), o->gone, o->fresh && !o->gone,
                                    o->mtime};
}

int live_tensor_error(struct live *l, uint32_t number, struct buf *out)
{
    LOCKED(&l->lock);
    struct object *o = object_find(l, number);
    if (o)
        object_expire(l, o, false);
    if (o && o->error)
        buf_str(out, o->error);
    else if (o && o->fresh)
        buf_str(out, TENSOR_INCOMPLETE);
    return buf_error(out);
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

/* A removed tensor stays in the file while a fresh one has its name, which may never be whole. */
static void keep(struct live *l, struct object *o)
{
    size_t n;
    const char *name = object_name(l, o, &n);
    const bool kept = name && fresh_named(l, name, n);
    if (!o->gone || o->kept == kept)
        return;
    o->kept = kept;
    l->tensors.n_kept += kept ? 1 : (size_t)-1;
    if (kept)
        queue_spared(l);
    else
        queue_later(l, true);
}

/* A fresh tensor is given this name, or has lost it. name: NULL is none. */
static void keep_named(struct live *l, const char *name, size_t n)
{
    char file[TREE_NAME_MAX + 1];
    const uint32_t i =
        name && name_encode(name, n, file) ? snapshot_find(l->state, false, file) : UINT32_MAX;
    struct object *o = i < UINT32_MAX ? object_find(l, ids_of(l->state->ids, i).number) : NULL;
    if (o)
        keep(l, o);
}

/* Give a fresh tensor a name, which it then owns, or none (NULL). */
static void set_name(struct live *l, struct object *o, char *name, size_t n)
{
    const struct object old = *o;
    o->name = name;
    o->name_len = n;
    keep_named(l, old.name, old.name_len);
    keep_named(l, name, n);
    free(old.name);
}

void tensors_spare_all(struct live *l)
{
    for (struct link *k = NULL; l->tensors.n_gone && (k = table_each(&l->tensors.by_number, k));) {
        struct object *o = (struct object *)k;
        struct edit_tensor t; /* not found: the removal is being written */
        if (o->gone && !o->kept && (!l->busy || edit_tensor_numbered(&l->pending, o->number, &t)))
            spare(l, o);
    }
}

int tensors_remove(const struct live *l, struct edit_change *c, struct err *e)
{
    struct edit_tensor t;
    int r = 0;
    for (struct link *k = NULL; r >= 0 && (k = table_each(&l->tensors.by_number, k));) {
        struct object *o = (struct object *)k;
        if (o->gone && !(o->kept && c == &l->pending) && edit_tensor_numbered(c, o->number, &t))
            r = edit_tensor_remove(c, t.name, t.name_len, e);
    }
    return r;
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
        l->tensors.n_gone--;
        l->tensors.n_kept -= o->kept;
        o->gone = o->kept = false;
        object_set_error(l, o, NULL);
        o->mtime.tv_sec = 0;
        o->generation = o->cold = o->hidden = 0;
        object_reap(l, o);
    }
}

static void fresh_remove(struct live *l, struct object *o);

static int remove_tensor(struct live *l, const char *file)
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
    if (o->fresh && !o->adding) {
        fresh_remove(l, o);
        return 0;
    }
    if (l->stop)
        return -EROFS;
    if (unready.code || l->opt.edit.strategy == EDIT_INPLACE)
        return object_refused(l, o, unready.code ? &unready : &place);
    if (l->state->gguf->n_tensors + l->tensors.adding - l->tensors.n_gone <= 1) {
        tensors_spare_all(l);
        r = object_refused(l, o, &last);
        (void)overlay_freshen(l, &unready);
        return r;
    }
    o->gone = true;
    l->tensors.n_gone++;
    object_set_error(l, o, NULL);
    l->changes++;
    newest_touch(l->newest);
    queue_later(l, true);
    return 0;
}

int live_tensor_remove(struct live *l, const char *file)
{
    const int r = remove_tensor(l, file);
    logs_rest(&l->logs);
    return r;
}

static int unlink_view(struct live *l, uint32_t number, enum tensor_view view)
{
    const uint32_t bit = (uint32_t)1 << view;
    LOCKED(&l->lock);
    struct object *o = object_get(l, number);
    if (!o)
        return -ENOMEM;
    if (o->gone || hidden_rows(o) & bit)
        return -ENOENT;
    o->hidden |= bit;
    o->hidden_until = when_after(1000);
    struct view_draft *d = o->fresh ? object_draft(o, view) : NULL;
    if (!d)
        return 0;
    draft_enter(l, d);
    draft_reset(d);
    d->outdated = o->epoch++; /* what is written to a removed file goes nowhere */
    draft_leave(l, d);
    object_touch(l, o); /* this view may have prevented the tensor from being added */
    return 0;
}

int live_view_unlink(struct live *l, uint32_t number, enum tensor_view view)
{
    const int r = unlink_view(l, number, view);
    logs_rest(&l->logs);
    return r;
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

int live_tensor_make(struct live *l, const char *file, uint32_t *number)
{
    char name[TREE_NAME_MAX + 1];
    size_t n;
    LOCKED(&l->lock);
    int r = is_taken(l, file) ? -EEXIST : decode_name(file, name, &n);
    if (r == 0 && l->stop)
        r = -EROFS;
    struct object *o = r == 0 ? object_get(l, atomic_fetch_add(&l->newest->numbers, 1)) : NULL;
    if (!o)
        return r < 0 ? r : -ENOMEM;
    char *copy = strndup(name, n);
    if (!copy) {
        object_reap(l, o);
        return -ENOMEM;
    }
    TAILQ_INSERT_TAIL(&l->tensors.fresh, o, in_fresh);
    set_name(l, o, copy, n);
    o->fresh = true;
    o->hidden = UINT32_MAX;
    o->mtime = when_date();
    newest_touch(l->newest);
    *number = o->number;
    return 0;
}

/* It is fresh no longer: it has become a tensor, or was removed. */
static void fresh_end(struct live *l, struct object *o)
{
    TAILQ_REMOVE(&l->tensors.fresh, o, in_fresh);
    tensor_edit_free(&o->edit);
    set_name(l, o, NULL, 0);
    o->fresh = false;
    o->hidden = 0;
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

/* Return the first fresh tensor with at least this number. */
static struct object *fresh_from(const struct live *l, uint64_t number)
{
    struct object *o;
    TAILQ_FOREACH (o, &l->tensors.fresh, in_fresh)
        if (o->number >= number)
            break;
    return o;
}

bool live_making_at(struct live *l, uint64_t *i, char name[TREE_NAME_MAX + 1], uint32_t *number)
{
    LOCKED(&l->lock);
    const struct object *o = fresh_from(l, *i);
    while (o && o->gone) /* it may be removed while it is added */
        o = TAILQ_NEXT(o, in_fresh);
    if (!o)
        return false;
    (void)name_encode(o->name, o->name_len, name);
    *i = *number = o->number;
    return true;
}

/* ---- judging new tensors ---- */

/* Check that no view that counts has a refused write. */
static int check_views(const struct object *o, struct err *e)
{
    for (const struct view_draft *d = o->drafts; d; d = d->next)
        if (d->why.code && !object_leaves(o, d->view)) {
            *e = d->why;
            return e->code;
        }
    return 0;
}

/* Return the draft of the view that counts, or NULL; at the end of the daemon, not one that is still
 * being written. */
static struct view_draft *view_that_counts(const struct live *l, const struct object *o)
{
    /* Views of the same type are adjacent; the view that also defines the shape comes first. */
    static const enum tensor_view order[] = {TENSOR_RAW,     TENSOR_F32_NPY, TENSOR_F32,
                                             TENSOR_F16_NPY, TENSOR_F16,     TENSOR_BF16};
    for (size_t i = 0; i < COUNT(order); i++) {
        struct view_draft *d = object_draft(o, order[i]);
        if (d && d->changed && d->size > 0)
            return l->ending && d->dirty ? NULL : d;
    }
    return NULL;
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

/* A fresh tensor is refused. again: fsync tries again, even if nothing is written. */
static void fresh_refused(struct live *l, struct request *q, struct object *o, bool again,
                          const struct err *e)
{
    o->news |= again;
    q->failed = object_refused(l, o, e);
}

/* Take a part of a fresh tensor to be judged: a draft, or nothing (d is NULL). A text that was not
 * flushed may be half a line. Returns 0, TENSOR_SHORT or -errno. Drops and retakes the lock. */
static int take_part(struct live *l, struct view_draft *d, struct tensor_round *ret, struct err *e)
{
    int r = 0;
    if (!d)
        return 0;
    draft_enter(l, d);
    if (draft_is_written(d) && d->dirty && view_is_text(d->view)) {
        (void)err_set(e, -EINVAL, "its %s is being written", tensor_views[d->view].name);
        r = TENSOR_SHORT;
    } else if (draft_is_written(d)) {
        r = err_sys(e, draft_take(d, ret), "cannot judge it");
    }
    draft_leave(l, d);
    return r;
}

/* Judge a fresh tensor as it is now; o->edit is what it is to be. Drops and retakes the lock. */
static void judge_fresh(struct live *l, struct request *q, struct object *o, struct err *e)
{
    const struct units_watch watch = object_watch(l);
    struct tensor_new new = {.big = l->state->gguf->fmt.big,
                             .imp = imatrix_find(l->opt.imatrix, o->name, o->name_len)};
    struct tensor_edit edit = TENSOR_EDIT_INIT;
    const int refused = check_views(o, e);
    int r = refused;
    o->news = false;
    for (struct view_draft *d = o->drafts; d; d = d->next)
        d->copied = o->epoch;
    o->epoch++;
    o->pins++;
    if (r == 0)
        r = take_part(l, object_draft(o, TENSOR_TYPE), &new.type, e);
    if (r == 0)
        r = take_part(l, object_draft(o, TENSOR_SHAPE), &new.shape, e);
    if (r == 0)
        r = take_part(l, view_that_counts(l, o), &new.data, e);
    lock_drop(&l->lock);
    if (r == 0)
        r = tensor_judge_new(&new, &l->logs, &watch, &edit, e);
    tensor_round_free(&new.type);
    tensor_round_free(&new.shape);
    tensor_round_free(&new.data);
    lock_take(&l->lock);
    if (!o->fresh) /* it was removed meanwhile */
        tensor_edit_free(&edit);
    else if (r == TENSOR_CHANGED)
        o->edit = edit;
    else if (r == TENSOR_SHORT)
        object_set_error(l, o, e->msg);
    else if (r == -EINTR)
        object_touch(l, o);
    else if (r < 0)
        fresh_refused(l, q, o,
                      q->when != WHEN_NOW ||
                          (!refused && (r == -ENOSPC || r == -EDQUOT || r == -EIO || r == -ENOMEM)),
                      e);
    object_unpin(l, o);
}

/* Add to `pending` a fresh tensor that was judged. */
static void add_fresh(struct live *l, struct request *q, struct object *o, struct err *e)
{
    const size_t mark = edit_mark(&l->pending);
    const struct tensor_edit *t = &o->edit;
    int r = take_name(l, o->name, o->name_len, e);
    if (r == 0)
        r = edit_tensor_add(&l->pending, o->name, o->name_len, &t->shape, t->piece, t->n, o->number,
                            e);
    o->adding = r == 0;
    l->tensors.adding += o->adding;
    if (r == 0)
        return;
    edit_undo(&l->pending, mark);
    fresh_refused(l, q, o, true, e);
}

/* A fresh tensor became a tensor of the model, or could not (r < 0). Drops and retakes the lock. */
static void end_adding(struct live *l, struct request *q, struct object *o, int r,
                       const struct err *e)
{
    o->adding = false;
    if (r < 0 && o->gone) { /* it was removed meanwhile */
        o->gone = false;
        l->tensors.n_gone--;
        fresh_remove(l, o);
    } else if (r < 0) {
        fresh_refused(l, q, o, true, e);
    } else {
        fresh_end(l, o);
        object_set_error(l, o, NULL);
        object_changed(o);
        views_added(l, o);
    }
}

/* Unpin a tensor that may not be fresh any more, and return the fresh one after it. */
static struct object *fresh_after(struct live *l, struct object *o)
{
    struct object *next =
        o->fresh ? TAILQ_NEXT(o, in_fresh) : fresh_from(l, (uint64_t)o->number + 1);
    object_unpin(l, o);
    return next;
}

int tensors_add(struct live *l, struct request *q, struct err *e)
{
    const bool hurry = q->when == WHEN_NOW;
    const size_t mark = edit_mark(&l->pending);
    struct object *o, *next;
    bool done;
    for (o = TAILQ_FIRST(&l->tensors.fresh); o; o = next) {
        o->pins++;
        if (o->news && (hurry || !o->owing))
            judge_fresh(l, q, o, e);
        next = fresh_after(l, o);
    }
    TAILQ_FOREACH (o, &l->tensors.fresh, in_fresh) {
        if (o->edit.n && (hurry || !o->news)) /* else it is judged again once it rests */
            add_fresh(l, q, o, e);
        tensor_edit_free(&o->edit);
    }
    if (edit_mark(&l->pending) == mark)
        return 0;
    int r = overlay_accept(l, mark, WHEN_MODE, &done, e);
    q->failed = r < 0 ? r : q->failed;
    l->tensors.adding = 0;
    (void)overlay_freshen(l, &(struct err){0}); /* before their drafts go */
    for (o = TAILQ_FIRST(&l->tensors.fresh); o; o = next) {
        o->pins++;
        if (o->adding)
            end_adding(l, q, o, done ? 0 : r, e);
        next = fresh_after(l, o);
    }
    if (l->tensors.n_gone >=
        l->state->gguf->n_tensors) /* counting on one that could not be added */
        tensors_spare_all(l);
    return 0;
}

/* ---- rename ---- */

static int rename_fresh(struct live *l, struct object *o, const char *name, size_t n)
{
    char *copy = strndup(name, n);
    if (!copy)
        return -ENOMEM;
    set_name(l, o, copy, n);
    if (o->error) /* it may have been about the old name */
        object_touch(l, o);
    return 0;
}

static int accept_rename(struct live *l, struct request *q, struct err *e)
{
    struct object *o = q->object;
    const char *name = buf_text(&q->text);
    const size_t n = q->text.len;
    struct edit_tensor is;
    if (o->fresh && !o->gone) /* adding it failed meanwhile */
        return err_sys(e, rename_fresh(l, o, name, n), "cannot be renamed");
    if (!edit_tensor_numbered(&l->pending, o->number, &is) || o->gone)
        return err_set(e, -ENOENT, "the tensor was removed");
    int r = take_name(l, name, n, e);
    if (r == 0)
        r = edit_tensor_rename(&l->pending, is.name, is.name_len, name, n, e);
    return r < 0 ? r : 1;
}

static int tensor_renamed(struct live *l, struct request *q, int r, const struct err *e)
{
    if (r < 0 && !q->done)
        return object_refused(l, q->object, e);
    keep(l, q->object);
    q->object->mtime = when_date();
    object_set_error(l, q->object, NULL);
    return r;
}

int live_tensor_rename(struct live *l, const char *from, const char *to, unsigned flags,
                       struct live_wait *w)
{
    char name[TREE_NAME_MAX + 1];
    uint32_t number;
    size_t n;
    LOCKED(&l->lock);
    if (flags & ~(unsigned)RENAME_NOREPLACE)
        return -EINVAL;
    int r = find_shown(l, from, &number);
    if (r < 0 || (strcmp(from, to) == 0 && !(flags & RENAME_NOREPLACE)))
        return r;
    if (is_taken(l, to))
        return flags & RENAME_NOREPLACE ? -EEXIST : -ENOTEMPTY;
    r = decode_name(to, name, &n);
    struct object *o = object_get(l, number);
    if (!o)
        return -ENOMEM;
    if (r < 0)
        return object_refused(l, o, &(const struct err){.code = r, .msg = A_NAME});
    if (o->fresh && !o->adding)
        return rename_fresh(l, o, name, n);
    struct request *q = object_request(l, o);
    if (!q)
        return -ENOMEM;
    buf_add(&q->text, name, n);
    q->apply = accept_rename;
    q->end = tensor_renamed;
    return queue_add(l, q, w);
}

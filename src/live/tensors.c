/* SPDX-License-Identifier: MIT */
/* Creates, renames and removes tensors (tensors.h). */
#include "live/tensors.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>

#include "base/lock.h"
#include "edit/change.h"
#include "live/batch.h"
#include "live/draft.h"
#include "live/tensor_judge.h"
#include "live/views.h"
#include "live/writer.h"

/* ---- finding tensors ---- */

/* Find a tensor by its directory's name. A name too long to decode is looked up in the base. */
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
        const uint32_t i = snapshot_find(base, false, file);
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

/* Remove a tensor that has an object, remembering its place if memory allows. */
static int drop(struct live *l, const struct edit_tensor *t, struct err *e)
{
    struct object *o = object_find(&l->objects, t->id.number);
    if (object_set_name(&l->objects, o, t->name, t->name_len) == 0)
        o->rank = t->rank;
    return edit_tensor_remove(&l->next.change, t->name, t->name_len, e);
}

/* Record that a tensor has taken this name: lost tensors with this name are no longer reported, and
 * the places of removed ones are forgotten. replaced: the tensor that it replaces, or NULL. */
static void name_taken(struct live *l, const char *name, size_t n,
                       const struct edit_tensor *replaced)
{
    struct objects *s = &l->objects;
    struct object *other;
    if (replaced)
        object_event(s, object_find(s, replaced->id.number), OBJECT_REMOVE);
    while ((other = object_named(s, name, n, OBJECT_LOST))) {
        object_event(s, other, OBJECT_REGAIN);
        new_tensor_reap(l, other);
    }
    while ((other = object_named(s, name, n, OBJECT_ABSENT)))
        object_clear_name(s, other);
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
    batch_note(l);
    promise_make(&o->promise, l->edits);
    o->mtime = when_date();
    object_set_error(&l->objects, o, NULL);
    return writer_accepted(l, w);
}

/* ---- due removals ---- */

/* True unless the change leaves the model without tensors. */
static bool tensors_left(const struct live *l)
{
    struct edit_tensor *all = NULL;
    size_t n = 1; /* assumed if the call fails, most likely for lack of memory */
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
        batch_note(l);
    else
        edit_undo(c, mark);
    while ((o = s->doomed.first)) {
        object_event(s, o, r == 0 ? OBJECT_REMOVE : OBJECT_BACK);
        if (r == 0) {
            promise_make(&o->promise, l->edits);
        } else { /* the tensor stays, and shows the reason */
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

/* Return the object of a slot, or NULL. */
static struct object *object_of(const struct live *l, const struct edit_slot *s)
{
    return s->kind == EDIT_TENSOR ? object_find(&l->objects, s->id.number) : NULL;
}

void tensors_failed(struct live *l, const struct batch *b, const struct err *e)
{
    const struct edit_change *c = &b->change;
    assert(lock_held(&l->lock));
    for (size_t i = 0; i < c->n; i++) {
        const struct edit_slot *s = c->slot[i];
        struct object *o = object_of(l, s);
        if (!o)
            continue;
        o->losses++;
        if (s->old == EDIT_NONE && !s->gone) {
            (void)object_set_name(&l->objects, o, s->name, s->name_len);
            object_event(&l->objects, o, OBJECT_LOSE);
            o->lost = e->code;
        }
        object_set_error(&l->objects, o, e->msg);
    }
}

void tensors_landed(struct live *l, const struct batch *b)
{
    const struct edit_change *c = &b->change;
    assert(lock_held(&l->lock));
    for (size_t i = 0; i < c->n; i++) {
        const struct edit_slot *s = c->slot[i];
        const struct object *o = s->gone && s->old != EDIT_NONE ? object_of(l, s) : NULL;
        if (o)
            view_helpers_drop(l, o);
    }
}

/* ---- tensors to be judged ---- */

/* True if a new tensor was written and can be judged: it has no writable handle, or the mount is
 * ending. */
static bool is_due(const struct live *l, const struct object *o)
{
    return o->dirty && (!o->open || l->writer.stop);
}

/* Return the time at which a new tensor is due to be judged, rounded up so that all writes of the
 * same second are judged together. */
static struct timespec due_at(const struct object *o)
{
    return (struct timespec){.tv_sec = o->due.tv_sec + 1};
}

bool new_tensors_closing(const struct live *l)
{
    const struct object *o = l->objects.fresh.first;
    assert(lock_held(&l->lock));
    while (o && !(o->dirty && o->open && !o->unclosed))
        o = o->next;
    return o;
}

/* Have the writer check the new tensors when this one is due, and immediately if a sync is waiting
 * for handles that have now all been released. */
static void call_writer(struct live *l, const struct object *o)
{
    const struct timespec due = due_at(o);
    pool_call_at(&l->writer.job, &due);
    if (waits_released_at(l) && !new_tensors_closing(l))
        pool_call(&l->writer.job);
}

/* ---- finding and making ---- */

static struct object *new_tensor(const struct live *l, uint32_t number)
{
    struct object *o = object_find(&l->objects, number);
    return o && o->state == OBJECT_NEW ? o : NULL;
}

static struct object *new_tensor_named(const struct live *l, const char *file)
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

/* Return the new tensor's draft of the file in this row, or NULL. */
static struct draft *new_tensor_draft(const struct object *o, uint32_t row)
{
    struct draft *d = o->drafts;
    while (d && (!d->made || d->unlinked || d->row != row))
        d = d->inside;
    return d;
}

/* Return the new tensor's draft of this view, or NULL. */
static struct draft *draft_of(const struct object *o, enum tensor_view view)
{
    struct draft *d = o->drafts;
    while (d && (!d->made || d->unlinked || d->view != view))
        d = d->inside;
    return d;
}

static bool new_tensor_leaves(const struct object *o, enum tensor_view view)
{
    bool values = view > TENSOR_RAW && view < TENSOR_VIEWS;
    return view == TENSOR_ASIDE || (values && draft_of(o, TENSOR_RAW));
}

static int check_name(const char *name, size_t n)
{
    if (n == 0 || memchr(name, 0, n))
        return -EINVAL;
    return n > EDIT_MAX_TENSOR_NAME ? -ENAMETOOLONG : 0;
}

static int new_tensor_rename(struct live *l, struct object *o, const char *name, size_t n)
{
    int r = check_name(name, n);
    if (r == 0)
        r = object_set_name(&l->objects, o, name, n);
    if (r == 0 && o->error) /* the error may have been about the old name */
        new_tensor_touch(l, o);
    return r;
}

static void new_tensor_remove(struct live *l, struct object *o)
{
    object_event(&l->objects, o, OBJECT_REMOVE);
    call_writer(l, o);
    view_drafts_reap(l, o);
    view_helpers_drop(l, o);
    new_tensor_reap(l, o);
    newest_touch(l->newest);
}

void new_tensor_touch(struct live *l, struct object *o)
{
    assert(lock_held(&l->lock));
    o->dirty = true;
    if (o->state == OBJECT_NEW) {
        o->due = when_after(1000 * NEW_QUIET);
        object_move_last(o);
    }
    call_writer(l, o);
}

void new_tensor_closed(struct live *l, struct object *o, bool closed)
{
    o->unclosed += closed ? -1U : 1U;
    if (closed)
        new_tensor_touch(l, o);
}

/* Count a closed file as last written at its close, so that tensors are added in the order in which
 * the program wrote them. */
void new_tensor_released(struct live *l, struct object *o, bool closed)
{
    o->open--;
    o->unclosed -= !closed;
    if (closed && o->dirty)
        call_writer(l, o);
    else
        new_tensor_touch(l, o);
}

int new_tensor_text(struct live *l, const struct draft *d, const char *text, size_t n,
                    struct err *e)
{
    struct object *o = d->object;
    const bool is_type = d->view == TENSOR_TYPE;
    assert(lock_held(&l->lock));
    int r = is_type ? tensor_type_parse(text, n, &o->type, e)
                    : tensor_shape_parse(text, n, &o->shape, e);
    if (r == 0 || !d->unlinked) /* not for a refused helper, which becomes a helper again */
        *(is_type ? &o->has_type : &o->has_shape) = r == 0;
    new_tensor_touch(l, o);
    return r;
}

/* ---- judging ---- */

struct object *new_tensors_due(const struct live *l)
{
    struct object *o = l->objects.fresh.first;
    while (o && (o == l->objects.judging || !is_due(l, o)))
        o = o->next;
    return o && (l->writer.stop || l->objects.now || when_past(&o->due, 0)) ? o : NULL;
}

const struct timespec *new_tensors_due_at(const struct live *l)
{
    static _Thread_local struct timespec at;
    const struct object *o = l->objects.fresh.first;
    while (o && !is_due(l, o))
        o = o->next;
    if (o)
        at = due_at(o);
    return o ? &at : NULL;
}

/* Add the tensor in the place of a removed tensor with the same name, or at the end if there was no
 * such tensor. */
static int add(struct live *l, struct object *o, const struct tensor_edit *edit, struct err *e)
{
    struct objects *s = &l->objects;
    struct edit_change *c = &l->next.change;
    struct edit_tensor t;
    const size_t mark = edit_mark(c);
    /* a tensor that is doomed, or that came back because its removal failed */
    const bool replaces = edit_tensor_find(c, o->name, o->name_len, &t);
    const struct object *placed = object_named(s, o->name, o->name_len, OBJECT_ABSENT);
    const uint64_t rank = replaces ? t.rank : placed ? placed->rank : s->ranks;
    int r = replaces ? edit_tensor_remove(c, t.name, t.name_len, e) : 0;
    if (r == 0)
        r = edit_tensor_add(c, o->name, o->name_len, &edit->shape, edit->piece, edit->n, rank,
                            o->number, e);
    if (r == 0)
        r = batch_check(l, e);
    if (r < 0) {
        edit_undo(c, mark);
        return r;
    }
    if (rank == s->ranks)
        s->ranks += EDIT_RANK_STEP;
    name_taken(l, o->name, o->name_len, replaces ? &t : NULL);
    object_event(s, o, OBJECT_ADD);
    o->mtime = when_date();
    batch_note(l);
    promise_make(&o->promise, l->edits);
    return 0;
}

/* Check that no view that counts still has a refused write. Returns 0, or that write's error; the
 * view must then be rewritten from the start. */
static int check_views(const struct object *o, struct err *e)
{
    const struct draft *d = o->drafts;
    while (d && (!d->made || d->unlinked || !d->why.code || new_tensor_leaves(o, d->view)))
        d = d->inside;
    if (d)
        *e = d->why;
    return e->code;
}

/* Judge the views of a new tensor in their current state. Drops and retakes the lock. */
static int judge_views(struct live *l, struct object *o, struct tensor_edit *ret, struct err *e)
{
    struct tensor_new t = {.has_type = o->has_type,
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
    int r = check_views(o, &e);
    /* already reported to the program that wrote the view */
    const bool reported = r < 0 && !l->objects.now;
    if (r == 0)
        r = judge_views(l, o, &edit, &e);
    const bool again = !l->writer.stop && (o->open || o->dirty); /* a program is still writing it */
    if (o->state != OBJECT_NEW || again) { /* it was removed, or will be judged again once quiet */
        o->dirty |= again;
        r = 0;
    } else {
        /* a write may have been refused in the meantime */
        if (r == TENSOR_CHANGED && (r = check_views(o, &e)) == 0)
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
    const struct timespec latest = when_after(1000 * NEW_QUIET);
    while ((o = new_tensors_due(l)) &&
           !when_before(&latest, &o->due)) { /* judge each object once */
        int r = judge(l, o);
        if (r < 0)
            result = r;
    }
    return result;
}

/* ---- queries ---- */

int live_tensor_of_version(struct live *l, uint32_t version, uint32_t *number)
{
    lock_take(&l->lock);
    const struct tensor_id *id = &l->objects.given[version % OBJECTS_KNOWN];
    bool first = version < l->objects.first_numbers, known = id->version == version && id->number;
    *number = known ? id->number - 1 : version;
    lock_drop(&l->lock);
    return known || first ? 0 : -ENOENT;
}

/* True if a tensor of the model is not visible. This includes a tensor that came back because its
 * removal failed, if a new tensor has its name. */
static bool is_hidden(const struct live *l, const struct object *o)
{
    struct edit_tensor t;
    if (o->state != OBJECT_STORED)
        return o->state == OBJECT_DOOMED || o->state == OBJECT_ABSENT;
    return l->objects.fresh.n && edit_tensor_numbered(&l->next.change, o->number, &t) &&
           object_named(&l->objects, t.name, t.name_len, OBJECT_NEW);
}

/* Find a visible tensor. */
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
        r = batch_freshen(l, &e); /* the tensor may not be in a snapshot yet */
    if (r == 0)
        *number = t.id.number;
    return r;
}

int live_tensor_folder(struct live *l, uint32_t number, bool fresh, struct live_folder *ret)
{
    struct err e = {0};
    int r = 0;
    *ret = (struct live_folder){0};
    if (objects_untouched(&l->objects))
        return 0;
    LOCKED(&l->lock);
    struct object *o = object_find(&l->objects, number);
    if (o && fresh && atomic_load(&l->shown.stale))
        r = batch_freshen(l, &e);
    if (o)
        *ret = (struct live_folder){o->generation, object_hidden(o), is_hidden(l, o), o->mtime};
    return r;
}

int live_tensor_error(struct live *l, uint32_t number, struct buf *out)
{
    LOCKED(&l->lock);
    const struct object *o = object_find(&l->objects, number);
    if (o && o->error)
        buf_str(out, o->error);
    else if (o && o->state == OBJECT_NEW)
        buf_str(out, "a new tensor: it is not complete yet");
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

/* Decode the name of a created or renamed directory. Returns 0, -EINVAL or -ENAMETOOLONG. */
static int decode_name(const char *file, char name[TREE_NAME_MAX + 1], size_t *n)
{
    int r = name_decode(file, name, n);
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
    if (flags & ~(unsigned)RENAME_NOREPLACE)
        return -EINVAL;
    int r = find_shown(l, from, &t);
    if (r < 0 || (strcmp(from, to) == 0 && !(flags & RENAME_NOREPLACE)))
        return r;
    if (find_shown(l, to, &now) == 0)
        return flags & RENAME_NOREPLACE ? -EEXIST : -ENOTEMPTY;
    const bool replaces = tensor_find(l, to, &now) == 0; /* a doomed tensor has the name */
    if (!replaces) {
        r = decode_name(to, text, &now.name_len);
        now.name = text;
    }
    if (r == 0)
        r = (o = tensor_object(l, t.id.number)) ? 0 : -ENOMEM;
    if (r < 0)
        return r;
    if (o->state == OBJECT_NEW)
        return new_tensor_rename(l, o, now.name, now.name_len);
    size_t mark = edit_mark(c);
    if (replaces) /* the doomed tensor is removed immediately */
        r = edit_tensor_remove(c, now.name, now.name_len, &e);
    if (r == 0)
        r = edit_tensor_rename(c, t.name, t.name_len, now.name, now.name_len, &e);
    if (r == 0)
        r = batch_check(l, &e);
    if (r < 0) {
        edit_undo(c, mark);
        return tensor_refused(l, o, &e);
    }
    name_taken(l, now.name, now.name_len, replaces ? &now : NULL);
    return tensor_accepted(l, o, w);
}

int live_tensor_rename(struct live *l, const char *from, const char *to, unsigned flags,
                       struct live_wait *w)
{
    struct err unready; /* reported by a later write */
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

/* ---- removal ---- */

/* Try a removal, to find out immediately whether it is possible. If a strategy is requested, the
 * removal may be possible only together with the removal of the doomed tensors. */
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
    pool_call_at(&l->writer.job, &o->due);
    return 0;
}

int live_tensor_remove(struct live *l, const char *file)
{
    struct err unready; /* reported by a later write */
    writer_ready(l, &unready);
    lock_take(&l->lock);
    int r = remove_locked(l, file);
    lock_drop(&l->lock);
    views_bury(l);
    return r;
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

int live_tensor_make(struct live *l, const char *file, uint32_t *number)
{
    char name[TREE_NAME_MAX + 1];
    struct edit_tensor t;
    size_t n;
    LOCKED(&l->lock);
    int r = find_shown(l, file, &t) == 0 ? -EEXIST : decode_name(file, name, &n);
    if (r == 0)
        r = check_name(name, n);
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
    if (objects_untouched(&l->objects))
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
    if (!d)
        return 0;
    d->unlinked = true;
    o->has_type &= d->view != TENSOR_TYPE;
    o->has_shape &= d->view != TENSOR_SHAPE;
    view_drafts_reap(l, o);
    new_tensor_touch(l, o); /* this view may have prevented the tensor from being added */
    return 0;
}

/* SPDX-License-Identifier: MIT */
/* Tensors that a call has touched, and drafts of their views (objects.h). */
#include "live/objects.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "live/tensors.h"

/* ---- objects ---- */

struct object *object_find(const struct live *l, uint32_t number)
{
    struct link *k = table_first(&l->tensors.by_number, hash_number(number));
    assert(lock_held(&l->lock));
    while (k && ((struct object *)k)->number != number)
        k = table_next(k);
    return (struct object *)k;
}

struct object *object_get(struct live *l, uint32_t number)
{
    struct object *o = object_find(l, number);
    if (o || !(o = calloc(1, sizeof(*o))))
        return o;
    o->number = number;
    o->epoch = 1;
    if (table_add(&l->tensors.by_number, &o->link, hash_number(number)) < 0) {
        free(o);
        return NULL;
    }
    atomic_store(&l->tensors.any, true);
    return o;
}

static void object_free(struct live *l, struct object *o)
{
    table_remove(&l->tensors.by_number, &o->link);
    object_set_error(l, o, NULL);
    free(o->name);
    free(o);
}

/* The object of a tensor that was edited stays: its times, and what the kernel may have cached,
 * are known nowhere else. */
void object_reap(struct live *l, struct object *o)
{
    const bool known = o->mtime.tv_sec || o->generation || o->cold || o->error || o->hidden;
    if (!o->fresh && !o->gone && !o->drafts && !o->pins && !known)
        object_free(l, o);
}

void object_unpin(struct live *l, struct object *o)
{
    o->pins--;
    object_reap(l, o);
}

void object_set_error(struct live *l, struct object *o, const char *why)
{
    l->n_errors -= o->error != NULL;
    free(o->error);
    o->error = why ? strdup(why) : NULL;
    l->n_errors += o->error != NULL;
}

const char *object_name(const struct live *l, const struct object *o, size_t *n)
{
    const struct gguf_tensor *t = object_base(l, o).t;
    *n = o->fresh ? o->name_len : t ? t->name_len : 0;
    return o->fresh ? o->name : t ? gguf_name(l->state->gguf, t) : NULL;
}

int object_refused(struct live *l, struct object *o, const struct err *e)
{
    char shown[SHOW_MAX];
    size_t n;
    const char *name = object_name(l, o, &n);
    if (!name || (o->error && strcmp(o->error, e->msg) == 0))
        return e->code;
    live_log(l, LOG_WARNING, "tensors/%s: refused: %s", show(shown, name, n), e->msg);
    object_set_error(l, o, e->msg);
    return e->code;
}

void object_chill(struct object *o, uint32_t rows)
{
    o->cold |= rows;
    o->chilled++;
}

void object_changed(struct object *o)
{
    o->mtime = when_date();
    object_chill(o, UINT32_MAX);
}

struct view_draft *object_draft(const struct object *o, enum tensor_view view)
{
    struct view_draft *d = o ? o->drafts : NULL;
    while (d && d->view != view)
        d = d->next;
    return d;
}

bool object_leaves(const struct object *o, enum tensor_view view)
{
    const struct view_draft *raw =
        o->fresh && tensor_views[view].form ? object_draft(o, TENSOR_RAW) : NULL;
    return view_is_computed(view) || (raw && raw->changed && raw->size > 0);
}

void object_touch(struct live *l, struct object *o)
{
    o->news = true;
    l->tensors.due = when_after(NEW_QUIET * 1000);
    pool_call_at(&l->queue.tick, &l->tensors.due);
}

/* ---- requests ---- */

struct request *object_request(struct live *l, struct object *o)
{
    struct request *q = request_new(l, NULL);
    if (!q)
        return NULL;
    q->object = o;
    o->pins++;
    q->verdict = -EINTR;
    return q;
}

void object_request_end(struct live *l, struct request *q)
{
    struct view_draft *d = q->view;
    if (d) {
        d->judging--;
        /* A line whose judgement did not begin, or was interrupted, was not written. */
        if (q->verdict == -EINTR && view_is_text(d->view))
            draft_settle(d, q->round.epoch);
        draft_reap(l, d);
    }
    object_unpin(l, q->object);
    tensor_round_free(&q->round);
}

static void tell_encoding(void *arg, uint64_t done, uint64_t all)
{
    struct live *l = arg;
    const time_t now = when_now().tv_sec;
    if (l->tensors.told && now != l->tensors.told)
        live_log(l, LOG_INFO, "encoding a tensor: %llu %%", (unsigned long long)(done * 100 / all));
    l->tensors.told = now;
}

struct units_watch object_watch(struct live *l)
{
    l->tensors.told = 0;
    return (struct units_watch){&l->queue.cancel, tell_encoding, l};
}

/* ---- the tensor as it is ---- */

struct tensor_base object_base(const struct live *l, const struct object *o)
{
    return tensor_base_in(&(const struct view){l->state, l->over, NULL}, o->number);
}

void object_base_get(const struct live *l, const struct object *o, struct tensor_base *ret)
{
    size_t n;
    const char *name = object_name(l, o, &n);
    *ret = object_base(l, o);
    ret->v = view_ref(&ret->v);
    if (name)
        ret->imp = imatrix_find(l->opt.imatrix, name, n);
}

/* ---- drafts ---- */

bool draft_is_written(const struct view_draft *d)
{
    return d->changed && d->written.n > 0;
}

void draft_reset(struct view_draft *d)
{
    for (struct live_view *h = LIST_FIRST(&d->handles); h; h = LIST_NEXT(h, in_draft))
        if (h->wrote > d->settled && h->wrote <= d->refused)
            h->lost = d->refusal;
    extents_free(&d->written);
    if (d->changed) /* the kernel has pages of it */
        object_chill(d->object, (uint32_t)1 << d->view);
    d->changed = d->dirty = false;
    d->npy = (struct npy){0};
    d->begun.tv_sec = 0;
    d->why = (struct err){0};
}

void draft_settle(struct view_draft *d, uint64_t epoch)
{
    d->settled = epoch;
    if (d->touched <= epoch)
        draft_reset(d);
    else
        extents_drop(&d->written, epoch);
}

static void draft_free(struct view_draft *d)
{
    extents_free(&d->written);
    log_unref(d->room.log);
    lock_destroy(&d->io);
    free(d);
}

void draft_reap(struct live *l, struct view_draft *d)
{
    struct object *o = d->object;
    struct view_draft **at = &o->drafts;
    assert(lock_held(&l->lock));
    if (d->writers || d->judging || d->pins || d->begun.tv_sec || (o->fresh && d->changed))
        return;
    if (d->changed) /* the kernel has pages that were not accepted */
        object_chill(o, (uint32_t)1 << d->view);
    while (*at != d)
        at = &(*at)->next;
    *at = d->next;
    draft_free(d);
}

void draft_enter(struct live *l, struct view_draft *d)
{
    d->pins++;
    lock_drop(&l->lock);
    lock_take(&d->io);
    lock_take(&l->lock);
}

void draft_leave(struct live *l, struct view_draft *d)
{
    lock_drop(&d->io);
    d->pins--;
    draft_reap(l, d);
}

int draft_take(struct view_draft *d, struct tensor_round *ret)
{
    log_unref(d->room.log);
    d->room = (struct extent){0};
    *ret = (struct tensor_round){.view = d->view,
                                 .size = d->changed ? d->size : 0,
                                 .epoch = d->copied = d->object->epoch++,
                                 .npy = d->npy};
    return extents_copy(&d->written, 0, UINT64_MAX, &ret->written);
}

/* ---- the end ---- */

void objects_close(struct live *l)
{
    for (struct link *k = table_each(&l->tensors.by_number, NULL), *next; k; k = next) {
        struct object *o = (struct object *)k;
        next = table_each(&l->tensors.by_number, k);
        for (struct view_draft *d; (d = o->drafts); draft_free(d))
            o->drafts = d->next;
        object_free(l, o);
    }
    table_free(&l->tensors.by_number);
    for (struct log *log; (log = l->logs.now); log_unref(log))
        l->logs.now = log->next;
}

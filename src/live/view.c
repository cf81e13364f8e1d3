/* SPDX-License-Identifier: MIT */
/* What was written to a view of a tensor judged, and made an edit: see view.h. */
#include "live/view.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>
#include <time.h>

#include "base/when.h"
#include "base/lock.h"
#include "live/makings.h"
#include "live/tensor_batch.h"
#include "live/tensor_encode.h"
#include "live/tensor_judge.h"

int view_base(struct live *l, uint32_t tensor, struct tensor_base **ret)
{
    const struct edit_change *c = &l->next.change;
    struct edit_tensor t;
    assert(lock_held(&l->lock));
    if (!edit_tensor_numbered(c, tensor, &t))
        return -ENOENT;
    bool new = t.old == EDIT_NONE;
    int r = tensor_base_make(c->base, t.old, new ? NULL : base_store(l), t.old, t.content, ret);
    if (r == 0)
        (*ret)->imp = imatrix_find(l->opt.imatrix, t.name, t.name_len);
    return r;
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

/* A judgement under way. */
struct round {
    struct live *l;
    struct view_draft *d;
    struct tensor_base *base; /* of a text: a reference */
    struct buf text;          /* a copy of it */
    int taken;                /* -errno: the two could not be made */
    bool wrote;               /* something is to be judged */
    struct tensor_edit edit;
    struct err e;
};

void view_drop(struct view_draft *d)
{
    if (d->data)
        tensor_draft_drop(d->data);
    else
        view_event(&d->state, VIEW_DROP);
}

void view_text(enum live_view_kind kind, const struct tensor_base *base, struct buf *out)
{
    if (base->exists && kind == LIVE_TYPE)
        tensor_type_text(base, out);
    if (base->exists && kind == LIVE_SHAPE)
        tensor_shape_text(base, out);
}

/* It is what is shown, also of a type or a shape that cannot be given. */
static bool is_shown(const struct round *o)
{
    CLEANUP(buf_free) struct buf shown = BUF_INIT;
    view_text(o->d->kind, o->base, &shown);
    return shown.len == o->text.len && memcmp(shown.data, o->text.data, shown.len) == 0;
}

static int judge_type(struct round *o, bool end, const struct units_watch *watch)
{
    const struct buf *b = &o->text;
    uint32_t type;
    int r = tensor_type_parse(b->data ? (const char *)b->data : "", b->len, end, &type, &o->e);
    if (r != 0)
        return r == TENSOR_TEXT_MORE ? TENSOR_SHORT : r;
    return tensor_convert(o->base, type, &o->l->logs, watch, &o->edit, &o->e);
}

static int judge_shape(struct round *o, bool end)
{
    const struct buf *b = &o->text;
    struct tensor_shape shape;
    int r = tensor_shape_parse(b->data ? (const char *)b->data : "", b->len, end, &shape, &o->e);
    if (r != 0)
        return r == TENSOR_TEXT_MORE ? TENSOR_SHORT : r;
    r = tensor_reshape(o->base, &shape, &o->e);
    if (r == TENSOR_CHANGED)
        o->edit = (struct tensor_edit){.shaped = true, .shape = shape};
    return r;
}

/* Whether what it was begun from is still what the model has. */
static int check_base(const struct view_draft *d, struct err *e)
{
    if (d->losses != d->folder->losses)
        return err_set(e, -EIO, "the edit before it failed: open it anew");
    if (d->edits != d->folder->edits)
        return err_set(e, -ESTALE, "the tensor was edited by another file: open it anew");
    return 0;
}

/* Make it part of the change. 1, -errno. With the lock. */
static int accept(struct round *o)
{
    struct live *l = o->l;
    struct view_draft *d = o->d;
    struct edit_tensor t;
    struct tensor_base *now = NULL;
    size_t mark = edit_mark(&l->next.change);
    int r = check_base(d, &o->e);
    if (r == 0 && !edit_tensor_numbered(&l->next.change, d->tensor, &t))
        r = err_set(&o->e, -ENOENT, "the tensor was removed");
    if (r == 0 && batch_room(l) < 0)
        r = err_set(&o->e, -ENOMEM, "no memory for the edit");
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
    if (d->data)
        tensor_draft_passed(d->data, now);
    tensor_base_unref(now);
    d->edits = ++d->folder->edits;
    d->folder->spent = 0;
    d->accepted = true;
    (void)tensor_accepted(l, d->folder, NULL);
    promise_make(&d->promise, l->edits);
    return 1;
}

/* Its line, and `why` of the draft, which every later flush repeats. With the lock. */
static int report(struct round *o, int r)
{
    if (!o->e.code)
        (void)err_set(&o->e, r, "%s", strerror(-r));
    o->e.code = r;
    if (r != -EINTR && !o->d->data) /* of data it is found again as long as it is so */
        o->d->why = o->e;
    (void)tensor_refused(o->l, o->d->folder, &o->e);
    return r;
}

/* Its program opens it again (numpy's open_memmap). With the lock. */
static int leave_begun(struct round *o)
{
    struct timespec now = when_now();
    o->d->begun = now.tv_sec;
    folder_set_error(&o->l->folders, o->d->folder, "of a NumPy array only the header was written");
    return 0;
}

/* What was written is what the tensor has, maybe by an edit that is pending; or what it had when the draft was begun. */
static int same(struct round *o)
{
    struct view_draft *d = o->d;
    int r = check_base(d, &o->e);
    if (r == 0)
        promise_make(&d->promise, d->folder->promise.edit);
    else
        (void)report(o, r);
    if (r == -ESTALE) /* as it is whatever is written to it */
        d->why = o->e;
    return r;
}

/* What a verdict means. With the lock. */
static int settle(struct round *o, int r, bool end)
{
    struct view_draft *d = o->d;
    bool changed = r == TENSOR_CHANGED;
    if (changed)
        r = accept(o);
    if (changed && r < 0 && d->data)
        tensor_draft_failed(d->data);
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
    if (r == TENSOR_SAME && d->data == NULL)
        folder_set_error(&o->l->folders, d->folder, NULL);
    return r == TENSOR_SAME && o->wrote ? same(o) : 0;
}

static int finish(struct round *o, int r, bool end)
{
    bool more = r == TENSOR_SHORT;
    lock_take(&o->l->lock);
    r = settle(o, r, end);
    if (!o->d->data)
        view_event(&o->d->state, more ? VIEW_LEAVE : r < 0 ? VIEW_REFUSE : VIEW_PASS);
    lock_drop(&o->l->lock);
    tensor_edit_free(&o->edit);
    return r;
}

int view_data_judge(struct live *l, struct view_draft *d, bool end, struct live_wait *w)
{
    struct round o = {.l = l, .d = d, .edit = TENSOR_EDIT_INIT};
    struct progress p = {l, d->tensor, 0};
    const struct units_watch watch = {w ? &w->cancel : NULL, on_progress, &p};
    lock_take(&l->lock);
    int r = d->why.code;
    o.wrote = view_is_due(view_state(d));
    lock_drop(&l->lock);
    if (r < 0)
        return r;
    do
        r = tensor_draft_judge(d->data, &watch, &o.edit, &o.e);
    while (r == -EAGAIN);
    return finish(&o, r, end);
}

/* What is to be judged: 1; 0: nothing is; -errno: it was refused. It may be written on meanwhile. With the
 * lock. */
static int take_text(struct round *o)
{
    struct view_draft *d = o->d;
    d->losses = d->folder->losses;
    d->edits = d->folder->edits;
    if (d->why.code || !view_is_due(d->state))
        return d->why.code;
    view_event(&d->state, VIEW_JUDGE);
    o->wrote = true;
    o->taken = view_base(o->l, d->tensor, &o->base);
    buf_add(&o->text, d->text.data, d->text.len);
    if (o->taken == 0)
        o->taken = buf_error(&o->text);
    return 1;
}

static int judge_text(struct round *o, bool end, const struct units_watch *watch)
{
    if (o->taken < 0)
        return err_set(&o->e, o->taken, "%s",
                       o->taken == -ENOENT ? "the tensor was removed" : "no memory for the edit");
    if (is_shown(o))
        return TENSOR_SAME;
    return o->d->kind == LIVE_TYPE ? judge_type(o, end, watch) : judge_shape(o, end);
}

int view_text_judge(struct live *l, struct view_draft *d, bool end, struct live_wait *w)
{
    struct round o = {.l = l, .d = d, .text = BUF_INIT, .edit = TENSOR_EDIT_INIT};
    struct progress p = {l, d->tensor, 0};
    const struct units_watch watch = {w ? &w->cancel : NULL, on_progress, &p};
    lock_take(&l->lock);
    int r = take_text(&o);
    lock_drop(&l->lock);
    if (r > 0)
        r = finish(&o, judge_text(&o, end, &watch), end);
    tensor_base_unref(o.base);
    buf_free(&o.text);
    return r;
}

int view_sync(struct live *l, struct view_draft *d, struct live_wait *w)
{
    lock_take(&l->lock);
    bool writers = d->writers > 0;
    lock_drop(&l->lock);
    int r = writers ? d->of->judge(l, d, d->of->ends, w) : 0;
    if (r < 0)
        return r;
    lock_take(&l->lock);
    /* Of a draft that nothing was accepted of it is what the tensor has, whichever file it was written to. */
    const struct promise *p = d->promise.edit ? &d->promise : &d->folder->promise;
    r = writer_sync(l, p, p->edit, w);
    lock_drop(&l->lock);
    return r;
}

/* ---- of a tensor in the making: a text is judged alone, and the rest as a whole ---- */

int making_data_judge(struct live *l, struct view_draft *d, bool end, struct live_wait *w)
{
    (void)end;
    (void)w;
    lock_take(&l->lock);
    int r = d->making->lost ? d->making->why.code : d->why.code;
    lock_drop(&l->lock);
    return r;
}

int making_text_judge(struct live *l, struct view_draft *d, bool end, struct live_wait *w)
{
    struct err e = {0};
    (void)w;
    lock_take(&l->lock);
    int r = d->making->lost ? d->making->why.code : d->why.code;
    if (r == 0 && view_is_due(d->state)) {
        view_event(&d->state, VIEW_JUDGE);
        r = making_text(l, d, end, &e);
        view_event(&d->state, r == TENSOR_SHORT ? VIEW_LEAVE : r < 0 ? VIEW_REFUSE : VIEW_PASS);
        if (r < 0) {
            d->why = e;
            (void)tensor_refused(l, d->folder, &e);
        }
    }
    lock_drop(&l->lock);
    return r < 0 ? r : 0;
}

/* It is not part of the model: nothing to wait for. */
int making_sync(struct live *l, struct view_draft *d, struct live_wait *w)
{
    return d->of->judge(l, d, true, w);
}

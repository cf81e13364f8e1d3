/* SPDX-License-Identifier: MIT */
/* What was written to a view of a tensor kept, judged, and made an edit: see view.h. */
#include "live/view.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>
#include <time.h>

#include "base/bytes.h"
#include "base/lock.h"
#include "base/when.h"
#include "live/tensor_helpers.h"
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
    int r = tensor_base_make(c->base, t.old, new ? NULL : base_store(l), t.old, t.content, ret);
    if (r == 0)
        (*ret)->imp = imatrix_find(l->opt.imatrix, t.name, t.name_len);
    return r;
}

/* ---- what drafts hold, read and written ---- */

/* A write that was refused: the error stays with the draft. It is reported once: a full disk refuses
 * each page of a mapping. */
static int refused(struct live *l, struct draft *d, int r, struct err *e)
{
    if (!e->code)
        (void)err_set(e, r, "%s", strerror(-r));
    e->code = r;
    lock_take(&l->lock);
    bool again = d->why.code == r && strcmp(d->why.msg, e->msg) == 0;
    d->why = *e;
    if (!again)
        (void)tensor_refused(l, d->object, e);
    lock_drop(&l->lock);
    return r;
}

static int data_read(struct live *l, struct draft *d, uint64_t off, void *dst, size_t n,
                     size_t *got)
{
    (void)l;
    return tensor_draft_read(d, off, dst, n, got);
}

static int data_write(struct live *l, struct draft *d, bool append, uint64_t off, const void *bytes,
                      size_t n)
{
    struct err e = {0};
    int r = tensor_draft_write(d, append, off, bytes, n, &e);
    return r < 0 ? refused(l, d, r, &e) : 0;
}

static int data_truncate(struct live *l, struct draft *d, uint64_t size)
{
    struct err e = {0};
    int r = tensor_draft_truncate(d, size, &e);
    return r < 0 ? refused(l, d, r, &e) : 0;
}

static int data_allocate(struct live *l, struct draft *d, uint64_t off, uint64_t n, bool keep_size)
{
    struct err e = {0};
    (void)l;
    return tensor_draft_allocate(d, off, n, keep_size, &e);
}

static int text_read(struct live *l, struct draft *d, uint64_t off, void *dst, size_t n,
                     size_t *got)
{
    lock_take(&l->lock);
    *got = (size_t)within_u64(off, n, d->text.len);
    if (*got)
        memcpy(dst, d->text.data + off, *got);
    lock_drop(&l->lock);
    return 0;
}

static int text_write(struct live *l, struct draft *d, bool append, uint64_t off, const void *bytes,
                      size_t n)
{
    struct err e = {0};
    lock_take(&l->lock);
    struct buf *b = &d->text;
    if (append)
        off = b->len;
    bool fits = off <= b->len && off + n <= VIEW_TEXT_MAX;
    if (off == 0)
        d->why = (struct err){0}; /* it is written anew */
    if (fits) {
        size_t over = (size_t)min_u64(n, b->len - off);
        if (over)
            memcpy(b->data + off, bytes, over);
        buf_add(b, (const uint8_t *)bytes + over, n - over);
    }
    draft_event(d, DRAFT_WRITE);
    int r = !fits ? -EINVAL : buf_error(b);
    /* A line that more stands behind is not all: a program may cut that off next. */
    bool last = off + n >= b->len;
    lock_drop(&l->lock);
    if (r < 0)
        return refused(l, d, r, &e);
    return last && n > 0 && memchr(bytes, '\n', n);
}

static int text_truncate(struct live *l, struct draft *d, uint64_t size)
{
    lock_take(&l->lock);
    int r = size <= d->text.len ? 0 : -EINVAL;
    if (r == 0 && size < d->text.len)
        draft_event(d, size ? DRAFT_WRITE : DRAFT_EMPTY);
    if (r == 0)
        d->text.len = (size_t)size;
    lock_drop(&l->lock);
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
    struct draft *d;
    struct tensor_base *base; /* of a text: a reference */
    struct buf text;          /* a copy of it */
    int taken;                /* -errno: the two could not be made */
    bool wrote;               /* something is to be judged */
    struct tensor_edit edit;
    struct err e;
};

void view_drop(struct draft *d)
{
    LOCKED(&d->lock);
    draft_event(d, DRAFT_DROP);
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
static int check_base(const struct draft *d, struct err *e)
{
    if (d->losses != d->object->losses)
        return err_set(e, -EIO, "the edit before it failed: open it anew");
    if (d->edits != d->object->edits)
        return err_set(e, -ESTALE, "the tensor was edited by another file: open it anew");
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
    if (draft_is_data(d))
        tensor_draft_passed(d, now);
    tensor_base_unref(now);
    d->edits = ++d->object->edits;
    d->object->spent = 0;
    d->accepted = true;
    (void)tensor_accepted(l, d->object, NULL);
    promise_make(&d->promise, l->edits);
    return 1;
}

/* Its line, and `why` of the draft, which every later flush repeats. With the lock. */
static int report(struct round *o, int r)
{
    if (!o->e.code)
        (void)err_set(&o->e, r, "%s", strerror(-r));
    o->e.code = r;
    if (r != -EINTR && !draft_is_data(o->d)) /* of data it is found again as long as it is so */
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

/* What was written is what the tensor has, maybe by an edit that is pending; or what it had when the draft was begun. */
static int same(struct round *o)
{
    struct draft *d = o->d;
    int r = check_base(d, &o->e);
    if (r == 0)
        promise_make(&d->promise, d->object->promise.edit);
    else
        (void)report(o, r);
    if (r == -ESTALE) /* as it is whatever is written to it */
        d->why = o->e;
    return r;
}

/* What a verdict means. With the lock. */
static int settle(struct round *o, int r, bool end)
{
    struct draft *d = o->d;
    bool changed = r == TENSOR_CHANGED;
    if (changed)
        r = accept(o);
    if (changed && r < 0 && draft_is_data(d))
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
    if (r == TENSOR_SAME && !draft_is_data(d))
        object_set_error(&o->l->objects, d->object, NULL);
    return r == TENSOR_SAME && o->wrote ? same(o) : 0;
}

static int finish(struct round *o, int r, bool end)
{
    bool more = r == TENSOR_SHORT;
    lock_take(&o->l->lock);
    r = settle(o, r, end);
    if (!draft_is_data(o->d))
        draft_event(o->d, more ? DRAFT_LEAVE : r < 0 ? DRAFT_REFUSE : DRAFT_PASS);
    lock_drop(&o->l->lock);
    tensor_edit_free(&o->edit);
    return r;
}

/* Why a write of it was refused, or the tensor in the making that it was to be lost. With the lock. */
static int refused_before(const struct draft *d)
{
    return d->made && d->object->lost ? d->object->lost : d->why.code;
}

/* In the making it is judged with the other views, as a whole. */
static int data_judge(struct live *l, struct draft *d, bool end, struct live_wait *w)
{
    struct round o = {.l = l, .d = d, .edit = TENSOR_EDIT_INIT};
    struct progress p = {l, d->tensor, 0};
    const struct units_watch watch = {w ? &w->cancel : NULL, on_progress, &p};
    lock_take(&l->lock);
    int r = refused_before(d);
    o.wrote = draft_is_due(d->state);
    lock_drop(&l->lock);
    if (r < 0 || d->made)
        return r;
    do
        r = tensor_draft_judge(d, &watch, &o.edit, &o.e);
    while (r == -EAGAIN);
    return finish(&o, r, end);
}

/* In the making: alone, and at once. 0, -errno, which was reported. With the lock. */
static int judge_new(struct round *o, bool end)
{
    struct draft *d = o->d;
    int r = new_tensor_text(o->l, d, end, &o->e);
    draft_event(d, r == TENSOR_SHORT ? DRAFT_LEAVE : r < 0 ? DRAFT_REFUSE : DRAFT_PASS);
    if (r >= 0)
        return 0;
    d->why = o->e;
    (void)tensor_refused(o->l, d->object, &o->e);
    return r;
}

/* What is to be judged: 1; 0: nothing is; -errno: it was refused. It may be written on meanwhile. With the
 * lock. */
static int take_text(struct round *o, bool end)
{
    struct draft *d = o->d;
    d->losses = d->object->losses;
    d->edits = d->object->edits;
    int r = refused_before(d);
    if (r < 0 || !draft_is_due(d->state))
        return r;
    draft_event(d, DRAFT_JUDGE);
    if (d->made)
        return judge_new(o, end);
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

static int text_judge(struct live *l, struct draft *d, bool end, struct live_wait *w)
{
    struct round o = {.l = l, .d = d, .text = BUF_INIT, .edit = TENSOR_EDIT_INIT};
    struct progress p = {l, d->tensor, 0};
    const struct units_watch watch = {w ? &w->cancel : NULL, on_progress, &p};
    lock_take(&l->lock);
    int r = take_text(&o, end);
    lock_drop(&l->lock);
    if (r > 0)
        r = finish(&o, judge_text(&o, end, &watch), end);
    tensor_base_unref(o.base);
    buf_free(&o.text);
    return r;
}

const struct draft_kind view_data = {.read = data_read,
                                     .write = data_write,
                                     .truncate = data_truncate,
                                     .allocate = data_allocate,
                                     .judge = data_judge};
const struct draft_kind view_line = {.read = text_read,
                                     .write = text_write,
                                     .truncate = text_truncate,
                                     .judge = text_judge,
                                     .ends = true};
const struct draft_kind view_helper = {
    .read = helper_read, .write = helper_write, .truncate = helper_truncate};

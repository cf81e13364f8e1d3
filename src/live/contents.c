/* SPDX-License-Identifier: MIT */
/* What drafts of views hold, read and written: the kinds of view.h. */
#include <errno.h>
#include <string.h>

#include "base/bytes.h"
#include "live/helpers.h"

/* A write that was refused: the error stays with the draft. It is reported once: a full disk refuses
 * each page of a mapping. */
static int refused(struct live *l, struct view_draft *d, int r, struct err *e)
{
    if (!e->code)
        (void)err_set(e, r, "%s", strerror(-r));
    e->code = r;
    lock_take(&l->lock);
    bool again = d->why.code == r && strcmp(d->why.msg, e->msg) == 0;
    d->why = *e;
    if (!again)
        (void)tensor_refused(l, d->folder, e);
    lock_drop(&l->lock);
    return r;
}

/* ---- data ---- */

static int data_read(struct live *l, struct view_draft *d, uint64_t off, void *dst, size_t n,
                     size_t *got)
{
    (void)l;
    return tensor_draft_read(d->data, off, dst, n, got);
}

static int data_write(struct live *l, struct view_draft *d, bool append, uint64_t off,
                      const void *bytes, size_t n)
{
    struct err e = {0};
    int r = tensor_draft_write(d->data, append, off, bytes, n, &e);
    return r < 0 ? refused(l, d, r, &e) : 0;
}

static int data_truncate(struct live *l, struct view_draft *d, uint64_t size)
{
    struct err e = {0};
    int r = tensor_draft_truncate(d->data, size, &e);
    return r < 0 ? refused(l, d, r, &e) : 0;
}

static int data_allocate(struct live *l, struct view_draft *d, uint64_t off, uint64_t n,
                         bool keep_size)
{
    struct err e = {0};
    (void)l;
    return tensor_draft_allocate(d->data, off, n, keep_size, &e);
}

/* ---- texts ---- */

static int text_read(struct live *l, struct view_draft *d, uint64_t off, void *dst, size_t n,
                     size_t *got)
{
    lock_take(&l->lock);
    *got = (size_t)within_u64(off, n, d->text.len);
    if (*got)
        memcpy(dst, d->text.data + off, *got);
    lock_drop(&l->lock);
    return 0;
}

static int text_write(struct live *l, struct view_draft *d, bool append, uint64_t off,
                      const void *bytes, size_t n)
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
    view_event(&d->state, VIEW_WRITE);
    int r = !fits ? -EINVAL : buf_error(b);
    /* A line that more stands behind is not all: a program may cut that off next. */
    bool last = off + n >= b->len;
    lock_drop(&l->lock);
    if (r < 0)
        return refused(l, d, r, &e);
    return last && n > 0 && memchr(bytes, '\n', n);
}

static int text_truncate(struct live *l, struct view_draft *d, uint64_t size)
{
    lock_take(&l->lock);
    int r = size <= d->text.len ? 0 : -EINVAL;
    if (r == 0 && size < d->text.len)
        view_event(&d->state, size ? VIEW_WRITE : VIEW_EMPTY);
    if (r == 0)
        d->text.len = (size_t)size;
    lock_drop(&l->lock);
    return r;
}

/* ---- kinds ---- */

#define DATA \
    .read = data_read, .write = data_write, .truncate = data_truncate, .allocate = data_allocate
#define TEXT .read = text_read, .write = text_write, .truncate = text_truncate, .ends = true

static const struct view_kind stored_data = {DATA, .judge = view_data_judge, .sync = view_sync};
static const struct view_kind stored_text = {TEXT, .judge = view_text_judge, .sync = view_sync};
static const struct view_kind new_data = {DATA, .judge = making_data_judge, .sync = making_sync};
static const struct view_kind new_text = {TEXT, .judge = making_text_judge, .sync = making_sync};

const struct view_kind *view_kind_of(const struct view_draft *d)
{
    if (d->making)
        return d->data ? &new_data : &new_text;
    return d->data ? &stored_data : &stored_text;
}

const struct view_kind view_helper = {
    .read = helper_read, .write = helper_write, .truncate = helper_truncate};

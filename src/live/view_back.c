/* SPDX-License-Identifier: MIT */
/* What a draft that is refused in the end had changed before is put back: see view.h. */
#include "base/when.h"
#include "base/lock.h"
#include "live/view.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "live/batch.h"
#include "live/tensor_batch.h"
#include "live/tensor_edit.h"

/* Bytes that are compared, and copied, at a time. */
#define STRETCH ((size_t)256 << 10)

struct back {
    const struct tensor_base *before, *now;
    struct spool spool;
    struct tensor_edit edit; /* its pieces have no draft yet */
    size_t cap;
    uint8_t *room; /* owned: of two stretches */
};

static bool same_shape(const struct tensor_base *a, const struct tensor_base *b)
{
    return a->type == b->type && a->n_dims == b->n_dims && a->nbytes == b->nbytes &&
           memcmp(a->dims, b->dims, a->n_dims * sizeof(a->dims[0])) == 0;
}

/* The shape that it had: one dimension of 1 for a tensor without any. */
static int take_shape(struct back *b)
{
    const struct tensor_base *t = b->before;
    if (t->n_dims > EDIT_MAX_DIMS)
        return -EOPNOTSUPP;
    b->edit.shaped = b->edit.whole = true;
    b->edit.shape = (struct edit_shape){t->type, t->n_dims ? t->n_dims : 1, {1}};
    memcpy(b->edit.shape.dims, t->dims, t->n_dims * sizeof(t->dims[0]));
    return 0;
}

static int add_piece(struct back *b, uint64_t at, const uint8_t *bytes, size_t n, struct err *e)
{
    struct tensor_edit *t = &b->edit;
    uint64_t src;
    int r = spool_take(&b->spool, n, &src, e);
    if (r == 0)
        r = spool_put(&b->spool, src, bytes, n);
    if (r == 0)
        r = array_grow(&t->piece, &b->cap, t->n, sizeof(*t->piece));
    if (r == 0)
        t->piece[t->n++] = (struct edit_piece){at, n, src, NULL};
    return r;
}

/* Bytes [at, at + n), if they differ. */
static int put_stretch(struct back *b, uint64_t at, size_t n, struct err *e)
{
    uint8_t *was = b->room, *is = b->room + STRETCH;
    size_t first = 0;
    int r = tensor_view_read(b->before, TENSOR_RAW, at, was, n);
    if (r == 0 && !b->edit.whole) {
        r = tensor_view_read(b->now, TENSOR_RAW, at, is, n);
        while (r == 0 && n > 0 && was[n - 1] == is[n - 1])
            n--;
        while (r == 0 && first < n && was[first] == is[first])
            first++;
    }
    return r < 0 || first == n ? r : add_piece(b, at + first, was + first, n - first, e);
}

/* The pieces get the draft that their bytes are in. */
static int collect(struct back *b)
{
    struct edit_draft *d;
    int r = b->edit.n ? spool_end(&b->spool, &d) : 0;
    for (size_t i = 0; r == 0 && i < b->edit.n; i++)
        b->edit.piece[i].draft = edit_draft_ref(d);
    if (r == 0 && b->edit.n)
        edit_draft_unref(d);
    return r;
}

/* The edit that makes one of the other. *ret: free it. 0, -errno. */
static int make(const struct tensor_base *before, const struct tensor_base *now,
                const struct edit_file *f, struct tensor_edit *ret, struct err *e)
{
    struct back b = {before, now, SPOOL_INIT, TENSOR_EDIT_INIT, 0, malloc(2 * STRETCH)};
    int r = b.room ? 0 : -ENOMEM;
    if (r == 0 && !same_shape(before, now))
        r = take_shape(&b);
    spool_begin(&b.spool, f);
    for (uint64_t at = 0; r == 0 && at < before->nbytes; at += STRETCH)
        r = put_stretch(&b, at, (size_t)min_u64(STRETCH, before->nbytes - at), e);
    if (r == 0)
        r = collect(&b);
    if (r < 0)
        tensor_edit_free(&b.edit);
    spool_free(&b.spool);
    free(b.room);
    *ret = b.edit;
    return r;
}

/* Nothing has changed the tensor since the draft did, and nothing of that was given up. */
static bool is_last(const struct view_draft *d)
{
    const struct folder *f = d->folder;
    return d->before && f->edits == d->since && f->losses == d->since_losses;
}

static int accept(struct live *l, struct view_draft *d, const struct tensor_edit *edit,
                  struct err *e)
{
    struct folder *f = d->folder;
    struct tensor_now t;
    if (!is_last(d) || tensor_of_number(l, d->tensor, &t) < 0)
        return 0;
    int r = batch_room(l);
    if (r == 0 && (edit->n > 0 || edit->shaped))
        r = tensor_edit_apply(edit, &l->next.change, t.name, t.len, e);
    if (r < 0)
        return r;
    f->edits++;
    folder_changed(f, l->snapshots);
    l->next.asked &= l->next.how == EDIT_COPY; /* else it may be another strategy now */
    batch_note(l, NULL, NULL);
    promise_make(&f->promise, l->edits);
    f->mtime = when_date();
    return writer_accepted(l, NULL);
}

static void report(struct live *l, const struct view_draft *d, int r, const struct err *why)
{
    struct tensor_now t;
    struct err e = {0};
    if (tensor_of_number(l, d->tensor, &t) < 0)
        return;
    (void)err_set(&e, r, "what was accepted of it before cannot be put back: %s",
                  why->code ? why->msg : strerror(-r));
    (void)tensor_refused(l, d->folder, t.name, t.len, &e);
}

void view_put_back(struct live *l, struct view_draft *d)
{
    struct tensor_edit edit = TENSOR_EDIT_INIT;
    struct tensor_base *before = NULL, *now = NULL;
    struct err e = {0};
    int r = 0;
    lock_take(&l->lock);
    if (is_last(d))
        r = view_base(l, d->tensor, &now);
    if (now)
        before = tensor_base_ref(d->before);
    const struct edit_file *f = tensor_beside(l, d->tensor);
    lock_drop(&l->lock);
    if (now)
        r = make(before, now, f, &edit, &e);
    lock_take(&l->lock);
    if (now && r == 0)
        r = accept(l, d, &edit, &e);
    if (r < 0 && r != -ENOENT)
        report(l, d, r, &e);
    lock_drop(&l->lock);
    tensor_edit_free(&edit);
    tensor_base_unref(before);
    tensor_base_unref(now);
}

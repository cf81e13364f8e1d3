/* SPDX-License-Identifier: MIT */
/* Tensors in the making: see makings.h. */
#include "live/makings.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>

#include "base/lock.h"
#include "base/when.h"

#include "live/batch.h"
#include "live/tensor_judge.h"
#include "live/tensor_base.h"

int making_text(struct live *l, struct view_draft *d, bool end, struct err *e)
{
    struct making *m = d->making;
    const char *text = d->text.data ? (const char *)d->text.data : "";
    int r;
    assert(lock_held(&l->lock));
    if (d->kind == LIVE_TYPE) {
        r = tensor_type_parse(text, d->text.len, end, &m->type, e);
        m->has_type = r == 0;
    } else {
        r = tensor_shape_parse(text, d->text.len, end, &m->shape, e);
        m->has_shape = r == 0;
    }
    making_touch(l, m);
    return r == TENSOR_TEXT_MORE ? TENSOR_SHORT : r;
}

static void refuse(struct live *l, struct making *m, const struct err *e)
{
    m->why = *e;
    (void)tensor_refused(l, NULL, m->name, m->len, e);
}

void view_refused(struct live *l, const struct view_draft *d, const struct err *e)
{
    struct tensor_now t;
    if (d->making && !d->making->gone)
        refuse(l, d->making, e);
    else if (tensor_of_number(l, d->tensor, &t) == 0)
        (void)tensor_refused(l, d->folder, t.name, t.len, e);
}

/* ---- judged ---- */

/* The one to be judged first; NULL: none. The one that is being judged may have been written since. */
static struct making *next_due(const struct live *l)
{
    struct making *m = l->due_making;
    if (m && m == l->judging)
        m = m->due_next;
    return m && (l->stop || l->folders.now || when_past(&m->last, MAKING_QUIET)) ? m : NULL;
}

bool makings_due(const struct live *l)
{
    return next_due(l);
}

const struct timespec *makings_due_at(const struct live *l)
{
    static _Thread_local struct timespec at;
    const struct making *first = l->due_making;
    if (!first)
        return NULL;
    at = first->last;
    at.tv_sec += MAKING_QUIET + 1; /* all of a second together */
    at.tv_nsec = 0;
    return &at;
}

/* The name may be that of a tensor that was removed a moment ago. */
static int clear_name(struct live *l, const struct making *m, struct err *e)
{
    struct tensor_now t;
    if (tensor_find(l, m->file, &t) < 0)
        return 0;
    struct folder *f = t.number == IDS_NONE ? NULL : folders_find(&l->folders, t.number);
    if (!f || !f->doomed)
        return err_set(e, -EEXIST, "a tensor of this name already exists");
    int r = tensor_drop(l, t.name, t.len, e);
    if (r < 0)
        return r;
    folders_untie(&l->folders, f);
    f->removed = true;
    return 0;
}

/* It is a tensor from now on. */
static int add(struct live *l, struct making *m, const struct tensor_edit *edit, struct err *e)
{
    struct edit_change *c = &l->next.change;
    struct edit_tensor t;
    size_t mark = edit_mark(c);
    struct folder *f = tensor_folder(l, m->number);
    int r = !f || batch_room(l) < 0 ? err_set(e, -ENOMEM, "no memory for the edit") : 0;
    if (r == 0)
        r = clear_name(l, m, e);
    const uint64_t rank = places_take(&l->places, m->name, m->len, l->tensor_ranks);
    if (r == 0)
        r = edit_tensor_add(c, m->name, m->len, &edit->shape, edit->piece, edit->n, rank, e);
    if (r == 0)
        r = batch_check(l, e);
    if (rank == l->tensor_ranks)
        l->tensor_ranks += EDIT_RANK_STEP;
    else if (r < 0)
        places_note(&l->places, m->name, m->len, rank);
    if (r < 0) {
        edit_undo(c, mark);
        tensors_follow(l);
        return r;
    }
    if (edit_tensor_find(c, m->name, m->len, &t))
        m->content = tensor_content_ref((struct tensor_content *)t.content);
    making_end(l, m);
    making_regained(l, m->file);
    f->mtime = when_date();
    batch_note(l, NULL, NULL);
    promise_make(&f->promise, l->edits);
    return 0;
}

/* Whether one of its views that count lacks what a write that was refused was to put there. 0, or that
 * write's error: the view is to be written anew. */
static int check_views(const struct live *l, const struct making *m, struct err *e)
{
    const struct view_draft *d = view_drafts(l, m->number);
    while (d && (d->making != m || d->unlinked || !d->why.code || making_leaves(l, m, d->kind)))
        d = d->inside;
    if (d)
        *e = d->why;
    return e->code;
}

/* Judge its views as they are. The lock is given up meanwhile. */
static int judge_views(struct live *l, struct making *m, struct tensor_edit *ret, struct err *e)
{
    struct tensor_new t = {.big = l->newest->view.snap->gguf->fmt.big,
                           .has_type = m->has_type,
                           .has_shape = m->has_shape,
                           .type = m->type,
                           .shape = m->shape,
                           .imp = imatrix_find(l->opt.imatrix, m->name, m->len)};
    for (int k = LIVE_RAW; k <= LIVE_F16_NPY; k++) {
        const struct view_draft *d = making_draft(l, m, (enum live_view_kind)k);
        t.draft[k] = d ? d->data : NULL;
    }
    l->judging = m;
    lock_drop(&l->lock);
    int r = tensor_new_judge(&t, NULL, ret, e);
    lock_take(&l->lock);
    l->judging = NULL;
    return r;
}

static int judge(struct live *l, struct making *m)
{
    struct tensor_edit edit = TENSOR_EDIT_INIT;
    struct err e = {0};
    m->dirty = false;
    making_queue(l, m);
    int r = check_views(l, m, &e);
    const bool reported = r < 0 && !l->folders.now; /* to the program that wrote it */
    if (r == 0)
        r = judge_views(l, m, &edit, &e);
    const bool again = !l->stop && (m->open || m->dirty); /* a program goes on with it */
    if (m->gone || again) { /* removed meanwhile; or judged once more when it is quiet */
        m->dirty |= again;
        making_queue(l, m);
        r = 0;
        e = m->why;
    } else if (r == TENSOR_CHANGED) { /* at the end it may be written meanwhile */
        r = check_views(l, m, &e);
        r = r < 0 ? r : add(l, m, &edit, &e);
    }
    m->why = e;
    if (r < 0 && !reported)
        refuse(l, m, &e);
    tensor_edit_free(&edit);
    if (m->gone || again)
        view_drafts_reap(l, m);
    making_reap(l, m);
    return r < 0 && !reported ? r : 0;
}

int makings_judge(struct live *l)
{
    int result = 0;
    struct timespec begun;
    struct making *m;
    assert(lock_held(&l->lock));
    begun = when_now();
    while ((m = next_due(l)) && !when_before(&begun, &m->last)) { /* each one once */
        int r = judge(l, m);
        if (r < 0)
            result = r;
    }
    return result;
}

void makings_free(struct live *l)
{
    assert(!l->makings_added);
    for (size_t i = 0; i < l->n_makings; i++)
        free(l->makings[i]);
    for (struct making *m = l->makings_gone, *next; m; m = next) {
        next = m->next;
        free(m);
    }
    free((void *)l->makings);
    l->makings = NULL;
    l->makings_gone = NULL;
    l->n_makings = 0;
}

/* SPDX-License-Identifier: MIT */
/* Tensors in the making: see makings.h. */
#include "live/makings.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>

#include "base/buf.h"
#include "base/hash.h"
#include "base/lock.h"
#include "base/when.h"
#include "live/batch.h"
#include "live/tensor_base.h"
#include "live/tensor_judge.h"

/* ---- to be judged ---- */

static void making_unqueue(struct live *l, struct making *m)
{
    if (!m->due)
        return;
    *(m->due_before ? &m->due_before->due_next : &l->due_making) = m->due_next;
    *(m->due_next ? &m->due_next->due_before : &l->due_last) = m->due_before;
    m->due_next = m->due_before = NULL;
    m->due = false;
}

/* In the order in which they were written last: most often it is the last one. */
static void enqueue(struct live *l, struct making *m)
{
    struct making *before = l->due_last;
    while (before && when_before(&m->last, &before->last))
        before = before->due_before;
    m->due_before = before;
    m->due_next = before ? before->due_next : l->due_making;
    *(before ? &before->due_next : &l->due_making) = m;
    *(m->due_next ? &m->due_next->due_before : &l->due_last) = m;
    m->due = true;
}

void making_queue(struct live *l, struct making *m)
{
    const bool waits = m->dirty && !m->gone, closing = waits && m->open && !m->unclosed;
    const bool due = waits && (!m->open || l->stop);
    assert(lock_held(&l->lock));
    l->closing += (size_t)closing - m->closing;
    m->closing = closing;
    if (!l->closing && waits_released_at(l))
        crew_call(l->crew, &l->job);
    if (due && !m->due)
        enqueue(l, m);
    else if (!due)
        making_unqueue(l, m);
}

void makings_hurry(struct live *l)
{
    assert(lock_held(&l->lock));
    for (size_t i = 0; i < l->n_makings; i++)
        if (l->makings[i])
            making_queue(l, l->makings[i]);
}

/* ---- found and made ---- */

struct making *making_of(const struct live *l, uint32_t number)
{
    const struct folder *f = folders_find(&l->folders, number);
    return f && f->making && !f->making->gone ? f->making : NULL;
}

static struct making **bucket_of(struct making *const *bucket, const char *file)
{
    return (struct making **)&bucket[hash_name(file, strlen(file)) % LIVE_KNOWN];
}

struct making *making_named(const struct live *l, const char *file)
{
    struct making *m = *bucket_of(l->made_name, file);
    while (m && strcmp(m->file, file) != 0)
        m = m->same;
    return m;
}

static void add_same(struct making **bucket, struct making *m)
{
    m->same = *bucket;
    *bucket = m;
}

static void drop_same(struct making **at, const struct making *m)
{
    while (*at != m)
        at = &(*at)->same;
    *at = m->same;
}

static void add_name(struct live *l, struct making *m, const char *file)
{
    (void)strcpy(m->file, file);
    add_same(bucket_of(l->made_name, file), m);
}

static void drop_name(struct live *l, struct making *m)
{
    drop_same(bucket_of(l->made_name, m->file), m);
}

/* It is not in the making any more: a tensor, or removed. */
static void making_end(struct live *l, struct making *m, bool added)
{
    assert(lock_held(&l->lock) && !m->gone);
    m->gone = true;
    making_queue(l, m);
    drop_name(l, m);
    l->makings[m->place] = NULL;
    if (--l->makings_left == 0)
        l->n_makings = 0;
    struct making **list = added ? &l->makings_added : &l->makings_gone;
    m->next = *list;
    *list = m;
}

void making_reap(struct live *l, struct making *m)
{
    struct folder *f = folders_find(&l->folders, m->number);
    struct making **at = &l->makings_gone;
    assert(lock_held(&l->lock));
    if (!m->removed || m == l->judging || f->drafts)
        return;
    while (*at != m)
        at = &(*at)->next;
    *at = m->next;
    folders_drop(&l->folders, f);
    free(m);
}

void makings_settle(struct live *l, const struct err *why)
{
    assert(lock_held(&l->lock));
    for (struct making *m = l->makings_added, *next; m; m = next) {
        next = m->next;
        m->lost = why;
        if (why) {
            m->why = *why;
            add_same(bucket_of(l->made_lost, m->file), m);
        }
        m->next = l->makings_gone;
        l->makings_gone = m;
    }
    l->makings_added = NULL;
}

/* One of this name was added: that one before it was lost is not to be reported any more. */
static void making_regained(struct live *l, const char *file)
{
    struct making **at = bucket_of(l->made_lost, file), *m;
    while ((m = *at)) {
        m->lost = strcmp(m->file, file) != 0;
        if (m->lost)
            at = &m->same;
        else
            *at = m->same;
    }
}

/* Its draft of a view; NULL: nothing was written to that. */
static struct draft *making_draft(const struct live *l, const struct making *m,
                                  enum live_view_kind kind)
{
    struct draft *d = view_drafts(l, m->number);
    while (d && (d->making != m || d->kind != kind || d->unlinked))
        d = d->inside;
    return d;
}

/* Whether a view is left aside: it is computed, or values beside `raw`. */
static bool making_leaves(const struct live *l, const struct making *m, enum live_view_kind kind)
{
    bool values = kind > LIVE_RAW && kind <= LIVE_F16_NPY;
    return kind == LIVE_ASIDE || (values && making_draft(l, m, LIVE_RAW));
}

/* The name of a new tensor. -EEXIST, -EINVAL, -ENAMETOOLONG, -EOPNOTSUPP with a line in the log. */
static int check_name(struct live *l, const char *file, struct making *m)
{
    struct edit_tensor t;
    if (making_named(l, file))
        return -EEXIST;
    if (tensor_find(l, file, &t) == 0) {
        const struct folder *f = folders_find(&l->folders, t.id.number);
        if (!f || !f->doomed)
            return -EEXIST;
    }
    int r = name_decode(file, m->name, &m->len);
    if (r < 0)
        return r == -ENOENT ? -EINVAL : r;
    if (m->len == 0 || memchr(m->name, 0, m->len))
        return -EINVAL;
    return m->len > EDIT_MAX_TENSOR_NAME ? -ENAMETOOLONG : 0;
}

/* As mkdir(2). */
static int making_make(struct live *l, const char *file, uint32_t *number)
{
    struct making *m = calloc(1, sizeof(*m));
    int r = m ? check_name(l, file, m) : -ENOMEM;
    if (r == 0)
        r = array_grow((void *)&l->makings, &l->cap_makings, l->n_makings, sizeof(*l->makings));
    if (r < 0) {
        free(m);
        return r;
    }
    m->number = atomic_fetch_add(&l->newest->numbers, 1);
    struct folder *f = tensor_folder(l, m->number);
    if (!f) {
        free(m);
        return -ENOMEM;
    }
    add_name(l, m, file);
    f->making = m;
    f->mtime = when_date();
    m->place = l->n_makings;
    l->makings[l->n_makings++] = m;
    l->makings_left++;
    newest_touch(l->newest);
    *number = m->number;
    return 0;
}

int making_rename(struct live *l, struct making *m, const char *file, const char *name, size_t n)
{
    if (n == 0 || memchr(name, 0, n))
        return -EINVAL;
    if (n > EDIT_MAX_TENSOR_NAME)
        return -ENAMETOOLONG;
    drop_name(l, m);
    memcpy(m->name, name, n);
    m->len = n;
    add_name(l, m, file);
    return 0;
}

int making_drop(struct live *l, struct making *m)
{
    const uint32_t number = m->number;
    making_end(l, m, false);
    view_drafts_reap(l, m);
    view_drafts_end(view_helpers_drop(l, number, NULL));
    m->removed = true;
    making_reap(l, m);
    newest_touch(l->newest);
    return 0;
}

int live_tensor_make(struct live *l, const char *file, uint32_t *number)
{
    lock_take(&l->lock);
    int r = making_make(l, file, number);
    lock_drop(&l->lock);
    return r;
}

/* The draft of a view; NULL: none. */
static struct draft *find(const struct live *l, const struct making *m, uint32_t row)
{
    struct draft *d = view_drafts(l, m->number);
    while (d && (d->making != m || d->row != row || d->unlinked))
        d = d->inside;
    return d;
}

bool live_making(struct live *l, uint32_t number, uint32_t *views)
{
    if (!atomic_load_explicit(&l->touched, memory_order_acquire))
        return false;
    lock_take(&l->lock);
    const struct making *m = making_of(l, number);
    *views = m ? m->aside : 0;
    for (const struct draft *d = view_drafts(l, number); m && d; d = d->inside)
        if (d->making == m && !d->unlinked)
            *views |= (uint32_t)1 << d->row;
    lock_drop(&l->lock);
    return m;
}

bool live_making_at(struct live *l, uint64_t *i, char name[TREE_NAME_MAX + 1], uint32_t *number)
{
    lock_take(&l->lock);
    while (*i < l->n_makings && !l->makings[*i])
        ++*i;
    const struct making *m = *i < l->n_makings ? l->makings[*i] : NULL;
    if (m) {
        (void)strcpy(name, m->file);
        *number = m->number;
    }
    lock_drop(&l->lock);
    return m;
}

int live_making_view(struct live *l, uint32_t number, uint32_t row, uint32_t *node)
{
    lock_take(&l->lock);
    const struct making *m = making_of(l, number);
    const struct draft *d = m ? find(l, m, row) : NULL;
    int r = m && (d || m->aside >> row & 1) ? 0 : -ENOENT;
    if (r == 0)
        *node = d ? d->node : number;
    lock_drop(&l->lock);
    return r;
}

bool live_making_leaves(struct live *l, uint32_t number, uint32_t row, enum live_view_kind kind)
{
    lock_take(&l->lock);
    struct making *m = making_of(l, number);
    bool leaves = m && making_leaves(l, m, kind);
    if (leaves)
        m->aside |= (uint32_t)1 << row;
    lock_drop(&l->lock);
    return leaves;
}

void making_touch(struct live *l, struct making *m)
{
    assert(lock_held(&l->lock));
    m->dirty = true;
    m->last = when_now();
    making_unqueue(l, m);
    making_queue(l, m);
    struct timespec due = m->last;
    due.tv_sec += MAKING_QUIET + 1;
    due.tv_nsec = 0;
    crew_call_at(l->crew, &l->job, &due);
}

void making_closed(struct live *l, struct making *m, bool closed)
{
    m->unclosed += closed ? -1U : 1U;
    if (closed)
        making_touch(l, m);
    else
        making_queue(l, m);
}

/* What was closed is as old as that: so the order in which tensors are added is that of the program. */
void making_released(struct live *l, struct making *m, bool closed)
{
    const struct timespec last = m->last;
    const bool before = closed && m->dirty;
    m->open--;
    m->unclosed -= !closed;
    making_touch(l, m);
    if (!before)
        return;
    making_unqueue(l, m);
    m->last = last;
    making_queue(l, m);
}

/* Its draft goes, and what follows from that. */
static void take_out(struct live *l, struct making *m, uint32_t row)
{
    struct draft *d = find(l, m, row);
    m->aside &= ~((uint32_t)1 << row);
    if (!d)
        return;
    d->unlinked = true;
    m->has_type &= d->kind != LIVE_TYPE;
    m->has_shape &= d->kind != LIVE_SHAPE;
    view_drafts_reap(l, m);
    making_touch(l, m); /* it may have been in the way */
}

int live_making_unlink(struct live *l, uint32_t number, uint32_t row)
{
    lock_take(&l->lock);
    struct making *m = making_of(l, number);
    bool shown = m && (find(l, m, row) || m->aside >> row & 1);
    if (shown)
        take_out(l, m, row);
    lock_drop(&l->lock);
    return shown ? 0 : -ENOENT;
}

int making_text(struct live *l, struct draft *d, bool end, struct err *e)
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
    struct edit_tensor t;
    if (tensor_find(l, m->file, &t) < 0)
        return 0;
    struct folder *f = folders_find(&l->folders, t.id.number);
    if (!f || !f->doomed)
        return err_set(e, -EEXIST, "a tensor of this name already exists");
    int r = tensor_drop(l, t.name, t.name_len, e);
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
    size_t mark = edit_mark(c);
    struct folder *f = tensor_folder(l, m->number);
    int r = !f || batch_room(l) < 0 ? err_set(e, -ENOMEM, "no memory for the edit") : 0;
    if (r == 0)
        r = clear_name(l, m, e);
    const uint64_t rank = places_take(&l->places, m->name, m->len, l->tensor_ranks);
    if (r == 0)
        r = edit_tensor_add(c, m->name, m->len, &edit->shape, edit->piece, edit->n, rank, m->number,
                            e);
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
    making_end(l, m, true);
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
    const struct draft *d = view_drafts(l, m->number);
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
        t.draft[k] = making_draft(l, m, (enum live_view_kind)k);
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
        (void)tensor_refused(l, folders_find(&l->folders, m->number), &e);
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

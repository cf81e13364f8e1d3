/* SPDX-License-Identifier: MIT */
/* Folders of tensors in the making, as programs make, look at and remove them: see makings.h. */
#include "base/when.h"
#include "base/lock.h"
#include "live/makings.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/hash.h"
#include "live/batch.h"

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

void making_end(struct live *l, struct making *m)
{
    assert(lock_held(&l->lock) && !m->gone);
    m->gone = true;
    making_queue(l, m);
    drop_name(l, m);
    l->makings[m->place] = NULL;
    if (--l->makings_left == 0)
        l->n_makings = 0;
    struct making **list = m->content ? &l->makings_added : &l->makings_gone;
    m->next = *list;
    *list = m;
    if (m->content)
        add_same(&l->made_content[making_bucket(m->content)], m);
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
        drop_same(&l->made_content[making_bucket(m->content)], m);
        tensor_content_unref(m->content);
        m->content = NULL;
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

void making_regained(struct live *l, const char *file)
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

struct view_draft *making_draft(const struct live *l, const struct making *m,
                                enum live_view_kind kind)
{
    struct view_draft *d = view_drafts(l, m->number);
    while (d && (d->making != m || d->kind != kind || d->unlinked))
        d = d->inside;
    return d;
}

bool making_leaves(const struct live *l, const struct making *m, enum live_view_kind kind)
{
    bool values = kind > LIVE_RAW && kind <= LIVE_F16_NPY;
    return kind == LIVE_ASIDE || (values && making_draft(l, m, LIVE_RAW));
}

/* The name of a new tensor. -EEXIST, -EINVAL, -ENAMETOOLONG, -EOPNOTSUPP with a line in the log. */
static int check_name(struct live *l, const char *file, struct making *m)
{
    struct tensor_now t;
    if (making_named(l, file))
        return -EEXIST;
    if (tensor_find(l, file, &t) == 0) {
        const struct folder *f = t.number == IDS_NONE ? NULL : folders_find(&l->folders, t.number);
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

int making_make(struct live *l, const char *file, uint32_t *number)
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
    making_end(l, m);
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
static struct view_draft *find(const struct live *l, const struct making *m, uint32_t row)
{
    struct view_draft *d = view_drafts(l, m->number);
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
    for (const struct view_draft *d = view_drafts(l, number); m && d; d = d->inside)
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
    const struct view_draft *d = m ? find(l, m, row) : NULL;
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
    struct view_draft *d = find(l, m, row);
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

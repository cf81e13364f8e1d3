/* SPDX-License-Identifier: MIT */
/* Which tensors the model has now: see tensor.h. */
#include "base/lock.h"
#include "base/when.h"
#include "live/makings.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>
#include <unistd.h>

/* ---- found ---- */

/* Long names are known by the base. */
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
        const uint32_t i = snapshot_find_tensor(base, file);
        if (i == UINT32_MAX)
            return -ENOENT;
        p = gguf_name(g, &g->tensor[i]);
        n = g->tensor[i].name_len;
        r = 0;
    }
    return r == 0 && edit_tensor_find(&l->next.change, p, n, ret) ? 0 : -ENOENT;
}

int tensor_drop(struct live *l, const char *name, size_t n, struct err *e)
{
    struct edit_tensor t;
    assert(lock_held(&l->lock));
    if (edit_tensor_find(&l->next.change, name, n, &t))
        places_note(&l->places, name, n, t.rank);
    return edit_tensor_remove(&l->next.change, name, n, e);
}

struct folder *tensor_folder(struct live *l, uint32_t number)
{
    assert(lock_held(&l->lock));
    struct folder *f = folders_get(&l->folders, number);
    if (f)
        atomic_store(&l->touched, true);
    return f;
}

int tensor_refused(struct live *l, struct folder *f, const struct err *e)
{
    struct making *m = making_of(l, f->number);
    struct edit_tensor t = {0};
    char shown[SHOW_MAX];
    assert(lock_held(&l->lock));
    if (m)
        m->why = *e;
    else if (edit_tensor_numbered(&l->next.change, f->number, &t))
        folder_set_error(&l->folders, f, e->msg);
    else
        return e->code;
    live_log(l, LOG_WARNING, "tensors/%s: refused: %s",
             m ? show(shown, m->name, m->len) : show(shown, t.name, t.name_len), e->msg);
    return e->code;
}

/* ---- after a failure ---- */

void tensors_follow(struct live *l)
{
    struct edit_tensor t;
    assert(lock_held(&l->lock));
    for (struct folder *f = l->folders.first; f; f = f->next)
        if (f->removed && edit_tensor_numbered(&l->next.change, f->number, &t) &&
            t.old != EDIT_NONE)
            folder_back(f);
}

static void lose(struct live *l, uint32_t number)
{
    struct folder *f = folders_find(&l->folders, number);
    if (f)
        f->losses++;
}

void tensors_lost(struct live *l, const struct batch *b)
{
    const struct edit_change *c = &b->change;
    assert(lock_held(&l->lock));
    for (size_t i = 0; c->tensors && i < c->tensors->n; i++) {
        const struct edit_slot *s = &c->tensors->slot[i];
        lose(l, s->id.number);
        if (s->again)
            lose(l, ids_of(c->ids, s->old).number);
    }
}

static void report(struct live *l, uint32_t number, const struct err *e)
{
    struct folder *f = tensor_folder(l, number);
    if (f)
        folder_set_error(&l->folders, f, e->msg);
}

void tensors_failed(struct live *l, const struct batch *b, const struct err *e)
{
    const struct edit_change *c = &b->change;
    assert(lock_held(&l->lock));
    for (size_t i = 0; c->tensors && i < c->tensors->n; i++) {
        const struct edit_slot *s = &c->tensors->slot[i];
        if (s->old != EDIT_NONE)
            report(l, ids_of(c->ids, s->old).number, e);
    }
}

struct draft *tensors_landed(struct live *l, const struct batch *b)
{
    const struct edit_change *c = &b->change;
    struct draft *dead = NULL;
    assert(lock_held(&l->lock));
    for (size_t i = 0; c->tensors && i < c->tensors->n; i++) {
        const struct edit_slot *s = &c->tensors->slot[i];
        if (s->old != EDIT_NONE && (s->gone || s->again))
            dead = view_helpers_drop(l, ids_of(c->ids, s->old).number, dead);
    }
    return dead;
}

/* ---- drafts ---- */

void view_draft_end(struct draft *d)
{
    struct live *l = d->live;
    draft_free(d);
    logs_rest(&l->logs);
}

struct draft *view_draft_reap(struct live *l, struct draft *d)
{
    struct draft **at = &d->folder->drafts;
    bool kept = !d->unlinked && (d->helper || d->begun || (d->making && !d->making->gone));
    bool judged = d->making && d->making == l->judging;
    assert(lock_held(&l->lock));
    if (d->handles || d->users || judged || kept)
        return NULL;
    *d->at = d->next;
    if (d->next)
        d->next->at = d->at;
    table_remove(&l->nodes, &d->link);
    while (*at != d)
        at = &(*at)->inside;
    *at = d->inside;
    return d;
}

struct draft *view_helpers_drop(struct live *l, uint32_t tensor, struct draft *more)
{
    for (struct draft *d = view_drafts(l, tensor), *next; d; d = next) {
        next = d->inside;
        d->unlinked |= d->helper != NULL;
        struct draft *dead = d->helper ? view_draft_reap(l, d) : NULL;
        if (dead) {
            dead->next = more;
            more = dead;
        }
    }
    return more;
}

void view_drafts_end(struct draft *dead)
{
    for (struct draft *next; dead; dead = next) {
        next = dead->next;
        view_draft_end(dead);
    }
}

int view_draft_add(struct live *l, struct draft *d, struct folder *f)
{
    assert(lock_held(&l->lock));
    int r = table_add(&l->nodes, &d->link, hash_number(d->node));
    if (r < 0)
        return r;
    d->next = l->views;
    d->at = &l->views;
    if (d->next)
        d->next->at = &d->next;
    l->views = d;
    d->folder = f;
    d->inside = f->drafts;
    f->drafts = d;
    return 0;
}

struct draft *view_drafts(const struct live *l, uint32_t tensor)
{
    const struct folder *f = folders_find(&l->folders, tensor);
    return f ? f->drafts : NULL;
}

static struct draft *draft_of(struct link *k)
{
    return k ? (struct draft *)((char *)k - offsetof(struct draft, link)) : NULL;
}

static struct live_view *handle_of(struct link *k)
{
    return k ? (struct live_view *)((char *)k - offsetof(struct live_view, link)) : NULL;
}

struct draft *view_at(const struct live *l, uint32_t node, uint32_t row)
{
    const uint64_t hash = hash_number(node);
    struct draft *dropped = NULL, *d = draft_of(table_first(&l->nodes, hash));
    for (; d; d = draft_of(table_next(&d->link))) {
        if (d->node != node || (d->row != row && !d->helper))
            continue;
        if (d->state != DRAFT_DROPPED)
            return d;
        dropped = d;
    }
    if (dropped)
        return dropped;
    struct live_view *h = handle_of(table_first(&l->shared, hash));
    while (h && (h->node != node || h->d->row != row))
        h = handle_of(table_next(&h->link));
    return h ? h->d : NULL;
}

void view_drafts_reap(struct live *l, const struct making *m)
{
    for (struct draft *d = view_drafts(l, m->number), *next; d; d = next) {
        next = d->inside;
        struct draft *dead = d->making == m ? view_draft_reap(l, d) : NULL;
        if (dead)
            view_draft_end(dead);
    }
}

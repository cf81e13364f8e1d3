/* SPDX-License-Identifier: MIT */
/*
 * What is accepted and not on disk yet, as a whole: generations are made of it when a request looks
 * or when it is written, and it is taken back, dropped, or moved to what is on disk. See internal.h.
 */
#include "live/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>

static struct gen *base_gen(const struct live *l)
{
    return l->writer.flight ? l->writer.flight : l->writer.disk;
}

/* ---- begin, end ---- */

void pending_init(struct live *l)
{
    const struct gen *base = base_gen(l);
    struct pending *p = &l->writer.next;
    uint64_t batch = p->batch;
    *p = (struct pending){.batch = batch + 1};
    edit_change_init(&p->change, gen_own(base), base->rank);
}

void pending_free(struct pending *p)
{
    edit_change_free(&p->change);
    edit_plan_free(&p->plan);
    free(p->fresh);
    p->fresh = NULL;
    p->n_fresh = p->cap_fresh = 0;
}

int pending_room(struct live *l)
{
    struct pending *p = &l->writer.next;
    if (array_grow(&p->fresh, &p->cap_fresh, p->n_fresh + 1, sizeof(struct kfile *)) < 0)
        return -ENOMEM;
    return moves_room(&l->keys);
}

static void pin(struct pending *p, struct kfile *f)
{
    if (!f)
        return;
    f->pins++;
    p->fresh[p->n_fresh++] = f;
}

static void set_changed(struct live *l)
{
    newest_touch(l->newest);
    atomic_store(&l->stale, true);
}

void pending_note(struct live *l, struct kfile *f, struct kfile *other)
{
    struct pending *p = &l->writer.next;
    pin(p, f);
    pin(p, other);
    p->edits++;
    p->owner = NULL;
    set_changed(l);
}

static void unpin(struct live *l, struct kfile *f)
{
    f->pins--;
    keys_reap(&l->keys, f);
}

static void unpin_fresh(struct live *l, size_t n)
{
    struct pending *p = &l->writer.next;
    for (size_t i = 0; i < n; i++)
        unpin(l, p->fresh[i]);
    p->n_fresh -= n;
    if (p->n_fresh)
        memmove(p->fresh, p->fresh + n, p->n_fresh * sizeof(struct kfile *));
}

/* ---- generations ---- */

int adopt(struct live *l, struct gen *gen)
{
    int r = keys_follow(&l->keys, l->newest->view.gen, gen);
    if (r == 0)
        gen_unref(newest_put(l->newest, gen));
    return r;
}

static int adopt_plan(struct live *l, struct edit_plan *p, struct err *e)
{
    struct gen *gen;
    struct timespec changed = newest_changed(l->newest);
    int r = newest_make(l->newest, edit_plan_steal(p), l->generations + 1, &changed, &gen, e);
    if (r < 0)
        return r;
    gen->rank = edit_plan_steal_ranks(p);
    r = adopt(l, gen);
    if (r < 0) {
        gen_unref(gen);
        return err_set(e, r, "no memory for the keys");
    }
    l->generations++;
    return 0;
}

/* What is pending is nothing: the newest generation is the one below. */
void adopt_base(struct live *l)
{
    struct gen *base = gen_ref(base_gen(l));
    if (adopt(l, base) < 0) {
        gen_unref(base);
        live_log(l, LOG_ERR, "no memory to go back to what is on disk");
    }
    atomic_store(&l->stale, false);
}

int freshen_locked(struct live *l, struct err *e)
{
    struct pending *p = &l->writer.next;
    struct edit_plan plan = EDIT_PLAN_INIT;
    if (!atomic_load(&l->stale))
        return 0;
    if (p->change.n == 0) {
        adopt_base(l);
        return 0;
    }
    int r = edit_plan_make(&p->change, &l->opt.edit, &plan, e);
    if (r == 0)
        r = adopt_plan(l, &plan, e);
    if (r < 0) {
        edit_plan_free(&plan);
        return r;
    }
    edit_plan_free(&p->plan);
    p->plan = plan;
    p->planned = p->change.version;
    atomic_store(&l->stale, false);
    return 0;
}

int live_freshen(struct live *l)
{
    struct err e = {0};
    if (!atomic_load(&l->stale))
        return 0;
    (void)pthread_mutex_lock(&l->lock);
    int r = freshen_locked(l, &e);
    (void)pthread_mutex_unlock(&l->lock);
    return r;
}

/* ---- after the disk's answer ---- */

void pending_keep(struct live *l, size_t ops, size_t fresh, size_t moved)
{
    edit_keep(&l->writer.next.change, ops);
    unpin_fresh(l, fresh);
    for (size_t i = 0; i < moved && i < l->keys.n_moved; i++)
        if (l->keys.moved[i].stage == STAGE_NEW)
            l->keys.moved[i].stage = STAGE_KEPT;
}

void pending_take_back(struct live *l, const struct err *e)
{
    struct pending *p = &l->writer.next;
    l->writer.losses++;
    edit_undo(&p->change, 0);
    if (p->change.n == 0) {
        p->edits = 0;
        adopt_base(l);
    } else {
        set_changed(l);
    }
    for (size_t i = 0; i < p->n_fresh; i++)
        keys_settle(&l->keys, p->fresh[i], edits_stored(l, p->fresh[i]));
    moves_land(l, STAGE_NEW, false);
    for (size_t i = 0; i < p->n_fresh; i++)
        if (keys_visible(&l->keys, p->fresh[i]->id))
            (void)edits_refused(l, p->fresh[i], e);
    unpin_fresh(l, p->n_fresh);
}

/* ---- after a failure ---- */

/* The file of a key, if there is one. */
static struct kfile *file_of(const struct live *l, const char *key, size_t n)
{
    char file[TREE_NAME_MAX + 1];
    (void)name_encode(key, n, file);
    return keys_named(&l->keys, file);
}

static void settle_name(struct live *l, const char *key, size_t n)
{
    struct kfile *f = file_of(l, key, n);
    if (f && f->key)
        keys_settle(&l->keys, f, edits_stored(l, f));
}

void settle_change(struct live *l, const struct edit_change *c)
{
    for (size_t i = 0; i < c->n; i++) {
        const struct edit_slot *s = &c->slot[i];
        settle_name(l, s->name, s->name_len);
        if (s->old != EDIT_NONE) {
            const struct gguf_kv *kv = &c->base->kv[s->old];
            settle_name(l, gguf_key(c->base, kv), kv->key_len);
        }
    }
}

void pending_drop(struct live *l)
{
    struct pending old = l->writer.next;
    l->writer.losses++;
    pending_init(l);
    l->writer.next.asking = old.asking;
    l->writer.next.waits = old.waits;
    adopt_base(l);
    settle_change(l, &old.change);
    moves_land(l, STAGE_NEW, false);
    moves_land(l, STAGE_KEPT, false);
    for (size_t i = 0; i < old.n_fresh; i++)
        unpin(l, old.fresh[i]);
    pending_free(&old);
}

/* The names of edits that no longer apply, each NUL-terminated. */
static void on_lost(void *arg, const char *name, size_t n)
{
    buf_add(arg, name, n);
    buf_char(arg, '\0');
}

static void report_lost(struct live *l, const struct buf *lost)
{
    struct err e = {0};
    char shown[SHOW_MAX];
    const char *at = (const char *)lost->data, *end = at ? at + lost->len : NULL;
    (void)err_set(&e, -EIO, "the edit before it failed");
    for (; at && at < end; at += strlen(at) + 1) {
        live_log(l, LOG_ERR, "%s: not written: %s", show(shown, at, strlen(at)), e.msg);
        l->writer.failed = e.code; /* for requests that wait for them */
        struct kfile *f = file_of(l, at, strlen(at));
        if (f)
            kfile_set_error(f, e.msg);
        settle_name(l, at, strlen(at));
    }
}

void pending_rebase(struct live *l, const struct edit_change *failed)
{
    struct pending *p = &l->writer.next;
    CLEANUP(buf_free) struct buf lost = BUF_INIT;
    const struct gen *base = base_gen(l);
    l->writer.losses++;
    if (p->change.n == 0) {
        pending_drop(l);
        settle_change(l, failed);
        return;
    }
    int r = edit_rebase(&p->change, gen_own(base), base->rank, on_lost, &lost);
    if (r < 0) {
        live_log(l, LOG_ERR, "edits that followed are dropped: no memory");
        l->writer.failed = r; /* for requests that wait for them */
        pending_drop(l);
        settle_change(l, failed);
        return;
    }
    adopt_base(l);
    set_changed(l);
    settle_change(l, failed);
    settle_change(l, &p->change);
    report_lost(l, &lost);
    unpin_fresh(l, p->n_fresh);
    moves_stage(&l->keys, STAGE_NEW, STAGE_KEPT);
    p->asked = false;
}

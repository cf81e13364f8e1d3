/* SPDX-License-Identifier: MIT */
/*
 * What is accepted and not on disk yet, as a whole: generations are made of it when a request looks
 * or when it is written, and it is taken back, dropped, or moved to what is on disk. See internal.h.
 */
#include "tree/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>

static struct gen *base_gen(const struct tree *t)
{
    return t->writer.flight ? t->writer.flight : t->writer.disk;
}

/* ---- begin, end ---- */

void pending_init(struct tree *t)
{
    const struct gen *base = base_gen(t);
    struct pending *p = &t->writer.next;
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

int pending_room(struct tree *t)
{
    struct pending *p = &t->writer.next;
    if (array_grow(&p->fresh, &p->cap_fresh, p->n_fresh + 1, sizeof(struct kfile *)) < 0)
        return -ENOMEM;
    return moves_room(&t->keys);
}

static void pin(struct pending *p, struct kfile *f)
{
    if (!f)
        return;
    f->pins++;
    p->fresh[p->n_fresh++] = f;
}

static void set_changed(struct tree *t)
{
    (void)pthread_mutex_lock(&t->now_lock);
    (void)clock_gettime(CLOCK_REALTIME, &t->changed);
    (void)pthread_mutex_unlock(&t->now_lock);
    atomic_store(&t->stale, true);
}

void pending_note(struct tree *t, struct kfile *f, struct kfile *other)
{
    struct pending *p = &t->writer.next;
    pin(p, f);
    pin(p, other);
    p->edits++;
    p->owner = NULL;
    set_changed(t);
}

static void unpin(struct tree *t, struct kfile *f)
{
    f->pins--;
    keys_reap(&t->keys, f);
}

static void unpin_fresh(struct tree *t, size_t n)
{
    struct pending *p = &t->writer.next;
    for (size_t i = 0; i < n; i++)
        unpin(t, p->fresh[i]);
    p->n_fresh -= n;
    if (p->n_fresh)
        memmove(p->fresh, p->fresh + n, p->n_fresh * sizeof(struct kfile *));
}

/* ---- generations ---- */

int tree_adopt(struct tree *t, struct gen *gen)
{
    int r = keys_follow(&t->keys, t->now.gen, gen);
    if (r < 0)
        return r;
    (void)pthread_mutex_lock(&t->now_lock);
    struct gen *old = t->now.gen;
    t->now.gen = gen;
    (void)pthread_mutex_unlock(&t->now_lock);
    gen_unref(old);
    return 0;
}

static int adopt_plan(struct tree *t, struct edit_plan *p, struct err *e)
{
    struct gen *gen;
    struct timespec changed = t->changed;
    int r = tree_gen(t, edit_plan_steal(p), t->generations + 1, &changed, &gen, e);
    if (r < 0)
        return r;
    gen->rank = edit_plan_steal_ranks(p);
    r = tree_adopt(t, gen);
    if (r < 0) {
        gen_unref(gen);
        return err_set(e, r, "no memory for the keys");
    }
    t->generations++;
    return 0;
}

/* What is pending is nothing: the newest generation is the one below. */
static void adopt_base(struct tree *t)
{
    struct gen *base = gen_ref(base_gen(t));
    if (tree_adopt(t, base) < 0) {
        gen_unref(base);
        tree_log(t, LOG_ERR, "no memory to go back to what is on disk");
    }
    atomic_store(&t->stale, false);
}

int tree_freshen_locked(struct tree *t, struct err *e)
{
    struct pending *p = &t->writer.next;
    struct edit_plan plan = EDIT_PLAN_INIT;
    if (!atomic_load(&t->stale))
        return 0;
    if (p->change.n == 0) {
        adopt_base(t);
        return 0;
    }
    int r = edit_plan_make(&p->change, &t->edit, &plan, e);
    if (r == 0)
        r = adopt_plan(t, &plan, e);
    if (r < 0) {
        edit_plan_free(&plan);
        return r;
    }
    edit_plan_free(&p->plan);
    p->plan = plan;
    p->planned = p->change.version;
    atomic_store(&t->stale, false);
    return 0;
}

int tree_freshen(struct tree *t)
{
    struct err e = {0};
    if (!atomic_load(&t->stale))
        return 0;
    (void)pthread_mutex_lock(&t->lock);
    int r = tree_freshen_locked(t, &e);
    (void)pthread_mutex_unlock(&t->lock);
    return r;
}

/* ---- after the disk's answer ---- */

void pending_keep(struct tree *t, size_t ops, size_t fresh, size_t moved)
{
    edit_keep(&t->writer.next.change, ops);
    unpin_fresh(t, fresh);
    for (size_t i = 0; i < moved && i < t->keys.n_moved; i++)
        if (t->keys.moved[i].stage == STAGE_NEW)
            t->keys.moved[i].stage = STAGE_KEPT;
}

void pending_take_back(struct tree *t, const struct err *e)
{
    struct pending *p = &t->writer.next;
    t->writer.losses++;
    edit_undo(&p->change, 0);
    if (p->change.n == 0) {
        p->edits = 0;
        adopt_base(t);
    } else {
        set_changed(t);
    }
    for (size_t i = 0; i < p->n_fresh; i++)
        keys_settle(&t->keys, p->fresh[i], edits_stored(t, p->fresh[i]));
    moves_land(t, STAGE_NEW, false);
    for (size_t i = 0; i < p->n_fresh; i++)
        if (keys_visible(&t->keys, p->fresh[i]->id))
            (void)edits_refused(t, p->fresh[i], e);
    unpin_fresh(t, p->n_fresh);
}

/* ---- after a failure ---- */

/* The file of a key, if there is one. */
static struct kfile *file_of(const struct tree *t, const char *key, size_t n)
{
    char file[TREE_NAME_MAX + 1];
    (void)name_encode(key, n, file);
    return keys_named(&t->keys, file);
}

static void settle_name(struct tree *t, const char *key, size_t n)
{
    struct kfile *f = file_of(t, key, n);
    if (f && f->key)
        keys_settle(&t->keys, f, edits_stored(t, f));
}

/* All keys that a change names: what their files are follows from what is stored now. */
static void settle_change(struct tree *t, const struct edit_change *c)
{
    for (size_t i = 0; i < c->n; i++) {
        const struct edit_slot *s = &c->slot[i];
        settle_name(t, s->name, s->name_len);
        if (s->old != EDIT_NONE) {
            const struct gguf_kv *kv = &c->base->kv[s->old];
            settle_name(t, gguf_key(c->base, kv), kv->key_len);
        }
    }
}

void pending_drop(struct tree *t)
{
    struct pending old = t->writer.next;
    t->writer.losses++;
    pending_init(t);
    t->writer.next.asking = old.asking;
    t->writer.next.waits = old.waits;
    adopt_base(t);
    settle_change(t, &old.change);
    moves_land(t, STAGE_NEW, false);
    moves_land(t, STAGE_KEPT, false);
    for (size_t i = 0; i < old.n_fresh; i++)
        unpin(t, old.fresh[i]);
    pending_free(&old);
}

/* The names of edits that no longer apply, each NUL-terminated. */
static void on_lost(void *arg, const char *name, size_t n)
{
    buf_add(arg, name, n);
    buf_char(arg, '\0');
}

static void report_lost(struct tree *t, const struct buf *lost)
{
    struct err e = {0};
    char shown[SHOW_MAX];
    const char *at = (const char *)lost->data, *end = at ? at + lost->len : NULL;
    (void)err_set(&e, -EIO, "the edit before it failed");
    for (; at && at < end; at += strlen(at) + 1) {
        tree_log(t, LOG_ERR, "%s: not written: %s", show(shown, at, strlen(at)), e.msg);
        t->writer.failed = e.code; /* for requests that wait for them */
        struct kfile *f = file_of(t, at, strlen(at));
        if (f)
            kfile_set_error(f, e.msg);
        settle_name(t, at, strlen(at));
    }
}

void pending_rebase(struct tree *t, const struct edit_change *failed)
{
    struct pending *p = &t->writer.next;
    CLEANUP(buf_free) struct buf lost = BUF_INIT;
    const struct gen *base = base_gen(t);
    t->writer.losses++;
    if (p->change.n == 0) {
        pending_drop(t);
        settle_change(t, failed);
        return;
    }
    int r = edit_rebase(&p->change, gen_own(base), base->rank, on_lost, &lost);
    if (r < 0) {
        tree_log(t, LOG_ERR, "edits that followed are dropped: no memory");
        t->writer.failed = r; /* for requests that wait for them */
        pending_drop(t);
        settle_change(t, failed);
        return;
    }
    adopt_base(t);
    set_changed(t);
    settle_change(t, failed);
    settle_change(t, &p->change);
    report_lost(t, &lost);
    unpin_fresh(t, p->n_fresh);
    moves_stage(&t->keys, STAGE_NEW, STAGE_KEPT);
    p->asked = false;
}

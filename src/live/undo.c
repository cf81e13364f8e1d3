/* SPDX-License-Identifier: MIT */
/*
 * All keys made what they once were, as one edit: see live.h. It is made only while nothing is
 * pending or being written, so that the history has every edit before it.
 */
#include "base/when.h"
#include "base/lock.h"
#include "live/edits.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>

#include "edit/history.h"
#include "edit/restore.h"
#include "live/writer.h"

static bool is_idle(const struct live *l)
{
    return !l->flying && !writer_has_work(l);
}

static int not_idle(struct err *e)
{
    return err_set(e, -EBUSY, "edits are still being written");
}

/* ---- the names of the keys that change ---- */

static int no_memory(struct err *e)
{
    return err_set(e, -ENOMEM, "no memory for the keys");
}

/* Note all keys that the change makes, changes or removes: all are one edit, the last. 0, -ENOMEM, -EBUSY. */
static int note_names(struct live *l, struct err *e)
{
    struct edit_change *c = &l->next.change;
    char shown[SHOW_MAX];
    for (size_t i = 0; i < c->n; i++) {
        const struct edit_slot *s = &c->slot[i];
        if (!s->gone && !s->value) /* it only moves */
            continue;
        struct name *x = names_get_key(&l->names, s->name, s->name_len);
        if (!x || name_keep_spare(&l->names, x) < 0)
            return no_memory(e);
        if (!x->key)
            return err_set(e, -EBUSY, "%s: a helper file has the name of this key",
                           show(shown, s->name, s->name_len));
        x->edit = l->edits;
        x->mtime = when_date();
        name_set_error(&l->names, x, NULL);
    }
    return 0;
}

static void raise_ranks(struct live *l)
{
    const struct edit_change *c = &l->next.change;
    for (size_t i = 0; i < c->n; i++)
        if (!c->slot[i].gone && c->slot[i].rank >= l->ranks)
            l->ranks = c->slot[i].rank + EDIT_RANK_STEP;
}

/* ---- the edit ---- */

/* 1: it is accepted; 0: the keys are those already; -errno. Under the lock. */
static int restore(struct live *l, const struct history_pick *p, struct err *e)
{
    struct batch *next = &l->next;
    int r = edit_restore(&next->change, p->keys, e);
    if (r < 0)
        return r;
    if (edit_keys_id(p->keys) == edit_keys_id(next->change.base)) {
        edit_undo(&next->change, 0);
        return 0;
    }
    l->nul_names |= has_nul_names(p->keys);
    next->restored = p->rec.number;
    r = batch_room(l) < 0 ? no_memory(e) : 0;
    if (r == 0) {
        batch_note(l, NULL, NULL); /* also where keys only move */
        r = note_names(l, e);
    }
    if (r == 0)
        r = batch_freshen(l, e);
    if (r == 0)
        r = batch_check(l, e);
    if (r < 0) {
        batch_drop(l, NULL);
        return r;
    }
    raise_ranks(l);
    batch_follow(l, &next->change);
    return 1;
}

/* It is accepted: what is to be said once it is written, and until then. */
static void say_begun(struct live *l, const struct history_pick *p, const struct gguf *from)
{
    CLEANUP(buf_free) struct buf what = BUF_INIT;
    history_describe(from, p->keys, &what);
    (void)snprintf(l->undone, sizeof(l->undone), "back to state %llu: %.*s%s%s",
                   (unsigned long long)p->rec.number, (int)what.len,
                   what.data ? (const char *)what.data : "", p->fits ? "" : " (",
                   p->fits ? "" : HISTORY_FOREIGN ")");
    (void)snprintf(l->undo, sizeof(l->undo), "it is not written yet");
}

void undo_end(struct live *l, const struct batch *b, const struct err *why)
{
    assert(lock_held(&l->lock));
    if (!b->restored)
        return;
    (void)snprintf(l->undo, sizeof(l->undo), "%s", why ? why->msg : l->undone);
    if (!why)
        live_log(l, LOG_NOTICE, "undo, %s", l->undo);
}

/* Under the lock. */
static int undo(struct live *l, const struct snapshot *seen, const struct history_pick *p,
                struct live_wait *w, struct err *e)
{
    if (!is_idle(l) || l->disk != seen)
        return not_idle(e);
    int r = restore(l, p, e);
    if (r < 0)
        return r;
    if (r == 0) {
        (void)snprintf(l->undo, sizeof(l->undo), "the keys are those of state %llu already",
                       (unsigned long long)p->rec.number);
        return 0;
    }
    say_begun(l, p, snapshot_own(seen));
    return writer_sync(l, &(struct promise){0}, l->edits, w);
}

/* What the disk holds, if nothing else is to be written: a reference; or NULL. */
static struct snapshot *disk_snapshot(struct live *l)
{
    lock_take(&l->lock);
    struct snapshot *g = is_idle(l) ? snapshot_ref(l->disk) : NULL;
    lock_drop(&l->lock);
    return g;
}

static int no_history(struct err *e)
{
    return err_set(e, -EOPNOTSUPP, "no history is kept (-o history=0)");
}

static void close_history(struct history *h)
{
    history_close(h);
}

/* What the folder of histories refuses must not be taken for a request that the kernel refused. */
static int of_folder(int r)
{
    return r == -EPERM || r == -EACCES || r == -EROFS ? -EIO : r;
}

static int pick(struct live *l, uint64_t number, const struct snapshot *seen,
                struct history_pick *ret, struct err *e)
{
    CLEANUP(close_history) struct history h = HISTORY_INIT;
    if (!l->opt.history)
        return no_history(e);
    int r = history_job_look(l->opt.history, &h, e);
    if (r == 0)
        r = history_pick(&h, number, snapshot_own(seen), ret, e);
    return of_folder(r);
}

int live_undo(struct live *l, uint64_t number, struct live_wait *w)
{
    struct history_pick p = HISTORY_PICK_INIT;
    struct err e = {0};
    struct snapshot *seen = disk_snapshot(l);
    int r = seen ? pick(l, number, seen, &p, &e) : not_idle(&e);
    lock_take(&l->lock);
    if (r == 0)
        r = undo(l, seen, &p, w, &e);
    if (r < 0)
        (void)snprintf(l->undo, sizeof(l->undo), "%s", e.msg);
    lock_drop(&l->lock);
    snapshot_unref(seen);
    history_pick_free(&p);
    return r;
}

int live_undo_said(struct live *l, struct buf *out)
{
    lock_take(&l->lock);
    buf_str(out, l->undo);
    lock_drop(&l->lock);
    return buf_error(out);
}

int live_history(struct live *l, struct buf *out, struct err *e)
{
    CLEANUP(close_history) struct history h = HISTORY_INIT;
    if (!l->opt.history)
        return no_history(e);
    lock_take(&l->lock);
    struct snapshot *disk = snapshot_ref(l->disk);
    lock_drop(&l->lock);
    int r = history_job_look(l->opt.history, &h, e);
    if (r == 0)
        r = history_text(&h, snapshot_own(disk), out, e);
    snapshot_unref(disk);
    return r;
}

int live_history_clear(struct live *l)
{
    CLEANUP(close_history) struct history h = HISTORY_INIT;
    size_t n;
    if (!l->opt.history)
        return -EOPNOTSUPP;
    int r = history_job_look(l->opt.history, &h, NULL);
    if (r == 0)
        r = history_clear(&h, &n, NULL);
    return of_folder(r);
}

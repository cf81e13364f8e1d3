/* SPDX-License-Identifier: MIT */
/* From accepted edits to snapshots and files (overlay.h). */
#include "live/overlay.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "live/objects.h"
#include "live/tensors.h"
#include "live/value.h"

/* ---- what is pending ---- */

static void change_begin(struct live *l, const struct snapshot *g, struct edit_change *c)
{
    const struct edit_base on = {
        .g = snapshot_own(g), .ids = g->ids, .numbers = &l->newest->numbers};
    edit_change_init(c, &on);
}

void overlay_begin(struct live *l)
{
    change_begin(l, l->disk.snap, &l->pending);
}

size_t overlay_removals(const struct live *l)
{
    return l->n_gone + l->tensors.n_gone - l->tensors.n_kept;
}

bool overlay_is_pending(const struct live *l)
{
    return overlay_removals(l) || l->unsettled || !edit_change_is_empty(&l->pending);
}

/* Add the removal of the keys and tensors that are gone. Returns 0 or -ENOMEM. */
static int remove_gone(struct live *l, struct edit_change *c, struct err *e)
{
    int r = l->tensors.n_gone ? tensors_remove(l, c, e) : 0;
    for (const struct name *x = l->first; x && l->n_gone && r >= 0; x = x->next)
        if (x->gone && edit_find(c, x->key, x->key_len, &(const struct edit_slot *){0}))
            r = edit_remove(c, x->key, x->key_len, e);
    return r < 0 ? r : 0;
}

/* ---- states ---- */

/* Make the state that a plan for `base` leads to; was: the accepted state. Call without the lock. */
static int make_state(struct live *l, const struct view *base, const struct snapshot *was,
                      const struct edit_plan *p, struct view *ret, struct err *e)
{
    const struct timespec changed = newest_changed(l->newest);
    const uint32_t number = atomic_fetch_add(&l->shown, 1) + 1;
    struct snapshot *g;
    struct store *s = NULL;
    int r = newest_make(l->newest, REF(p->next), base->snap->shard, number, &changed, &g, e);
    if (r < 0)
        return r;
    r = edit_plan_tensors(p, base, was, &g->ids, &s);
    *ret = (struct view){.snap = g, .store = s};
    if (r == 0)
        snapshot_keep_sizes(was, g);
    else
        view_free(ret);
    return err_sys(e, r, "cannot show the edit");
}

int overlay_freshen(struct live *l, struct err *e)
{
    const struct view accepted = {l->state, l->over, NULL};
    const uint64_t changes = l->changes;
    struct edit_plan p = EDIT_PLAN_INIT;
    struct edit_change c;
    assert(lock_held(&l->lock));
    if (l->as_shown == changes)
        return 0;
    struct view state = view_ref(&accepted), v = VIEW_INIT;
    change_begin(l, l->state, &c);
    int r = remove_gone(l, &c, e);
    lock_drop(&l->lock);
    if (r == 0 && edit_change_is_empty(&c))
        v = view_ref(&state);
    else if (r == 0)
        r = edit_plan_make(&c, &l->opt.edit, &p, e);
    if (r == 0 && !v.snap)
        r = make_state(l, &state, state.snap, &p, &v, e);
    lock_take(&l->lock);
    if (r == 0 && changes > l->as_shown) { /* else a newer one is shown */
        v = newest_put_view(l->newest, v.snap, v.store);
        l->as_shown = changes;
    }
    lock_drop(&l->lock);
    edit_plan_free(&p);
    edit_change_free(&c);
    view_free(&v);
    view_free(&state);
    lock_take(&l->lock);
    return r;
}

/* ---- what the log says ---- */

void overlay_notes(const struct live *l, bool edits, bool gone, struct buf *out)
{
    char shown[SHOW_MAX];
    struct edit_tensor t;
    for (size_t i = 0; edits && i < l->pending.n; i++) {
        const struct edit_slot *s = l->pending.slot[i];
        if (s->gone && s->old == EDIT_NONE)
            continue;
        buf_str(out, s->kind == EDIT_TENSOR ? IN_TENSORS : IN_KEYS);
        edit_describe(&l->pending, s, out);
        buf_char(out, '\0');
    }
    for (const struct name *x = l->first; gone && x && l->n_gone; x = x->next)
        if (x->gone && edit_find(&l->pending, x->key, x->key_len, &(const struct edit_slot *){0}))
            buf_printf(out, IN_KEYS "%s: removed%c", show(shown, x->key, x->key_len), '\0');
    for (struct link *k = NULL;
         gone && l->tensors.n_gone && (k = table_each(&l->tensors.by_number, k));) {
        const struct object *o = (const struct object *)k;
        if (o->gone && !o->kept && edit_tensor_numbered(&l->pending, o->number, &t))
            buf_printf(out, IN_TENSORS "%s: removed%c", show(shown, t.name, t.name_len), '\0');
    }
    if (buf_error(out)) /* whole notes only */
        out->len = 0;
}

/* ---- writing ---- */

/* An edit that is being accepted. */
struct accept {
    struct live *l;
    struct edit_plan p;
    bool may;   /* it may be written now */
    bool sure;  /* however long that takes */
    bool write; /* it is written now */
    bool mixed; /* with removals */
    bool left;  /* without those that wait */
    bool tried; /* the write began */
    struct edit_result result;
    long long begun, reported; /* ms */
    struct buf notes;          /* what it does, for the log */
};

static void on_copied(uint64_t done, uint64_t total, void *arg)
{
    struct accept *a = arg;
    const long long s = (when_ms() - a->begun) / 1000;
    if (s <= a->reported)
        return;
    a->reported = s;
    live_log(a->l, LOG_INFO, "copying: %llu of %llu MiB", (unsigned long long)(done >> 20),
             (unsigned long long)(total >> 20));
}

/* Log the outcome for each key. why: why it was not written, or NULL. */
static void log_notes(const struct accept *a, const struct err *why)
{
    const char *at = buf_text(&a->notes), *end = buf_text_end(&a->notes);
    for (; at && at < end; at += strlen(at) + 1)
        if (why)
            live_log(a->l, LOG_ERR, a->result.unfinished ? "%s: %s" : "%s: not written: %s", at,
                     why->msg);
        else
            live_log(a->l, LOG_INFO, "%s; %s, %lld ms", at, edit_strategy_name(a->result.strategy),
                     when_ms() - a->begun);
}

/* Make a store of the new file for readers. If the file cannot be mapped, readers continue with
 * their store, which shows the same bytes; the next edit tries to map it again. */
static struct store *store_written(struct live *l, struct snapshot *g, const struct edit_plan *p,
                                   bool replaced)
{
    struct store *s = NULL;
    struct err e = {0};
    const bool tensors = p->tensor && !p->same;
    l->unmapped |= replaced || p->changed > 0;
    if ((l->unmapped || tensors) &&
        newest_make_store(g, l->disk.store->file, l->unmapped ? l->file->fd : -1, &s, &e) < 0)
        live_log(l, LOG_WARNING, "the old file is kept open for readers: %s", e.msg);
    l->unmapped &= !s;
    return s;
}

/* Record what takes the edit back, before and after it is written. If that is not possible, log it
 * once. */
static void put_on_record(struct live *l, const struct snapshot *g, bool done)
{
    const struct history_edit edit = {&l->pending, snapshot_own(g), l->restores, when_date().tv_sec,
                                      done};
    struct err e = {0};
    if (!l->history)
        return;
    if (done)
        l->history->ended = edit.now;
    (void)history_append(l->history, &edit, &e);
    if (e.code && !l->unrecorded)
        live_log(l, LOG_WARNING, "history: the keys before this edit are not kept: %s", e.msg);
    l->unrecorded |= e.code != 0;
}

/* Write the plan, whose state is g. Call without the lock. Gives g the new store, unless readers
 * keep theirs. */
static int write_plan(struct accept *a, struct view *g, struct err *e)
{
    struct live *l = a->l;
    const struct edit_hooks hooks = {.progress = on_copied, .arg = a};
    struct store *s = NULL;
    a->tried = true;
    a->begun = when_ms();
    a->notes.len = 0;
    if (!a->p.same)
        overlay_notes(l, true, false, &a->notes);
    a->result = (struct edit_result){.old_fd = -1};
    put_on_record(l, g->snap, false);
    int r = edit_commit(l->file, &a->p, &l->opt.edit, &hooks, &a->result, e);
    if (r == 0 || a->result.unfinished)
        put_on_record(l, g->snap, true);
    const bool replaced = a->result.old_fd >= 0;
    if (replaced)
        (void)close(a->result.old_fd);
    if (r == 0)
        s = store_written(l, g->snap, &a->p, replaced);
    else if (a->result.unfinished) /* the file may be half written; g's store does not show that */
        l->unmapped = true;
    if (s) {
        store_unref(g->store);
        g->store = s;
    }
    if (!a->mixed || r == 0 || a->result.unfinished) /* else it may go without the removals */
        log_notes(a, r < 0 ? e : NULL);
    return r;
}

/* The state g is accepted. written: it is on disk; left: but for removals that waited already. */
static void state_accepted(struct live *l, const struct view *g, bool written, bool left)
{
    const bool mapped = written && g->store != l->disk.store;
    l->old[0] = (struct view){.snap = l->state, .store = l->over};
    l->state = REF(g->snap);
    l->over = REF(g->store);
    if (written) {
        l->old[1] = l->disk;
        l->disk = view_ref(g);
        edit_change_free(&l->pending);
        overlay_begin(l);
        l->queue.due.tv_sec = 0;
        if (!left) /* else they have waited since then */
            l->queue.first_at.tv_sec = 0;
        l->trouble = (struct err){0};
    } else {
        edit_keep(&l->pending, edit_mark(&l->pending));
        queue_later(l, false);
    }
    names_removed(l);
    tensors_removed(l);
    l->changes++;
    if (!overlay_removals(l))
        l->unremoved = (struct err){0};
    else if (written) /* removed while it was written */
        queue_later(l, true);
    if (!l->n_gone && !l->tensors.n_gone) {
        struct view v = view_ref(g);
        l->old[2] = newest_put_view(l->newest, v.snap, v.store);
        l->as_shown = l->changes;
    }
    if (mapped)
        newest_drop_file(l->newest);
}

void overlay_retire(struct live *l)
{
    for (size_t i = 0; i < COUNT(l->old); i++)
        view_free(&l->old[i]);
}

/* ---- accepting ---- */

/* Plan what is pending, and ask the disk whether the plan can be written, and whether that copies
 * little. Call without the lock. */
static int plan(struct live *l, struct accept *a, struct err *e)
{
    enum edit_strategy how;
    uint64_t copies = 0;
    edit_plan_free(&a->p);
    overlay_retire(l); /* a request may have two edits accepted */
    int r = edit_plan_make(&l->pending, &l->opt.edit, &a->p, e);
    if (r == 0)
        r = edit_way(l->file, &a->p, &l->opt.edit, &how, &copies, e);
    a->write = a->may && (a->sure || copies <= EDIT_CHEAP);
    return r;
}

/* Plan what is pending, and write it or show it; but neither if removals are part of it and it is not
 * to be written now. Drops the lock: only this thread changes what is pending. */
static int carry_out(struct live *l, struct accept *a, bool *done, struct err *e)
{
    CLEANUP(view_free) struct view g = VIEW_INIT;
    lock_drop(&l->lock);
    int r = plan(l, a, e);
    const bool goes = r == 0 && (a->write || !a->mixed);
    if (goes && !a->write) /* it has been accepted, and waits */
        r = edit_check_drafts(l->file, &a->p, true, e);
    if (goes && r == 0) {
        newest_touch(l->newest);
        r = make_state(l, &l->disk, l->state, &a->p, &g, e);
    }
    if (goes && r == 0 && a->write)
        r = write_plan(a, &g, e);
    lock_take(&l->lock);
    l->unsettled = l->file->unfinished || l->file->unsynced;
    *done = goes && (r == 0 || a->result.unfinished);
    if (*done)
        state_accepted(l, &g, a->write, a->left);
    if (goes && r < 0 && l->unsettled)
        l->trouble = *e;
    return r;
}

/* Carry out what is pending with the removals; or without, if those copy too much, or cannot be made. If
 * they never can (relayout=inplace), they are taken back. */
static int carry_out_removals(struct live *l, struct accept *a, bool *done, struct err *e)
{
    const size_t mark = edit_mark(&l->pending);
    int r = remove_gone(l, &l->pending, e);
    a->mixed = edit_mark(&l->pending) > mark;
    if (r == 0)
        r = carry_out(l, a, done, e);
    const bool fails = r < 0 && !*done && a->mixed && !l->unsettled;
    const struct err why = fails ? *e : (struct err){0};
    if (*done || !a->mixed || (r < 0 && !fails)) {
        l->unremoved = why;
        return r;
    }
    edit_undo(&l->pending, mark);
    a->mixed = a->tried = false;
    a->left = true;
    const bool alone = edit_change_is_empty(&l->pending);
    a->may = fails || !alone; /* else the removals are collected */
    if (!fails || !alone)
        r = carry_out(l, a, done, e);
    if (fails && !alone && r < 0) /* the fault may be the edit's */
        return r;
    if (fails && why.code != -EOPNOTSUPP && !l->unremoved.code)
        live_log(l, LOG_ERR, "what was removed stays in the file for now: %s", why.msg);
    l->unremoved = why;
    if (why.code == -EOPNOTSUPP)
        names_spare_all(l, &why);
    return r;
}

/* Finish what the last edit left undone, if anything. */
static int finish_last(struct live *l, struct err *e)
{
    if (!l->unsettled)
        return 0;
    l->busy = true;
    lock_drop(&l->lock);
    int r = edit_settle(l->file, e);
    lock_take(&l->lock);
    l->busy = false;
    l->unsettled = l->file->unfinished || l->file->unsynced;
    queue_spared(l);
    if (r == 0 || l->unsettled)
        l->trouble = r == 0 ? (struct err){0} : *e;
    if (r == 0 && !edit_change_is_empty(&l->pending)) /* its turn comes now, or by time */
        queue_later(l, false);
    return r;
}

int overlay_accept(struct live *l, size_t mark, enum when when, bool *done, struct err *e)
{
    const bool edit = edit_mark(&l->pending) > mark;
    const bool empty = !overlay_removals(l) && edit_change_is_empty(&l->pending);
    const enum live_commit mode = l->opt.commit;
    struct accept a = {.l = l};
    assert(lock_held(&l->lock) && !l->busy);
    *done = false;
    a.sure = when == WHEN_NOW || (when == WHEN_MODE && mode == LIVE_COMMIT_CLOSE) ||
             (when == WHEN_DUE && (mode != LIVE_COMMIT_AUTO || !l->queue.removes ||
                                   !edit_change_is_empty(&l->pending)));
    a.may = a.sure || mode != LIVE_COMMIT_SYNC;
    int r = a.may ? finish_last(l, e) : 0;
    if (empty)
        return r;
    l->busy = true;
    if (r == 0)
        r = a.may && overlay_removals(l) ? carry_out_removals(l, &a, done, e)
                                         : carry_out(l, &a, done, e);
    edit_plan_free(&a.p);
    buf_free(&a.notes);
    l->busy = false;
    names_spare_all(l, NULL);
    if (*done && when == WHEN_NOW && l->unremoved.code) { /* 0 would say that all is written */
        *e = l->unremoved;
        return e->code;
    }
    if (*done)
        return r;
    edit_undo(&l->pending, mark);
    const bool others =
        (a.mixed && overlay_removals(l)) || l->unsettled || !edit_change_is_empty(&l->pending);
    queue_spared(l);
    if (!l->queue.due.tv_sec) /* time does not try again */
        l->queue.first_at.tv_sec = 0;
    if (!others || (edit && !a.tried)) /* the fault may be this edit's */
        return r;
    if (!a.tried && !l->trouble.code) /* time does not try again */
        live_log(l, LOG_ERR, "edits wait, since they cannot be written: %s", e->msg);
    l->trouble = *e;
    l->queue.due.tv_sec = l->queue.first_at.tv_sec = 0;
    return r;
}

/* ---- before an edit ---- */

void overlay_ready(struct live *l, bool fully, struct err *e)
{
    struct edit_disk disk;
    *e = (struct err){0};
    lock_take(&l->lock);
    const bool asks = l->started && !l->busy; /* else the file is the worker's */
    struct edit_file f = asks ? *l->file : (struct edit_file){0};
    struct store *s = REF(l->disk.store);
    lock_drop(&l->lock);
    f.fd = s->file[0]->fd;
    if (asks &&
        (fully ? edit_look(&f, &l->opt.edit, &disk, e) : edit_file_fresh(&f, e)) == -ESTALE) {
        LOCKED(&l->lock);
        if (l->busy || !edit_id_equal(&l->file->id, &f.id)) /* by an edit of this mount */
            *e = (struct err){0};
    }
    store_unref(s);
}

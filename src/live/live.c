/* SPDX-License-Identifier: MIT */
/* Begins and ends editing, tells what is pending, and restores states from the history (live.h). */
#include "live/live.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "live/meta.h"
#include "live/objects.h"
#include "live/overlay.h"
#include "live/tensors.h"
#include "live/views.h"

/* ---- what did not reach the file ---- */

struct notes {
    const char *before;
    struct buf *out;
};

static void add_note(const struct notes *to, const char *folder, const char *name, const char *why)
{
    buf_printf(to->out, "%s%s", to->before, folder);
    show_all(to->out, name, strlen(name));
    buf_printf(to->out, ": %s\n", why);
}

static void add_tensor_note(const char *name, size_t n, const char *why, const struct notes *to)
{
    char file[TREE_NAME_MAX + 1];
    (void)name_encode(name, n, file);
    add_note(to, IN_TENSORS, file, why);
}

static void add_refused(const struct live *l, bool fresh, const struct notes *out)
{
    for (struct link *k = NULL; l->n_errors && (k = table_each(&l->tensors.by_number, k));) {
        const struct object *o = (const struct object *)k;
        size_t n;
        const char *name = o->error && (fresh || !o->fresh) ? object_name(l, o, &n) : NULL;
        if (name)
            add_tensor_note(name, n, o->error, out);
    }
    for (const struct name *x = l->first; x && l->n_errors; x = x->next)
        if (x->error && !x->gone)
            add_note(out, IN_KEYS, x->text, x->error);
}

/* Add a line for each key and tensor that is pending; all: or else that is removed. */
static void add_pending(const struct live *l, bool all, const struct notes *to)
{
    CLEANUP(buf_free) struct buf pending = BUF_INIT;
    const struct err *why = l->trouble.code ? &l->trouble : &l->unremoved;
    overlay_notes(l, all, true, &pending);
    const char *at = buf_text(&pending), *end = buf_text_end(&pending);
    for (; at && at < end; at += strlen(at) + 1)
        buf_printf(to->out, "%s%s: not written%s%s\n", to->before, at, why->code ? ": " : "",
                   why->msg);
    if (l->unsettled && pending.len == 0) /* its keys are not known any more */
        add_note(to, "", "the last edit", why->msg);
}

/* Add a line for whatever ends with the mount: helpers that a person may have meant to keep, tensors
 * that are not complete, and what is pending. */
static void add_lost(const struct live *l, const struct notes *out)
{
    for (const struct name *x = l->first; x; x = x->next)
        if (x->file && !x->key && !name_is_fleeting(x->text))
            add_note(out, IN_KEYS, x->text, "it is not a key");
    const struct object *o;
    TAILQ_FOREACH (o, &l->tensors.fresh, in_fresh)
        add_tensor_note(o->name, o->name_len, o->error ? o->error : TENSOR_INCOMPLETE, out);
    add_pending(l, true, out);
}

void live_notes(struct live *l, bool lost, const char *before, struct buf *out)
{
    const struct notes to = {before, out};
    LOCKED(&l->lock);
    views_expire(l, false);
    add_refused(l, !lost, &to);
    if (lost)
        add_lost(l, &to);
    else if (l->trouble.code || l->unremoved.code)
        add_pending(l, l->trouble.code, &to);
}

/* ---- beginning and end ---- */

int live_open(struct newest *n, struct edit_file *file, const struct live_options *o,
              struct live **ret)
{
    struct live *l = calloc(1, sizeof(*l));
    if (!l)
        return -ENOMEM;
    l->opt = *o;
    l->newest = n;
    l->file = file;
    l->disk = (struct view){.snap = REF(n->view.snap), .store = REF(n->view.store)};
    l->state = REF(n->view.snap);
    l->over = REF(n->view.store);
    l->logs = (struct logs){.f = file, .lock = &l->lock};
    l->shown = n->view.snap->number;
    l->born = REF(snapshot_own(l->state));
    l->given = l->born->n_kv;
    TAILQ_INIT(&l->queue.waiting);
    TAILQ_INIT(&l->tensors.fresh);
    lock_init(&l->lock);
    l->queue.rest = (struct cond)COND_INIT;
    overlay_begin(l);
    *ret = l;
    return 0;
}

int live_start(struct live *l, struct history *history, struct err *e)
{
    int r = queue_start(l);
    lock_take(&l->lock);
    l->history = history;
    l->started = r == 0;
    lock_drop(&l->lock);
    return err_sys(e, r, "cannot start a thread");
}

void live_abandon(struct live *l)
{
    LOCKED(&l->lock);
    l->ending = true;
}

void live_hurry(struct live *l)
{
    LOCKED(&l->lock);
    if (!l->started || l->stop)
        return;
    (void)queue_sync(l, true, NULL);
    l->stop = true;
    if (l->queue.running && l->queue.running->converts)
        atomic_store(&l->queue.cancel, true);
}

int live_finish(struct live *l)
{
    if (!l->started)
        return 0;
    live_hurry(l);
    queue_stop(l);
    CLEANUP(buf_free) struct buf notes = BUF_INIT;
    LOCKED(&l->lock);
    l->started = false;
    views_expire(l, true);
    add_lost(l, &(struct notes){"not saved: ", &notes});
    buf_char(&notes, '\0');
    for (char *at = buf_error(&notes) ? NULL : (char *)notes.data, *line;
         (line = strsep(&at, "\n")) && *line;)
        live_log(l, LOG_WARNING, "%s", line);
    const int why = l->trouble.code ? l->trouble.code : l->unremoved.code;
    return !overlay_is_pending(l) ? 0 : why ? why : -EIO;
}

void live_close(struct live *l)
{
    if (!l)
        return;
    assert(!l->started && TAILQ_EMPTY(&l->queue.waiting)); /* live_finish() has been called */
    overlay_retire(l);
    names_close(l);
    objects_close(l);
    edit_change_free(&l->pending);
    view_free(&l->disk);
    snapshot_unref(l->state);
    gguf_free(l->born);
    store_unref(l->over);
    lock_destroy(&l->lock);
    free(l);
}

void live_interrupt(struct live *l, const void *request)
{
    queue_interrupt(l, request);
}

/* ---- the newest state ---- */

int live_freshen(struct live *l, struct view *ret)
{
    struct err e = {0};
    lock_take(&l->lock);
    const int r = overlay_freshen(l, &e);
    lock_drop(&l->lock);
    if (ret)
        *ret = newest_view(l->newest);
    return r;
}

struct live_counts live_count(struct live *l)
{
    struct err e;
    overlay_ready(l, false, &e);
    LOCKED(&l->lock);
    views_expire(l, false);
    return (struct live_counts){.pending = edit_change_count(&l->pending) + overlay_removals(l) +
                                           l->unsettled,
                                .refused = l->n_errors,
                                .changed = e.code == -ESTALE};
}

bool live_is_file(struct live *l, const struct stat *st)
{
    LOCKED(&l->lock);
    return l->started && !l->busy && l->file->id.dev == st->st_dev && l->file->id.ino == st->st_ino;
}

bool live_idle(struct live *l)
{
    LOCKED(&l->lock);
    return !(overlay_is_pending(l) || l->queue.working || !TAILQ_EMPTY(&l->tensors.fresh));
}

/* ---- undo ---- */

/* Write what is pending, which belongs to the state before, and bring the keys of the state back. */
static int accept_undo(struct live *l, struct request *q, struct err *e)
{
    struct history_pick p = HISTORY_PICK_INIT;
    bool done;
    int r = overlay_accept(l, edit_mark(&l->pending), WHEN_NOW, &done, e);
    if (r < 0 && r == l->unremoved.code && !q->number && edit_change_is_empty(&l->pending)) {
        names_spare_all(l, &(struct err){0});
        tensors_spare_all(l);
        (void)snprintf(l->undo, sizeof(l->undo), "unwritten removals are taken back");
        return 0;
    }
    if (r < 0)
        return err_prefix(e, r, "edits before it could not be written");
    lock_drop(&l->lock); /* only this thread changes the state on disk */
    r = history_pick(l->history, q->number, snapshot_own(l->disk.snap), &p, e);
    lock_take(&l->lock);
    if (r == 0)
        r = edit_restore(&l->pending, p.keys, e);
    if (r == 0) {
        (void)snprintf(l->undo, sizeof(l->undo), "%.*s", (int)p.said.len, buf_text(&p.said));
        l->restores = p.state;
    }
    history_pick_free(&p);
    return r < 0 ? r : !edit_change_is_empty(&l->pending);
}

/* True if the last edit, which was written, changed this key. */
static bool has_changed(const struct live *l, const struct name *x)
{
    const struct gguf *was = l->old[0].snap->gguf, *is = l->state->gguf;
    const uint32_t a = gguf_find_key(was, x->key, x->key_len);
    const uint32_t b = gguf_find_key(is, x->key, x->key_len);
    return a == UINT32_MAX || b == UINT32_MAX ? a != b : !gguf_same_value(was, a, is, b);
}

static int undone(struct live *l, struct request *q, int r, const struct err *e)
{
    l->restores = 0;
    if (r < 0)
        (void)snprintf(l->undo, sizeof(l->undo), "%s%.480s", q->done ? "undone, but " : "", e->msg);
    if (r < 0 && !q->done)
        return r;
    for (struct name *x = l->first, *next; x && q->changed; x = next) {
        next = x->next;
        if (!x->key || !has_changed(l, x))
            continue;
        x->mtime = when_date();
        name_set_error(l, x, NULL);
        if (!x->gone) /* else it was removed meanwhile */
            name_spare(l, x);
        if (x->file) {
            draft_accepted(x->file, UINT64_MAX, NULL);
            x->file->typed.set &= x->file->state != DRAFT_NONE; /* no text was to come */
            file_settle(l, x->file);
        }
    }
    if (q->changed)
        live_log(l, LOG_NOTICE, "undo, %s", l->undo);
    return r;
}

int live_undo(struct live *l, uint64_t number, struct live_wait *w)
{
    LOCKED(&l->lock);
    if (!l->history) {
        (void)snprintf(l->undo, sizeof(l->undo), "no history is kept (-o history=0)");
        return -EOPNOTSUPP;
    }
    struct request *q = request_new(l, NULL);
    if (!q)
        return -ENOMEM;
    q->number = number;
    q->when = WHEN_NOW;
    q->apply = accept_undo;
    q->end = undone;
    return queue_add(l, q, w);
}

int live_undo_said(struct live *l, struct buf *out)
{
    LOCKED(&l->lock);
    buf_str(out, l->undo);
    return buf_error(out);
}

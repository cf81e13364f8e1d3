/* SPDX-License-Identifier: MIT */
/* Begins and ends editing, and tells what is pending (live.h). */
#include "live/live.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "live/meta.h"
#include "live/objects.h"
#include "live/overlay.h"
#include "live/tensors.h"

/* ---- what did not reach the file ---- */

void unsaved_add(struct buf *notes, const char *folder, const char *name, const char *why)
{
    const size_t len = notes->len;
    buf_str(notes, folder);
    buf_add(notes, name, strlen(name) + 1);
    buf_add(notes, why, strlen(why) + 1);
    if (buf_error(notes)) /* add complete notes only */
        notes->len = len;
}

bool unsaved_next(const struct buf *notes, struct note *n)
{
    if (n->next >= notes->len)
        return false;
    n->path = (const char *)notes->data + n->next;
    n->why = n->path + strlen(n->path) + 1;
    n->next += (size_t)(n->why - n->path) + strlen(n->why) + 1;
    return true;
}

void unsaved_lines(const struct buf *notes, struct buf *out)
{
    for (struct note n = {0}; unsaved_next(notes, &n);)
        buf_printf(out, "%s: %s\n", n.path, n.why);
}

/* Add a note for a tensor. */
static void add_tensor(const char *name, size_t n, const char *why, struct buf *out)
{
    char file[TREE_NAME_MAX + 1];
    (void)name_encode(name, n, file);
    unsaved_add(out, UNSAVED_TENSOR, file, why);
}

static void add_refused(const struct live *l, bool fresh, struct buf *out)
{
    for (struct link *k = NULL; l->n_errors && (k = table_each(&l->tensors.by_number, k));) {
        const struct object *o = (const struct object *)k;
        CLEANUP(tensor_base_free) struct tensor_base b = {0};
        if (!o->error || (o->fresh && !fresh))
            continue;
        tensor_base_get(l, o->number, &b);
        if (o->fresh)
            add_tensor(o->name, o->name_len, o->error, out);
        else if (b.t)
            add_tensor(gguf_name(b.v.snap->gguf, b.t), b.t->name_len, o->error, out);
    }
    for (const struct name *x = l->first; x && l->n_errors; x = x->next)
        if (x->error)
            unsaved_add(out, "", x->text, x->error);
}

/* Add a note for each key and tensor that is pending. */
static void add_pending(const struct live *l, struct buf *out)
{
    CLEANUP(buf_free) struct buf pending = BUF_INIT;
    overlay_notes(l, &pending);
    const char *at = buf_text(&pending), *end = buf_text_end(&pending);
    for (; at && at < end; at += strlen(at) + 1)
        unsaved_add(out, "", at, l->trouble.code ? l->trouble.msg : "not written");
}

/* Add a note for whatever ends with the mount: helpers that a person may have meant to keep, tensors
 * that are not complete, and what is pending. */
static void add_lost(const struct live *l, struct buf *out)
{
    for (const struct name *x = l->first; x; x = x->next)
        if (x->file && x->file->kind == FILE_HELPER && !name_is_fleeting(x->text))
            unsaved_add(out, "", x->text, "it is not a key");
    for (size_t i = 0; i < l->tensors.n_fresh; i++) {
        const struct object *o = l->tensors.fresh[i];
        add_tensor(o->name, o->name_len, o->error ? o->error : TENSOR_INCOMPLETE, out);
    }
    add_pending(l, out);
}

void live_refused(struct live *l, struct buf *out)
{
    LOCKED(&l->lock);
    add_refused(l, true, out);
}

void live_unsaved(struct live *l, struct buf *out)
{
    LOCKED(&l->lock);
    add_refused(l, false, out);
    add_lost(l, out);
}

void live_trouble(struct live *l, struct buf *out)
{
    LOCKED(&l->lock);
    if (l->trouble.code)
        add_pending(l, out);
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
    l->disk = (struct view){.snap = snapshot_ref(n->view.snap), .store = store_ref(n->view.store)};
    l->state = snapshot_ref(n->view.snap);
    l->over = store_ref(n->view.store);
    l->logs = (struct logs){.f = file, .lock = &l->lock};
    l->shown = n->view.snap->number;
    l->born = gguf_ref(snapshot_own(l->state));
    l->given = l->born->n_kv;
    l->queue.end = &l->queue.first;
    lock_init(&l->lock);
    cond_init(&l->queue.rest);
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
    live_end_made(l);
    (void)queue_sync(l, tensors_hurry(l), NULL);
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
    char shown[SHOW_MAX];
    LOCKED(&l->lock);
    l->started = false;
    if (overlay_is_pending(l) && !l->trouble.code) { /* live_hurry() had no memory or no thread */
        struct err e = {0};
        bool done;
        (void)overlay_accept(l, edit_mark(&l->pending), WHEN_NOW, &done, &e);
    }
    add_lost(l, &notes);
    for (struct note n = {0}; unsaved_next(&notes, &n);)
        live_log(l, LOG_WARNING, "%s: not saved: %s", show(shown, n.path, strlen(n.path)), n.why);
    return !overlay_is_pending(l) ? 0 : l->trouble.code ? l->trouble.code : -EIO;
}

void live_close(struct live *l)
{
    if (!l)
        return;
    assert(!l->started && !l->queue.first); /* live_finish() has been called */
    overlay_retire(l);
    names_close(l);
    objects_close(l);
    edit_change_free(&l->pending);
    view_free(&l->disk);
    snapshot_unref(l->state);
    gguf_free(l->born);
    store_unref(l->over);
    cond_destroy(&l->queue.rest);
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

/* True if another program changed the model. Accesses the disk. */
static bool is_changed(struct live *l)
{
    struct edit_file f;
    lock_take(&l->lock);
    const bool asks = l->started && !l->busy; /* else the file is the worker's */
    if (asks)
        f = *l->file;
    lock_drop(&l->lock);
    if (!asks)
        return false;
    f.fd = -1;
    if (edit_file_fresh(&f, NULL) != -ESTALE)
        return false;
    LOCKED(&l->lock);
    return !l->busy && edit_id_equal(&f.id, &l->file->id);
}

static size_t accepted(const struct live *l)
{
    return edit_change_count(&l->pending, LIVE_COUNT_MOST) + l->n_gone + l->tensors.n_gone;
}

struct live_counts live_count(struct live *l)
{
    lock_take(&l->lock);
    struct live_counts c = {.pending = accepted(l), .refused = l->n_errors};
    lock_drop(&l->lock);
    c.changed = is_changed(l);
    return c;
}

bool live_idle(struct live *l, bool helpers)
{
    LOCKED(&l->lock);
    bool kept = overlay_is_pending(l) || !queue_is_idle(l) || l->made.file || l->tensors.n_fresh;
    for (struct link *k = NULL; !kept && !helpers && (k = table_each(&l->tensors.by_number, k));)
        kept = ((struct object *)k)->drafts;
    for (const struct name *x = l->first; x && !kept && !helpers; x = x->next)
        kept = x->file && x->file->kind != FILE_KEY;
    return !kept;
}

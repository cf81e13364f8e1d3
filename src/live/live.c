/* SPDX-License-Identifier: MIT */
/* Begins and ends editing, and reports facts about files (live.h). */
#include "live/live.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <syslog.h>
#include <string.h>

#include "base/lock.h"
#include "gguf/value.h"
#include "edit/history.h"
#include "edit/change.h"
#include "live/edits.h"
#include "live/tensors.h"
#include "live/views.h"
#include "text/text.h"

/* ---- beginning and end ---- */

int live_open(struct newest *n, struct edit_file *file, const struct live_options *o,
              struct live **ret)
{
    struct live *l = calloc(1, sizeof(*l));
    const struct gguf *own = snapshot_own(n->view.snap);
    if (!l)
        return -ENOMEM;
    names_init(&l->names, own->n_kv);
    l->opt = *o;
    l->newest = n;
    l->file = file;
    l->logs = (struct logs){.f = l->file, .lock = &l->lock};
    l->names.nul = has_nul_names(own);
    l->names.ranks = edit_first_rank(own->n_kv);
    l->objects.ranks = edit_first_rank(n->view.snap->gguf->n_tensors);
    l->disk = (struct view){.snap = snapshot_ref(n->view.snap), .store = store_ref(n->view.store)};
    l->objects.first_numbers = l->disk.snap->ids ? 0 : l->disk.snap->gguf->n_tensors;
    for (uint32_t i = 0; l->disk.snap->ids && i < l->disk.snap->ids->n; i++)
        batch_note_version(l, l->disk.snap->ids->of[i]);
    l->shown.number = l->disk.snap->number;
    lock_init(&l->lock);
    l->waits.end = &l->waits.first;
    cond_init(&l->waits.rest);
    batch_begin(l);
    *ret = l;
    return 0;
}

void live_abandon(struct live *l)
{
    LOCKED(&l->lock);
    files_end_made(l);
    l->ending = true;
}

void live_close(struct live *l)
{
    if (!l)
        return;
    assert(!l->writer.started); /* live_finish() has been called */
    views_close(l);
    assert(!l->waits.first);
    cond_destroy(&l->waits.rest);
    lock_take(&l->lock);
    batch_end_steps(l, &l->next);
    lock_drop(&l->lock);
    batch_free(&l->next);
    names_close(&l->names);
    objects_free(&l->objects);
    view_free(&l->disk);
    log_unref(l->logs.now);
    lock_destroy(&l->lock);
    free(l);
}

int live_start(struct live *l, struct history *history, struct err *e)
{
    int r = writer_start(l);
    lock_take(&l->lock);
    l->history = history;
    l->writer.started = r == 0;
    lock_drop(&l->lock);
    return err_sys(e, r, "cannot start a thread");
}

void live_hurry(struct live *l)
{
    if (!l->writer.started)
        return;
    lock_take(&l->lock);
    files_end_made(l);
    l->writer.stop = true;
    pool_call(&l->writer.job);
    lock_drop(&l->lock);
}

/* Name the helpers that a person may have meant to last. */
static void log_helpers(struct live *l)
{
    char shown[SHOW_MAX];
    LOCKED(&l->lock);
    for (const struct name *x = l->names.oldest; x; x = x->newer)
        if (x->file && x->file->kind == FILE_HELPER && !name_is_fleeting(x->text))
            live_log(l, LOG_WARNING, "%s: not kept: it was only a helper file beside the keys",
                     show(shown, x->text, strlen(x->text)));
}

int live_finish(struct live *l)
{
    if (!l->writer.started)
        return 0;
    live_hurry(l);
    waits_rest(l);
    pool_call(&l->writer.job); /* handle the results */
    pool_leave(&l->writer.job);
    pool_leave(&l->waits.watch);
    log_helpers(l);
    lock_take(&l->lock);
    l->writer.started = false;
    int r = writer_take_failure(l);
    lock_drop(&l->lock);
    return r;
}

/* ---- edits that are not in the file ---- */

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

/* Return why the bytes written to a tensor are not in the model, or NULL. refused: consider only
 * refused edits. */
static const char *why_not_saved(const struct object *o, bool refused)
{
    switch (o->state) {
    case OBJECT_STORED:
    case OBJECT_DOOMED:
        return o->error;
    case OBJECT_NEW:
        return refused ? NULL : o->error ? o->error : "a new tensor: nothing was written";
    case OBJECT_LOST:
        return refused ? NULL : o->error;
    default:
        return NULL;
    }
}

static void unsaved_tensors(const struct live *l, bool refused, struct buf *out)
{
    const struct objects *s = &l->objects;
    char name[TREE_NAME_MAX + 1];
    for (struct object *o = object_from(s, 0); o; o = object_from(s, o->number + 1ull)) {
        struct edit_tensor t = {.name = o->name, .name_len = o->name_len};
        const char *why = why_not_saved(o, refused);
        if (!why || (!o->name && !edit_tensor_numbered(&l->next.change, o->number, &t)))
            continue;
        (void)name_encode(t.name, t.name_len, name);
        unsaved_add(out, UNSAVED_TENSOR, name, why);
    }
}

static void unsaved_keys(const struct live *l, struct buf *out)
{
    for (const struct name *x = l->names.oldest; x && l->names.n_errors; x = x->newer)
        if (x->error)
            unsaved_add(out, "", x->text, x->error);
}

void live_unsaved(struct live *l, struct buf *out)
{
    LOCKED(&l->lock);
    unsaved_keys(l, out);
    unsaved_tensors(l, false, out);
}

void live_refused(struct live *l, struct buf *out)
{
    LOCKED(&l->lock);
    unsaved_keys(l, out);
    if (l->objects.n_errors)
        unsaved_tensors(l, true, out);
}

void live_trouble(struct live *l, struct buf *out)
{
    (void)l;
    (void)out;
}

static bool recall_tensor(struct live *l, const char *file, const char *why)
{
    struct edit_tensor t;
    struct object *o = tensor_find(l, file, &t) == 0 ? tensor_object(l, t.id.number) : NULL;
    if (o)
        object_set_error(&l->objects, o, why);
    return o && o->error;
}

static bool recall_name(struct live *l, const char *text, const char *why)
{
    struct name *x = look_name(l, text);
    if (!x)
        x = names_get(&l->names, text, look_classify(l, text, NAME_CREATED) == NAME_KEY);
    if (x)
        name_set_error(&l->names, x, why);
    return x && x->error;
}

int live_recall(struct live *l, struct buf *notes)
{
    const size_t tensors = strlen(UNSAVED_TENSOR);
    struct buf left = BUF_INIT;
    LOCKED(&l->lock);
    for (struct note n = {0}; unsaved_next(notes, &n);) {
        bool tensor = strncmp(n.path, UNSAVED_TENSOR, tensors) == 0;
        bool done = tensor ? l->opt.tensors && recall_tensor(l, n.path + tensors, n.why)
                           : recall_name(l, n.path, n.why);
        if (!done)
            unsaved_add(&left, "", n.path, n.why);
    }
    int r = buf_error(&left);
    if (r == 0) {
        buf_free(notes);
        *notes = left;
    } else {
        buf_free(&left);
    }
    return r;
}

/* ---- the newest state ---- */

int live_freshen(struct live *l, bool whole, struct view *ret)
{
    struct err e = {0};
    int r = 0;
    bool fresh = !atomic_load(&l->shown.stale) && !atomic_load(&l->names.other_doomed);
    if (fresh && !(ret && atomic_load(&l->shown.hides))) {
        if (ret)
            *ret = newest_view(l->newest);
        return 0;
    }
    /* Get the view while holding the lock: otherwise, a write may replace it with a view that shows
     * removed keys and tensors again. */
    LOCKED(&l->lock);
    if (whole || !l->objects.doomed.n)
        r = batch_look(l, &e);
    else if (atomic_load(&l->shown.stale))
        r = batch_freshen(l, &e);
    if (r < 0)
        writer_cannot_show(l, r);
    if (ret)
        *ret = newest_view(l->newest);
    return r;
}

/* Count the new tensors, and the drafts and helpers of tensors, that would be discarded if the
 * mount ended now. */
static size_t unfinished(const struct live *l)
{
    size_t n = l->objects.fresh.n;
    for (const struct draft *d = views_each(l, NULL); d; d = views_each(l, d))
        n += !d->made && (draft_is_helper(d) || d->writers);
    return n;
}

/* True if another program changed the model. Accesses the disk. */
static bool is_changed(struct live *l)
{
    struct edit_file file;
    lock_take(&l->lock);
    bool idle = writer_file(l, &file);
    lock_drop(&l->lock);
    if (!idle || edit_file_fresh(&file, NULL) != -ESTALE)
        return false;
    /* One of our own edits may have replaced the file in the meantime. */
    lock_take(&l->lock);
    bool changed = !is_flying(l) && edit_id_equal(&file.id, &l->file->id);
    lock_drop(&l->lock);
    return changed;
}

static size_t accepted(const struct live *l)
{
    return edit_change_count(&l->next.change, LIVE_COUNT_MOST) + l->names.n_doomed +
           l->objects.doomed.n + l->flight.n_edits;
}

size_t live_accepted(struct live *l)
{
    LOCKED(&l->lock);
    return accepted(l);
}

struct live_counts live_count(struct live *l)
{
    lock_take(&l->lock);
    struct live_counts c = {.pending = accepted(l) + unfinished(l),
                            .refused = l->names.n_errors + l->objects.n_errors};
    const bool edited = l->writer.started || l->writer.stop; /* the writer may have stopped */
    lock_drop(&l->lock);
    c.changed = edited && is_changed(l);
    return c;
}

bool live_idle(struct live *l, bool helpers)
{
    LOCKED(&l->lock);
    /* A draft without open handles is a helper's, or is waiting for a program to continue it. */
    bool kept = l->objects.fresh.n || accepted(l) || (!helpers && views_each(l, NULL));
    for (const struct name *x = l->names.oldest; x && !kept && !helpers; x = x->newer)
        kept = x->file && x->file->kind != FILE_KEY;
    return !kept;
}

struct live_given live_given(struct live *l)
{
    LOCKED(&l->lock);
    return (struct live_given){.snapshots = l->shown.number + 1, .keys = l->names.given};
}

bool live_edits(struct live *l, dev_t dev, ino_t ino)
{
    struct edit_file file;
    LOCKED(&l->lock);
    return writer_file(l, &file) && file.id.dev == dev && file.id.ino == ino;
}

/* ---- facts ---- */

/* Get all facts about a file except the type of its value, which is determined later without the
 * lock. */
static int facts(struct live *l, uint32_t number, struct live_facts *ret, struct shown *value)
{
    LOCKED(&l->lock);
    const struct file *f = look_file(l, number);
    if (!f)
        return l->names.missing;
    const struct name *x = file_name(f);
    *value = look_shown(l, f);
    struct typed type = value->snap ? (struct typed){0} : look_type(f);
    ret->helper = f->kind == FILE_HELPER;
    if (x && x->key)
        buf_add(&ret->key, x->key, x->key_len);
    if (type.set)
        type_put(&type, &ret->type);
    buf_str(&ret->error, x && x->error ? x->error : "");
    return 0;
}

int live_facts(struct live *l, uint32_t number, struct live_facts *ret)
{
    struct gguf_value v;
    CLEANUP(shown_free) struct shown value = SHOWN_NONE;
    *ret = (struct live_facts){0};
    int r = facts(l, number, ret, &value);
    if (r < 0)
        return r;
    if (shown_value(&value, &v))
        type_name_put(&v, &ret->type);
    if (!buf_error(&ret->key) && !buf_error(&ret->type) && !buf_error(&ret->error))
        return 0;
    live_facts_free(ret);
    return -ENOMEM;
}

void live_facts_free(struct live_facts *f)
{
    buf_free(&f->key);
    buf_free(&f->type);
    buf_free(&f->error);
}

/*
 * Set the type of a file that is being written, for use when its draft is accepted (cp -a), or the
 * type of a helper, for the key that the helper will be renamed to (rsync -X). Returns false for
 * any other file.
 */
static bool type_to_come(const struct live *l, struct file *f, struct typed type)
{
    struct draft *d = f->draft;
    if (f->kind == FILE_HELPER) {
        f->typed = type;
        f->inherited = false;
        return true;
    }
    if (!d || !(draft_is_unjudged(d) || d->anew || !stored_has(l, f->of)))
        return false;
    d->typed = type;
    return true;
}

int live_retype(struct live *l, uint32_t number, const void *name, size_t n, struct live_wait *w)
{
    struct typed type;
    struct err e = {0};
    if (!type_by_name(name, n, &type))
        return -EINVAL;
    LOCKED(&l->lock);
    struct file *f = look_file(l, number);
    if (!f || !file_name(f))
        return f ? -ENOENT : l->names.missing;
    if (f->kind == FILE_LINK)
        return -EPERM;
    if (type_to_come(l, f, type))
        return 0;
    if (edits_retype(l, f->of, type, &e) < 0)
        return name_refused(l, f->of, &e);
    promise_share(&f->promise, f->of->edit); /* an earlier loss is still reported */
    return writer_flush(l, &(struct promise){0}, f->promise.edit, w);
}

int live_forgive(struct live *l, uint32_t number)
{
    LOCKED(&l->lock);
    struct file *f = look_file(l, number);
    if (f && file_name(f))
        name_set_error(&l->names, f->of, NULL);
    return f ? 0 : l->names.missing;
}

/* ---- the history ---- */

/* True if no edit is pending or being written. An undo, which restores all keys as one edit,
 * requires this so that the history has every earlier edit. */
static bool is_idle(const struct live *l)
{
    return !is_flying(l) && !writer_has_work(l);
}

static int not_idle(struct err *e)
{
    return err_set(e, -EBUSY, "edits are still being written");
}

/* True if the change only moves the key. */
static bool only_moves(const struct edit_slot *s)
{
    return !s->gone && !s->value;
}

/* Make names for all keys that the change adds, changes or removes. Later keys get ranks after
 * theirs. Returns 0, -ENOMEM or -EBUSY. */
static int make_names(struct live *l, struct err *e)
{
    struct edit_change *c = &l->next.change;
    char shown[SHOW_MAX];
    for (size_t i = 0; i < c->n; i++) {
        const struct edit_slot *s = c->slot[i];
        assert(s->kind == EDIT_KEY);
        struct name *x = look_key(l, s->name, s->name_len);
        x = x ? x : names_get_key(&l->names, s->name, s->name_len);
        if (!x)
            return err_set(e, -ENOMEM, "no memory for the keys");
        if (!s->gone && s->rank >= l->names.ranks)
            l->names.ranks = s->rank + EDIT_RANK_STEP;
        if (!x->key && !only_moves(s))
            return err_set(e, -EBUSY, "%s: a helper file has the name of this key",
                           show(shown, s->name, s->name_len));
    }
    return 0;
}

/* Mark the keys in the change as edited by the last edit. */
static void mark_names(struct live *l)
{
    const struct edit_change *c = &l->next.change;
    for (size_t i = 0; i < c->n; i++) {
        const struct edit_slot *s = c->slot[i];
        if (only_moves(s))
            continue;
        struct name *x = names_find_key(&l->names, s->name, s->name_len);
        x->edit = l->edits;
        x->mtime = when_date();
        name_set_error(&l->names, x, NULL);
    }
}

/* ---- the edit ---- */

/* Restore a state from the history. Returns 1 if the edit was accepted, 0 if the keys are already
 * in that state, or -errno. Call with the lock held. */
static int restore(struct live *l, const struct history_pick *p, struct err *e)
{
    struct batch *next = &l->next;
    int r = edit_restore(&next->change, p->keys, e);
    if (r < 0)
        return r;
    if (edit_keys_id(p->keys) == edit_keys_id(next->change.on.g)) {
        edit_undo(&next->change, 0);
        return 0;
    }
    l->names.nul |= has_nul_names(p->keys);
    next->restored = p->state;
    batch_note(l); /* needed even if only places change */
    r = make_names(l, e);
    if (r == 0)
        r = batch_freshen(l, e);
    if (r == 0 && edit_keys_id(next->plan.next) != edit_keys_id(p->keys))
        r = err_set(e, -EIO, "the keys cannot be brought back into their places");
    if (r == 0)
        r = batch_check(l, e);
    if (r < 0) {
        batch_drop(l, NULL);
        return r;
    }
    mark_names(l);
    batch_follow(l, &next->change);
    return 1;
}

/* Record the message to show after the write, and the message to show until then. */
static void say_begun(struct live *l, const struct history_pick *p)
{
    (void)snprintf(l->next.undone, sizeof(l->next.undone), "%.*s", (int)p->said.len,
                   buf_text(&p->said));
    (void)snprintf(l->undo, sizeof(l->undo), "it is not written yet");
}

/* Call with the lock held. */
static int undo(struct live *l, const struct snapshot *seen, const struct history_pick *p,
                struct live_wait *w, struct err *e)
{
    if (!is_idle(l) || l->disk.snap != seen)
        return not_idle(e);
    int r = restore(l, p, e);
    if (r < 0)
        return r;
    if (r == 0) {
        (void)snprintf(l->undo, sizeof(l->undo), "%.*s", (int)p->said.len, buf_text(&p->said));
        return 0;
    }
    say_begun(l, p);
    return writer_sync(l, &(struct promise){0}, l->edits, w);
}

/* Return a reference to the state on disk, or NULL if an edit has yet to be written. */
static struct snapshot *disk_snapshot(struct live *l)
{
    lock_take(&l->lock);
    struct snapshot *g = is_idle(l) ? snapshot_ref(l->disk.snap) : NULL;
    lock_drop(&l->lock);
    return g;
}

static int no_history(struct err *e)
{
    return err_set(e, -EOPNOTSUPP, "no history is kept (-o history=0)");
}

/* Translate an error about the history's directory that would be mistaken for one about the request
 * itself. */
static int of_folder(int r)
{
    return r == -EPERM || r == -EACCES || r == -EROFS ? -EIO : r;
}

int live_undo(struct live *l, uint64_t number, struct live_wait *w)
{
    struct history_pick p = HISTORY_PICK_INIT;
    struct err e = {0};
    struct snapshot *seen = disk_snapshot(l);
    int r = !l->history ? no_history(&e)
            : !seen     ? not_idle(&e)
                        : of_folder(history_pick(l->history, number, snapshot_own(seen), &p, &e));
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

/* SPDX-License-Identifier: MIT */
/* Editing begun and ended, and what is known of files: see live.h. */
#include "live/live.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/lock.h"
#include "gguf/keys.h"
#include "live/edits.h"
#include "live/look.h"
#include "live/makings.h"
#include "live/tensor_table.h"
#include "live/unsaved.h"
#include "live/view.h"
#include "live/writer.h"

/* ---- begin and end ---- */

int live_open(struct newest *n, struct edit_file *file, const struct live_options *o,
              struct live **ret)
{
    struct live *l = calloc(1, sizeof(*l));
    const struct gguf *own = snapshot_own(n->view.snap);
    if (!l || names_init(&l->names, n->view.snap->gguf) < 0) {
        free(l);
        return -ENOMEM;
    }
    l->opt = *o;
    l->newest = n;
    l->file = file;
    logs_init(&l->logs, l->file);
    l->nul_names = has_nul_names(own);
    l->ranks = edit_first_rank(own->n_kv);
    l->tensor_ranks = edit_first_rank(n->view.snap->gguf->n_tensors);
    l->disk = snapshot_ref(n->view.snap);
    l->store = store_ref(n->view.store);
    l->first_numbers = n->view.snap->gguf->n_tensors;
    l->judge = judges;
    lock_init(&l->lock);
    waits_init(&l->waits);
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
    views_close(l);
    makings_free(l);
    waits_free(&l->waits);
    lock_take(&l->lock);
    batch_end_steps(l, &l->next);
    lock_drop(&l->lock);
    batch_free(&l->next);
    names_close(&l->names);
    folders_free(&l->folders);
    places_free(&l->places);
    snapshot_unref(l->disk);
    store_unref(l->store);
    logs_free(&l->logs);
    lock_destroy(&l->lock);
    free(l->heard);
    free(l);
}

/* ---- what is not in the file ---- */

/* Why what a name was given is not in the model; NULL if it is, or need not be. */
static const char *why_unsaved(const struct live *l, const struct name *x)
{
    if (x->error)
        return x->error;
    bool stray = x->file && x->file->kind == FILE_HELPER && look_classify(l, x->text) == NAME_STRAY;
    return stray ? LOOK_STRAY : NULL;
}

static void unsaved_tensor(const struct live *l, const struct folder *f, struct buf *out)
{
    struct tensor_now t;
    char name[TREE_NAME_MAX + 1];
    if (tensor_of_number(l, f->number, &t) < 0)
        return;
    (void)name_encode(t.name, t.len, name);
    unsaved_add(out, UNSAVED_TENSOR, name, f->error);
}

void live_unsaved(struct live *l, struct buf *out)
{
    LOCKED(&l->lock);
    for (const struct name *x = l->names.oldest; x; x = x->newer) {
        const char *why = why_unsaved(l, x);
        if (why)
            unsaved_add(out, "", x->text, why);
    }
    for (const struct folder *f = l->folders.first; f; f = f->next)
        if (f->error)
            unsaved_tensor(l, f, out);
    for (size_t i = 0; i < l->n_makings; i++) {
        const struct making *m = l->makings[i];
        if (m)
            unsaved_add(out, UNSAVED_TENSOR, m->file,
                        m->why.code ? m->why.msg : "a new tensor: nothing was written");
    }
    for (const struct making *m = l->makings_gone; m; m = m->next)
        if (m->lost)
            unsaved_add(out, UNSAVED_TENSOR, m->file, m->why.msg);
}

static bool recall_tensor(struct live *l, const char *file, const char *why)
{
    struct tensor_now t;
    struct folder *f = tensor_find(l, file, &t) == 0 ? tensor_folder(l, t.number) : NULL;
    if (f)
        folder_set_error(&l->folders, f, why);
    return f && f->error;
}

static bool recall_name(struct live *l, const char *text, const char *why)
{
    struct name *x = names_get(&l->names, text, look_classify(l, text) == NAME_KEY);
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
    bool fresh = !atomic_load(&l->stale) && !atomic_load(&l->names.other_doomed);
    if (fresh && !(ret && atomic_load(&l->hides))) {
        if (ret)
            *ret = newest_view(l->newest);
        return 0;
    }
    /* What is written shows what was removed, too: the view is taken before another one takes its place. */
    LOCKED(&l->lock);
    if (whole || !l->folders.doomed)
        r = batch_look(l, &e);
    else if (atomic_load(&l->stale))
        r = batch_freshen(l, &e);
    if (ret)
        *ret = newest_view(l->newest);
    return r;
}

/* Tensors in the making, and drafts and helpers of tensors: they end with the mount. */
static size_t unfinished(const struct live *l)
{
    size_t n = l->makings_left;
    for (const struct view_draft *d = l->views; d; d = d->next)
        n += !d->making && (d->helper || d->writers);
    return n;
}

/* True if another program changed the model. The disk is asked. */
static bool is_changed(struct live *l)
{
    struct edit_file file;
    lock_take(&l->lock);
    bool idle = writer_file(l, &file);
    lock_drop(&l->lock);
    if (!idle || edit_file_fresh(&file, NULL) != -ESTALE)
        return false;
    /* An edit of our own may have replaced the file meanwhile. */
    lock_take(&l->lock);
    bool changed = !l->flying && edit_id_equal(&file.id, &l->file->id);
    lock_drop(&l->lock);
    return changed;
}

static size_t accepted(const struct live *l)
{
    return edit_change_count(&l->next.change, LIVE_COUNT_MOST) + l->names.n_doomed +
           l->folders.n_doomed + l->flight_edits;
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
                            .refused = l->names.n_errors + l->folders.n_errors};
    lock_drop(&l->lock);
    c.changed = is_changed(l);
    return c;
}

bool live_idle(struct live *l, bool helpers)
{
    LOCKED(&l->lock);
    bool kept = l->makings_left || accepted(l);
    for (const struct view_draft *d = l->views; d && !kept; d = d->next)
        kept = d->helper && !helpers;
    for (const struct name *x = l->names.oldest; x && !kept && !helpers; x = x->newer)
        kept = x->file && x->file->kind != FILE_KEY;
    return !kept;
}

struct live_given live_given(struct live *l)
{
    LOCKED(&l->lock);
    const struct names *n = &l->names;
    uint32_t keys = n->numbers.given > n->inos.given ? n->numbers.given : n->inos.given;
    return (struct live_given){.snapshots = l->snapshots + 1, .keys = keys};
}

bool live_edits(struct live *l, dev_t dev, ino_t ino)
{
    struct edit_file file;
    LOCKED(&l->lock);
    return writer_file(l, &file) && file.id.dev == dev && file.id.ino == ino;
}

/* ---- facts ---- */

/* The type that a file without a value is to have. */
static struct typed type_without_value(const struct file *f)
{
    if (f->kind == FILE_HELPER && !f->inherited)
        return f->typed;
    return f->kind == FILE_KEY && f->name ? stored_wanted_type(f->name) : (struct typed){0};
}

/* All facts but the type of a value: that is walked without the lock. */
static int facts(struct live *l, uint32_t number, struct live_facts *ret, struct shown *value)
{
    LOCKED(&l->lock);
    const struct file *f = names_file(&l->names, number);
    if (!f)
        return -ENOENT;
    const struct name *x = f->name;
    *value = look_shown(l, f);
    struct typed type = value->snap ? (struct typed){0} : type_without_value(f);
    ret->helper = f->kind == FILE_HELPER;
    if (x && x->key)
        buf_add(&ret->key, x->key, x->key_len);
    if (type.set)
        type_put(&type, &ret->type);
    const char *why = x ? why_unsaved(l, x) : NULL;
    buf_str(&ret->error, why ? why : "");
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
 * What is being written has its type from then on, when it is accepted (cp -a); a helper keeps it
 * for the key that it is renamed to (rsync -X). False: it is neither.
 */
static bool type_to_come(struct file *f, struct typed type)
{
    struct draft *d = f->draft;
    if (f->kind == FILE_HELPER) {
        f->typed = type;
        f->inherited = false;
        return true;
    }
    if (!d || !(draft_is_unjudged(d) || d->anew || f->name->slot != SLOT_STORED))
        return false;
    d->typed = type;
    return true;
}

/*
 * Whether a helper that is given a type is a key from then on (cp -a from another mount, or from a
 * backup). Not if its name is one that programs which copy attributes give a file before it takes
 * its own (rsync's .NAME.XXXXXX, Python's tmpXXXXXXXX), or that of a backup of a key.
 */
static bool is_key_by_type(struct live *l, const struct file *f)
{
    char stem[TREE_NAME_MAX + 1];
    const char *text = f->name->text, *end = text + strlen(text);
    enum name_class class = look_classify(l, text);
    if (f->parked || key_is_own(text, strlen(text)) || text[0] == '.' ||
        strncmp(text, "tmp", 3) == 0)
        return false;
    (void)memcpy(stem, text, (size_t)(end - text) + 1);
    if (end[-1] == '~') {
        stem[end - text - 1] = '\0';
        return !look_find(l, stem);
    }
    return class == NAME_STRAY || text[0] == '#' || !strchr(text, '.');
}

/* A helper's bytes become the value of the key that its name is now. */
static int accept_content(struct live *l, struct name *x, struct file *f, struct typed type,
                          struct err *e)
{
    int r = batch_room(l);
    if (r < 0)
        return err_set(e, r, "no memory for the edit");
    x->typed = type;
    r = edits_accept(l, x, f->draft ? &f->draft->text : &f->content, e);
    x->typed.set = false;
    return r;
}

/* It was written and not closed since, or emptied: it is judged by its close. */
static bool is_to_come(const struct draft *d)
{
    return d && (d->state == DRAFT_DIRTY ? !d->closed : d->state != DRAFT_CLEAN);
}

/* Make a helper the key that its name is now. As promote(). */
static int make_key(struct live *l, struct name *x, struct file *f, struct typed type,
                    struct err *e)
{
    struct names *n = &l->names;
    struct draft *d = f->draft;
    CLEANUP(buf_free) struct buf seen = BUF_INIT; /* by those that read it */
    if (d)
        buf_add(&seen, d->text.data, d->text.len);
    bool later = is_to_come(d);
    int r = buf_error(&seen) ? err_set(e, -ENOMEM, "no memory for the edit")
            : later          ? 0
                             : accept_content(l, x, f, type, e);
    if (r < 0)
        return r;
    if (later) {
        d->typed = type;
        slot_event(n, x, SLOT_CREATE);
    } else if (d) {
        CLEANUP(shown_free) struct shown value = stored_value(l, x);
        draft_to_key(d, &value, false);
    }
    promise_make(&f->promise, x->edit);
    file_set_kind(l, f, FILE_KEY);
    if (d) {
        file_free_content(n, f); /* what it was when a rename of it failed */
        n->helper_bytes += seen.len;
        f->content = seen;
        seen = BUF_INIT;
    }
    file_is_key(n, f);
    return r;
}

/* Make a helper a key. 1: it is to be written; 0: it is not yet, or it stays a helper; -errno. */
static int promote(struct live *l, struct file *f, struct typed type, struct err *e)
{
    struct names *n = &l->names;
    struct name *x = f->name;
    (void)name_leave(x);
    const struct name *key = names_get(n, x->text, true);
    int r = 0;
    if (key && key->key)
        r = make_key(l, x, f, type, e);
    if (r < 0)
        name_unset_key(x);
    name_take(n, x, f); /* which stays a helper, if no key has a file of this name */
    return r;
}

int live_retype(struct live *l, uint32_t number, const void *name, size_t n, struct live_wait *w)
{
    struct typed type;
    struct err e = {0};
    int r = 0;
    if (!type_by_name(name, n, &type))
        return -EINVAL;
    LOCKED(&l->lock);
    struct file *f = names_file(&l->names, number);
    if (!f || !f->name)
        return -ENOENT;
    if (f->kind == FILE_LINK)
        return -EPERM;
    if (f->kind == FILE_HELPER && is_key_by_type(l, f))
        r = promote(l, f, type, &e);
    else if (type_to_come(f, type))
        return 0;
    else if ((r = edits_retype(l, f->name, type, &e)) >= 0)
        promise_make(&f->promise, f->name->edit);
    if (r < 0)
        return name_refused(l, f->name, &e);
    return r > 0 ? writer_accepted(l, w) : 0;
}

int live_forgive(struct live *l, uint32_t number)
{
    LOCKED(&l->lock);
    struct file *f = names_file(&l->names, number);
    if (f && f->name)
        name_set_error(&l->names, f->name, NULL);
    return f ? 0 : -ENOENT;
}

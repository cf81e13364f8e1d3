/* SPDX-License-Identifier: MIT */
/* Removes and renames files of metadata/ (rename.h). */
#include "live/rename.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "gguf/value.h"
#include "live/dir.h"
#include "live/draft.h"
#include "live/overlay.h"
#include "live/value.h"

/* Remove a key a moment from now, unless it comes back. It may be about to be stored. */
static void remove_later(struct live *l, struct name *x)
{
    if (x->gone || !(value_is_stored(l, x) || x->pins || (x->file && x->file->pins)))
        return;
    x->gone = true;
    l->n_gone++;
    atomic_store(&l->stale, true);
    newest_touch(l->newest);
    queue_later(l, QUEUE_REMOVALS, true);
}

/* True for keys that every model needs or that this program reserves for itself. */
static bool stays(const struct name *x)
{
    return strcmp(x->key, "general.architecture") == 0 || key_is_own(x->key, x->key_len);
}

/* A helper goes that had the only text of a hidden key: the key was meant. */
static void lost_backup(struct live *l, struct name *key)
{
    if (!key)
        return;
    name_spare(l, key);
    if (!stays(key))
        remove_later(l, key);
}

/* ---- unlink ---- */

static void unlink_helper(struct live *l, struct file *f)
{
    struct name *key = f->backs;
    name_set_error(l, f->name, NULL);
    file_drop(l, f);
    lost_backup(l, key);
}

int live_unlink(struct live *l, const char *text)
{
    struct err unready;
    int why;
    overlay_ready(l, &unready);
    LOCKED(&l->lock);
    struct file *f = l->stop ? NULL : file_look(l, text, &why);
    if (!f)
        return l->stop ? -EROFS : why;
    struct name *x = f->name;
    if (f->kind != FILE_KEY) {
        unlink_helper(l, f);
        return 0;
    }
    if (stays(x))
        return -EPERM;
    if (unready.code)
        return name_refused(l, x, &unready);
    name_set_error(l, x, NULL); /* it was about a value that goes */
    remove_later(l, x);
    file_drop(l, f);
    return 0;
}

/* ---- rename ---- */

/* A rename whose new name is that of a helper, or of no file that is stored yet: no edit. */
static void rename_plainly(struct live *l, struct file *f, struct name *to)
{
    struct name *from = f->name;
    char *error = from->error;
    const struct timespec mtime = from->mtime;
    if (to->file && to->file->backs)
        lost_backup(l, to->file->backs);
    from->error = NULL;
    l->n_errors -= error != NULL;
    if (!to->key)
        to->ino = f->number;
    file_move(l, f, to);
    name_set_error(l, to, error);
    to->mtime = mtime;
    free(error);
}

static int helper_to_helper(struct live *l, struct file *f, const char *text)
{
    struct name *to = name_find(l, text);
    if (!to)
        to = name_make(l, text, NULL, 0, f->number);
    if (!to)
        return -ENOMEM;
    rename_plainly(l, f, to);
    return 0;
}

/* The backup of vim: the helper gets the key's text, and the key is hidden until it is created
 * again or the helper is removed too. */
static int key_to_helper(struct live *l, struct file *f, const char *text)
{
    struct name *x = f->name;
    struct gguf_value v;
    CLEANUP(shown_free) struct shown old = value_stored(l, x);
    CLEANUP(buf_free) struct buf is = BUF_INIT;
    if (draft_is_shown(f->draft) || (f->draft && !old.snap))
        buf_add(&is, f->draft->text.data, f->draft->text.len);
    else
        shown_text(&old, &is);
    int r = buf_error(&is);
    if (r == 0)
        r = helper_room(l, 0, is.len);
    if (r < 0)
        return r;
    x->pins++;
    r = helper_to_helper(l, f, text);
    x->pins--;
    if (r < 0)
        return r;
    f->kind = FILE_HELPER;
    f->inherited = shown_value(&old, &v);
    f->typed = f->inherited
                   ? (struct typed){v.type != GGUF_ARRAY || v.elem != GGUF_ARRAY, v.type, v.elem}
                   : (struct typed){0};
    l->helper_bytes += is.len;
    buf_free(f->draft ? &f->draft->text : &f->content);
    *(f->draft ? &f->draft->text : &f->content) = is;
    is = BUF_INIT;
    if (f->draft && f->draft->state != DRAFT_EMPTIED)
        draft_restart(f->draft);
    if (old.snap || f->pins) { /* it may be about to be stored */
        x->backup = f;
        f->backs = x;
    }
    name_reap(l, x);
    return 0;
}

/* Refuse to make a file the value of a key. */
static int refused(struct live *l, struct name *from, struct name *to, const struct err *e)
{
    int why;
    return name_refused(l, name_file(l, to, &why) || !from->file ? to : from, e);
}

/* Make the file that was renamed the file of a key. q: the request, with the helper's text. */
static void become_key(struct live *l, struct file *f, struct name *to, struct buf *text)
{
    struct name *backs = f->backs;
    const bool helper = f->kind == FILE_HELPER;
    if (backs == to)
        backs = NULL;
    if (f->backs)
        f->backs->backup = NULL;
    f->backs = NULL;
    name_spare(l, to);
    if (helper)
        l->helper_bytes -= f->draft ? f->draft->text.len : f->content.len;
    f->kind = FILE_KEY;
    file_move(l, f, to);
    if (helper && text) { /* those who have it open read on */
        buf_free(&f->content);
        f->content = *text;
        *text = BUF_INIT;
    }
    if (!f->opens)
        buf_free(&f->content);
    lost_backup(l, backs);
}

/* The same at the end of a request. If a signal ended its wait, either name may have changed since:
 * the new one may have been removed, or have a file, which its writers must not lose. */
static void end_rename(struct live *l, struct request *q, struct buf *text)
{
    struct file *f = q->file;
    const struct name *to = q->to;
    if (f->name != q->from)
        return;
    if (!q->wait && (to->file || to->gone || to->backup)) {
        file_drop(l, f);
        return;
    }
    become_key(l, f, q->to, text);
    if (f->draft && !f->draft->writers)
        (void)draft_judge_rest(l, f, NULL);
}

static int accept_helper(struct live *l, struct request *q, struct err *e)
{
    struct file *f = q->file;
    name_spare(l, q->to);
    const bool takes = f->typed.set && !(f->inherited && value_is_stored(l, q->to));
    q->typed = takes ? f->typed : (struct typed){0};
    return value_accept(l, q, q->to, e);
}

static int helper_became_key(struct live *l, struct request *q, int r, const struct err *e)
{
    struct file *f = q->file;
    if (r < 0 && !q->done)
        return refused(l, q->from, q->to, e);
    if (q->changed) {
        q->to->mtime = q->from->mtime;
        name_set_error(l, q->to, NULL);
    }
    if (f->draft)
        draft_accepted(f->draft, q->number, &q->typed);
    if (f->kind == FILE_HELPER)
        end_rename(l, q, &q->text);
    return r;
}

/* True for a file that is open and was never written: some programs buffer what they write, and
 * rename first. */
static bool is_unwritten(const struct file *f)
{
    return f->draft && f->draft->state == DRAFT_EMPTIED && f->draft->text.len == 0 &&
           f->draft->dirty;
}

static int helper_to_key(struct live *l, struct file *f, struct name *to, struct live_wait *w)
{
    if (is_unwritten(f)) {
        f->draft->typed = f->inherited ? (struct typed){0} : f->typed;
        become_key(l, f, to, NULL);
        return 0;
    }
    struct request *q = request_new(l, f, f->name, to);
    const struct buf *text = f->draft ? &f->draft->text : &f->content;
    if (!q)
        return -ENOMEM;
    buf_add(&q->text, text->data, text->len);
    q->number = f->draft ? f->draft->version : 0;
    q->apply = accept_helper;
    q->end = helper_became_key;
    return queue_add(l, q, w);
}

/* A key over a key: the target keeps its place and type, and gets the other one's value. */
static int accept_rename(struct live *l, struct request *q, struct err *e)
{
    struct edit_change *c = &l->pending;
    const struct name *from = q->from, *to = q->to;
    const size_t mark = edit_mark(c);
    int r;
    name_spare(l, q->to); /* as a create does */
    const struct file *f = q->file;
    if (!value_is_stored(l, from)) /* its text has not come yet */
        return f->draft && (f->draft->writers || f->pins > 1)
                   ? 0
                   : err_set(e, -ENOENT, "the key is gone");
    if (!value_is_stored(l, to)) {
        r = edit_rename(c, from->key, from->key_len, to->key, to->key_len, e);
    } else {
        CLEANUP(shown_free) struct shown s = value_stored(l, from);
        if (from->raw.len)
            buf_add(&q->text, from->raw.data, from->raw.len);
        else
            shown_text(&s, &q->text);
        q->number = 1; /* the target stays the key that it is */
        r = buf_error(&q->text) ? err_set(e, -ENOMEM, "no memory for the edit")
                                : value_accept(l, q, to, e);
        if (r >= 0)
            r = edit_remove(c, from->key, from->key_len, e);
    }
    if (r < 0)
        edit_undo(c, mark);
    return r < 0 ? r : 1;
}

static int key_was_renamed(struct live *l, struct request *q, int r, const struct err *e)
{
    struct file *f = q->file;
    if (r < 0 && !q->done)
        return refused(l, q->from, q->to, e);
    if (!q->changed && f->name == q->from && f->kind == FILE_KEY)
        rename_plainly(l, f, q->to);
    if (!q->changed)
        return r;
    if (!q->number)
        q->to->ino = q->from->ino; /* a new name of the same key */
    q->to->mtime = q->from->mtime;
    q->from->mtime = (struct timespec){0};
    name_set_error(l, q->from, NULL);
    name_set_error(l, q->to, NULL);
    if (f->name == q->from && f->kind == FILE_KEY)
        end_rename(l, q, NULL);
    return r;
}

static int key_to_key(struct live *l, struct file *f, struct name *to, struct live_wait *w)
{
    struct name *x = f->name;
    if (strcmp(x->key, "general.alignment") == 0 || strcmp(to->key, "general.alignment") == 0)
        return -EINVAL;
    if (stays(x))
        return -EPERM;
    struct request *q = request_new(l, f, x, to);
    if (!q)
        return -ENOMEM;
    q->apply = accept_rename;
    q->end = key_was_renamed;
    return queue_add(l, q, w);
}

static int rename_over_key(struct live *l, struct file *f, const char *text, struct live_wait *w)
{
    struct err e = {0};
    if (f->kind == FILE_LINK)
        return -EPERM;
    if (key_is_own(text, strlen(text))) {
        (void)err_set(&e, -EPERM, "%s cannot be edited", text);
        return name_refused(l, f->name, &e);
    }
    struct name *to = name_key(l, text);
    if (!to)
        return -ENOMEM;
    to->pins++;
    int r = f->kind == FILE_KEY ? key_to_key(l, f, to, w) : helper_to_key(l, f, to, w);
    to->pins--;
    name_reap(l, to);
    return r;
}

int live_rename(struct live *l, const char *old, const char *text, unsigned flags,
                struct live_wait *w)
{
    int why;
    LOCKED(&l->lock);
    struct file *f = l->stop ? NULL : file_look(l, old, &why);
    if (!f)
        return l->stop ? -EROFS : why;
    if (flags & ~(unsigned)RENAME_NOREPLACE)
        return -EINVAL;
    if (flags & RENAME_NOREPLACE && file_look(l, text, &why))
        return -EEXIST;
    if (strcmp(f->name->text, text) == 0)
        return 0;
    const struct name *to = name_find(l, text);
    if (to && to->file && to->file->kind != FILE_KEY)
        return f->kind == FILE_KEY ? key_to_helper(l, f, text) : helper_to_helper(l, f, text);
    switch (name_class_of(l, text, f->kind == FILE_KEY ? NAME_ASIDE : NAME_CREATED)) {
    case NAME_KEY:
        return rename_over_key(l, f, text, w);
    case NAME_HELPER:
        return f->kind == FILE_KEY ? key_to_helper(l, f, text) : helper_to_helper(l, f, text);
    default:
        return name_refuse(l, text);
    }
}

/* ---- links ---- */

/* Create a link, such as the .#NAME link with which emacs locks a file. A key cannot be a link. */
int live_symlink(struct live *l, const char *text, const char *target, struct live_attr *ret)
{
    int why;
    LOCKED(&l->lock);
    if (file_look(l, text, &why))
        return -EEXIST;
    if (name_class_of(l, text, NAME_CREATED) != NAME_HELPER)
        return -EPERM;
    if (helper_room(l, 0, strlen(target)) < 0)
        return -ENOSPC;
    struct name *x = name_make(l, text, NULL, 0, l->given++);
    struct file *f = x ? file_make(l, x, FILE_LINK) : NULL;
    if (!f) {
        if (x)
            name_reap(l, x);
        return -ENOMEM;
    }
    buf_str(&f->content, target);
    l->helper_bytes += f->content.len;
    if (buf_error(&f->content)) {
        file_drop(l, f);
        return -ENOMEM;
    }
    x->mtime = when_date();
    *ret = (struct live_attr){f->number, x->ino, f->content.len, true, x->mtime};
    f->lookups++;
    return 0;
}

int live_readlink(struct live *l, uint32_t number, struct buf *out)
{
    LOCKED(&l->lock);
    const struct file *f = file_known(l, number);
    if (!f || f->kind != FILE_LINK)
        return -EINVAL;
    buf_add(out, f->content.data, f->content.len);
    return buf_error(out);
}

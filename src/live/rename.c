/* SPDX-License-Identifier: MIT */
/*
 * Names of metadata files: removed and changed. See live.h, names.h.
 *
 * A key that leaves its name for a helper's (vim's backup) stays in the model: most often it comes
 * back under its name a moment later, with another text, and that is one edit of the same key.
 */
#include "live/look.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>

#include "gguf/keys.h"
#include "live/edits.h"
#include "live/helper.h"
#include "live/writer.h"

/* Keys that every model needs, or that this program keeps for itself. */
static bool stays(const struct name *x)
{
    return strcmp(x->key, "general.architecture") == 0 || key_is_own(x->key, x->key_len);
}

/* ---- unlink ---- */

static void doom(struct live *l, struct name *x, enum slot_event event)
{
    slot_event(&l->names, x, event);
    if (x->slot != SLOT_DOOMED)
        return;
    newest_touch(l->newest); /* views of the whole are without it */
    writer_later(l, WRITER_SOON);
}

/* The last copy of a key that is parked is gone: that was meant. NULL: of no key. */
static void lost_backup(struct live *l, struct name *key)
{
    if (!key)
        return;
    doom(l, key, stays(key) ? SLOT_REFUSED : SLOT_LOST);
    if (key->slot == SLOT_STORED)
        name_show(&l->names, key);
}

static void unlink_helper(struct live *l, struct name *x)
{
    lost_backup(l, x->file->parked);
    name_set_error(&l->names, x, NULL);
    file_reap(&l->names, name_leave(x));
    name_reap(&l->names, x);
}

static int unlink_key(struct live *l, struct name *x, const struct err *unready)
{
    if (stays(x))
        return -EPERM;
    if (unready->code)
        return name_refused(l, x, unready);
    struct file *f = name_leave(x);
    if (x->slot == SLOT_STORED || x->rank)
        name_spare(&l->names, x, f);
    doom(l, x, SLOT_UNLINK);
    file_reap(&l->names, f);
    name_reap(&l->names, x);
    return 0;
}

int live_unlink(struct live *l, const char *text)
{
    struct err unready;
    writer_ready(l, &unready);
    LOCKED(&l->lock);
    struct file *f = look_find_typed(l, text);
    if (!f)
        return -ENOENT;
    if (f->kind == FILE_KEY)
        return unlink_key(l, f->name, &unready);
    unlink_helper(l, f->name);
    return 0;
}

/* ---- rename ---- */

struct move {
    struct live *l;
    struct names *n;        /* its names */
    struct name *from, *to; /* both are found before anything is changed */
    struct live_wait *wait;
};

/* The text as it is shown. */
static int copy_text(const struct move *m, struct buf *out)
{
    const struct buf *bytes = file_bytes(m->from->file);
    if (bytes) {
        buf_add(out, bytes->data, bytes->len);
    } else {
        CLEANUP(shown_free) struct shown s = stored_value(m->l, m->from);
        shown_text(&s, out);
    }
    return buf_error(out);
}

/* Another file takes the helper's name: what had it is gone. */
static void replace_helper(const struct move *m)
{
    if (m->to->file)
        lost_backup(m->l, m->to->file->parked);
}

static int helper_to_helper(const struct move *m)
{
    const char *error = m->from->error;
    uint32_t ino = m->from->ino;
    replace_helper(m);
    m->from->ino = m->to->ino; /* that of a helper goes with it */
    m->to->ino = ino;
    m->to->mtime = m->from->mtime;
    (void)name_move(m->n, m->from, m->to);
    name_set_error(m->n, m->to, error);
    name_set_error(m->n, m->from, NULL);
    name_reap(m->n, m->from);
    return 0;
}

/* vim's backup: key -> key~. The key is parked until it is created anew, or its backup removed. */
static int key_to_helper(const struct move *m)
{
    CLEANUP(buf_free) struct buf text = BUF_INIT;
    struct names *n = m->n;
    struct typed type = stored_known_type(m->l, m->from);
    int r = copy_text(m, &text);
    if (r == 0 && !names_have_room(n, 0, text.len))
        r = -ENOSPC;
    if (r == 0)
        r = name_keep_spare(n, m->from);
    if (r < 0)
        return r;
    replace_helper(m);
    struct file *f = name_move(n, m->from, m->to);
    file_free_content(n, f);
    f->kind = FILE_HELPER;
    f->typed = type; /* for the new name that it may get as a key */
    f->inherited = true;
    m->to->mtime = m->from->mtime;
    n->helper_bytes += text.len;
    if (f->draft)
        draft_to_helper(f->draft, &text);
    f->content = text;
    text = BUF_INIT;
    slot_event(n, m->from, SLOT_PARK);
    if (m->from->slot == SLOT_PARKED)
        slot_backup(m->from, f);
    name_reap(n, m->from);
    return 0;
}

/* A rename was refused: the old value is back, also of a key that was out of the way (sed -i.bak).
 * If the new name has no file, the old one gets the reason. */
static int refused(const struct move *m, const struct err *e)
{
    slot_event(m->n, m->to, SLOT_REFUSED);
    if (m->to->slot == SLOT_STORED)
        name_show(m->n, m->to);
    if (m->to->file)
        return name_refused(m->l, m->to, e);
    char name[SHOW_MAX];
    live_log(m->l, LOG_WARNING, "%s: refused: %s", show(name, m->to->text, strlen(m->to->text)),
             e->msg);
    name_set_error(m->n, m->from, e->msg);
    return e->code;
}

/* The helper's bytes as the key's value, of the type that the helper was given, if it was. */
static int accept_helper(const struct move *m, const struct buf *text, struct err *e)
{
    const struct file *f = m->from->file;
    struct typed before = m->to->typed;
    bool knows = before.set || stored_has(m->l, m->to);
    if (f->typed.set && !(f->inherited && knows))
        m->to->typed = f->typed;
    int r = edits_accept(m->l, m->to, text, e);
    if (r < 0)
        m->to->typed = before;
    return r;
}

/* A file that is open and has got no value yet takes the name: what is written to it will be the
 * value of that name. */
static int unfinished(const struct move *m)
{
    if (key_is_own(m->to->key, m->to->key_len))
        return -EPERM;
    bool anew = !m->to->file;
    slot_event(m->n, m->to, SLOT_CREATE);
    struct file *f = name_move(m->n, m->from, m->to);
    f->draft->anew = anew;
    file_set_kind(m->l, f, FILE_KEY);
    name_reap(m->n, m->from);
    return 0;
}

/* Renamed after it was opened, before it was written (programs with a buffer of their own). */
static int unwritten_to_key(const struct move *m)
{
    struct file *f = m->from->file;
    CLEANUP(shown_free) struct shown before = stored_value(m->l, m->to);
    int r = unfinished(m);
    if (r < 0)
        return r;
    draft_to_key(f->draft, &before, true);
    if (!f->inherited)
        f->draft->typed = f->typed;
    lost_backup(m->l, f->parked); /* of another key: a key that has a file again is not parked */
    return 0;
}

/* The write may fail: then each of the two names is what it was, and may have been used since. */
static int keep_spares(const struct move *m)
{
    int r = name_keep_spare(m->n, m->from);
    if (r == 0 && !m->to->file) /* what it has is its spare then */
        r = name_keep_spare(m->n, m->to);
    return r;
}

/* The key's file is what the helper's was; `left`: its bytes, if it is being written. */
static void become_key(const struct move *m, struct file *f, struct buf *left, bool is_edit)
{
    struct names *n = m->n;
    CLEANUP(shown_free) struct shown before = stored_value(m->l, m->to);
    if (is_edit) /* the time goes with it: gedit compares it when it saves again */
        m->to->mtime = m->from->mtime;
    if (f->draft) {
        draft_to_key(f->draft, &before, false);
        file_free_content(n, f);
        f->content = *left;
        n->helper_bytes += left->len;
        *left = BUF_INIT;
    }
    if (is_edit) {
        batch_move(m->l, m->from, m->to);
        return;
    }
    promise_make(&f->promise, m->to->edit); /* it may be pending by another file */
    (void)name_move(n, m->from, m->to);
    file_set_kind(m->l, f, FILE_KEY);
    file_is_key(n, f);
    name_reap(n, m->from);
}

/* sed -i, rsync, an editor's own way to save: the helper's bytes become the key's value. */
static int helper_to_key(const struct move *m)
{
    CLEANUP(buf_free) struct buf left = BUF_INIT;
    struct file *f = m->from->file;
    struct err e = {0};
    if (f->draft && f->draft->text.len == 0 && !f->draft->closed)
        return unwritten_to_key(m);
    const struct buf *text = file_bytes(f);
    if (f->draft)
        buf_add(&left, text->data, text->len);
    int r = buf_error(&left) < 0 ? buf_error(&left) : batch_room(m->l);
    if (r == 0)
        r = keep_spares(m);
    if (r < 0)
        return r;
    r = accept_helper(m, text, &e);
    if (r < 0)
        return refused(m, &e);
    struct name *parked = f->parked; /* of another key, which has no other copy */
    become_key(m, f, &left, r > 0);
    lost_backup(m->l, parked);
    return r > 0 ? writer_accepted(m->l, m->wait) : 0;
}

/* Over a key that there is, or was: it keeps place and type and takes the value; the source is gone. */
static int key_over_key(const struct move *m)
{
    CLEANUP(buf_free) struct buf text = BUF_INIT;
    struct err e = {0};
    size_t before = edit_mark(&m->l->next.change);
    CLEANUP(shown_free) struct shown s = stored_value(m->l, m->from);
    shown_text(&s, &text);
    if (buf_error(&text))
        return buf_error(&text);
    int r = edits_accept(m->l, m->to, &text, &e);
    if (r < 0)
        return refused(m, &e);
    struct file *f = name_leave(m->from); /* which is not to be its spare */
    r = edits_remove(m->l, m->from, &e);
    name_take(m->n, m->from, f);
    if (r < 0) { /* neither the one nor the other */
        batch_undo(m->l, before);
        name_follow(m->l, m->to);
        return refused(m, &e);
    }
    m->to->edit = m->l->edits; /* both are one */
    batch_move(m->l, m->from, m->to);
    return writer_accepted(m->l, m->wait);
}

/* To a name that no key has: the same key, at the same place. */
static int key_to_new(const struct move *m)
{
    struct err e = {0};
    int r = edits_rename(m->l, m->from, m->to, &e);
    if (r < 0)
        return refused(m, &e);
    batch_move(m->l, m->from, m->to);
    return writer_accepted(m->l, m->wait);
}

static int key_to_key(const struct move *m)
{
    if (strcmp(m->from->key, "general.alignment") == 0)
        return -EINVAL;
    if (stays(m->from))
        return -EPERM;
    if (!stored_has(m->l, m->from)) /* it was made and has no value yet */
        return unfinished(m);
    int r = keep_spares(m);
    if (r == 0)
        r = batch_room(m->l);
    if (r < 0)
        return r;
    bool known =
        stored_has(m->l, m->to) || (m->to->typed.set && m->to->rank); /* or it was removed */
    return known ? key_over_key(m) : key_to_new(m);
}

/* What the new name is; *key: that of a key. */
static int classify_target(struct live *l, const char *text, bool *key)
{
    const struct name *x = names_find(&l->names, text);
    if (x && x->file && x->file->kind != FILE_KEY) {
        *key = false;
        return 0;
    }
    enum name_class class = x && x->key ? NAME_KEY : look_classify(l, text);
    *key = class == NAME_KEY;
    return class == NAME_INVALID ? -EINVAL : 0;
}

#define NOREPLACE (1u << 0) /* RENAME_NOREPLACE of Linux */

int live_rename(struct live *l, const char *old, const char *text, unsigned flags,
                struct live_wait *w)
{
    bool key;
    struct err unready; /* the write says so */
    writer_ready(l, &unready);
    LOCKED(&l->lock);
    struct file *f = look_find_typed(l, old);
    struct move m = {.l = l, .n = &l->names, .wait = w};
    if (!f)
        return -ENOENT;
    if (flags & ~NOREPLACE)
        return -EINVAL;
    if (flags & NOREPLACE && look_find(l, text))
        return -EEXIST;
    if (strcmp(f->name->text, text) == 0)
        return 0;
    int r = classify_target(l, text, &key);
    if (r < 0)
        return r;
    if (key && f->kind == FILE_LINK)
        return -EPERM;
    m.from = f->name;
    m.to = names_get(&l->names, text, key);
    if (!m.to)
        return -ENOMEM;
    if (f->kind == FILE_KEY)
        r = key ? key_to_key(&m) : key_to_helper(&m);
    else
        r = key ? helper_to_key(&m) : helper_to_helper(&m);
    if (r < 0)
        name_reap(&l->names, m.to);
    return r;
}

/* ---- links ---- */

/* emacs locks a file by a link .#NAME. A key cannot be a link. */
int live_symlink(struct live *l, const char *text, const char *target, struct live_attr *ret)
{
    struct names *n = &l->names;
    LOCKED(&l->lock);
    if (look_find(l, text))
        return -EEXIST;
    if (look_classify(l, text) != NAME_HELPER)
        return -EPERM;
    if (!names_have_room(n, 0, strlen(target)))
        return -ENOSPC;
    struct file *f = names_make(n, text, FILE_LINK);
    if (!f)
        return -ENOMEM;
    buf_str(&f->content, target);
    n->helper_bytes += f->content.len;
    if (buf_error(&f->content)) {
        unlink_helper(l, f->name);
        return -ENOMEM;
    }
    (void)look_attr(l, f, ret); /* its size is known */
    f->lookups++;
    return 0;
}

int live_readlink(struct live *l, uint32_t number, struct buf *out)
{
    LOCKED(&l->lock);
    const struct file *f = names_file(&l->names, number);
    if (!f || f->kind != FILE_LINK)
        return -EINVAL;
    buf_add(out, f->content.data, f->content.len);
    return buf_error(out);
}

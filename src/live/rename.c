/* SPDX-License-Identifier: MIT */
/*
 * Names of metadata files: removed and changed. See tree.h, keys.h.
 *
 * A key that leaves its name for a helper's (vim's backup) stays in the file: most often it comes
 * back under its name a moment later, with another text, and that is one edit of the same key.
 */
#include "gguf/keys.h"
#include "live/internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>

void log_stray(const struct live *l, const struct kfile *f)
{
    char name[SHOW_MAX];
    live_log(l, LOG_WARNING, "%s: not saved: " STRAY, show(name, f->file, strlen(f->file)));
}

static bool is_helper(const struct kfile *f)
{
    return f->state == KFILE_HELPER || f->state == KFILE_LINK;
}

/* Keys without which the file is no model, or which this program keeps for itself. */
static bool stays(const struct kfile *f)
{
    return strcmp(f->key, "general.architecture") == 0 || key_is_own(f->key, f->key_len);
}

/* *ret: the file that is seen under a name, NULL if there is none. 0, -ENOMEM. */
static int visible(struct live *l, const char *name, struct kfile **ret)
{
    uint32_t number = keys_find(&l->keys, l->newest->view.gen, name);
    *ret = number == KV_NONE ? NULL : keys_touch(&l->keys, l->newest->view.gen, number);
    return number == KV_NONE || *ret ? 0 : -ENOMEM;
}

/* ---- unlink ---- */

static void remove_later(struct live *l, struct kfile *f)
{
    kfile_set_state(&l->keys, f, KFILE_REMOVED);
    writer_later(l, WRITER_SOON);
}

/* The last copy of a key that is away is gone: that was meant. */
static void lost_backup(struct live *l, struct kfile *key)
{
    if (stays(key))
        kfile_set_state(&l->keys, key, KFILE_KEY);
    else
        remove_later(l, key);
}

static void end_helper(struct live *l, struct kfile *h)
{
    if (h->away)
        lost_backup(l, h->away);
    keys_kill(&l->keys, h);
}

static int unlink_key(struct live *l, struct kfile *f, const struct err *unready)
{
    if (stays(f))
        return -EPERM;
    if (unready->code)
        return edits_refused(l, f, unready);
    draft_drop(f);
    if (edits_stored(l, f))
        remove_later(l, f);
    else
        kfile_set_state(&l->keys, f, KFILE_GONE); /* created, and nothing accepted yet */
    return 0;
}

int live_unlink(struct live *l, const char *name)
{
    struct err unready;
    struct kfile *f;
    writer_ready(l, &unready);
    (void)pthread_mutex_lock(&l->lock);
    int r = visible(l, name, &f);
    if (!f)
        r = r < 0 ? r : -ENOENT;
    else if (is_helper(f))
        end_helper(l, f);
    else
        r = unlink_key(l, f, &unready);
    (void)pthread_mutex_unlock(&l->lock);
    return r;
}

/* ---- rename ---- */

struct move {
    struct live *l;
    struct kfile *from;
    struct kfile *to; /* of the new name, in whatever state; NULL: there is none */
    const char *name; /* the new one */
    struct live_wait *wait;
};

/* The key's text as it is shown, for a helper that takes its place. */
static int copy_text(struct live *l, struct kfile *f, struct buf *out)
{
    const struct buf *bytes = kfile_bytes(f);
    CLEANUP(shown_free) struct shown s = edits_shown(l, f->id);
    if (bytes)
        buf_add(out, bytes->data, bytes->len);
    else
        shown_text(&s, out);
    return buf_error(out);
}

static int helper_to_helper(struct move *m)
{
    if (m->to)
        end_helper(m->l, m->to);
    return keys_rename(&m->l->keys, m->from, m->name);
}

/* The text, and who writes it, pass to a helper. */
static void become_helper(struct kfile *f, struct kfile *h, struct buf *text)
{
    struct draft *d = draft_take(f);
    if (d) {
        buf_free(&d->text);
        d->whole = text->len == 0;
        d->typed.set = false;
        d->refused = 0;
        d->was = KV_NONE;
        draft_give(d, h);
    }
    *(d ? &d->text : &h->content) = *text;
    *text = BUF_INIT;
}

/* vim's backup: key -> key~. The key is away until it is created anew, or its backup removed. */
static int key_to_helper(struct move *m)
{
    CLEANUP(buf_free) struct buf text = BUF_INIT;
    struct keys *k = &m->l->keys;
    int r = copy_text(m->l, m->from, &text);
    if (r == 0 && !keys_have_room(k, 0, text.len))
        r = -ENOSPC;
    if (r < 0)
        return r;
    struct typed type = edits_known_type(m->l, m->from);
    if (m->to)
        end_helper(m->l, m->to);
    struct kfile *h = keys_add(k, m->name, KFILE_HELPER);
    if (!h)
        return -ENOMEM;
    k->helper_bytes += text.len;
    h->typed = type; /* for the new name that it may get as a key */
    h->inherited = true;
    h->mtime = m->from->mtime;
    become_helper(m->from, h, &text);
    bool stored = edits_stored(m->l, m->from);
    kfile_set_state(k, m->from, stored ? KFILE_AWAY : KFILE_GONE);
    if (stored)
        kfile_pair(m->from, h);
    return 0;
}

/* A rename was refused: the old value is back, also of a key that was out of the way (sed -i.bak).
 * Where the new name is no file, the old one has the reason. */
static int refused(const struct move *m, const struct err *e)
{
    if (m->to->state == KFILE_AWAY || m->to->state == KFILE_REMOVED)
        kfile_set_state(&m->l->keys, m->to, KFILE_KEY);
    if (keys_visible(&m->l->keys, m->to->id))
        return edits_refused(m->l, m->to, e);
    char name[SHOW_MAX];
    live_log(m->l, LOG_WARNING, "%s: refused: %s", show(name, m->to->file, strlen(m->to->file)),
             e->msg);
    kfile_set_error(m->from, e->msg);
    return e->code;
}

/* What an accepted edit or a failed one gives, with the reason logged. */
static int outcome(struct move *m, int r, const struct err *e)
{
    return r < 0 ? refused(m, e) : r > 0 ? writer_accepted(m->l, m->wait) : 0;
}

/* The kfile of the new name as a key; made if there is none. */
static int target_key(struct move *m)
{
    if (m->to)
        return 0;
    m->to = keys_add(&m->l->keys, m->name, KFILE_NEW);
    if (!m->to)
        return -ENOMEM;
    kfile_set_state(&m->l->keys, m->to, KFILE_GONE);
    return 0;
}

/* The helper's bytes as the key's value, of the type that the helper was given, if it was. */
static int accept_helper(const struct move *m, const struct buf *text, struct err *e)
{
    struct kfile *to = m->to;
    struct typed before = to->typed;
    bool knows = before.set || edits_stored(m->l, to);
    if (m->from->typed.set && !(m->from->inherited && knows))
        to->typed = m->from->typed;
    int r = edits_accept(m->l, to, text, e);
    if (r < 0)
        to->typed = before;
    return r;
}

/* Who writes one file writes the other from now on. */
static void follow(struct kfile *from, struct kfile *to)
{
    draft_give(draft_take(from), to);
    from->moved = to;
    to->moved = NULL;
}

/* The same for a rename that is to be written: if it is not, they go back. The caller has made room
 * (moves_room()). */
static void follow_for_now(struct live *l, struct kfile *from, struct kfile *to)
{
    follow(from, to);
    moves_add(&l->keys, from, to);
    if (to->draft && to->draft->was == KV_NONE)
        to->draft->was = from->id;
}

/* A file that is open and has got no value yet takes the name: what is written to it will be the
 * value of that name. */
static int unfinished(struct move *m)
{
    if (key_is_own(m->to->key, m->to->key_len))
        return -EPERM;
    follow(m->from, m->to);
    if (m->to->state != KFILE_KEY)
        kfile_set_state(&m->l->keys, m->to, KFILE_NEW);
    return 0;
}

/* Renamed after it was opened, before it was written (programs with a buffer of their own). */
static bool is_unwritten(const struct kfile *f)
{
    return f->draft && f->draft->text.len == 0 && !f->draft->closed;
}

/* A draft that was a helper's is a key's from now on. */
static void draft_of_key(struct live *l, struct draft *d)
{
    shown_free(&d->before);
    d->before = edits_shown(l, d->of->id);
    d->accepted = false;
}

static int unwritten_to_key(struct move *m)
{
    int r = unfinished(m);
    if (r < 0)
        return r;
    draft_truncate(m->l, m->to->draft);
    draft_of_key(m->l, m->to->draft);
    if (!m->from->inherited)
        m->to->draft->typed = m->from->typed;
    end_helper(m->l, m->from);
    return 0;
}

/* Who writes the helper writes the key from now on; the helper's bytes stay: they are `left`. */
static void follow_to_key(struct move *m, struct buf *left, bool is_edit)
{
    struct draft *d = m->from->draft;
    if (is_edit)
        follow_for_now(m->l, m->from, m->to);
    else
        follow(m->from, m->to);
    if (!d)
        return;
    m->from->content = *left;
    *left = BUF_INIT;
    d->written = true;
    d->dirty = false;
    d->losses = m->l->writer.losses;
    draft_of_key(m->l, d);
}

/* sed -i, rsync, an editor's own way to save: the helper's bytes become the key's value. The time
 * goes with them: gedit compares it the next time that it saves. */
static int helper_to_key(struct move *m)
{
    CLEANUP(buf_free) struct buf left = BUF_INIT;
    struct err e = {0};
    int r = target_key(m);
    if (r == 0 && is_unwritten(m->from))
        return unwritten_to_key(m);
    const struct buf *text = kfile_bytes(m->from);
    if (m->from->draft)
        buf_add(&left, text->data, text->len);
    if (r == 0)
        r = buf_error(&left) < 0 ? buf_error(&left) : moves_room(&m->l->keys);
    if (r < 0)
        return r;
    r = accept_helper(m, text, &e);
    if (r < 0)
        return refused(m, &e);
    if (r > 0)
        m->to->mtime = m->from->mtime;
    follow_to_key(m, &left, r > 0);
    if (m->from->away) /* the backup of another key, which has no other copy */
        lost_backup(m->l, m->from->away);
    if (r == 0) {
        keys_kill(&m->l->keys, m->from);
        return 0;
    }
    kfile_set_state(&m->l->keys, m->from, KFILE_ASIDE);
    return writer_accepted(m->l, m->wait);
}

/* It was made and has no value yet. */
static int new_to_key(struct move *m)
{
    int r = unfinished(m);
    if (r < 0)
        return r;
    kfile_set_state(&m->l->keys, m->from, KFILE_GONE);
    return 0;
}

/* Over a key that is there: it keeps place and type and takes the value; the source is gone. */
static int key_over_key(struct move *m)
{
    CLEANUP(buf_free) struct buf text = BUF_INIT;
    struct err e = {0};
    struct edit_change *c = &m->l->writer.next.change;
    size_t before = edit_mark(c);
    CLEANUP(shown_free) struct shown s = edits_shown(m->l, m->from->id);
    shown_text(&s, &text);
    int r = buf_error(&text);
    if (r == 0)
        r = moves_room(&m->l->keys);
    if (r < 0)
        return r;
    r = edits_accept(m->l, m->to, &text, &e);
    if (r < 0)
        return refused(m, &e);
    r = edits_remove(m->l, m->from, &e);
    if (r < 0) { /* neither the one nor the other */
        edit_undo(c, before);
        keys_settle(&m->l->keys, m->to, edits_stored(m->l, m->to));
        return refused(m, &e);
    }
    follow_for_now(m->l, m->from, m->to);
    if (m->from->state == KFILE_NEW)
        kfile_set_state(&m->l->keys, m->from, KFILE_GONE);
    return writer_accepted(m->l, m->wait);
}

/* To a name that no key has: the same key, at the same place. */
static int key_to_new(struct move *m)
{
    struct err e = {0};
    int r = moves_room(&m->l->keys);
    if (r < 0)
        return r;
    r = edits_rename(m->l, m->from, m->to, &e);
    if (r < 0)
        return outcome(m, r, &e);
    kfile_set_state(&m->l->keys, m->from, KFILE_GONE);
    kfile_set_state(&m->l->keys, m->to, KFILE_KEY);
    follow_for_now(m->l, m->from, m->to);
    return writer_accepted(m->l, m->wait);
}

static int key_to_key(struct move *m)
{
    if (strcmp(m->from->key, "general.alignment") == 0)
        return -EINVAL;
    if (stays(m->from))
        return -EPERM;
    int r = target_key(m);
    if (r < 0)
        return r;
    if (!edits_stored(m->l, m->from))
        return new_to_key(m);
    return edits_stored(m->l, m->to) ? key_over_key(m) : key_to_new(m);
}

#define NOREPLACE (1u << 0) /* RENAME_NOREPLACE of Linux */

/* Under the lock. */
static int move(struct move *m, const char *old_name, unsigned flags)
{
    struct live *l = m->l;
    int r = visible(l, old_name, &m->from);
    if (!m->from)
        return r < 0 ? r : -ENOENT;
    if (flags & ~NOREPLACE)
        return -EINVAL;
    if (flags & NOREPLACE && keys_find(&l->keys, l->newest->view.gen, m->name) != KV_NONE)
        return -EEXIST;
    if (strcmp(old_name, m->name) == 0)
        return 0;
    m->to = keys_named(&l->keys, m->name);
    if (!m->to)
        r = visible(l, m->name, &m->to);
    if (r < 0)
        return r;
    enum name_class class = m->to && m->to->key ? NAME_KEY : classify(l, m->name);
    if (class == NAME_INVALID)
        return -EINVAL;
    bool to_key = class == NAME_KEY && !(m->to && is_helper(m->to));
    if (to_key && m->from->state == KFILE_LINK)
        return -EPERM;
    if (is_helper(m->from))
        return to_key ? helper_to_key(m) : helper_to_helper(m);
    return to_key ? key_to_key(m) : key_to_helper(m);
}

int live_rename(struct live *l, const char *name, const char *new_name, unsigned flags,
                struct live_wait *w)
{
    struct move m = {.l = l, .name = new_name, .wait = w};
    (void)pthread_mutex_lock(&l->lock);
    int r = move(&m, name, flags);
    (void)pthread_mutex_unlock(&l->lock);
    return r;
}

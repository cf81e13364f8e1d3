/* SPDX-License-Identifier: MIT */
/* Opens, creates, reads, writes and closes files (files.h). Writes go to a draft. */
#include "live/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>

#include "base/bytes.h"
#include "base/lock.h"
#include "gguf/value.h"
#include "live/edits.h"
#include "live/tensors.h"

struct live_file {
    struct file *file;
    bool writes;   /* the handle is a writer of the draft */
    bool append;   /* each write goes to the end of the file */
    bool wrote;    /* this handle wrote part of the draft */
    bool fresh;    /* this handle wrote part of the draft since its last flush */
    uint64_t edit; /* the edit that contains the handle's writes (writer.h) */
    int refused;   /* 0, or the error from the last flush or fsync, until the next write */
    unsigned of;   /* draft->restarts at the time of `refused` */
};

/* ---- open and release ---- */

/* Open a file with this handle. made: no file had this name before. */
static int open_locked(struct live *l, struct live_file *h, struct file *f, int flags, bool made,
                       const struct err *unready)
{
    bool writes = (flags & O_ACCMODE) != O_RDONLY;
    if (f->kind == FILE_LINK)
        return -ELOOP;
    if (writes && !file_name(f))
        return -ESTALE; /* makes the kernel look the name up again */
    int r = writes ? draft_join(l, f, flags & O_TRUNC, made, unready) : 0;
    if (r < 0)
        return r;
    *h = (struct live_file){.file = f, .writes = writes, .append = flags & O_APPEND};
    f->opens++;
    return 0;
}

/* Release a handle. A key without a value disappears. Returns 0, or an error if a truncation
 * without a write was refused. */
static int release_locked(struct live *l, struct live_file *h)
{
    struct file *f = h->file;
    struct name *x = file_name(f);
    const int r = h->writes ? draft_leave(l, f) : 0;
    f->opens--;
    file_is_key(&l->names, f);
    if (x && x->key)
        name_hide(l, x);
    else
        file_reap(&l->names, f);
    return r;
}

/* Release a handle without a request that could report an error. */
static void release_quietly(struct live *l, struct live_file *h)
{
    const int r = release_locked(l, h);
    if (r < 0)
        l->writer.failed = r;
}

void live_release(struct live *l, struct live_file *h)
{
    lock_take(&l->lock);
    release_quietly(l, h);
    lock_drop(&l->lock);
    free(h);
}

/* ---- files made by mknod ---- */

void files_end_made(struct live *l)
{
    struct live_file *h = l->names.made.file;
    assert(lock_held(&l->lock));
    l->names.made.file = NULL;
    if (h)
        release_quietly(l, h);
    free(h);
}

int live_make(struct live *l, const char *name, struct live_attr *ret)
{
    struct live_file *h;
    int r = live_create(l, name, O_EXCL, ret, &h);
    if (r < 0)
        return r;
    LOCKED(&l->lock);
    files_end_made(l);
    l->names.made.file = h;
    l->names.made.due = when_now();
    l->names.made.due.tv_sec += LIVE_MADE;
    pool_call_at(&l->writer.job, &l->names.made.due);
    return 0;
}

/* Get the content of a file opened for reading, which is bytes in memory or a value to render. The
 * bytes of a helper are read by live_read() instead. */
static int text_of(const struct live *l, struct file *f, struct live_text *ret)
{
    const struct buf *bytes = file_bytes(f);
    if (f->kind == FILE_HELPER)
        return 0;
    ret->fixed = true;
    if (bytes)
        buf_add(&ret->bytes, bytes->data, bytes->len);
    else
        ret->value = look_shown(l, f);
    if (!file_name(f) && !bytes && !ret->value.snap)
        /* The key was removed after the lookup; this makes the kernel look the name up again. */
        return -ESTALE;
    return buf_error(&ret->bytes);
}

int live_open_file(struct live *l, uint32_t number, int flags, struct live_file **ret,
                   struct live_text *text)
{
    struct err unready = {0};
    struct live_file *h = calloc(1, sizeof(*h));
    if (!h)
        return -ENOMEM;
    if ((flags & O_ACCMODE) != O_RDONLY)
        writer_ready(l, &unready);
    lock_take(&l->lock);
    struct file *f = look_file(l, number);
    int r = f ? open_locked(l, h, f, flags, false, &unready) : l->names.missing;
    if (r == 0 && !h->writes)
        r = text_of(l, f, text);
    else if (r == 0) /* not earlier: this handle may have joined the draft of the made file */
        files_end_made(l);
    if (r < 0 && h->file) /* its text could not be read */
        (void)release_locked(l, h);
    lock_drop(&l->lock);
    if (r < 0)
        free(h);
    else
        *ret = h;
    return r;
}

/* ---- create ---- */

/* Refuse a name that can be neither a key's nor a helper's. */
static int refuse_name(const struct live *l, const char *text)
{
    char shown[SHOW_MAX];
    live_log(l, LOG_WARNING,
             strchr(text, '.') && key_valid(text, strlen(text))
                 ? "%s: refused: a backup beside a key would not outlast the mount"
                 : "%s: refused: a key's name is letters, digits, _ and - with dots between, as in "
                   "my.flag",
             show(shown, text, strlen(text)));
    return -EINVAL;
}

/* Make a file for a name that does not have one. */
static int make_file(struct live *l, const char *text, enum name_way way, struct file **ret)
{
    struct names *n = &l->names;
    enum name_class class = look_classify(l, text, way);
    if (class == NAME_INVALID)
        return refuse_name(l, text);
    if (key_is_own(text, strlen(text)) && !look_is_key(l, text))
        return -EPERM;
    struct file *f = names_make(n, text, class == NAME_KEY ? FILE_KEY : FILE_HELPER);
    if (!f)
        return -ENOMEM;
    if (f->kind == FILE_KEY)
        name_spare(n, f->of);
    else
        f->of->mtime = when_date();
    *ret = f;
    return 0;
}

/* Undo make_file(), because the file could not be opened. */
static void unmake(struct live *l, struct file *f)
{
    if (f->kind == FILE_KEY)
        name_hide(l, f->of);
    else
        name_leave(&l->names, f->of);
}

/* Create a file. KEY:TYPE means KEY, which is created with that type if it does not exist. */
static int create_locked(struct live *l, const char *name, int flags, const struct err *unready,
                         struct live_attr *ret, struct live_file *h)
{
    char key[TREE_NAME_MAX + 1];
    struct typed type;
    int r = 0;
    LOCKED(&l->lock);
    struct file *f = look_find(l, name);
    bool typed = name_typed(name, key, &type);
    if (!f && typed)
        f = look_find(l, key);
    if (f && flags & O_EXCL)
        return -EEXIST;
    bool made = !f;
    if (made)
        r = make_file(l, typed ? key : name, flags & LIVE_MKSTEMP ? NAME_MKSTEMP : NAME_CREATED,
                      &f);
    if (r == 0)
        r = open_locked(l, h, f, (flags & ~O_ACCMODE) | O_RDWR, made, unready);
    if (r < 0 && f && made)
        unmake(l, f);
    if (r < 0)
        return r;
    if (typed && f->kind == FILE_KEY)
        f->draft->typed = type;
    struct shown shown = look_attr(l, f, ret);
    shown_free(&shown);
    ret->size = f->draft->text.len;
    f->lookups++;
    files_end_made(l);
    return 0;
}

int live_create(struct live *l, const char *name, int flags, struct live_attr *ret,
                struct live_file **f)
{
    struct err unready;
    struct live_file *h = calloc(1, sizeof(*h));
    if (!h)
        return -ENOMEM;
    writer_ready(l, &unready);
    int r = create_locked(l, name, flags, &unready, ret, h);
    if (r < 0)
        free(h);
    else
        *f = h;
    return r;
}

/* ---- read and write ---- */

/* The content is copied with the lock held, because other writers may move it. A file that was a
 * helper when it was opened keeps its bytes until it is closed. */
size_t live_read(struct live *l, const struct live_file *h, uint64_t off, size_t n, void *dst)
{
    LOCKED(&l->lock);
    const struct file *f = h->file;
    bool drafted = f->draft && (h->writes || f->kind == FILE_HELPER);
    const struct buf *b = drafted ? &f->draft->text : &f->content;
    n = (size_t)within_u64(off, n, b->len);
    if (n > 0)
        memcpy(dst, b->data + off, n);
    return n;
}

int live_attr(struct live *l, uint32_t number, const struct live_file *h, struct live_attr *ret)
{
    struct shown shown = SHOWN_NONE;
    lock_take(&l->lock);
    const bool first = look_is_first(l, number);
    struct file *f = first ? NULL : look_file(l, number);
    if (f || first)
        shown = first ? look_first(l, number, ret) : look_attr(l, f, ret);
    if (f && h && h->writes) {
        shown_free(&shown);
        ret->size = h->file->draft->text.len;
    }
    const int r = first || f ? 0 : l->names.missing;
    lock_drop(&l->lock);
    look_measure(&shown, ret);
    return r;
}

int live_write(struct live *l, struct live_file *h, uint64_t off, const void *bytes, size_t n)
{
    if (!h->writes)
        return -EBADF;
    LOCKED(&l->lock);
    struct file *f = h->file;
    h->wrote = h->fresh = true;
    h->refused = 0;
    int r = draft_write(l, f, h->append, off, bytes, n);
    if (r == 0 && f->kind == FILE_HELPER && file_name(f))
        f->of->mtime = when_date();
    return r;
}

/* Accept the draft; h->edit is then the edit that contains this handle's writes. Returns 0 or
 * -errno. */
static int settle(struct live *l, struct live_file *h)
{
    const struct file *f = h->file;
    const struct draft *d = f->draft;
    const unsigned restarts = d->restarts;
    if (h->refused && h->of != restarts) /* another program has restarted the draft since */
        return h->refused;
    int r = draft_settle(l, h->file);
    h->refused = r < 0 ? r : 0;
    h->of = restarts;
    const bool judged = r >= 0 && !draft_is_shown(d); /* otherwise it was only truncated */
    /* If another file has taken the name, the written data shares the fate of the edit that
     * replaced this file. */
    const bool replaced = f->kind == FILE_KEY && !file_name(f) && d->state == DRAFT_WRITTEN;
    if (h->fresh && (judged || replaced))
        h->edit = f->promise.edit;
    h->fresh &= !judged;
    return r < 0 ? r : 0;
}

/* Text that other handles wrote may be incomplete, so those handles must flush it. */
int live_flush(struct live *l, struct live_file *h, struct live_wait *w)
{
    if (!h->writes)
        return 0;
    LOCKED(&l->lock);
    if (!h->wrote && draft_is_unjudged(h->file->draft))
        return 0;
    h->file->draft->closed = true;
    int r = settle(l, h);
    return r < 0 ? r : writer_flush(l, &h->file->promise, h->edit, w);
}

/* Sync a file. If no write through this handle was accepted, sync the key's edits, whichever handle
 * made them (sync FILE). */
static int fsync_file(struct live *l, struct live_file *h, struct live_wait *w)
{
    const struct name *x = file_name(h->file);
    int r = h->writes ? settle(l, h) : 0;
    uint64_t edit = h->edit;
    if (!edit)
        edit = x && x->key ? x->edit : h->file->promise.edit;
    return r < 0 ? r : writer_sync(l, &h->file->promise, edit, w);
}

static int fsync_folder(struct live *l, struct live_wait *w)
{
    files_end_made(l);
    if (new_tensors_closing(l))
        return writer_sync_released(l, w);
    if (l->objects.doomed.n || l->objects.fresh.n)
        objects_sync(&l->objects);
    int r = writer_sync_all(l, w);
    if (r != LIVE_PARKED || !writer_has_work(l)) /* no turn of the writer will reset it */
        l->objects.now = false;
    return r;
}

int live_fsync(struct live *l, struct live_file *h, struct live_wait *w)
{
    LOCKED(&l->lock);
    return h ? fsync_file(l, h, w) : fsync_folder(l, w);
}

static int truncate_number(struct live *l, uint32_t number, uint64_t size,
                           const struct err *unready, struct live_wait *w)
{
    struct live_file own = {0};
    struct file *f = look_file(l, number);
    int r = f ? open_locked(l, &own, f, O_WRONLY, false, unready) : l->names.missing;
    if (r < 0)
        return r;
    r = draft_truncate(l, own.file, size);
    own.fresh = true;
    if (r == 0)
        r = settle(l, &own);
    if (r == 0)
        r = writer_flush(l, &own.file->promise, own.edit, w);
    const int released = release_locked(l, &own);
    return r ? r : released;
}

int live_truncate(struct live *l, uint32_t number, struct live_file *h, uint64_t size,
                  struct live_wait *w)
{
    struct err unready;
    writer_ready(l, &unready);
    LOCKED(&l->lock);
    if (!h || !h->writes)
        return truncate_number(l, number, size, &unready, w);
    h->wrote = h->fresh = true;
    h->refused = 0;
    return draft_truncate(l, h->file, size);
}

/* True for keys that every model needs or that this program reserves for itself. */
static bool stays(const struct name *x)
{
    return strcmp(x->key, "general.architecture") == 0 || key_is_own(x->key, x->key_len);
}

/* ---- unlink ---- */

static void doom(struct live *l, struct name *x)
{
    if (!stored_has(l, x))
        return;
    name_doom(&l->names, x);
    newest_touch(l->newest); /* views of the whole model no longer show the key */
    writer_later(l, WRITER_SOON);
}

/* Remove a hidden key whose last copy was deleted: the deletion was meant for the key. key may be
 * NULL. */
static void lost_backup(struct live *l, struct name *key)
{
    if (!key)
        return;
    name_spare(&l->names, key);
    if (!stays(key))
        doom(l, key);
}

static void unlink_helper(struct live *l, struct name *x)
{
    lost_backup(l, x->file->parked);
    name_set_error(&l->names, x, NULL);
    name_leave(&l->names, x);
}

int live_unlink(struct live *l, const char *text)
{
    struct err unready;
    writer_ready(l, &unready);
    LOCKED(&l->lock);
    struct file *f = look_find_typed(l, text);
    if (!f)
        return l->names.missing;
    struct name *x = f->of;
    if (f->kind != FILE_KEY) {
        unlink_helper(l, x);
        return 0;
    }
    if (stays(x))
        return -EPERM;
    if (unready.code)
        return name_refused(l, x, &unready);
    doom(l, x);
    name_leave(&l->names, x);
    return 0;
}

/* ---- rename ---- */

struct move {
    struct live *l;
    struct names *n;        /* the names of `l` */
    struct name *from, *to; /* both are looked up before any change */
    struct live_wait *wait;
};

/* Copy the text being shown. For a key that was removed by an undo while it was open, copy its
 * writers' text. */
static int copy_text(const struct move *m, struct buf *out)
{
    const struct draft *d = m->from->file->draft;
    const struct buf *bytes = file_bytes(m->from->file);
    if (!bytes && d && !d->why.code && !stored_has(m->l, m->from))
        bytes = &d->text;
    if (bytes) {
        buf_add(out, bytes->data, bytes->len);
    } else {
        CLEANUP(shown_free) struct shown s = stored_value(m->l, m->from);
        shown_text(&s, out);
    }
    return buf_error(out);
}

/* Record that another file is about to take a helper's name: if the helper was a key's backup, the
 * key is removed. */
static void replace_helper(const struct move *m)
{
    if (m->to->file)
        lost_backup(m->l, m->to->file->parked);
}

static int helper_to_helper(const struct move *m)
{
    const char *error = m->from->error;
    replace_helper(m);
    name_swap_inos(m->n, m->from, m->to);
    m->to->mtime = m->from->mtime;
    name_take(m->n, m->to, m->from->file);
    name_set_error(m->n, m->to, error);
    name_set_error(m->n, m->from, NULL);
    name_reap(m->n, m->from);
    return 0;
}

/* Make vim's backup: key -> key~. The key is hidden until it is created again or its backup is
 * removed. */
static int key_to_helper(const struct move *m)
{
    CLEANUP(buf_free) struct buf text = BUF_INIT;
    struct names *n = m->n;
    struct typed type = stored_known_type(m->l, m->from);
    int r = copy_text(m, &text);
    if (r == 0 && !names_have_room(n, 0, text.len))
        r = -ENOSPC;
    if (r < 0)
        return r;
    replace_helper(m);
    struct file *f = m->from->file;
    name_take(n, m->to, f);
    f->kind = FILE_HELPER;
    f->typed = type; /* in case the new name becomes a key */
    f->inherited = true;
    m->to->mtime = m->from->mtime;
    if (f->draft) {
        n->helper_bytes += text.len;
        draft_to_helper(f->draft, &text);
    }
    file_set_content(n, f, &text);
    if (stored_has(m->l, m->from)) {
        m->from->backup = f;
        f->parked = m->from;
    }
    name_reap(n, m->from);
    return 0;
}

/* Refuse a rename. The old value reappears, even if the key was moved out of the way (sed -i.bak).
 * If the new name has no file, the old name shows the reason. */
static int refused(const struct move *m, const struct err *e)
{
    name_spare(m->n, m->to);
    if (look_visible(m->l, m->to))
        return name_refused(m->l, m->to, e);
    char name[SHOW_MAX];
    live_log(m->l, LOG_WARNING, "%s: refused: %s", show(name, m->to->text, strlen(m->to->text)),
             e->msg);
    name_set_error(m->n, m->from, e->msg);
    return e->code;
}

/* Name an open file that has no value yet: bytes written to it will become the value of the key
 * with that name. */
static int unfinished(const struct move *m)
{
    if (key_is_own(m->to->key, m->to->key_len))
        return -EPERM;
    bool anew = !m->to->file;
    name_spare(m->n, m->to);
    struct file *f = m->from->file;
    name_take(m->n, m->to, f);
    f->draft->anew = anew;
    file_set_kind(m->l, f, FILE_KEY);
    name_reap(m->n, m->from);
    return 0;
}

/* Handle a rename before the first write: some programs buffer their output. */
static int unwritten_to_key(const struct move *m)
{
    struct file *f = m->from->file;
    int r = unfinished(m);
    if (r < 0)
        return r;
    draft_to_key(f->draft, true);
    if (!f->inherited)
        f->draft->typed = f->typed;
    lost_backup(m->l, f->parked); /* if it was the backup of another key */
    return 0;
}

/* Make the helper's bytes the key's value, with the helper's type if it has one, and make its file
 * the key's file. sed -i, rsync and some editors write keys in this way. */
static int helper_to_key(const struct move *m)
{
    CLEANUP(buf_free) struct buf left = BUF_INIT; /* the helper's bytes if it is being written */
    struct file *f = m->from->file;
    const struct typed before = m->to->typed;
    struct err e = {0};
    if (f->draft && f->draft->text.len == 0 && !f->draft->closed)
        return unwritten_to_key(m);
    const struct buf *text = file_bytes(f);
    if (f->draft)
        buf_add(&left, text->data, text->len);
    int r = buf_error(&left) < 0 ? buf_error(&left) : batch_room(m->l);
    if (r < 0)
        return r;
    const bool knows = before.set || stored_has(m->l, m->to);
    if (f->typed.set && !(f->inherited && knows))
        m->to->typed = f->typed;
    r = edits_accept(m->l, m->to, text, &e);
    if (r < 0) {
        m->to->typed = before;
        return refused(m, &e);
    }
    struct name *parked = f->parked; /* another key, whose only copy this was */
    if (r > 0) /* the mtime moves with the file, because gedit compares it at the next save */
        m->to->mtime = m->from->mtime;
    if (f->draft) {
        draft_to_key(f->draft, false);
        file_set_content(m->n, f, &left);
    }
    batch_move(m->l, m->from, m->to);
    lost_backup(m->l, parked);
    return writer_flush(m->l, &f->promise, f->promise.edit, m->wait);
}

/* Rename a key over an existing or former key, which keeps its place and type but gets the value of
 * the renamed key. */
static int key_over_key(const struct move *m)
{
    CLEANUP(buf_free) struct buf text = BUF_INIT;
    struct err e = {0};
    size_t before = edit_mark(&m->l->next.change);
    CLEANUP(shown_free) struct shown s = stored_value(m->l, m->from);
    const struct buf *written = file_written(m->from->file);
    if (!written)
        shown_text(&s, &text);
    if (buf_error(&text))
        return buf_error(&text);
    int r = edits_accept(m->l, m->to, written ? written : &text, &e);
    if (r < 0)
        return refused(m, &e);
    r = edits_remove(m->l, m->from, &e);
    if (r < 0) { /* if one key cannot change, neither may */
        batch_undo(m->l, before);
        name_follow(m->l, m->to);
        return refused(m, &e);
    }
    m->to->edit = m->l->edits; /* both changes are one edit */
    batch_move(m->l, m->from, m->to);
    return writer_accepted(m->l, m->wait);
}

/* Rename a key to a name that no key has; the key keeps its place. */
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
    if (!stored_has(m->l, m->from)) /* a new key that has no value yet */
        return unfinished(m);
    int r = batch_room(m->l);
    if (r < 0)
        return r;
    bool known =
        stored_has(m->l, m->to) || (m->to->typed.set && m->to->rank); /* or the key was removed */
    return known ? key_over_key(m) : key_to_new(m);
}

/* Find out whether a file's new name is the name of a key. Returns 0, or -EINVAL for an invalid
 * name. */
static int classify_target(struct live *l, const struct file *f, const char *text, bool *key)
{
    const struct name *x = names_find(&l->names, text);
    if (x && x->file && x->file->kind != FILE_KEY) {
        *key = false;
        return 0;
    }
    enum name_class class = look_classify(l, text, f->kind == FILE_KEY ? NAME_ASIDE : NAME_CREATED);
    *key = class == NAME_KEY;
    return class == NAME_INVALID ? refuse_name(l, text) : 0;
}

int live_rename(struct live *l, const char *old, const char *text, unsigned flags,
                struct live_wait *w)
{
    bool key;
    struct err e = {0};
    struct err unready; /* reported by a later write */
    writer_ready(l, &unready);
    LOCKED(&l->lock);
    struct file *f = look_find_typed(l, old);
    struct move m = {.l = l, .n = &l->names, .wait = w};
    if (!f)
        return l->names.missing;
    if (flags & ~(unsigned)RENAME_NOREPLACE)
        return -EINVAL;
    if (flags & RENAME_NOREPLACE && look_find(l, text))
        return -EEXIST;
    if (strcmp(f->of->text, text) == 0)
        return 0;
    int r = classify_target(l, f, text, &key);
    if (r < 0)
        return r;
    if (key && f->kind == FILE_LINK)
        return -EPERM;
    if (key && !look_is_key(l, text) && key_is_own(text, strlen(text))) {
        (void)err_set(&e, -EPERM, "%s cannot be edited", text);
        return name_refused(l, f->of, &e);
    }
    m.from = f->of;
    m.to = look_name(l, text);
    if (!m.to || (key && !m.to->key))
        m.to = names_get(&l->names, text, key);
    if (!m.to)
        return -ENOMEM;
    if (f->kind == FILE_KEY)
        r = key ? key_to_key(&m) : key_to_helper(&m);
    else
        r = key ? helper_to_key(&m) : helper_to_helper(&m);
    if (r == LIVE_PARKED)
        w->moves = f;
    if (r < 0)
        name_reap(&l->names, m.to);
    return r;
}

/* ---- links ---- */

/* Create a link, such as the .#NAME link with which emacs locks a file. A key cannot be a link. */
int live_symlink(struct live *l, const char *text, const char *target, struct live_attr *ret)
{
    struct names *n = &l->names;
    LOCKED(&l->lock);
    if (look_find(l, text))
        return -EEXIST;
    if (look_classify(l, text, NAME_CREATED) != NAME_HELPER)
        return -EPERM;
    if (!names_have_room(n, 0, strlen(target)))
        return -ENOSPC;
    struct file *f = names_make(n, text, FILE_LINK);
    if (!f)
        return -ENOMEM;
    buf_str(&f->content, target);
    n->helper_bytes += f->content.len;
    if (buf_error(&f->content)) {
        unlink_helper(l, f->of);
        return -ENOMEM;
    }
    (void)look_attr(l, f, ret); /* the size of a link is already known */
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

/* ---- finding and listing ---- */

void live_forget(struct live *l, uint32_t number, uint64_t n)
{
    LOCKED(&l->lock);
    struct file *f = names_file(&l->names, number);
    if (!f)
        return;
    f->lookups -= min_u64(f->lookups, n);
    file_reap(&l->names, f);
}

int live_lookup(struct live *l, const char *name, struct live_attr *ret)
{
    struct shown shown = SHOWN_NONE;
    uint32_t number;
    lock_take(&l->lock);
    const bool first = look_number(l, name, &number);
    struct file *f = first ? NULL : look_find_typed(l, name);
    if (first)
        shown = look_first(l, number, ret);
    if (f) {
        shown = look_attr(l, f, ret);
        f->lookups++;
    }
    const int r = first || f ? 0 : l->names.missing;
    lock_drop(&l->lock);
    look_measure(&shown, ret);
    return r;
}

/* Get the st_ino of a key's name. Returns false if it is hidden. */
static bool ino_of(struct live *l, const struct snapshot *g, uint32_t kv, uint32_t *ret)
{
    const struct gguf_kv *k = &g->gguf->kv[kv];
    const char *key = gguf_key(g->gguf, k);
    const uint32_t own =
        g->gguf == snapshot_own(g) ? kv : gguf_find_key(snapshot_own(g), key, k->key_len);
    if (look_untouched(l, g, own, ret))
        return true;
    struct name *x = names_find_key(&l->names, key, k->key_len);
    if (!x || !look_visible(l, x))
        return false;
    *ret = x->ino;
    return true;
}

int live_list(struct live *l, struct live_list *list)
{
    struct err e = {0};
    LOCKED(&l->lock);
    int r = batch_freshen(l, &e);
    if (r < 0)
        writer_cannot_show(l, r);
    const struct snapshot *g = l->newest->view.snap;
    size_t n = 0, most = (size_t)g->gguf->n_kv + l->names.by_text.n;
    uint32_t *ino = r < 0 ? NULL : malloc((most + 1) * sizeof(*ino));
    if (!ino)
        return r < 0 ? r : -ENOMEM;
    for (uint32_t kv = 0; kv < g->gguf->n_kv; kv++)
        n += snapshot_shows_key(g, kv) && ino_of(l, g, kv, &ino[n]);
    for (const struct name *x = l->names.oldest; x; x = x->newer)
        if (x->file && !stored_has(l, x))
            ino[n++] = x->ino;
    live_list_free(list);
    *list = (struct live_list){ino, n};
    return 0;
}

void live_list_free(struct live_list *list)
{
    free(list->ino);
    *list = (struct live_list){0};
}

/* Return the file of entry *i or of the next entry that still has a file. Returns NULL if there are
 * no more entries, or if entry *i is an untouched key. */
static struct file *next_entry(struct live *l, const struct live_list *list, uint64_t *i)
{
    for (; *i < list->n; ++*i) {
        const uint32_t ino = list->ino[*i];
        struct name *x = names_of_ino(&l->names, ino);
        struct file *f = x ? look_visible(l, x) : NULL;
        if (f || (!x && look_is_first(l, ino)))
            return f;
    }
    return NULL;
}

int live_list_at(struct live *l, const struct live_list *list, uint64_t *i, bool attrs,
                 char name[TREE_NAME_MAX + 1], struct live_attr *ret)
{
    struct shown shown = SHOWN_NONE;
    lock_take(&l->lock);
    struct file *f = next_entry(l, list, i);
    const bool more = *i < list->n;
    if (f) {
        (void)strcpy(name, f->of->text);
        *ret = (struct live_attr){
            .number = f->number, .ino = f->of->ino, .link = f->kind == FILE_LINK};
    } else if (more) {
        look_text(l, list->ino[*i], name);
        shown = look_first(l, list->ino[*i], ret);
    }
    if (f && attrs) {
        shown = look_attr(l, f, ret);
        f->lookups++;
    }
    lock_drop(&l->lock);
    if (attrs)
        look_measure(&shown, ret);
    shown_free(&shown);
    return more;
}

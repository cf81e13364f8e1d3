/* SPDX-License-Identifier: MIT */
/* Files opened, made, read, written and closed: see live.h. What is written goes to a draft. */
#include "base/when.h"
#include "base/lock.h"
#include "live/look.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>

#include "base/bytes.h"
#include "gguf/keys.h"
#include "live/stored.h"
#include "live/writer.h"

struct live_file {
    struct file *file;
    bool writes;   /* it is one of the draft's writers */
    bool append;   /* each write goes to the end */
    bool wrote;    /* something of the draft is by this handle */
    bool fresh;    /* the same, since its last flush */
    uint64_t edit; /* by which what it wrote was accepted: see promise.h */
};

/* ---- open and release ---- */

/* made: there was no file of this name. */
static int open_locked(struct live *l, struct live_file *h, struct file *f, int flags, bool made,
                       const struct err *unready)
{
    bool writes = (flags & O_ACCMODE) != O_RDONLY;
    if (f->kind == FILE_LINK)
        return -ELOOP;
    if (writes && !f->name)
        return -ESTALE; /* the kernel looks its name up again */
    int r = writes ? draft_join(l, f, flags & O_TRUNC, made, unready) : 0;
    if (r < 0)
        return r;
    *h = (struct live_file){.file = f, .writes = writes, .append = flags & O_APPEND};
    f->opens++;
    return 0;
}

/* A key without a value goes. */
static void release_locked(struct live *l, struct live_file *h)
{
    struct file *f = h->file;
    struct name *x = f->name, *last = f->last;
    char shown[SHOW_MAX];
    if (h->writes && x && f->kind == FILE_HELPER && look_classify(l, x->text) == NAME_STRAY)
        live_log(l, LOG_WARNING, "%s: not saved: " LOOK_STRAY,
                 show(shown, x->text, strlen(x->text)));
    if (h->writes)
        draft_leave(l, f);
    f->opens--;
    file_is_key(&l->names, f);
    if (x && x->key)
        name_hide(l, x); /* which may free the file */
    else
        file_reap(&l->names, f);
    if (x || last)
        name_reap(&l->names, x ? x : last);
}

void live_release(struct live *l, struct live_file *h)
{
    if (h && h->file) {
        LOCKED(&l->lock);
        release_locked(l, h);
    }
    free(h);
}

/* ---- made by mknod ---- */

void files_end_made(struct live *l)
{
    struct live_file *h = l->made_file;
    assert(lock_held(&l->lock));
    l->made_file = NULL;
    if (h)
        release_locked(l, h);
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
    l->made_file = h;
    l->made_due = when_now();
    l->made_due.tv_sec += LIVE_MADE;
    crew_call_at(l->crew, &l->job, &l->made_due);
    return 0;
}

/* What a file that is opened to be read shows: bytes in memory, or a value to be rendered. A helper
 * is read as it is. */
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
    if (!f->name && !bytes && !ret->value.snap)
        return -ESTALE; /* the key was removed after it was looked up: the kernel looks again */
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
    struct file *f = names_file(&l->names, number);
    int r = f ? open_locked(l, h, f, flags, false, &unready) : -ENOENT;
    if (r == 0 && !h->writes)
        r = text_of(l, f, text);
    else if (r == 0) /* it may go on with that draft */
        files_end_made(l);
    lock_drop(&l->lock);
    if (r < 0)
        live_release(l, h);
    else
        *ret = h;
    return r;
}

/* ---- create ---- */

/* A file for a name that points to none. */
static int make_file(struct live *l, const char *text, struct file **ret)
{
    struct names *n = &l->names;
    const struct name *x = names_find(n, text);
    bool known = x && x->key;
    enum name_class class = known ? NAME_KEY : look_classify(l, text);
    if (class == NAME_INVALID)
        return -EINVAL;
    if (!known && key_is_own(text, strlen(text)))
        return -EPERM;
    struct file *f = names_make(n, text, class == NAME_KEY ? FILE_KEY : FILE_HELPER);
    if (!f)
        return -ENOMEM;
    if (f->kind == FILE_KEY)
        slot_event(n, f->name, SLOT_CREATE);
    else
        f->name->mtime = when_date();
    *ret = f;
    return 0;
}

/* It could not be opened. */
static void unmake(struct live *l, struct file *f)
{
    struct name *x = f->name;
    if (x->key)
        name_hide(l, x);
    else
        file_reap(&l->names, name_leave(x));
    name_reap(&l->names, x);
}

/* KEY:TYPE is KEY, with that type, where it does not exist. */
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
        r = make_file(l, typed ? key : name, &f);
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
        live_release(l, h);
    else
        *f = h;
    return r;
}

/* ---- read and write ---- */

/* What others write meanwhile may move: copied, under the lock. A file that was a helper when it was
 * opened has its bytes for as long. */
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
    struct file *f = names_file(&l->names, number);
    if (f)
        shown = look_attr(l, f, ret);
    if (f && h && h->writes) {
        shown_free(&shown);
        ret->size = h->file->draft->text.len;
    }
    lock_drop(&l->lock);
    look_measure(&shown, ret);
    return f ? 0 : -ENOENT;
}

int live_write(struct live *l, struct live_file *h, uint64_t off, const void *bytes, size_t n)
{
    if (!h->writes)
        return -EBADF;
    LOCKED(&l->lock);
    struct file *f = h->file;
    h->wrote = h->fresh = true;
    int r = draft_write(l, f, h->append, off, bytes, n);
    if (r == 0 && f->kind == FILE_HELPER && f->name)
        f->name->mtime = when_date();
    return r;
}

/* Accept what was written. *edit: that of what this handle wrote. 0, -errno. */
static int settle(struct live *l, struct live_file *h, uint64_t *edit)
{
    int r = draft_settle(l, h->file);
    if (r >= 0 && h->fresh && !draft_is_shown(h->file->draft)) { /* not of a mere truncation */
        h->edit = h->file->promise.edit;
        h->fresh = false;
    }
    *edit = h->edit;
    return r < 0 ? r : 0;
}

static int settle_and_wait(struct live *l, struct live_file *h, struct live_wait *w)
{
    uint64_t edit;
    int r = settle(l, h, &edit);
    return r < 0 ? r : writer_flush(l, &h->file->promise, edit, w);
}

/* What others wrote is perhaps half of what they will write: they flush it themselves. */
int live_flush(struct live *l, struct live_file *h, struct live_wait *w)
{
    if (!h->writes)
        return 0;
    LOCKED(&l->lock);
    if (!h->wrote && draft_is_unjudged(h->file->draft))
        return 0;
    h->file->draft->closed = true;
    return settle_and_wait(l, h, w);
}

/* Of a handle that nothing was accepted of it is what its key has, whichever handle wrote that (sync FILE). */
static int fsync_file(struct live *l, struct live_file *h, struct live_wait *w)
{
    const struct name *x = h->file->name;
    uint64_t edit = 0;
    int r = h->writes ? settle(l, h, &edit) : 0;
    if (!edit)
        edit = x && x->key ? x->edit : h->file->promise.edit;
    return r < 0 ? r : writer_sync(l, &h->file->promise, edit, w);
}

static int fsync_folder(struct live *l, struct live_wait *w)
{
    files_end_made(l);
    if (l->closing)
        return writer_sync_released(l, w);
    if (l->folders.doomed || l->makings_left)
        folders_sync(&l->folders);
    int r = writer_sync_all(l, w);
    if (r != LIVE_PARKED || !writer_has_work(l)) /* the write that it waits for has begun */
        l->folders.now = false;
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
    struct file *f = names_file(&l->names, number);
    int r = f ? open_locked(l, &own, f, O_WRONLY, false, unready) : -ENOENT;
    if (r < 0)
        return r;
    r = draft_truncate(l, own.file, size);
    own.fresh = true;
    if (r == 0)
        r = settle_and_wait(l, &own, w);
    release_locked(l, &own);
    return r;
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
    return draft_truncate(l, h->file, size);
}

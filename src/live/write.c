/* SPDX-License-Identifier: MIT */
/*
 * The calls that write metadata files: open, create, write, flush, fsync, truncate, release. See
 * tree.h; what is written goes to a draft (draft.c).
 */
#include "live/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "gguf/keys.h"
#include "live/helper.h"

/* ---- open ---- */

int write_open(struct live *l, struct live_file *f, uint32_t number, int flags,
               const struct err *unready)
{
    bool writes = (flags & O_ACCMODE) != O_RDONLY;
    struct kfile *kf = l->keys.file[number];
    if (writes && !kf)
        kf = keys_touch(&l->keys, l->newest->view.gen, number);
    if (writes && !kf)
        return -ENOMEM;
    int r = writes ? draft_join(l, f, kf, flags & O_TRUNC, unready) : 0;
    if (r < 0)
        return r;
    f->kf = kf;
    f->append = flags & O_APPEND;
    if (kf)
        kf->opens++;
    return 0;
}

void write_release(struct live *l, struct live_file *file)
{
    const struct kfile *of = file->draft ? file->draft->of : NULL;
    if (of && of->state == KFILE_HELPER && classify(l, of->file) == NAME_STRAY)
        log_stray(l, of);
    if (file->draft)
        draft_leave(l, file->draft); /* which may free its file, but not one that is open */
    file->kf->opens--;
    keys_reap(&l->keys, file->kf);
}

/* ---- create ---- */

static bool key_known(void *ctx, const char *file, size_t n)
{
    const struct live *l = ctx;
    char name[TREE_NAME_MAX + 1];
    memcpy(name, file, n);
    name[n] = '\0';
    const struct kfile *f = keys_named(&l->keys, name);
    return f ? f->key != NULL : gen_find_key(l->newest->view.gen, name) != UINT32_MAX;
}

enum name_class classify(struct live *l, const char *name)
{
    return name_classify(name, key_known, l);
}

/* KEY:TYPE is KEY, with that type. Copies KEY to dst. */
static struct typed untype(const char *name, char dst[TREE_NAME_MAX + 1])
{
    struct typed type = {0};
    size_t n = name_typed(name, &type.type, &type.elem);
    (void)strcpy(dst, name);
    if (n)
        dst[n] = '\0';
    type.set = n > 0;
    return type;
}

static int create(struct live *l, const char *key, struct kfile **ret)
{
    enum name_class class = classify(l, key);
    keys_clear(&l->keys, key);
    struct kfile *f = keys_named(&l->keys, key);
    if (f && f->key) {
        kfile_set_state(&l->keys, f, KFILE_NEW);
    } else if (class == NAME_INVALID) {
        return -EINVAL;
    } else if (key_is_own(key, strlen(key))) {
        return -EPERM;
    } else {
        f = keys_add(&l->keys, key, class == NAME_KEY ? KFILE_NEW : KFILE_HELPER);
        if (!f)
            return -ENOMEM;
    }
    *ret = f;
    return 0;
}

/* The number of the file to open: of one that is there, or made. Under the lock. */
static int find_or_create(struct live *l, const char *name, const char *key, int flags,
                          uint32_t *ret)
{
    struct kfile *f;
    uint32_t number = keys_find(&l->keys, l->newest->view.gen, name);
    if (number != KV_NONE && flags & O_EXCL)
        return -EEXIST;
    if (number == KV_NONE)
        number = keys_find(&l->keys, l->newest->view.gen, key);
    int r = number == KV_NONE ? create(l, key, &f) : 0;
    if (r == 0)
        *ret = number == KV_NONE ? f->id : number;
    return r;
}

/* Under the lock. */
static int create_open(struct live *l, const char *name, int flags, const struct err *unready,
                       struct live_attr *ret, struct live_file *file)
{
    char key[TREE_NAME_MAX + 1];
    uint32_t number = 0;
    struct typed type = untype(name, key);
    int r = find_or_create(l, name, key, flags, &number);
    if (r < 0)
        return r;
    r = write_open(l, file, number, (flags & ~O_ACCMODE) | O_RDWR, unready);
    if (r < 0 && l->keys.file[number])
        draft_no_value(l, l->keys.file[number]);
    if (r < 0)
        return r;
    if (type.set && !kfile_is_helper(file->kf))
        file->draft->typed = type;
    struct shown shown = attr_of(l, number, ret);
    shown_free(&shown);
    ret->size = file->draft->text.len;
    file->kf->lookups++;
    return 0;
}

int live_create(struct live *l, const char *name, int flags, struct live_attr *ret,
                struct live_file **f)
{
    struct err unready;
    struct live_file *made = calloc(1, sizeof(*made));
    if (!made)
        return -ENOMEM;
    writer_ready(l, &unready);
    (void)pthread_mutex_lock(&l->lock);
    int r = create_open(l, name, flags, &unready, ret, made);
    (void)pthread_mutex_unlock(&l->lock);
    if (r < 0)
        live_release(l, made);
    else
        *f = made;
    return r;
}

/* What a file that is opened to be read shows: bytes in memory, or a value to be rendered. */
static void text_of(struct live *l, const struct live_file *f, uint32_t number,
                    struct live_text *ret)
{
    struct buf *bytes = f->kf ? kfile_bytes(f->kf) : NULL;
    ret->fixed = true;
    if (bytes)
        buf_add(&ret->bytes, bytes->data, bytes->len);
    else
        ret->value = edits_shown(l, number);
}

static int open_number(struct live *l, uint32_t number, int flags, const struct err *unready,
                       struct live_file *f, struct live_text *text)
{
    int r = number_check(l, number);
    if (r == 0)
        r = write_open(l, f, number, flags, unready);
    if (r == 0 && !f->draft && !(f->kf && f->kf->state == KFILE_HELPER))
        text_of(l, f, number, text);
    return r;
}

int live_open_file(struct live *l, uint32_t number, int flags, struct live_file **ret,
                   struct live_text *text)
{
    struct err unready = {0};
    struct live_file *f = calloc(1, sizeof(*f));
    if (!f)
        return -ENOMEM;
    if ((flags & O_ACCMODE) != O_RDONLY)
        writer_ready(l, &unready);
    (void)pthread_mutex_lock(&l->lock);
    int r = open_number(l, number, flags, &unready, f, text);
    (void)pthread_mutex_unlock(&l->lock);
    if (r < 0)
        live_release(l, f);
    else
        *ret = f;
    return r;
}

void live_release(struct live *l, struct live_file *f)
{
    if (f && f->kf) {
        (void)pthread_mutex_lock(&l->lock);
        write_release(l, f);
        (void)pthread_mutex_unlock(&l->lock);
    }
    free(f);
}

/* What others write meanwhile may move: copied, under the lock. */
size_t live_read(struct live *l, const struct live_file *f, uint64_t off, size_t n, void *dst)
{
    (void)pthread_mutex_lock(&l->lock);
    const struct buf *b = f->draft ? &f->draft->text : f->kf ? kfile_bytes(f->kf) : NULL;
    size_t from = b ? (size_t)min_u64(off, b->len) : 0;
    size_t count = b ? (size_t)min_u64(n, b->len - from) : 0;
    if (count)
        memcpy(dst, b->data + from, count);
    (void)pthread_mutex_unlock(&l->lock);
    return count;
}

/* ---- write ---- */

/* Make a text `len` bytes long; what is new is zero. */
static int set_length(struct buf *b, uint64_t len)
{
    if (len > TEXT_MAX)
        return -EFBIG;
    if (len > b->len)
        buf_zero(b, (size_t)len - b->len);
    else
        b->len = (size_t)len;
    int r = buf_error(b);
    b->err = 0;
    return r;
}

static int put_bytes(struct buf *b, uint64_t off, const void *bytes, size_t n)
{
    uint64_t end;
    if (!add_u64(off, n, &end) || end > TEXT_MAX)
        return -EFBIG;
    int r = end > b->len ? set_length(b, end) : 0;
    if (r == 0 && n)
        memcpy(b->data + off, bytes, n);
    return r;
}

/* All helpers together have room for a draft of `len` bytes, if it is of a helper. */
static bool fits(const struct live *l, const struct draft *d, uint64_t len)
{
    if (!d->of || !kfile_is_helper(d->of))
        return true;
    return keys_have_room(&l->keys, d->text.len, len);
}

static int write_helper(struct live *l, struct draft *d, uint64_t off, const void *bytes, size_t n)
{
    size_t was = d->text.len;
    uint64_t end;
    if (!add_u64(off, n, &end) || !fits(l, d, end))
        return -ENOSPC;
    int r = put_bytes(&d->text, off, bytes, n);
    l->keys.helper_bytes += d->text.len - was;
    (void)clock_gettime(CLOCK_REALTIME, &d->of->mtime);
    return r;
}

/* What is written in part only is no value: any failure refuses the whole draft. */
static int write_key(struct live *l, const struct live_file *file, uint64_t off, const void *bytes,
                     size_t n)
{
    struct draft *d = file->draft;
    struct err e = {0};
    int r = draft_reach(l, d, off);
    d->whole &= off <= d->text.len;
    d->written = d->dirty = true;
    d->unfinished = false;
    if (r == 0)
        r = put_bytes(&d->text, off, bytes, n);
    if (r < 0)
        (void)err_set(&e, r, "cannot be written: %s", strerror(-r));
    if (r == 0 && (d->whole || file->append)) /* who appends does not change what is before */
        r = draft_judge(l, d->of, d->text.len == n, &e);
    return r < 0 ? draft_refuse(l, d, &e) : 0;
}

/* Under the lock. */
static int write_draft(struct live *l, const struct live_file *file, uint64_t off,
                       const void *bytes, size_t n)
{
    struct draft *d = file->draft;
    d->closed = false;
    if (file->append)
        off = d->text.len;
    if (!d->of)
        return put_bytes(&d->text, off, bytes, n);
    return kfile_is_helper(d->of) ? write_helper(l, d, off, bytes, n)
                                  : write_key(l, file, off, bytes, n);
}

int live_write(struct live *l, struct live_file *f, uint64_t off, const void *bytes, size_t n)
{
    if (!f->draft)
        return -EBADF;
    (void)pthread_mutex_lock(&l->lock);
    f->wrote = true;
    int r = write_draft(l, f, off, bytes, n);
    (void)pthread_mutex_unlock(&l->lock);
    return r;
}

/* ---- flush and fsync ---- */

static int settle_and_wait(struct live *l, struct draft *d, struct live_wait *w)
{
    int r = draft_settle(l, d, false);
    return r > 0 ? writer_accepted(l, w) : r;
}

/* What others wrote is perhaps half of what they will write: they flush it themselves. */
static bool is_of_others(const struct live_file *f)
{
    return f->draft->dirty && !f->wrote;
}

int live_flush(struct live *l, struct live_file *f, struct live_wait *w)
{
    int r = 0;
    if (!f->draft)
        return 0;
    (void)pthread_mutex_lock(&l->lock);
    if (!is_of_others(f)) {
        f->draft->closed = true;
        r = settle_and_wait(l, f->draft, w);
    }
    (void)pthread_mutex_unlock(&l->lock);
    return r;
}

/* Helpers are in memory only: nothing to wait for. */
static bool on_disk(const struct live_file *f)
{
    const struct kfile *of = f->draft ? f->draft->of : f->kf;
    return !of || !kfile_is_helper(of);
}

int live_fsync(struct live *l, const struct live_file *f, struct live_wait *w)
{
    int r = 0;
    if (f && !f->kf)
        return 0;
    (void)pthread_mutex_lock(&l->lock);
    if (f && f->draft)
        r = draft_settle(l, f->draft, true);
    if (r >= 0 && (!f || on_disk(f)))
        r = writer_sync(l, w, r > 0);
    (void)pthread_mutex_unlock(&l->lock);
    return r;
}

/* ---- truncate ---- */

static int truncate_draft(struct live *l, struct draft *d, uint64_t size)
{
    if (!fits(l, d, size))
        return -ENOSPC;
    int r = draft_reach(l, d, size);
    size_t was = d->text.len;
    if (r == 0 && size == 0)
        draft_truncate(l, d);
    else if (r == 0)
        r = set_length(&d->text, size);
    if (r < 0 || size == 0)
        return r;
    if (d->of && kfile_is_helper(d->of))
        l->keys.helper_bytes += d->text.len - was;
    if (size != was)
        d->written = d->dirty = true;
    d->unfinished &= size == was;
    d->whole &= size <= was;
    return 0;
}

int live_truncate(struct live *l, uint32_t number, struct live_file *file, uint64_t size,
                  struct live_wait *w)
{
    struct live_file own = {0};
    bool mine = !file || !file->draft;
    struct err unready;
    writer_ready(l, &unready);
    (void)pthread_mutex_lock(&l->lock);
    int r = number_check(l, number);
    if (r == 0 && mine)
        r = write_open(l, &own, number, O_WRONLY, &unready);
    if (r == 0 && !mine)
        file->wrote = true;
    if (r == 0)
        r = truncate_draft(l, mine ? own.draft : file->draft, size);
    if (r == 0 && mine)
        r = settle_and_wait(l, own.draft, w);
    if (mine && own.kf)
        write_release(l, &own);
    (void)pthread_mutex_unlock(&l->lock);
    return r;
}

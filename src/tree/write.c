/* SPDX-License-Identifier: MIT */
/*
 * The calls that write metadata files: open, create, write, flush, fsync, truncate, release. See
 * tree.h; what is written goes to a draft (draft.c).
 */
#include "tree/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "gguf/keys.h"
#include "tree/helper.h"

/* ---- open ---- */

int write_open(struct tree *t, struct tree_file *f, int flags, const struct err *unready)
{
    bool writes = (flags & O_ACCMODE) != O_RDONLY;
    struct kfile *kf = t->keys.file[f->node.number];
    if (writes && !kf)
        kf = keys_touch(&t->keys, t->now.gen, f->node.number);
    if (writes && !kf)
        return -ENOMEM;
    int r = writes ? draft_join(t, f, kf, flags & O_TRUNC, unready) : 0;
    if (r < 0)
        return r;
    f->kf = kf;
    f->append = flags & O_APPEND;
    if (kf)
        kf->opens++;
    return 0;
}

void write_release(struct tree *t, struct tree_file *file)
{
    const struct kfile *of = file->draft ? file->draft->of : NULL;
    if (of && of->state == KFILE_HELPER && tree_classify(t, of->file) == NAME_STRAY)
        tree_stray(t, of);
    if (file->draft)
        draft_leave(t, file->draft); /* which may free its file, but not one that is open */
    file->kf->opens--;
    keys_reap(&t->keys, file->kf);
}

/* ---- create ---- */

static bool key_known(void *ctx, const char *file, size_t n)
{
    const struct tree *t = ctx;
    char name[TREE_NAME_MAX + 1];
    memcpy(name, file, n);
    name[n] = '\0';
    const struct kfile *f = keys_named(&t->keys, name);
    return f ? f->key != NULL : gen_find_key(t->now.gen, name) != UINT32_MAX;
}

enum name_class tree_classify(struct tree *t, const char *name)
{
    return name_classify(name, key_known, t);
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

static int create(struct tree *t, const char *key, struct kfile **ret)
{
    enum name_class class = tree_classify(t, key);
    keys_clear(&t->keys, key);
    struct kfile *f = keys_named(&t->keys, key);
    if (f && f->key) {
        kfile_set_state(&t->keys, f, KFILE_NEW);
    } else if (class == NAME_INVALID) {
        return -EINVAL;
    } else if (key_is_own(key, strlen(key))) {
        return -EPERM;
    } else {
        f = keys_add(&t->keys, key, class == NAME_KEY ? KFILE_NEW : KFILE_HELPER);
        if (!f)
            return -ENOMEM;
    }
    *ret = f;
    return 0;
}

/* The number of the file to open: of one that is there, or made. Under the lock. */
static int find_or_create(struct tree *t, const char *name, const char *key, int flags,
                          uint32_t *ret)
{
    struct kfile *f;
    uint32_t number = keys_find(&t->keys, t->now.gen, name);
    if (number != KV_NONE && flags & O_EXCL)
        return -EEXIST;
    if (number == KV_NONE)
        number = keys_find(&t->keys, t->now.gen, key);
    int r = number == KV_NONE ? create(t, key, &f) : 0;
    if (r == 0)
        *ret = number == KV_NONE ? f->id : number;
    return r;
}

/* Under the lock. */
static int create_open(struct tree *t, const char *name, int flags, const struct err *unready,
                       struct tree_entry *ret, struct tree_file *file)
{
    char key[TREE_NAME_MAX + 1];
    uint32_t number = 0;
    struct typed type = untype(name, key);
    int r = find_or_create(t, name, key, flags, &number);
    if (r < 0)
        return r;
    file->node = ino_node(ino_key(number));
    r = write_open(t, file, (flags & ~O_ACCMODE) | O_RDWR, unready);
    if (r < 0 && t->keys.file[number])
        draft_no_value(t, t->keys.file[number]);
    if (r == 0 && type.set && !kfile_is_helper(file->kf))
        file->draft->typed = type;
    if (r == 0)
        r = node_entry(t, &t->now, &file->node, ret);
    if (r == 0)
        file->kf->lookups++;
    return r;
}

int tree_create(struct tree *t, uint64_t parent, const char *name, int flags,
                struct tree_entry *ret, struct tree_file **file)
{
    int r = metadata_folder(t, parent);
    if (r < 0)
        return r;
    if (strlen(name) > TREE_NAME_MAX)
        return -ENAMETOOLONG;
    struct err unready;
    struct tree_file *f = calloc(1, sizeof(*f));
    if (!f)
        return -ENOMEM;
    writer_ready(t, &unready);
    (void)pthread_mutex_lock(&t->lock);
    r = create_open(t, name, flags, &unready, ret, f);
    if (r == 0)
        entry_size(ret, f->draft->text.len);
    (void)pthread_mutex_unlock(&t->lock);
    if (r < 0)
        (void)tree_release(t, f);
    else
        *file = f;
    return r;
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
static bool fits(const struct tree *t, const struct draft *d, uint64_t len)
{
    if (!d->of || !kfile_is_helper(d->of))
        return true;
    return keys_have_room(&t->keys, d->text.len, len);
}

static int write_helper(struct tree *t, struct draft *d, uint64_t off, const void *bytes, size_t n)
{
    size_t was = d->text.len;
    uint64_t end;
    if (!add_u64(off, n, &end) || !fits(t, d, end))
        return -ENOSPC;
    int r = put_bytes(&d->text, off, bytes, n);
    t->keys.helper_bytes += d->text.len - was;
    (void)clock_gettime(CLOCK_REALTIME, &d->of->mtime);
    return r;
}

/* What is written in part only is no value: any failure refuses the whole draft. */
static int write_key(struct tree *t, const struct tree_file *file, uint64_t off, const void *bytes,
                     size_t n)
{
    struct draft *d = file->draft;
    struct err e = {0};
    int r = draft_reach(t, d, off);
    d->whole &= off <= d->text.len;
    d->written = d->dirty = true;
    d->unfinished = false;
    if (r == 0)
        r = put_bytes(&d->text, off, bytes, n);
    if (r < 0)
        (void)err_set(&e, r, "cannot be written: %s", strerror(-r));
    if (r == 0 && (d->whole || file->append)) /* who appends does not change what is before */
        r = draft_judge(t, d->of, d->text.len == n, &e);
    return r < 0 ? draft_refuse(t, d, &e) : 0;
}

/* Under the lock. */
static int write_draft(struct tree *t, const struct tree_file *file, uint64_t off,
                       const void *bytes, size_t n)
{
    struct draft *d = file->draft;
    d->closed = false;
    if (file->append)
        off = d->text.len;
    if (!d->of)
        return put_bytes(&d->text, off, bytes, n);
    return kfile_is_helper(d->of) ? write_helper(t, d, off, bytes, n)
                                  : write_key(t, file, off, bytes, n);
}

int tree_write(struct tree *t, struct tree_file *f, uint64_t off, const void *bytes, size_t n)
{
    if (!f->draft)
        return -EBADF;
    (void)pthread_mutex_lock(&t->lock);
    f->wrote = true;
    int r = write_draft(t, f, off, bytes, n);
    (void)pthread_mutex_unlock(&t->lock);
    return r;
}

/* ---- flush and fsync ---- */

static int settle_and_wait(struct tree *t, struct draft *d, struct tree_wait *w)
{
    int r = draft_settle(t, d, false);
    return r > 0 ? writer_accepted(t, w) : r;
}

/* What others wrote is perhaps half of what they will write: they flush it themselves. */
static bool is_of_others(const struct tree_file *f)
{
    return f->draft->dirty && !f->wrote;
}

int tree_flush(struct tree *t, struct tree_file *f, struct tree_wait *w)
{
    int r = 0;
    if (!f->draft)
        return 0;
    (void)pthread_mutex_lock(&t->lock);
    if (!is_of_others(f)) {
        f->draft->closed = true;
        r = settle_and_wait(t, f->draft, w);
    }
    (void)pthread_mutex_unlock(&t->lock);
    return r;
}

/* Helpers are in memory only: nothing to wait for. */
static bool on_disk(const struct tree_file *f)
{
    const struct kfile *of = f->draft ? f->draft->of : f->kf;
    return !of || !kfile_is_helper(of);
}

int tree_fsync(struct tree *t, struct tree_file *f, struct tree_wait *w)
{
    int r = 0;
    if (!t->writable || (f && !f->kf))
        return 0;
    (void)pthread_mutex_lock(&t->lock);
    if (f && f->draft)
        r = draft_settle(t, f->draft, true);
    if (r >= 0 && (!f || on_disk(f)))
        r = writer_sync(t, w, r > 0);
    (void)pthread_mutex_unlock(&t->lock);
    return r;
}

/* ---- truncate ---- */

static int truncate_draft(struct tree *t, struct draft *d, uint64_t size)
{
    if (!fits(t, d, size))
        return -ENOSPC;
    int r = draft_reach(t, d, size);
    size_t was = d->text.len;
    if (r == 0 && size == 0)
        draft_truncate(t, d);
    else if (r == 0)
        r = set_length(&d->text, size);
    if (r < 0 || size == 0)
        return r;
    if (d->of && kfile_is_helper(d->of))
        t->keys.helper_bytes += d->text.len - was;
    if (size != was)
        d->written = d->dirty = true;
    d->unfinished &= size == was;
    d->whole &= size <= was;
    return 0;
}

int tree_truncate(struct tree *t, uint64_t node, struct tree_file *file, uint64_t size,
                  struct tree_wait *w)
{
    struct node n = ino_node(node);
    struct tree_file own = {.node = n};
    if (!t->writable)
        return -EROFS;
    if (n.kind != NODE_KEY)
        return -EACCES;
    bool mine = !file || !file->draft;
    struct err unready;
    writer_ready(t, &unready);
    (void)pthread_mutex_lock(&t->lock);
    int r = node_check(t, t->now.gen, &n);
    if (r == 0 && mine)
        r = write_open(t, &own, O_WRONLY, &unready);
    if (r == 0 && !mine)
        file->wrote = true;
    if (r == 0)
        r = truncate_draft(t, mine ? own.draft : file->draft, size);
    if (r == 0 && mine)
        r = settle_and_wait(t, own.draft, w);
    if (mine && own.kf)
        write_release(t, &own);
    (void)pthread_mutex_unlock(&t->lock);
    return r;
}

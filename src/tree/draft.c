/* SPDX-License-Identifier: MIT */
/*
 * Writing metadata files: one draft for each key, shared by all who write it. See tree.h, keys.h.
 *
 * A draft becomes the key's value at each flush or fsync after something was written. A draft that
 * was only truncated is no edit before its last writer is gone: shells close the truncated file
 * once before they write. Helpers have no drafts: what is written is what they hold.
 */
#include "tree/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "edit/keys.h"
#include "tree/helper.h"
#include "tree/text_parse.h"

/* Bytes of a value's text, and of all helpers together. */
#define TEXT_MAX ((uint64_t)1 << 30)

struct buf *kfile_bytes(struct kfile *f)
{
    if (f->draft)
        return &f->draft->text;
    return f->state >= KFILE_HELPER ? &f->content : NULL;
}

static bool is_helper(const struct kfile *f)
{
    return f->state == KFILE_HELPER || f->state == KFILE_ASIDE || f->state == KFILE_DEAD;
}

/* ---- open ---- */

/* Begin a draft, with the text that the file shows unless it is to be truncated. */
static int begin_draft(struct tree *t, struct kfile *f, bool truncate)
{
    uint32_t kv = t->keys.kv[f->id];
    struct err e = {0};
    if (writer_ready(t, &e) < 0)
        return edits_refused(t, f, &e);
    struct draft *d = calloc(1, sizeof(*d));
    if (!d)
        return -ENOMEM;
    if (!truncate && kv != KV_NONE && f->state == KFILE_KEY)
        key_text(t->now.gen, kv, &d->text);
    int r = buf_error(&d->text);
    if (r < 0) {
        buf_free(&d->text);
        free(d);
        return r;
    }
    d->whole = d->text.len == 0;
    f->draft = d;
    return 0;
}

static void truncate_draft(struct draft *d)
{
    d->text.len = 0;
    d->whole = true;
    d->written = false;
    d->dirty = false;
    d->refused = 0;
}

static void truncate_helper(struct tree *t, struct kfile *f)
{
    t->keys.helper_bytes -= f->content.len;
    f->content.len = 0;
}

static int open_to_write(struct tree *t, struct tree_file *file, struct kfile *f, bool truncate)
{
    if (is_helper(f)) {
        if (truncate)
            truncate_helper(t, f);
        return 0;
    }
    int r = f->draft ? 0 : begin_draft(t, f, truncate);
    if (r < 0)
        return r;
    if (truncate)
        truncate_draft(f->draft);
    f->draft->writers++;
    file->draft = f->draft;
    return 0;
}

int draft_open(struct tree *t, struct tree_file *f, int flags)
{
    bool writes = (flags & O_ACCMODE) != O_RDONLY;
    struct kfile *kf = t->keys.file[f->node.number];
    if (writes && !kf)
        kf = keys_touch(&t->keys, t->now.gen, f->node.number);
    if (writes && !kf)
        return -ENOMEM;
    int r = writes ? open_to_write(t, f, kf, flags & O_TRUNC) : 0;
    if (r < 0)
        return r;
    f->kf = kf;
    f->writes = writes;
    f->append = flags & O_APPEND;
    if (kf)
        kf->opens++;
    return 0;
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

/* It got no value: a key that was removed or out of the way is back, a new one is none. */
static void no_value(const struct tree *t, struct kfile *f)
{
    if (f->state == KFILE_NEW)
        f->state = t->keys.kv[f->id] != KV_NONE ? KFILE_KEY : KFILE_GONE;
}

/* KEY:TYPE is KEY, with that type. Copies KEY to dst; true if it was so. */
static bool untype(const char *name, char dst[TREE_NAME_MAX + 1], uint32_t *type, uint32_t *elem)
{
    size_t n = name_typed(name, type, elem);
    (void)strcpy(dst, name);
    if (n)
        dst[n] = '\0';
    return n > 0;
}

static int create(struct tree *t, const char *key, struct kfile **ret)
{
    enum name_class class = tree_classify(t, key);
    keys_clear(&t->keys, key);
    struct kfile *f = keys_named(&t->keys, key);
    if (f && f->key) {
        f->state = KFILE_NEW;
    } else if (class == NAME_INVALID) {
        return -EINVAL;
    } else if (edit_is_own_key(key, strlen(key))) {
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
static int create_open(struct tree *t, const char *name, int flags, struct tree_entry *ret,
                       struct tree_file *file)
{
    char key[TREE_NAME_MAX + 1];
    uint32_t type, elem, number = 0;
    bool typed = untype(name, key, &type, &elem);
    int r = find_or_create(t, name, key, flags, &number);
    if (r < 0)
        return r;
    file->node = ino_node(ino_key(number));
    r = draft_open(t, file, (flags & ~O_ACCMODE) | O_RDWR);
    if (r < 0 && t->keys.file[number])
        no_value(t, t->keys.file[number]);
    if (r == 0 && typed && file->kf->draft) {
        file->kf->draft->typed = true;
        file->kf->draft->type = type;
        file->kf->draft->elem = elem;
    }
    if (r == 0)
        r = node_entry(t, &t->now, ino_key(number), ret);
    if (r == 0)
        file->kf->lookups++;
    return r;
}

int tree_create(struct tree *t, uint64_t parent, const char *name, int flags,
                struct tree_entry *ret, struct tree_file **file)
{
    struct node dir = ino_node(parent);
    if (!t->writable)
        return -EROFS;
    if (dir.kind != NODE_DIR || dir.row != ROOT_METADATA)
        return -EACCES;
    if (strlen(name) > TREE_NAME_MAX)
        return -ENAMETOOLONG;
    struct tree_file *f = calloc(1, sizeof(*f));
    if (!f)
        return -ENOMEM;
    (void)pthread_mutex_lock(&t->lock);
    int r = create_open(t, name, flags, ret, f);
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

/* What is written in part only is no value: any failure refuses the whole draft. */
static int write_draft(struct tree *t, struct tree_file *file, uint64_t off, const void *bytes,
                       size_t n)
{
    struct draft *d = file->draft;
    struct err e = {0};
    d->whole &= off <= d->text.len;
    int r = put_bytes(&d->text, off, bytes, n);
    if (r < 0)
        (void)err_set(&e, r, "cannot be written: %s", strerror(-r));
    d->written = true;
    d->dirty = true;
    d->closed = false;
    if (d != file->kf->draft)
        return r;
    if (r == 0 && (d->whole || file->append)) /* who appends does not change what is before */
        r = draft_judge(t, file->kf, d->text.len == n, &e);
    if (r < 0)
        d->refused = edits_refused(t, file->kf, &e);
    return r;
}

/* All helpers together have room for f with `len` bytes. */
static bool helper_fits(const struct tree *t, const struct kfile *f, uint64_t len)
{
    uint64_t others = t->keys.helper_bytes - f->content.len;
    return len <= TEXT_MAX && others <= TEXT_MAX - len;
}

static int write_helper(struct tree *t, struct kfile *f, uint64_t off, const void *bytes, size_t n)
{
    size_t was = f->content.len;
    uint64_t end;
    if (!add_u64(off, n, &end) || !helper_fits(t, f, end))
        return -ENOSPC;
    int r = put_bytes(&f->content, off, bytes, n);
    t->keys.helper_bytes += f->content.len - was;
    (void)clock_gettime(CLOCK_REALTIME, &f->mtime);
    return r;
}

int tree_write(struct tree *t, struct tree_file *f, uint64_t off, const void *bytes, size_t n)
{
    if (!f->kf || !f->writes)
        return -EBADF;
    (void)pthread_mutex_lock(&t->lock);
    if (f->append)
        off = f->draft ? f->draft->text.len : f->kf->content.len;
    int r = f->draft ? write_draft(t, f, off, bytes, n) : write_helper(t, f->kf, off, bytes, n);
    (void)pthread_mutex_unlock(&t->lock);
    return r;
}

/* ---- from draft to value ---- */

/* Accept what was written. 1: it is to be written to disk; 0: nothing is; -errno. */
static int settle(struct tree *t, struct kfile *f, struct draft *d)
{
    struct err e = {0};
    if (d != f->draft)
        return 0;
    if (!d->dirty || d->refused)
        return d->refused;
    int r = edits_accept(t, f, &d->text, &e);
    if (r < 0) {
        d->refused = edits_refused(t, f, &e);
        return r;
    }
    d->dirty = false;
    return r;
}

static int settle_and_wait(struct tree *t, const struct tree_file *f, struct tree_wait *w)
{
    struct err e = {0};
    int r = settle(t, f->kf, f->draft);
    if (r <= 0)
        return r;
    r = writer_accepted(t, w, &e);
    return r < 0 ? edits_refused(t, f->kf, &e) : r;
}

int tree_flush(struct tree *t, struct tree_file *f, struct tree_wait *w)
{
    if (!f->draft)
        return 0;
    (void)pthread_mutex_lock(&t->lock);
    f->draft->closed = true;
    int r = settle_and_wait(t, f, w);
    (void)pthread_mutex_unlock(&t->lock);
    return r;
}

int tree_fsync(struct tree *t, struct tree_file *f, struct tree_wait *w)
{
    int r = 0;
    if (!t->writable || (f && (!f->kf || is_helper(f->kf))))
        return 0;
    (void)pthread_mutex_lock(&t->lock);
    if (f && f->draft)
        r = settle(t, f->kf, f->draft);
    if (r >= 0)
        r = writer_sync(t, w, r > 0);
    (void)pthread_mutex_unlock(&t->lock);
    return r;
}

/* What a mere truncation makes: the empty string or array. */
static void settle_truncation(struct tree *t, struct kfile *f)
{
    struct err e = {0};
    uint32_t type = GGUF_STRING, elem = 0;
    const struct key_row *row = key_find(f->key, f->key_len);
    if (!edits_known_type(t, f, &type, &elem) && row)
        type = row->type;
    if (type != GGUF_STRING && type != GGUF_ARRAY)
        return;
    int r = edits_accept(t, f, &f->draft->text, &e);
    if (r < 0)
        t->writer.failed = edits_refused(t, f, &e); /* a release tells nobody */
    else if (r > 0)
        writer_later(t, WRITER_SOON);
}

static bool only_truncated(const struct draft *d)
{
    return d->whole && !d->written && d->refused == 0;
}

/* The last writer is gone. A key that got no value is what it was before. */
static void end_draft(struct tree *t, struct kfile *f)
{
    struct draft *d = f->draft;
    if (d->dirty && settle(t, f, d) > 0) /* no flush came: the process was killed */
        writer_later(t, 0);
    else if (only_truncated(d))
        settle_truncation(t, f);
    f->draft = NULL;
    no_value(t, f);
}

int draft_release(struct tree *t, struct tree_file *file)
{
    struct kfile *f = file->kf;
    f->opens--;
    if (file->draft && --file->draft->writers == 0) {
        if (f->draft == file->draft)
            end_draft(t, f);
        draft_free(file->draft);
    }
    if (file->writes && f->state == KFILE_HELPER && tree_classify(t, f->file) == NAME_STRAY)
        tree_stray(t, f);
    keys_reap(&t->keys, f);
    return 0;
}

void draft_finish(struct tree *t)
{
    for (uint32_t i = 0; i < t->keys.n; i++) {
        struct kfile *f = t->keys.file[i];
        if (f && f->draft && f->draft->closed && only_truncated(f->draft))
            settle_truncation(t, f);
    }
}

/* ---- truncate ---- */

static int truncate_open(struct tree *t, const struct tree_file *f, uint64_t size)
{
    struct draft *d = f->draft;
    struct buf *b = d ? &d->text : &f->kf->content;
    size_t was = b->len;
    if (is_helper(f->kf) && !helper_fits(t, f->kf, size))
        return -ENOSPC;
    int r = set_length(b, size);
    if (r < 0)
        return r;
    if (!d) {
        t->keys.helper_bytes += b->len - was;
        return 0;
    }
    if (size == 0)
        truncate_draft(d);
    else if (size != was)
        d->written = d->dirty = true;
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
    bool mine = !file || !file->kf || !file->writes;
    (void)pthread_mutex_lock(&t->lock);
    int r = node_check(t, t->now.gen, &n);
    if (r == 0 && mine)
        r = draft_open(t, &own, O_WRONLY);
    if (r == 0)
        r = truncate_open(t, mine ? &own : file, size);
    if (r == 0 && mine && own.draft)
        r = settle_and_wait(t, &own, w);
    if (mine && own.kf)
        (void)draft_release(t, &own);
    (void)pthread_mutex_unlock(&t->lock);
    return r;
}

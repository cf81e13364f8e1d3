/* SPDX-License-Identifier: MIT */
/* Open files of the tree and their contents: see tree.h. */
#include "tree/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"

static void render(const struct tree *t, const struct view *v, struct tree_file *f)
{
    f->rendered = true;
    if (f->row->tell)
        f->row->tell(v, t->name, &f->text);
    else
        f->row->text(v->gen, node_tensor(v->gen, &f->node), &f->text);
}

/* The text of a metadata file as it is now. Of a writable tree: under the lock. */
static void render_key(struct tree *t, struct tree_file *f)
{
    struct buf *bytes = f->kf ? kfile_bytes(f->kf) : NULL;
    uint32_t kv = t->writable ? t->keys.kv[f->node.number] : f->node.number;
    f->rendered = true;
    if (bytes)
        buf_add(&f->text, bytes->data, bytes->len);
    else if (kv != KV_NONE)
        key_text(t->now.gen, kv, &f->text);
}

static int open_key(struct tree *t, struct tree_file *f, int flags)
{
    int r = 0;
    (void)pthread_mutex_lock(&t->lock);
    if (node_check(t, t->now.gen, &f->node) < 0)
        r = -ENOENT;
    else if (t->writable)
        r = draft_open(t, f, flags);
    else if ((flags & O_ACCMODE) != O_RDONLY)
        r = -EROFS;
    if (r == 0 && !f->writes && !(f->kf && f->kf->state == KFILE_HELPER))
        render_key(t, f);
    (void)pthread_mutex_unlock(&t->lock);
    return r;
}

/* A view of the whole keeps its generation. -ESTALE (the kernel looks again): its file is gone. */
static int keep_gen(struct tree *t, struct tree_file *f, struct gen *g)
{
    (void)pthread_mutex_lock(&t->lock);
    int r = g->unpinned ? -ESTALE : 0;
    if (r == 0)
        f->gen = gen_ref(g);
    if (r == 0 && g->pinned)
        f->pin = mapped_ref(g->pinned);
    (void)pthread_mutex_unlock(&t->lock);
    return r;
}

static int open_row(struct tree *t, struct tree_file *f, int flags)
{
    CLEANUP(view_free) struct view v = VIEW_INIT;
    int r = tree_view_of(t, &f->node, &v);
    if (r == 0)
        r = node_check(t, v.gen, &f->node);
    if (r < 0)
        return r;
    if (node_is_dir(&f->node))
        return -EISDIR;
    if ((flags & O_ACCMODE) != O_RDONLY)
        return t->writable ? -EACCES : -EROFS;
    f->row = node_row(&f->node);
    f->cacheable = !(t->writable && f->row->flags & ROW_MOVES) && !(f->row->flags & ROW_LIVE);
    f->cut = store_cut(v.store);
    if (f->node.kind == NODE_WHOLE)
        r = keep_gen(t, f, v.gen);
    v.pin = f->pin ? mapped_ref(f->pin) : NULL;
    f->piecewise = f->row->read != NULL;
    f->decodes = value_decodes(v.gen, f->row, node_tensor(v.gen, &f->node));
    if (r == 0 && (f->row->text || f->row->tell))
        render(t, &v, f);
    return r;
}

int tree_open_file(struct tree *t, uint64_t node, int flags, struct tree_file **ret)
{
    struct tree_file *f = calloc(1, sizeof(*f));
    if (!f)
        return -ENOMEM;
    f->node = ino_node(node);
    f->cacheable = !t->writable;
    int r = f->node.kind == NODE_KEY ? open_key(t, f, flags) : open_row(t, f, flags);
    if (r == 0)
        r = buf_error(&f->text);
    if (r < 0)
        (void)tree_release(t, f);
    else
        *ret = f;
    return r;
}

bool tree_cacheable(const struct tree_file *f)
{
    return f->cacheable;
}

bool tree_cached_right(const struct tree_file *f)
{
    return f->cacheable && !f->cut;
}

bool tree_ahead(const struct tree_file *f, size_t n)
{
    return f->piecewise && (f->decodes || n <= REPLY_COPY_MAX);
}

int tree_release(struct tree *t, struct tree_file *f)
{
    int r = 0;
    if (!f)
        return 0;
    if (f->kf) {
        (void)pthread_mutex_lock(&t->lock);
        r = draft_release(t, f);
        (void)pthread_mutex_unlock(&t->lock);
    }
    gen_unref(f->gen);
    mapped_unref(f->pin);
    buf_free(&f->text);
    free(f);
    return r;
}

static void reply_text(const struct buf *text, uint64_t off, size_t n, struct reply *r)
{
    if (off >= text->len)
        return;
    r->bytes = text->data + off;
    r->len = (size_t)min_u64(n, text->len - off);
}

/* What is written by others meanwhile may move: copied, under the lock. */
static void read_live(struct tree *t, struct tree_file *f, uint64_t off, size_t n, struct reply *r)
{
    (void)pthread_mutex_lock(&t->lock);
    const struct buf *b = f->draft ? &f->draft->text : kfile_bytes(f->kf);
    size_t from = b ? (size_t)min_u64(off, b->len) : 0;
    size_t count = b ? (size_t)min_u64(n, b->len - from) : 0;
    if (count)
        reply_copy(r, b->data + from, count);
    (void)pthread_mutex_unlock(&t->lock);
}

/* What is answered piecewise: of the newest generation, or of that which the file keeps. */
static int read_row(struct tree *t, struct tree_file *f, uint64_t off, size_t n, struct reply *r)
{
    CLEANUP(view_free) struct view v = tree_view(t);
    if (f->gen) {
        gen_unref(v.gen);
        v.gen = gen_ref(f->gen);
        v.pin = f->pin ? mapped_ref(f->pin) : NULL;
    }
    const struct gguf_tensor *tensor = node_tensor(v.gen, &f->node);
    uint64_t size = f->row->size(&v, f->row, tensor);
    if (off >= size || n == 0)
        return 0;
    return f->row->read(&v, f->row, tensor, off, (size_t)min_u64(n, size - off), r);
}

int tree_read(struct tree *t, struct tree_file *f, uint64_t off, size_t n, struct reply *r)
{
    if (!f->rendered && !f->kf)
        return read_row(t, f, off, n, r);
    if (f->rendered)
        reply_text(&f->text, off, n, r);
    else
        read_live(t, f, off, n, r);
    return 0;
}

void tree_reply_done(struct reply *r)
{
    if (r->mapped)
        (void)mapped_check(r->mapped, r->end);
    mapped_unref(r->mapped);
}

/* SPDX-License-Identifier: MIT */
/* Open files of the tree and their contents: see tree.h. */
#include "tree/handle.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "tree/tensors.h"
#include "tree/state.h"

void render_row(const struct tree *t, const struct view *v, const struct node *n, struct buf *out)
{
    const struct row *row = node_row(n);
    if (row->report)
        row->report(v, t->name, out);
    else
        row->text(v->snap, node_tensor(v->snap, n), out);
}

void render_state(const struct tree *t, const struct node *n, struct buf *out)
{
    if (node_row(n)->flags & ROW_STATE)
        state_text(t->writable ? NULL : t->why, t->merge_first ? MERGE_FIRST : NULL, t->opt.imatrix,
                   n->state, tree_refused(t, n->state), out);
}

/* What a text is rendered from. */
struct subject {
    const struct tree *t;
    const struct view *v;
    const struct node *n;
    const struct shown *key; /* of a key's file, else NULL */
};

static void render(const void *arg, struct buf *out)
{
    const struct subject *s = arg;
    if (s->key) {
        shown_text(s->key, out);
    } else {
        render_row(s->t, s->v, s->n, out);
        render_state(s->t, s->n, out);
    }
}

int render_shared(struct tree *t, const struct view *v, const struct node *n, struct rendered **ret)
{
    const struct subject s = {t, v, n, NULL};
    bool keep = node_row(n)->flags & ROW_KEPT;
    return (keep ? texts_keep : texts_get)(&t->texts, v->snap->number, ino_of(n), render, &s, ret);
}

/* Texts of tensors are small: each handle has its own. */
static int open_text(struct tree *t, const struct view *v, struct tree_file *f)
{
    const struct subject s = {t, v, &f->node, NULL};
    f->ops = &handle_text;
    if (f->node.kind == NODE_WHOLE)
        return render_shared(t, v, &f->node, &f->shared);
    render(&s, &f->text);
    return 0;
}

int render_key(struct tree *t, const struct shown *key, struct tree_file *f)
{
    const struct subject s = {t, NULL, &f->node, key};
    return texts_get(&t->texts, shown_id(key), ino_key(key->kv), render, &s, &f->shared);
}

/* What a view of the whole is read from, as `file` of the view too. */
static int keep_image(struct tree_file *f, struct view *v)
{
    struct image *im = NULL;
    if (f->node.kind != NODE_WHOLE)
        return 0;
    int r = f->row->image ? f->row->image(v, f->row, &im) : 0;
    if (r < 0)
        return r;
    if (im) {
        image_unref(v->file);
        v->file = im;
    }
    f->image = v->file ? image_ref(v->file) : NULL;
    return 0;
}

static int open_pieces(struct tree_file *f, const struct view *v)
{
    const struct row *row = f->row;
    const struct gguf_tensor *tensor = node_tensor(v->snap, &f->node);
    f->decodes = row->decodes || (row->form && form_decodes(row->form, v->snap->gguf, tensor));
    f->size = row->size(v, row, tensor);
    if (row->head)
        row->head(v, row, tensor, &f->text);
    /* A read that waits for a result can only be interrupted where the kernel makes no pages of it. */
    f->computed = row->need != NULL;
    f->ops = f->computed ? &handle_computed : &handle_row;
    f->cacheable &= !f->computed;
    return f->size == UINT64_MAX ? -ENOMEM : buf_error(&f->text);
}

int row_open(struct tree *t, struct tree_file *f, int flags)
{
    CLEANUP(view_free) struct view v = VIEW_INIT;
    const struct row *row = f->node.kind == NODE_TENSOR_FILE ? node_row(&f->node) : NULL;
    int r = row && row->flags & ROW_MOVES ? tree_freshen(t, false, NULL) : 0;
    if (r == 0)
        r = tree_hold_view(t, &f->node, &v, &f->held);
    if (r == 0)
        r = node_check(t, v.snap, &f->node);
    if (r < 0)
        return r;
    if (node_is_dir(&f->node))
        return -EISDIR;
    if (sys_open_changes(flags))
        return t->writable && !tensors_fixed(t, &f->node) ? -EACCES : -EROFS;
    f->row = node_row(&f->node);
    f->cacheable = !(t->writable && f->row->flags & ROW_MOVES);
    f->cut = store_cut(v.store);
    if (f->node.kind == NODE_WHOLE && view_is_lost(&v))
        return -ESTALE; /* the kernel looks again */
    r = keep_image(f, &v);
    if (r < 0)
        return r;
    if (f->row->read)
        r = open_pieces(f, &v);
    if (r == 0 && (f->row->text || f->row->report))
        r = open_text(t, &v, f);
    return r;
}

struct tree_file *handle_new(struct tree *t, struct node node)
{
    struct tree_file *f = calloc(1, sizeof(*f));
    if (!f)
        return NULL;
    atomic_fetch_add(&t->open, 1);
    f->ops = &handle_text;
    f->node = node;
    return f;
}

bool tree_cacheable(const struct tree_file *f)
{
    return f->cacheable;
}

bool tree_cached_right(const struct tree_file *f)
{
    return f->cacheable && !f->cut && !f->cold;
}

/* It shows what is written now, if that is not its own draft. */
static bool is_written(const struct tree_file *f)
{
    return f->held && !f->view && atomic_load(&f->held->written) >> f->node.row & 1;
}

bool tree_ahead(const struct tree_file *f)
{
    return f->decodes && !is_written(f);
}

bool tree_waits(const struct tree_file *f)
{
    return f->computed;
}

void tree_stop(struct tree *t)
{
    work_stop(t->work);
}

int tree_release(struct tree *t, struct tree_file *f)
{
    if (!f)
        return 0;
    if (f->ops->release)
        f->ops->release(t, f);
    tree_let_go(t, f->held);
    image_unref(f->image);
    rendered_unref(f->shared);
    buf_free(&f->text);
    free(f);
    atomic_fetch_sub(&t->open, 1);
    return 0;
}

_Static_assert(LIVE_PARKED == WORK_PARKED, "one code for requests that wait");

static void on_work_done(void *arg, int result)
{
    struct live_wait *w = arg;
    w->done(w, result);
}

static bool is_stopped(void *arg)
{
    struct live_wait *w = arg;
    return w->stopped && w->stopped(w);
}

static int read_row(struct tree *t, struct tree_file *f, uint64_t off, size_t n, struct reply *r)
{
    CLEANUP(view_free) struct view v = tree_held_view(t, f->held, f->image);
    n = (size_t)within_u64(off, n, f->size);
    if (off < f->text.len) {
        const size_t head = (size_t)min_u64(n, f->text.len - off);
        reply_copy(r, f->text.data + off, head);
        off += head;
        n -= head;
    }
    return n > 0 ? f->row->read(&v, f->row, node_tensor(v.snap, &f->node), off - f->text.len, n, r)
                 : 0;
}

static int read_computed(struct tree *t, struct tree_file *f, uint64_t off, size_t n,
                         struct reply *r)
{
    CLEANUP(view_free) struct view v = tree_held_view(t, f->held, f->image);
    const struct gguf_tensor *tensor = node_tensor(v.snap, &f->node);
    const struct row *row = f->row;
    struct need need;
    n = (size_t)within_u64(off, n, f->size);
    if (n == 0)
        return 0;
    const struct work_waiter waiter = {r->wait->request, on_work_done, is_stopped, r->wait};
    r->work = t->work;
    /* Where many results are read at a time, one may have been dropped again: then once more. */
    int got = -EAGAIN;
    row->need(&v, row, tensor, off, n, &need);
    while (got == -EAGAIN) {
        got = work_want(t->work, &v, need.what, need.first, need.last, &waiter);
        if (got == 0)
            got = row->read(&v, row, tensor, off, n, r);
    }
    return got;
}

int handle_read_text(struct tree *t, struct tree_file *f, uint64_t off, size_t n, struct reply *r)
{
    const struct buf *text = f->shared ? &f->shared->bytes : &f->text;
    (void)t;
    r->len = (size_t)within_u64(off, n, text->len);
    r->bytes = r->len ? text->data + off : NULL;
    return 0;
}

const struct handle_ops handle_text = {.read = handle_read_text};
const struct handle_ops handle_row = {.read = read_row};
const struct handle_ops handle_computed = {.read = read_computed};

int tree_read(struct tree *t, struct tree_file *f, uint64_t off, size_t n, struct reply *r)
{
    int got;
    if (is_written(f) && tensors_read(t, f, off, n, r, &got))
        return got;
    return f->ops->read(t, f, off, n, r);
}

void tree_reply_done(struct reply *r)
{
    if (r->mapped)
        (void)mapped_check(r->mapped, r->end);
    mapped_unref(r->mapped);
}

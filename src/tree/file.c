/* SPDX-License-Identifier: MIT */
/* Opens files in the tree, and reads and writes their contents: see file.h. */
#include "tree/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

#include "base/bytes.h"
#include "live/views.h"
#include "tree/folder.h"
#include "tree/tensors.h"

/* ---- read ---- */

_Static_assert(LIVE_PARKED == WORK_PARKED, "one code for requests that wait");

static void on_work_done(void *arg, int result)
{
    struct live_wait *w = arg;
    w->done(w, result);
}

static bool is_work_stopped(void *arg)
{
    struct live_wait *w = arg;
    return w->stopped && w->stopped(w);
}

/* Read from computed results. If a result is missing, the read waits for it. */
static int read_computed(struct tree *t, const struct about *a, uint64_t off, size_t n,
                         struct reply *r)
{
    const struct work_waiter waiter = {r->wait->request, on_work_done, is_work_stopped, r->wait};
    uint32_t first, last;
    int got = -EAGAIN;
    r->work = t->work;
    files_need(a, off, n, &first, &last);
    /* A read of many results may find that one has been dropped again, so repeat until none is
     * missing. */
    while (got == -EAGAIN) {
        got = work_want(t->work, a->v, a->row->what, first, last, &waiter);
        if (got == 0)
            got = a->row->read(a, off, n, r);
    }
    return got;
}

static int read_row(struct tree_file *f, uint64_t off, size_t n, struct reply *r)
{
    CLEANUP(view_free) struct view v = tree_held_view(f->tree, f->held, f->image);
    struct about a = {&v, f->row, node_tensor(v.snap, &f->node), f->decodes};
    uint64_t size = f->size;
    if (f->tree->opt.tensors && f->node.kind == NODE_TENSOR_FILE) { /* it may have been edited */
        if (!a.t)
            return -EIO;
        size = a.row->size(&a);
        a.decodes = files_decodes(&a);
    }
    n = (size_t)within_u64(off, n, size);
    return n == 0        ? 0
           : f->computed ? read_computed(f->tree, &a, off, n, r)
                         : f->row->read(&a, off, n, r);
}

static int read_text(struct tree_file *f, uint64_t off, size_t n, struct reply *r)
{
    r->len = (size_t)within_u64(off, n, f->text.len);
    r->bytes = r->len ? f->text.data + off : NULL;
    return 0;
}

/* Return true if the file has a draft: of a key, of a helper in metadata/, or of a tensor's view. */
static bool has_draft(const struct tree_file *f)
{
    return f->view || (f->live && !f->fixed);
}

static int file_read_draft(struct tree_file *f, uint64_t off, size_t n, struct reply *r)
{
    r->bytes = r->scratch;
    return f->view ? tensors_read_own(f, off, n, r)
                   : live_read(f->tree->meta, f->live, off, n, r->scratch, &r->len);
}

int tree_read(struct tree_file *f, uint64_t off, size_t n, struct reply *r)
{
    const int got = tensors_read_draft(f, off, n, r);
    return got != -ESTALE           ? got
           : has_draft(f)           ? file_read_draft(f, off, n, r)
           : f->row && f->row->read ? read_row(f, off, n, r)
                                    : read_text(f, off, n, r);
}

/* ---- open ---- */

static int open_pieces(struct tree_file *f, const struct about *a)
{
    const struct row *row = f->row;
    f->decodes = files_decodes(a);
    f->size = row->size(a);
    /* A read that waits for a result can be interrupted only if it does not fill the page cache. */
    f->computed = row->computed;
    f->cacheable &= !f->computed;
    if (f->size == UINT64_MAX)
        return -ENOMEM;
    return row->image ? row->image(a, &f->image) : 0;
}

static int row_open(struct tree_file *f, int flags)
{
    struct tree *t = f->tree;
    CLEANUP(view_free) struct view v = VIEW_INIT;
    int r = node_has(&f->node, ROW_MOVES) ? live_freshen(t->meta, NULL) : 0;
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
    f->cacheable = !node_has(&f->node, ROW_STATE) && !(t->writable && f->row->flags & ROW_MOVES) &&
                   !(t->opt.tensors && f->node.kind == NODE_TENSOR_FILE && !f->row->read);
    /* The page in which the file now ends may have been read when it was truncated, with zeros. */
    f->cold = store_cut(v.store) ? UINT64_MAX : 0;
    if (f->node.kind == NODE_WHOLE && view_is_lost(&v))
        return -ESTALE; /* the kernel looks the name up again */
    tensors_opened(f);
    const struct about a = node_about(&v, &f->node);
    if (f->row->read)
        r = open_pieces(f, &a);
    if (r == 0 && f->row->text)
        f->row->text(&a, &f->text);
    node_state(t, &f->node, &f->text);
    return r;
}

struct tree_file *tree_file_new(struct tree *t, uint64_t node)
{
    struct tree_file *f = calloc(1, sizeof(*f));
    if (!f)
        return NULL;
    *f = (struct tree_file){.tree = t, .node = ino_node(node)};
    if (t)
        atomic_fetch_add(&t->open, 1);
    return f;
}

/* Open a key for reading. Rendering a large text takes a while, so no lock is held. */
static int open_key(struct tree_file *f, int flags)
{
    struct live_text text = {0};
    int r = sys_open_changes(flags) ? begin_editing(f->tree) : 0;
    if (r < 0)
        return r;
    r = live_open_file(f->tree->meta, f->node.number, flags, &f->live, &text);
    f->fixed = (flags & O_ACCMODE) == O_RDONLY;
    f->text = text.bytes;
    if (r == 0 && text.value.snap)
        shown_text(&text.value, &f->text);
    shown_free(&text.value);
    return r;
}

int tree_open_file(struct tree *t, uint64_t node, int flags, struct tree_file **ret)
{
    struct tree_file *f = tree_file_new(t, node);
    if (!f)
        return -ENOMEM;
    f->cacheable = !t->writable;
    int r = f->node.kind == NODE_KEY            ? open_key(f, flags)
            : tensors_opens(t, &f->node, flags) ? tensors_open(f, flags)
                                                : row_open(f, flags);
    if (r == 0)
        r = buf_error(&f->text);
    if (r < 0)
        tree_release(f);
    else
        *ret = f;
    return r;
}

bool tree_ahead(const struct tree_file *f)
{
    return f->decodes && !f->tree->opt.tensors;
}

void tree_release(struct tree_file *f)
{
    if (!f)
        return;
    if (f->node.kind == NODE_TENSOR_FILE)
        tensors_warm(f);
    if (f->view)
        live_view_release(f->tree->meta, f->view);
    if (f->live)
        live_release(f->tree->meta, f->live);
    if (f->tree) {
        tree_let_go(f->tree, &f->held);
        atomic_fetch_sub(&f->tree->open, 1);
    }
    image_unref(f->image);
    buf_free(&f->text);
    free(f);
}

void tree_reply_done(struct reply *r)
{
    if (!r->mapped)
        return;
    (void)mapped_check(r->mapped, r->end);
    mapped_unref(r->mapped);
}

/* ---- edit ---- */

int tree_write(struct tree_file *f, uint64_t off, const void *bytes, size_t n, struct live_wait *w)
{
    return !has_draft(f) ? -EBADF
           : f->view     ? live_view_write(f->tree->meta, f->view, off, bytes, n, w)
                         : live_write(f->tree->meta, f->live, off, bytes, n);
}

int tree_allocate(struct tree_file *f, int mode, uint64_t off, uint64_t n)
{
    struct tree_entry e;
    uint64_t end;
    if (!f->view || mode & ~FALLOC_FL_KEEP_SIZE)
        return -EOPNOTSUPP;
    if (!f->cacheable || mode) /* neither raw nor values */
        return 0;
    int r = tree_getattr(f->tree, ino_of(&f->node), f, &e);
    /* -EOPNOTSUPP: posix_fallocate(3) then writes zeros */
    return r < 0 ? r : add_u64(off, n, &end) && end <= (uint64_t)e.attr.st_size ? 0 : -EOPNOTSUPP;
}

int tree_truncate(struct tree_file *f, uint64_t size, struct live_wait *w)
{
    return !has_draft(f) ? -EINVAL
           : f->view     ? live_view_truncate(f->tree->meta, f->view, size)
                         : live_truncate(f->tree->meta, f->node.number, f->live, size, w);
}

int tree_truncate_unopened(struct tree *t, uint64_t node, uint64_t size, struct live_wait *w)
{
    const struct node n = ino_node(node);
    struct tree_file *f;
    int r = n.kind == NODE_KEY ? begin_editing(t) : tree_open_file(t, node, O_WRONLY, &f);
    if (r < 0)
        return r;
    if (n.kind == NODE_KEY)
        return live_truncate(t->meta, n.number, NULL, size, w);
    r = tree_truncate(f, size, NULL);
    if (r == 0)
        r = tree_flush(f, w);
    tree_release(f);
    return r;
}

int tree_flush(struct tree_file *f, struct live_wait *w)
{
    return !has_draft(f) ? 0
           : f->view     ? live_view_flush(f->tree->meta, f->view, w)
                         : live_flush(f->tree->meta, f->live, false, w);
}

int tree_fsync(struct tree_file *f, struct live_wait *w)
{
    return f->view   ? live_view_fsync(f->tree->meta, f->view, w)
           : f->live ? live_flush(f->tree->meta, f->live, true, w)
           : f->tree ? tensors_fsync(f->tree, &f->node, w)
                     : 0;
}

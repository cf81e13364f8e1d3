/* SPDX-License-Identifier: MIT */
/* Open files of tensors' views that are written (live/tensors.h): see handle.h. */
#include "tree/handle.h"

static int read_view(struct tree *t, struct tree_file *f, uint64_t off, size_t n, struct reply *r)
{
    r->bytes = r->scratch;
    return live_view_read(t->live, f->view, off, r->scratch, n, &r->len);
}

static int write_view(struct tree *t, struct tree_file *f, uint64_t off, const void *bytes,
                      size_t n, struct live_wait *w)
{
    return live_view_write(t->live, f->view, off, bytes, n, w);
}

static int truncate_view(struct tree *t, struct tree_file *f, uint64_t size, struct live_wait *w)
{
    (void)w;
    return live_view_truncate(t->live, f->view, size);
}

static int allocate_view(struct tree *t, struct tree_file *f, uint64_t off, uint64_t n,
                         bool keep_size)
{
    return live_view_allocate(t->live, f->view, off, n, keep_size);
}

static int flush_view(struct tree *t, struct tree_file *f, struct live_wait *w)
{
    return live_view_flush(t->live, f->view, w);
}

static int fsync_view(struct tree *t, struct tree_file *f, struct live_wait *w)
{
    return live_view_fsync(t->live, f->view, w);
}

static void release_view(struct tree *t, struct tree_file *f)
{
    live_view_release(t->live, f->view);
}

const struct handle_ops handle_view = {.read = read_view,
                                       .write = write_view,
                                       .truncate = truncate_view,
                                       .allocate = allocate_view,
                                       .flush = flush_view,
                                       .fsync = fsync_view,
                                       .release = release_view};

void handle_take_view(struct tree_file *f, struct live_view *view)
{
    f->ops = &handle_view;
    f->view = view;
    f->converts = f->row->text != NULL;
}

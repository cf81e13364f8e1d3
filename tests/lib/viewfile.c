/* SPDX-License-Identifier: MIT */
/* Makes edits to a tree's tensors, and waits for them: see viewfile.h. */
#include "viewfile.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "live/tensors.h"
#include "tree_image.h"

static uint64_t tensors(struct tree *t)
{
    const struct tree_image m = {.t = t};
    return image_node(&m, "tensors");
}

static uint64_t folder(struct tree *t, const char *tensor)
{
    struct tree_entry e;
    return tree_lookup(t, tensors(t), tensor, &e) == 0 ? e.node : 0;
}

static int open_once(uint64_t dir, const char *view, int flags, struct viewfile *v)
{
    struct tree_entry e = {0};
    int r = tree_lookup(v->t, dir, view, &e);
    if (r == -ENOENT && flags & O_CREAT)
        r = tree_create(v->t, dir, view, flags, &e, &v->f);
    else if (r == 0)
        r = tree_open_file(v->t, e.node, flags & ~O_CREAT, &v->f);
    v->node = e.node;
    if (r < 0)
        v->f = NULL;
    return r;
}

int viewfile_open(struct tree *t, const char *tensor, const char *view, int flags,
                  struct viewfile *ret)
{
    uint64_t dir = folder(t, tensor);
    *ret = (struct viewfile){.t = t};
    if (!dir)
        return -ENOENT;
    int r = open_once(dir, view, flags, ret);
    return r == -ESTALE ? open_once(dir, view, flags, ret) : r; /* the kernel retries once */
}

int viewfile_pwrite(const struct viewfile *v, uint64_t off, const void *bytes, size_t n)
{
    struct tree_wait w;
    struct live_wait *wait = tree_wait(&w);
    wait->request = v;
    return tree_waited(&w, tree_write(v->f, off, bytes, n, wait));
}

static int flush(const struct viewfile *v)
{
    struct tree_wait w;
    return tree_waited(&w, tree_flush(v->f, tree_wait(&w)));
}

int viewfile_sync(const struct viewfile *v)
{
    struct tree_wait w;
    return tree_waited(&w, tree_fsync(v->f, tree_wait(&w)));
}

void viewfile_release(struct viewfile *v)
{
    (void)tree_release(v->f);
    v->f = NULL;
}

int viewfile_close(struct viewfile *v)
{
    int r = flush(v);
    viewfile_release(v);
    return r;
}

int viewfile_put_with(struct tree *t, const char *tensor, const char *view, int flags,
                      const void *bytes, size_t n)
{
    struct viewfile v;
    int r = viewfile_open(t, tensor, view, O_WRONLY | O_TRUNC | flags, &v);
    if (r < 0)
        return r;
    r = viewfile_pwrite(&v, 0, bytes, n);
    int closed = viewfile_close(&v);
    return r < 0 ? r : closed;
}

int viewfile_put(struct tree *t, const char *tensor, const char *view, const void *bytes, size_t n)
{
    return viewfile_put_with(t, tensor, view, 0, bytes, n);
}

int viewfile_rename(struct tree *t, const char *tensor, const char *from, const char *to)
{
    struct tree_wait w;
    uint64_t dir = folder(t, tensor);
    return dir ? tree_waited(&w, tree_rename(t, dir, from, dir, to, 0, tree_wait(&w))) : -ENOENT;
}

int viewfile_unlink(struct tree *t, const char *tensor, const char *view)
{
    uint64_t dir = folder(t, tensor);
    return dir ? tree_unlink(t, dir, view) : -ENOENT;
}

/* ---- directories ---- */

int do_mkdir_tensor(struct tree *t, const char *name)
{
    struct tree_entry e;
    return tree_mkdir(t, tensors(t), name, &e);
}

int do_rename_tensor(struct tree *t, const char *from, const char *to)
{
    struct tree_wait w;
    uint64_t dir = tensors(t);
    return tree_waited(&w, tree_rename(t, dir, from, dir, to, 0, tree_wait(&w)));
}

int do_rmdir_tensor(struct tree *t, const char *name)
{
    return tree_rmdir(t, tensors(t), name);
}

/* SPDX-License-Identifier: MIT */
/* Handles tensors/ when it can be edited: see tensors.h. A tensor's file keeps its node for as long
 * as the tensor is there. */
#include "tree/tensors.h"

#include <errno.h>
#include <fcntl.h>

#include "base/bytes.h"
#include "live/views.h"
#include "tree/attr.h"
#include "tree/folder.h"

struct live *tensors_live(const struct tree *t)
{
    return t->opt.tensors ? atomic_load(&t->live) : NULL;
}

struct live_folder tensors_facts(const struct tree *t, const struct node *n)
{
    struct live *l = tensors_live(t);
    struct live_folder f = {0};
    if (l && (n->kind == NODE_TENSOR || n->kind == NODE_TENSOR_FILE))
        live_tensor_folder(l, n->number, &f);
    return f;
}

bool tensors_draft_size(const struct tree *t, const struct node *n, uint64_t *ret)
{
    struct live *l = tensors_live(t);
    return l && n->kind == NODE_TENSOR_FILE && live_view_size(l, n->number, n->row, ret);
}

/* ---- open ---- */

int tensors_open(struct tree_file *f, int flags)
{
    struct tree *t = f->tree;
    const struct node *n = &f->node;
    CLEANUP(view_free) struct view v = VIEW_INIT;
    int r = begin_editing(t);
    if (r == 0)
        r = tree_hold_view(t, &f->node, &v, &f->held);
    if (r == 0)
        r = live_view_open(t->meta, n->number, n->row, flags, &f->view);
    if (r < 0)
        return r;
    f->row = node_row(n);
    f->converts = n->row == TENSOR_TYPE;
    f->cacheable = !view_is_text(n->row) && !view_is_computed(n->row);
    f->cold = live_view_cold(t->meta, n->number, n->row);
    return 0;
}

bool tensors_opens(struct tree *t, const struct node *n, int flags)
{
    return t->opt.tensors && n->kind == NODE_TENSOR_FILE && node_row(n) &&
           (sys_open_changes(flags) || tensors_facts(t, n).making);
}

void tensors_opened(struct tree_file *f)
{
    struct live *l = tensors_live(f->tree);
    if (l && f->node.kind == NODE_TENSOR_FILE)
        f->cold |= live_view_cold(l, f->node.number, f->node.row);
}

void tensors_warm(const struct tree_file *f)
{
    if (f->cold && tensors_live(f->tree))
        live_view_warm(f->tree->meta, f->node.number, f->node.row, f->cold);
}

/* ---- read ---- */

int tensors_read_draft(const struct tree_file *f, uint64_t off, size_t n, struct reply *r)
{
    if (!f->held || f->node.kind != NODE_TENSOR_FILE || !tensors_live(f->tree))
        return -ESTALE;
    CLEANUP(view_free) struct view v = tree_held_view(f->tree, f->held, NULL);
    r->bytes = r->scratch;
    return live_view_read(f->tree->meta, f->node.number, f->node.row, &v, off, r->scratch, n,
                          &r->len);
}

int tensors_read_own(struct tree_file *f, uint64_t off, size_t n, struct reply *r)
{
    CLEANUP(view_free) struct view v = tree_held_view(f->tree, f->held, NULL);
    const struct tensor_base b = {
        .v = v, .t = node_tensor(v.snap, &f->node), .big = v.snap->gguf->fmt.big};
    r->len = (size_t)within_u64(off, n, tensor_view_size(&b, f->node.row));
    return r->len ? tensor_view_read(&b, f->node.row, off, r->scratch, r->len) : 0;
}

/* ---- create ---- */

/* Check whether a view may be created; with O_EXCL the directory must not show it. */
static int check_create(struct tree *t, const struct node *dir, int row, int flags)
{
    const struct live_folder f = tensors_facts(t, dir);
    CLEANUP(view_free) struct view v = newest_view(&t->newest); /* now, as in folder.c */
    const struct gguf_tensor *tensor = node_tensor(v.snap, dir);
    if (!f.making && (!tensor || f.removed))
        return -ENOENT;
    if (row < 0 ||
        (!f.making && !files_exists(v.snap, files_row(FILES_TENSOR, (size_t)row), tensor)))
        return -EPERM;
    return flags & O_EXCL && !(f.hidden >> row & 1) ? -EEXIST : 0;
}

int tensors_create(struct tree *t, const struct node *dir, const char *name, int flags,
                   struct tree_entry *ret, struct tree_file **file)
{
    const int row = files_named(FILES_TENSOR, name);
    int r = dir->kind == NODE_TENSOR ? check_create(t, dir, row, flags) : -EPERM;
    struct tree_file *f =
        r == 0 ? tree_file_new(t, ino_make(NODE_TENSOR_FILE, dir->number, (uint32_t)row)) : NULL;
    if (!f)
        return r < 0 ? r : -ENOMEM;
    r = tensors_open(f, O_RDWR | O_TRUNC);
    if (r == 0)
        r = node_entry(t, &f->node, ret);
    if (r < 0) {
        tree_release(f);
        return r;
    }
    *file = f;
    return 0;
}

int tensors_fsync(struct tree *t, const struct node *n, struct live_wait *w)
{
    return n->kind == NODE_TENSOR_FILE && tensors_live(t) ? live_view_fsync(t->meta, NULL, w)
                                                          : tree_fsyncdir(t, w);
}

/* ---- names ---- */

/* The kernel has locked tensors/, so the new directory cannot disappear in the meantime. */
int tensors_mkdir(struct tree *t, const char *name, struct tree_entry *ret)
{
    struct node n = {.kind = NODE_TENSOR};
    int r = live_tensor_make(t->meta, name, &n.number);
    return r < 0 ? r : node_entry(t, &n, ret);
}

int tensors_unlink(struct tree *t, const struct node *dir, const char *name)
{
    const int row = files_named(FILES_TENSOR, name);
    if (dir->kind != NODE_TENSOR)
        return -EISDIR; /* the error of unlink(2) for a directory */
    if (row < 0)
        return -ENOENT;
    const bool making = tensors_facts(t, dir).making;
    CLEANUP(view_free) struct view v = newest_view(&t->newest);
    const struct gguf_tensor *tensor = node_tensor(v.snap, dir);
    return making || (tensor && files_exists(v.snap, files_row(FILES_TENSOR, (size_t)row), tensor))
               ? live_view_unlink(t->meta, dir->number, (uint32_t)row)
               : -ENOENT;
}

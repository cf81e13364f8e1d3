/* SPDX-License-Identifier: MIT */
/* Handles tensors/ when it can be edited: see tensors.h. */
#include "tree/tensors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

#include "base/bytes.h"
#include "live/views.h"
#include "tree/attr.h"

static const struct node tensors_folder = {.kind = NODE_DIR, .row = ROOT_TENSORS};

struct live *tensors_live(const struct tree *t)
{
    return t->opt.tensors ? atomic_load(&t->live) : NULL;
}

void tensors_facts(struct tree *t, const struct snapshot *g, const struct node *n,
                   struct live_folder *ret)
{
    struct live *l = tensors_live(t);
    *ret = (struct live_folder){0};
    if (l && (n->kind == NODE_TENSOR || n->kind == NODE_TENSOR_FILE))
        (void)live_tensor_folder(l, n->kind == NODE_TENSOR ? n->number : node_id(g, n).number,
                                 false, ret);
}

bool tensors_is_making(struct tree *t, const struct node *n, uint32_t *views)
{
    struct live *l = tensors_live(t);
    return l && n->kind == NODE_TENSOR && live_making(l, n->number, views);
}

/* ---- nodes that no snapshot has ---- */

/* Turn the entry for tensors/ into one for n, a node that is in no snapshot. */
static void stand_in(const struct node *n, struct tree_entry *ret)
{
    ret->node = ret->attr.st_ino = ino_of(n);
    ret->generation = 0;
    ret->fixed = ret->lasting = ret->steady = false;
    ret->attr.st_nlink = 2;
    if (n->kind == NODE_TENSOR)
        return;
    ret->attr.st_mode = S_IFREG | (ret->attr.st_mode & 0666);
    ret->attr.st_nlink = 1;
}

/* Make the entry for a new tensor's directory, or for an ignored view in it. */
static bool making_entry(struct tree *t, struct live *l, const struct node *n,
                         struct tree_entry *ret)
{
    struct live_folder folder;
    uint32_t views;
    if (!live_making(l, n->number, &views))
        return false;
    CLEANUP(view_free) struct view v = newest_view(&t->newest);
    (void)live_tensor_folder(l, n->number, false, &folder);
    (void)node_entry(t, &v, &tensors_folder, ret);
    stand_in(n, ret);
    ret->attr.st_atim = ret->attr.st_mtim = ret->attr.st_ctim = folder.mtime;
    return true;
}

/* Make the entry for a draft's node. Programs that have the draft open can keep using it after the
 * tensor has been removed. */
static bool draft_entry(struct tree *t, struct live *l, const struct node *n,
                        struct tree_entry *ret)
{
    struct live_view_attr a;
    if (n->kind != NODE_TENSOR_FILE || live_view_attr(l, n->number, n->row, &a) < 0)
        return false;
    CLEANUP(view_free) struct view v = newest_view(&t->newest);
    const struct node folder = {.kind = NODE_TENSOR, .number = a.tensor};
    const bool removed = tensors_entry(t, &v, &folder, ret) < 0;
    if (removed)
        (void)node_entry(t, &v, &tensors_folder, ret);
    stand_in(n, ret);
    ret->attr.st_ino = a.helper ? ret->node : ino_tensor_file(a.tensor, a.row);
    ret->attr.st_nlink = !removed;
    ret->attr.st_size = (off_t)a.size;
    ret->attr.st_blocks = (blkcnt_t)((a.size + 511) / 512);
    return true;
}

bool tensors_pending(struct tree *t, const struct node *n, struct tree_entry *ret)
{
    struct live *l = tensors_live(t);
    if (!l || (n->kind != NODE_TENSOR && n->kind != NODE_TENSOR_FILE))
        return false;
    return making_entry(t, l, n, ret) || draft_entry(t, l, n, ret);
}

int tensors_entry(struct tree *t, const struct view *v, const struct node *n,
                  struct tree_entry *ret)
{
    return tensors_pending(t, n, ret) ? 0 : node_entry(t, v, n, ret);
}

int tensors_replaced(struct tree *t, const struct node *n, struct tree_entry *ret)
{
    struct live *l = tensors_live(t);
    struct node now = {.kind = NODE_TENSOR};
    if (!l || n->kind != NODE_TENSOR_FILE || live_tensor_of_version(l, n->number, &now.number) < 0)
        return -ESTALE;
    CLEANUP(view_free) struct view v = newest_view(&t->newest);
    const struct tensor_id id = node_id(v.snap, &now);
    if (id.version == IDS_NONE)
        return -ESTALE;
    now = (struct node){NODE_TENSOR_FILE, n->row, id.version};
    int r = node_entry(t, &v, &now, ret);
    ret->node = ino_of(n);
    ret->lasting = false;
    return r;
}

/* ---- lookup ---- */

int tensors_lookup(struct tree *t, const struct node *dir, const char *name, struct tree_entry *ret)
{
    struct live *l = tensors_live(t);
    const int row = files_named(FILES_TENSOR, name);
    struct node n = {NODE_TENSOR_FILE, row < 0 ? 0 : (uint32_t)row, IDS_NONE};
    uint32_t views;
    if (!l || dir->kind != NODE_TENSOR)
        return 0;
    if (row < 0)
        (void)live_helper_find(l, dir->number, name, &n.number);
    else if (live_making(l, dir->number, &views))
        (void)live_making_view(l, dir->number, n.row, &n.number);
    else
        return 0;
    if (tensors_pending(t, &n, ret))
        return 1;
    /* By now the new tensor may have become a tensor of the model. */
    return row >= 0 && !live_making(l, dir->number, &views) ? 0 : -ENOENT;
}

bool tensors_look(struct tree *t, const struct node *dir, struct node *file, struct tree_entry *ret)
{
    struct live *l = tensors_live(t);
    if (!l || dir->kind != NODE_TENSOR)
        return false;
    const uint32_t newest = file->number;
    live_view_look(l, dir->number, file->row, &file->number);
    if (file->number != newest)
        node_looked(t, file);
    return draft_entry(t, l, file, ret);
}

int tensors_helper_at(struct tree *t, const struct node *dir, uint64_t i, bool attrs,
                      char name[TREE_NAME_MAX + 1], struct tree_entry *ret)
{
    struct live *l = tensors_live(t);
    struct node n = {.kind = NODE_TENSOR_FILE};
    if (!l || !live_helper_at(l, dir->number, i, name, &n.number))
        return 0;
    brief_entry(ino_of(&n), ino_of(&n), S_IFREG, ret);
    ret->node = 0; /* 0 unless the file still exists */
    if (attrs)
        (void)tensors_pending(t, &n, ret);
    return 1;
}

/* ---- writing views ---- */

static enum tensor_view kind_of(uint32_t row)
{
    static const enum tensor_view kinds[] = {/* indexed by row */
                                             TENSOR_RAW,   TENSOR_F32,     TENSOR_F32_NPY,
                                             TENSOR_SHAPE, TENSOR_TYPE,    TENSOR_ASIDE,
                                             TENSOR_F16,   TENSOR_F16_NPY, TENSOR_BF16};
    return row < COUNT(kinds) ? kinds[row] : TENSOR_ASIDE;
}

/* Turn f into an open file of f->node that owns this view. */
static void take_view(struct tree_file *f, struct live_view *view)
{
    f->row = node_row(&f->node);
    f->ops = &file_draft;
    f->view = view;
    f->converts = !f->row->read;
    f->cacheable = true;
    node_written(f->tree, &f->node);
}

/* Get the number of the tensor that a node shows, or showed a moment ago. Sets *making if the node
 * is an ignored view of a new tensor. */
static int number_of(struct tree *t, const struct node *n, uint32_t *ret, bool *making)
{
    struct live_view_attr a;
    uint32_t views;
    *ret = n->number;
    *making = live_making(t->meta, n->number, &views);
    if (*making)
        return 0;
    if (live_view_attr(t->meta, n->number, n->row, &a) == 0) {
        *ret = a.tensor;
        return 0;
    }
    CLEANUP(view_free) struct view v = newest_view(&t->newest);
    int r = node_check(t, v.snap, n);
    if (r == 0)
        *ret = node_id(v.snap, n).number;
    return r == -ESTALE && live_tensor_of_version(t->meta, n->number, ret) == 0 ? 0 : r;
}

int tensors_open(struct tree_file *f, int flags)
{
    struct tree *t = f->tree;
    struct node *n = &f->node;
    struct live_view *h;
    uint32_t number;
    bool making = false;
    int r = begin_editing(t);
    if (r == 0)
        r = number_of(t, n, &number, &making);
    if (r < 0)
        return r;
    const enum tensor_view kind = making ? TENSOR_ASIDE : kind_of(n->row);
    r = live_view_open(t->meta, number, n->row, kind, flags, &n->number, &h, &f->cold);
    if (r < 0)
        return r;
    take_view(f, h);
    f->cacheable = kind != TENSOR_ASIDE;
    return 0;
}

bool tensors_opens(struct tree *t, const struct node *n, int flags)
{
    struct live *l = tensors_live(t);
    uint32_t views;
    if (!t->opt.tensors || n->kind != NODE_TENSOR_FILE || !node_row(n))
        return false;
    return sys_open_changes(flags) || (l && live_making(l, n->number, &views));
}

int tensors_join(struct tree_file *f)
{
    struct live *l = tensors_live(f->tree);
    struct live_view *h;
    if (!l || f->node.kind != NODE_TENSOR_FILE)
        return -ESTALE;
    int r = live_view_join(l, f->node.number, f->node.row, &h);
    if (r < 0)
        return r;
    tree_let_go(f->tree, &f->held);
    take_view(f, h);
    return 0;
}

int tensors_opened(struct tree_file *f)
{
    struct tree *t = f->tree;
    struct live *l = tensors_live(t);
    if (!l || f->node.kind != NODE_TENSOR_FILE)
        return 0;
    CLEANUP(view_free) struct view v = tree_held_view(t, f->held, NULL);
    const struct node tensor = {.kind = NODE_TENSOR, .number = node_id(v.snap, &f->node).number};
    if (live_view_written(l, tensor.number, f->node.number, f->node.row, &f->cold)) {
        node_written(t, &f->node);
        return 0;
    }
    /* The draft has ended since the kernel looked the name up, so the kernel must look it up
     * again. */
    if (node_was_looked(t, f->held, f->node.row))
        return -ESTALE;
    /* A program that opens the file through /proc/self/fd gets the same node, and another program
     * may get it too; the file then shows the tensor's current state. */
    CLEANUP(view_free) struct view now = newest_view(&t->newest);
    const uint32_t version = node_id(now.snap, &tensor).version;
    if (version == IDS_NONE || version == f->node.number)
        return 0;
    tree_let_go(t, &f->held);
    f->node.number = version;
    return 1;
}

bool tensors_read(const struct tree_file *f, uint64_t off, size_t n, struct reply *r, int *ret)
{
    struct live *l = f->tree->meta;
    struct live_view *h;
    *ret = live_view_join(l, f->node.number, f->node.row, &h);
    if (*ret < 0)
        return *ret != -ESTALE;
    *ret = live_view_read(l, h, off, r->scratch, n, &r->len);
    r->bytes = r->scratch;
    live_view_release(l, h);
    return true;
}

/* ---- create ---- */

/* Check whether a file may be created. It may be a helper (row -1), or a view that the tensor can
 * have; with O_EXCL the directory must not show that view at the moment. */
static int check_create(struct tree *t, const struct snapshot *g, const struct node *dir, int row,
                        int flags, bool *making)
{
    const struct gguf_tensor *tensor = node_tensor(g, dir);
    struct live_folder folder;
    uint32_t there;
    tensors_facts(t, g, dir, &folder);
    *making = tensors_is_making(t, dir, &there);
    if (!*making && (!tensor || folder.removed))
        return -ENOENT;
    if (row < 0)
        return 0;
    if (!*making && !files_exists(g, files_row(FILES_TENSOR, (size_t)row), tensor))
        return -EPERM;
    there = *making ? there : ~folder.hidden;
    return flags & O_EXCL && there >> row & 1 ? -EEXIST : 0;
}

/* Create a view, or truncate it if it exists. Returns 0, 1 if a new tensor ignores the view, or
 * -errno. */
static int create_view(struct tree_file *f, const struct node *dir, uint32_t version,
                       struct live_view **ret)
{
    struct live *l = f->tree->meta;
    const uint32_t row = f->node.row;
    const bool left = live_making_leaves(l, dir->number, row, kind_of(row));
    const enum tensor_view kind = left ? TENSOR_ASIDE : kind_of(row);
    f->node.number = version;
    if (version != IDS_NONE)
        live_view_look(l, dir->number, row, &f->node.number);
    int r =
        live_view_open(l, dir->number, row, kind, O_RDWR | O_TRUNC, &f->node.number, ret, &f->cold);
    if (r < 0)
        return r;
    take_view(f, *ret);
    f->cacheable = kind != TENSOR_ASIDE;
    live_view_show(l, dir->number, row);
    return left;
}

int tensors_create(struct tree *t, const struct node *dir, const char *name, int flags,
                   struct tree_entry *ret, struct tree_file **file)
{
    const int row = files_named(FILES_TENSOR, name);
    struct live_view *h;
    bool making;
    int r = dir->kind == NODE_TENSOR ? begin_editing(t) : -EPERM;
    CLEANUP(view_free) struct view v = newest_view(&t->newest);
    if (r == 0)
        r = check_create(t, v.snap, dir, row, flags, &making);
    /* Nodes of helpers have the row of `raw`. */
    struct tree_file *f =
        r == 0 ? tree_file_new(t, ino_tensor_file(0, row < 0 ? 0 : (uint32_t)row)) : NULL;
    if (!f)
        return r < 0 ? r : -ENOMEM;
    if (row >= 0)
        r = create_view(f, dir, node_id(v.snap, dir).version, &h);
    else if ((r = live_helper_create(t->meta, dir->number, name, flags, &h, &f->node.number)) == 0)
        take_view(f, h);
    if (r >= 0)
        r = r > 0 ? tensors_lookup(t, dir, name, ret) : tensors_entry(t, &v, &f->node, ret);
    if (r < 0) {
        (void)tree_release(f);
        return r;
    }
    *file = f;
    return 0;
}

int tensors_fsync(struct tree *t, const struct node *n, struct live_wait *w)
{
    struct live *l = tensors_live(t);
    uint32_t number;
    if (!l || n->kind != NODE_TENSOR_FILE)
        return 0;
    /* If this fails, nothing was written to the tensor. */
    (void)live_tensor_of_version(l, n->number, &number);
    return live_tensor_fsync(l, number, w);
}

int tensors_truncate(struct tree *t, const struct node *n, uint64_t size, struct live_wait *w)
{
    struct tree_file f = {.tree = t, .node = *n};
    int r = tensors_open(&f, O_WRONLY);
    if (r < 0)
        return r;
    r = live_view_truncate(t->meta, f.view, size);
    if (r == 0)
        r = live_view_flush(t->meta, f.view, w);
    live_view_release(t->meta, f.view);
    return r;
}

/* ---- names ---- */

/* The kernel has locked tensors/, so the new directory cannot disappear in the meantime. */
int tensors_mkdir(struct tree *t, const char *name, struct tree_entry *ret)
{
    struct node n = {.kind = NODE_TENSOR};
    int r = begin_editing(t);
    if (r == 0)
        r = live_tensor_make(t->meta, name, &n.number);
    if (r == 0)
        (void)making_entry(t, t->meta, &n, ret);
    return r;
}

int tensors_unlink(struct tree *t, const struct node *dir, const char *name)
{
    const int row = files_named(FILES_TENSOR, name);
    uint32_t views;
    if (dir->kind != NODE_TENSOR)
        return -EISDIR; /* the error of unlink(2) for a directory */
    int r = begin_editing(t);
    if (r < 0)
        return r;
    if (row < 0)
        return live_helper_unlink(t->meta, dir->number, name);
    if (tensors_is_making(t, dir, &views))
        return live_making_unlink(t->meta, dir->number, (uint32_t)row);
    CLEANUP(view_free) struct view v = newest_view(&t->newest);
    const struct gguf_tensor *tensor = node_tensor(v.snap, dir);
    return tensor && files_exists(v.snap, files_row(FILES_TENSOR, (size_t)row), tensor)
               ? live_view_unlink(t->meta, dir->number, (uint32_t)row)
               : -ENOENT;
}

/* Rename a helper in a tensor's directory to another name, or over a view. */
static int rename_inside(struct tree *t, const struct node *dir, const char *name, const char *to,
                         unsigned flags, struct live_wait *w)
{
    uint32_t other;
    const int row = files_named(FILES_TENSOR, to);
    if (flags & ~(unsigned)RENAME_NOREPLACE)
        return -EINVAL;
    if (files_named(FILES_TENSOR, name) >= 0)
        return -EPERM;
    int r = begin_editing(t);
    if (r < 0)
        return r;
    /* Views always exist. The kernel has locked the directory, so no other helper can appear in the
     * meantime. */
    if (flags & RENAME_NOREPLACE &&
        (row >= 0 || live_helper_find(t->meta, dir->number, to, &other) == 0))
        return -EEXIST;
    return live_helper_rename(t->meta, dir->number, name, to, row < 0 ? 0 : (uint32_t)row,
                              row < 0 ? TENSOR_HELPER : kind_of((uint32_t)row), w);
}

int tensors_rename(struct tree *t, const struct node *dir, const char *name,
                   const struct node *into, const char *to, unsigned flags, struct live_wait *w)
{
    if (dir->kind == NODE_TENSOR && into->kind == NODE_TENSOR && dir->number == into->number)
        return rename_inside(t, dir, name, to, flags, w);
    if (!node_is_folder(dir, ROOT_TENSORS) || !node_is_folder(into, ROOT_TENSORS))
        return -EPERM;
    int r = begin_editing(t);
    return r < 0 ? r : live_tensor_rename(t->meta, name, to, flags, w);
}

/* SPDX-License-Identifier: MIT */
/* tensors/ when it can be edited: see tensors.h. */
#include "tree/tensors.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "base/count.h"
#include "live/views.h"
#include "tree/attr.h"
#include "tree/begin.h"

/* ---- editability ---- */

bool tensors_has(const struct tree *t, const struct node *dir)
{
    return t->opt.tensors && t->writable &&
           (node_is_folder(dir, ROOT_TENSORS) || dir->kind == NODE_TENSOR);
}

bool tensors_fixed(const struct tree *t, const struct node *n)
{
    bool in =
        node_is_folder(n, ROOT_TENSORS) || n->kind == NODE_TENSOR || n->kind == NODE_TENSOR_FILE;
    return in && t->writable && !t->opt.tensors;
}

struct live *tensors_live(const struct tree *t)
{
    return t->opt.tensors ? atomic_load(&t->live) : NULL;
}

int tensors_facts(struct tree *t, const struct snapshot *g, const struct node *n, bool fresh,
                  struct live_folder *ret)
{
    struct live *l = tensors_live(t);
    *ret = (struct live_folder){0};
    if (!l || (n->kind != NODE_TENSOR && n->kind != NODE_TENSOR_FILE))
        return 0;
    uint32_t number = n->number;
    if (n->kind == NODE_TENSOR_FILE) {
        const struct gguf_tensor *tensor = node_tensor(g, n);
        if (!tensor)
            return 0;
        number = ids_of(g->ids, snapshot_tensor_no(g, tensor)).number;
    }
    return live_tensor_folder(l, number, fresh, ret);
}

/* ---- tensors being made ---- */

bool tensors_is_making(struct tree *t, const struct node *n, uint32_t *views)
{
    struct live *l = tensors_live(t);
    return l && n->kind == NODE_TENSOR && live_making(l, n->number, views);
}

int tensors_making(struct tree *t, const struct node *n, struct tree_entry *ret)
{
    struct live *l = tensors_live(t);
    struct node top = {.kind = NODE_DIR, .row = ROOT_TENSORS};
    struct live_folder folder;
    uint32_t views;
    bool file = n->kind == NODE_TENSOR_FILE;
    if (!l || (n->kind != NODE_TENSOR && !file) || !live_making(l, n->number, &views))
        return 0;
    CLEANUP(view_free) struct view v = newest_view(&t->newest);
    int r = live_tensor_folder(l, n->number, false, &folder);
    if (r == 0)
        r = node_entry(t, &v, &top, ret);
    if (r < 0)
        return r;
    ret->node = ino_of(n);
    ret->fixed = ret->lasting = ret->steady = false;
    ret->attr.st_ino = ret->node;
    ret->attr.st_nlink = file ? 1 : 2;
    ret->attr.st_atim = ret->attr.st_mtim = ret->attr.st_ctim = folder.mtime;
    if (file)
        ret->attr.st_mode = S_IFREG | (ret->attr.st_mode & 0666);
    return 1;
}

int tensors_entry(struct tree *t, const struct view *v, const struct node *n,
                  struct tree_entry *ret)
{
    int r = tensors_making(t, n, ret);
    if (r == 0)
        r = tensors_draft(t, n, ret);
    return r == 0 ? node_entry(t, v, n, ret) : r < 0 ? r : 0;
}

/* A view's row, whether or not the tensor has it; -1. */
static int any_row(const char *name)
{
    for (size_t i = 0; i < files_count(FILES_TENSOR); i++)
        if (strcmp(files_row(FILES_TENSOR, i)->name, name) == 0)
            return (int)i;
    return -1;
}

/* The node of a view that was written. */
static int making_view(struct tree *t, const struct node *dir, uint32_t row, struct tree_entry *ret)
{
    struct node n = {.kind = NODE_TENSOR_FILE, .row = row};
    int r = live_making_view(tensors_live(t), dir->number, row, &n.number);
    if (r == 0)
        r = n.number == dir->number ? tensors_making(t, &n, ret) : tensors_draft(t, &n, ret);
    return r > 0 ? 0 : r < 0 ? r : -ENOENT;
}

int tensors_making_lookup(struct tree *t, const struct node *dir, const char *name,
                          struct tree_entry *ret)
{
    int row = any_row(name);
    return row < 0 ? -ENOENT : making_view(t, dir, (uint32_t)row, ret);
}

int tensors_mkdir(struct tree *t, const struct node *dir, const char *name, struct tree_entry *ret)
{
    struct live *l;
    struct node n = {.kind = NODE_TENSOR};
    if (!node_is_folder(dir, ROOT_TENSORS))
        return -EPERM;
    int r = begin_editing(t, &l);
    if (r == 0)
        r = live_tensor_make(l, name, &n.number);
    if (r == 0)
        r = tensors_making(t, &n, ret);
    return r > 0 ? 0 : r;
}

/* ---- views that are written ---- */

static enum tensor_view kind_of(uint32_t row)
{
    static const struct {
        const char *name;
        enum tensor_view kind;
    } kinds[] = {{"raw", TENSOR_RAW},   {"f32", TENSOR_F32},         {"f16", TENSOR_F16},
                 {"bf16", TENSOR_BF16}, {"f32.npy", TENSOR_F32_NPY}, {"f16.npy", TENSOR_F16_NPY},
                 {"type", TENSOR_TYPE}, {"shape", TENSOR_SHAPE}};
    for (size_t i = 0; i < COUNT(kinds); i++)
        if (strcmp(files_row(FILES_TENSOR, row)->name, kinds[i].name) == 0)
            return kinds[i].kind;
    return TENSOR_ASIDE;
}

int tensors_draft(struct tree *t, const struct node *n, struct tree_entry *ret)
{
    struct live *l = tensors_live(t);
    struct live_view_attr a;
    if (!l || n->kind != NODE_TENSOR_FILE || live_view_attr(l, n->number, n->row, &a) < 0)
        return 0;
    CLEANUP(view_free) struct view v = newest_view(&t->newest);
    struct node folder = {.kind = NODE_TENSOR, .number = a.tensor};
    int r = tensors_entry(t, &v, &folder, ret);
    bool removed = r < 0;
    if (removed) { /* programs that have it open can continue */
        folder = (struct node){.kind = NODE_DIR, .row = ROOT_TENSORS};
        r = node_entry(t, &v, &folder, ret);
    }
    if (r < 0)
        return r;
    ret->node = ino_of(n);
    ret->generation = 0;
    ret->fixed = ret->lasting = ret->steady = false;
    ret->attr.st_ino = a.helper ? ret->node : ino_tensor_file(a.tensor, a.row);
    ret->attr.st_mode = S_IFREG | (ret->attr.st_mode & 0666);
    ret->attr.st_nlink = removed ? 0 : 1;
    ret->attr.st_size = (off_t)a.size;
    ret->attr.st_blocks = (blkcnt_t)((a.size + 511) / 512);
    return 1;
}

int tensors_replaced(struct tree *t, const struct node *n, struct tree_entry *ret)
{
    struct live *l = tensors_live(t);
    uint32_t number;
    if (!l || n->kind != NODE_TENSOR_FILE || live_tensor_of_version(l, n->number, &number) < 0)
        return -ESTALE;
    CLEANUP(view_free) struct view v = newest_view(&t->newest);
    uint32_t i = ids_find(v.snap->ids, v.snap->gguf->n_tensors, number);
    if (i == IDS_NONE)
        return -ESTALE;
    struct node now = *n;
    now.number = ids_of(v.snap->ids, i).version;
    int r = node_entry(t, &v, &now, ret);
    ret->node = ino_of(n);
    ret->lasting = false;
    return r;
}

int tensors_look(struct tree *t, const struct node *dir, struct node *file, struct tree_entry *ret)
{
    struct live *l = tensors_live(t);
    if (!l || dir->kind != NODE_TENSOR)
        return 0;
    const uint32_t newest = file->number;
    live_view_look(l, dir->number, file->row, &file->number);
    if (file->number != newest)
        node_looked(t, file);
    return tensors_draft(t, file, ret);
}

/* Turn the file into an open view of f->row, which it takes over. */
static void take_view(struct tree_file *f, struct live_view *view)
{
    f->ops = &file_draft;
    f->view = view;
    f->converts = !f->row->read;
}

/* The tensor that a node shows, or showed a moment ago. */
static int number_of(struct tree *t, struct live *l, const struct node *n, uint32_t *ret)
{
    struct live_view_attr a;
    *ret = n->number;
    if (live_making(l, n->number, &(uint32_t){0}))
        return 0;
    if (live_view_attr(l, n->number, n->row, &a) == 0) {
        *ret = a.tensor;
        return 0;
    }
    CLEANUP(view_free) struct view v = newest_view(&t->newest);
    const struct gguf_tensor *tensor = node_tensor(v.snap, n);
    if (tensor)
        *ret = ids_of(v.snap->ids, snapshot_tensor_no(v.snap, tensor)).number;
    else if (live_tensor_of_version(l, n->number, ret) < 0)
        return -ESTALE;
    return tensor && node_check(t, v.snap, n) < 0 ? -ESTALE : 0;
}

/* What is written to a view without a draft, of a tensor being made, is discarded. */
static int open_view(struct tree *t, struct tree_file *f, int flags)
{
    struct live *l;
    struct node *n = &f->node;
    struct live_view *h;
    uint32_t number, views;
    int r = begin_editing(t, &l);
    if (r == 0)
        r = number_of(t, l, n, &number);
    if (r < 0)
        return r;
    const bool left = live_making(l, n->number, &views);
    const enum tensor_view kind = left ? TENSOR_ASIDE : kind_of(n->row);
    r = live_view_open(l, number, n->row, kind, flags, &n->number, &h, &f->cold);
    if (r < 0)
        return r;
    f->row = node_row(n);
    f->cacheable = kind != TENSOR_ASIDE;
    take_view(f, h);
    node_written(t, n);
    return 1;
}

int tensors_open(struct tree *t, struct tree_file *f, int flags)
{
    struct live *l = tensors_live(t);
    uint32_t views;
    if (!t->opt.tensors || !t->writable || f->node.kind != NODE_TENSOR_FILE ||
        f->node.row >= files_count(FILES_TENSOR))
        return 0;
    if (!sys_open_changes(flags) && !(l && live_making(l, f->node.number, &views)))
        return 0;
    return open_view(t, f, flags);
}

int tensors_join(struct tree *t, struct tree_file *f)
{
    struct live *l = tensors_live(t);
    struct live_view *h;
    if (!l || f->node.kind != NODE_TENSOR_FILE)
        return -ESTALE;
    int r = live_view_join(l, f->node.number, f->node.row, &h);
    if (r < 0)
        return r;
    tree_let_go(t, f->held);
    f->held = NULL;
    f->row = node_row(&f->node);
    f->cacheable = true;
    take_view(f, h);
    return 0;
}

int tensors_opened(struct tree *t, struct tree_file *f)
{
    struct live *l = tensors_live(t);
    if (!l || f->node.kind != NODE_TENSOR_FILE)
        return 0;
    CLEANUP(view_free) struct view v = tree_held_view(t, f->held, NULL);
    const struct gguf_tensor *tensor = node_tensor(v.snap, &f->node);
    if (!tensor)
        return 0;
    const uint32_t number = ids_of(v.snap->ids, snapshot_tensor_no(v.snap, tensor)).number;
    if (live_view_written(l, number, f->node.number, f->node.row, &f->cold)) {
        node_written(t, &f->node);
        return 0;
    }
    /* Its draft has ended since the kernel looked it up, so the kernel looks again. */
    if (node_was_looked(t, &f->node))
        return -ESTALE;
    /* Through /proc/self/fd it gets the same node, and so may another program: that shows what the tensor has now. */
    CLEANUP(view_free) struct view now = newest_view(&t->newest);
    const uint32_t i = ids_find(now.snap->ids, now.snap->gguf->n_tensors, number);
    if (i == IDS_NONE || ids_of(now.snap->ids, i).version == f->node.number)
        return 0;
    tree_let_go(t, f->held);
    f->held = NULL;
    f->node.number = ids_of(now.snap->ids, i).version;
    return 1;
}

bool tensors_read(const struct tree_file *f, uint64_t off, size_t n, struct reply *r, int *ret)
{
    *ret = live_view_read_node(tensors_live(f->tree), f->node.number, f->node.row, off, r->scratch,
                               n, &r->len);
    r->bytes = r->scratch;
    return *ret != -ESTALE;
}

/* The row for creating a view, which the directory does not show at the moment, or not with O_EXCL. */
static int row_to_make(struct tree *t, const struct node *dir, const char *name, int flags,
                       uint32_t *row)
{
    CLEANUP(view_free) struct view v = newest_view(&t->newest);
    const struct gguf_tensor *tensor = node_tensor(v.snap, dir);
    struct live_folder folder;
    uint32_t views;
    if (tensors_is_making(t, dir, &views)) {
        int found = any_row(name);
        *row = (uint32_t)found;
        return flags & O_EXCL && views >> found & 1 ? -EEXIST : 0;
    }
    int r = tensors_facts(t, v.snap, dir, false, &folder);
    if (r < 0)
        return r;
    if (!tensor || folder.removed)
        return -ENOENT;
    int found = files_find(v.snap, FILES_TENSOR, tensor, name);
    if (found < 0)
        return -EPERM;
    *row = (uint32_t)found;
    return flags & O_EXCL && !(folder.hidden >> *row & 1) ? -EEXIST : 0;
}

/* Creating a view that exists truncates it. */
static int create_view(struct tree *t, struct live *l, const struct node *dir, struct tree_file *f,
                       struct tree_entry *ret)
{
    CLEANUP(view_free) struct view v = newest_view(&t->newest);
    const struct gguf_tensor *tensor = node_tensor(v.snap, dir);
    uint32_t views;
    struct live_view *h;
    f->node.number = IDS_NONE;
    if (!tensors_is_making(t, dir, &views)) {
        if (!tensor)
            return -ENOENT;
        f->node.number = ids_of(v.snap->ids, snapshot_tensor_no(v.snap, tensor)).version;
        live_view_look(l, dir->number, f->node.row, &f->node.number);
    }
    int r = live_view_open(l, dir->number, f->node.row, kind_of(f->node.row), O_RDWR | O_TRUNC,
                           &f->node.number, &h, &f->cold);
    if (r < 0)
        return r;
    f->cacheable = true;
    take_view(f, h);
    node_written(t, &f->node);
    live_view_show(l, dir->number, f->node.row);
    r = tensors_draft(t, &f->node, ret);
    return r > 0 ? 0 : r < 0 ? r : -ESTALE;
}

/* A view that follows from others is shown as it is. */
static int create_aside(struct tree *t, struct live *l, const struct node *dir, struct tree_file *f,
                        struct tree_entry *ret)
{
    CLEANUP(view_free) struct view v = newest_view(&t->newest);
    const struct gguf_tensor *tensor = node_tensor(v.snap, dir);
    struct live_view *h;
    uint32_t views;
    const bool making = tensors_is_making(t, dir, &views);
    if (!making && !tensor)
        return -ENOENT;
    if (!making) {
        f->node.number = ids_of(v.snap->ids, snapshot_tensor_no(v.snap, tensor)).version;
        live_view_show(l, dir->number, f->node.row);
    }
    int r = live_view_open(l, dir->number, f->node.row, TENSOR_ASIDE, O_RDWR, &f->node.number, &h,
                           &f->cold);
    if (r < 0)
        return r;
    take_view(f, h);
    return making ? making_view(t, dir, f->node.row, ret) : node_entry(t, &v, &f->node, ret);
}

static int create_row(struct tree *t, struct live *l, const struct node *dir, struct tree_file *f,
                      struct tree_entry *ret)
{
    enum tensor_view kind = kind_of(f->node.row);
    bool left = live_making_leaves(l, dir->number, f->node.row, kind);
    return left || kind == TENSOR_ASIDE ? create_aside(t, l, dir, f, ret)
                                        : create_view(t, l, dir, f, ret);
}

/* Nodes of helpers have the row of `raw`. */
static int row_of_helper(struct tree *t, const struct node *dir, uint32_t *row)
{
    struct tree_entry e;
    CLEANUP(view_free) struct view v = newest_view(&t->newest);
    *row = 0;
    return tensors_entry(t, &v, dir, &e);
}

static int create_helper(struct tree *t, struct live *l, const struct node *dir, const char *name,
                         int flags, struct tree_file *f, struct tree_entry *ret)
{
    f->cacheable = true;
    struct live_view *h;
    int r = live_helper_create(l, dir->number, name, flags, &h, &f->node.number);
    if (r < 0)
        return r;
    take_view(f, h);
    r = tensors_draft(t, &f->node, ret);
    return r > 0 ? 0 : r < 0 ? r : -ESTALE;
}

int tensors_helper(struct tree *t, const struct node *dir, const char *name, struct tree_entry *ret)
{
    struct live *l = tensors_live(t);
    struct node n = {.kind = NODE_TENSOR_FILE};
    if (!l || dir->kind != NODE_TENSOR || any_row(name) >= 0)
        return 0;
    int r = live_helper_find(l, dir->number, name, &n.number);
    return r < 0 ? r : tensors_draft(t, &n, ret);
}

int tensors_helper_at(struct tree *t, const struct node *dir, uint64_t i, bool attrs,
                      char name[TREE_NAME_MAX + 1], struct tree_entry *ret)
{
    struct live *l = tensors_live(t);
    struct node n = {.kind = NODE_TENSOR_FILE};
    if (!l || dir->kind != NODE_TENSOR || !live_helper_at(l, dir->number, i, name, &n.number))
        return 0;
    brief_entry(ino_of(&n), ino_of(&n), S_IFREG, ret);
    int r = attrs ? tensors_draft(t, &n, ret) : 1;
    return r == 0 ? -ESTALE : r;
}

int tensors_create(struct tree *t, const struct node *dir, const char *name, int flags,
                   struct tree_entry *ret, struct tree_file **file)
{
    struct live *l;
    uint32_t row = 0;
    int r = dir->kind == NODE_TENSOR ? begin_editing(t, &l) : -EPERM;
    bool helper = any_row(name) < 0;
    if (r == 0 && helper)
        r = row_of_helper(t, dir, &row);
    else if (r == 0)
        r = row_to_make(t, dir, name, flags, &row);
    struct tree_file *f = r == 0 ? tree_file_new(t, ino_tensor_file(0, row)) : NULL;
    if (!f)
        return r < 0 ? r : -ENOMEM;
    f->row = node_row(&f->node);
    r = helper ? create_helper(t, l, dir, name, flags, f, ret) : create_row(t, l, dir, f, ret);
    if (r < 0)
        (void)tree_release(f);
    else
        *file = f;
    return r;
}

int tensors_fsync(struct tree *t, const struct node *n, struct live_wait *w)
{
    struct live *l = tensors_live(t);
    uint32_t number;
    if (!l || n->kind != NODE_TENSOR_FILE || live_tensor_of_version(l, n->number, &number) < 0)
        return 0;
    return live_tensor_fsync(l, number, w);
}

int tensors_truncate(struct tree *t, const struct node *n, uint64_t size, struct live_wait *w)
{
    struct tree_file f = {.tree = t, .node = *n};
    int r = open_view(t, &f, O_WRONLY);
    if (r < 0)
        return r;
    struct live *l = tensors_live(t);
    r = live_view_truncate(l, f.view, size);
    if (r == 0)
        r = live_view_flush(l, f.view, w);
    live_view_release(l, f.view);
    return r;
}

/* ---- names ---- */

int tensors_unlink(struct tree *t, const struct node *dir, const char *name)
{
    struct live *l;
    CLEANUP(view_free) struct view v = VIEW_INIT;
    if (node_is_folder(dir, ROOT_TENSORS))
        return -EISDIR; /* like unlink(2) of a directory */
    int r = begin_editing(t, &l);
    if (r < 0)
        return r;
    if (any_row(name) < 0)
        return live_helper_unlink(l, dir->number, name);
    uint32_t views;
    if (tensors_is_making(t, dir, &views)) {
        int found = any_row(name);
        return found < 0 ? -ENOENT : live_making_unlink(l, dir->number, (uint32_t)found);
    }
    v = newest_view(&t->newest);
    const struct gguf_tensor *tensor = node_tensor(v.snap, dir);
    int row = tensor ? files_find(v.snap, FILES_TENSOR, tensor, name) : -1;
    return row < 0 ? -ENOENT : live_view_unlink(l, dir->number, (uint32_t)row);
}

int tensors_rmdir(struct tree *t, const struct node *dir, const char *name)
{
    struct live *l;
    if (!node_is_folder(dir, ROOT_TENSORS))
        return -ENOTDIR;
    int r = begin_editing(t, &l);
    return r < 0 ? r : live_tensor_remove(l, name);
}

#define NOREPLACE (1u << 0) /* Linux's RENAME_NOREPLACE */

/* In a tensor's directory: rename a helper, to another name or over a view. */
static int rename_inside(struct tree *t, const struct node *dir, const char *name, const char *to,
                         unsigned flags, struct live_wait *w)
{
    struct live *l;
    uint32_t other;
    int row = any_row(to);
    if (flags & ~NOREPLACE)
        return -EINVAL;
    if (any_row(name) >= 0)
        return -EPERM;
    if (flags & NOREPLACE && row >= 0) /* views always exist */
        return -EEXIST;
    int r = begin_editing(t, &l);
    if (r < 0)
        return r;
    /* The kernel has locked the directory: no other helper can appear meanwhile. */
    if (flags & NOREPLACE && live_helper_find(l, dir->number, to, &other) == 0)
        return -EEXIST;
    return live_helper_rename(l, dir->number, name, to, row < 0 ? 0 : (uint32_t)row,
                              row < 0 ? TENSOR_HELPER : kind_of((uint32_t)row), w);
}

int tensors_rename(struct tree *t, const struct node *dir, const char *name,
                   const struct node *into, const char *to, unsigned flags, struct live_wait *w)
{
    struct live *l;
    if (dir->kind == NODE_TENSOR && into->kind == NODE_TENSOR && dir->number == into->number)
        return rename_inside(t, dir, name, to, flags, w);
    if (!node_is_folder(dir, ROOT_TENSORS) || !node_is_folder(into, ROOT_TENSORS))
        return -EPERM;
    int r = begin_editing(t, &l);
    return r < 0 ? r : live_tensor_rename(l, name, to, flags, w);
}

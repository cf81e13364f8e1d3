/* SPDX-License-Identifier: MIT */
/* tensors/ while it can be edited: see tensors.h. */
#include "tree/tensors.h"

#include <errno.h>
#include <string.h>

/* tensors/ itself. */
static bool is_top(const struct node *dir)
{
    return dir->kind == NODE_DIR && dir->row == ROOT_TENSORS;
}

bool tensors_has(const struct tree *t, const struct node *dir)
{
    return t->opt.tensors && t->writable && (is_top(dir) || dir->kind == NODE_TENSOR);
}

struct live *tensors_live(const struct tree *t)
{
    return t->opt.tensors ? atomic_load(&t->live) : NULL;
}

int tensors_find(struct tree *t, struct live *l, const char *name, struct node *ret)
{
    (void)t;
    *ret = (struct node){.kind = NODE_TENSOR};
    return live_tensor_find(l, name, &ret->number);
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

int tensors_unlink(struct tree *t, const struct node *dir, const char *name)
{
    struct live *l;
    CLEANUP(view_free) struct view v = VIEW_INIT;
    if (is_top(dir))
        return -EISDIR; /* as unlink(2) of a folder */
    int r = begin_editing(t, &l);
    if (r < 0)
        return r;
    v = newest_view(&t->newest);
    const struct gguf_tensor *tensor = node_tensor(v.snap, dir);
    int row = tensor ? files_find(v.snap, FILES_TENSOR, tensor, name) : -1;
    return row < 0 ? -ENOENT : live_view_unlink(l, dir->number, (uint32_t)row);
}

int tensors_rmdir(struct tree *t, const struct node *dir, const char *name)
{
    struct live *l;
    if (!is_top(dir))
        return -ENOTDIR;
    int r = begin_editing(t, &l);
    return r < 0 ? r : live_tensor_remove(l, name);
}

int tensors_rename(struct tree *t, const struct node *dir, const char *name,
                   const struct node *into, const char *to, unsigned flags, struct live_wait *w)
{
    struct live *l;
    if (!is_top(dir) || !is_top(into))
        return -EPERM;
    int r = begin_editing(t, &l);
    return r < 0 ? r : live_tensor_rename(l, name, to, flags, w);
}

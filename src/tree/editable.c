/* SPDX-License-Identifier: MIT */
/* What is known of tensors' folders while they can be edited: see editable.h. */
#include "tree/editable.h"

bool tensors_has(const struct tree *t, const struct node *dir)
{
    return t->opt.tensors && t->writable &&
           ((dir->kind == NODE_DIR && dir->row == ROOT_TENSORS) || dir->kind == NODE_TENSOR);
}

bool tensors_fixed(const struct tree *t, const struct node *n)
{
    bool in = (n->kind == NODE_DIR && n->row == ROOT_TENSORS) || n->kind == NODE_TENSOR ||
              n->kind == NODE_TENSOR_FILE;
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

/* SPDX-License-Identifier: MIT */
/*
 * What nodes show: the newest state of the model, or one that the kernel or an open file still has.
 * See tree.h.
 *
 * In every view, tensor i of the snapshot is tensor i of the store. States with the same table of
 * tensors (model/ids.h) can share a store; when one with another table takes the place of the
 * newest, open files that show what it lacks keep the view that it replaces.
 */
#include "base/lock.h"
#include "tree/internal.h"

#include <errno.h>

#include "base/bytes.h"
#include "live/unsaved.h"
#include "tree/state.h"

/* ---- what a node is ---- */

/* The place in the list of the tensor that a node belongs to, IDS_NONE if it belongs to none. */
static uint32_t tensor_place(const struct snapshot *g, const struct node *n)
{
    uint32_t tensors = g->gguf->n_tensors;
    if (n->kind == NODE_TENSOR)
        return ids_find(g->ids, tensors, n->number);
    return n->kind == NODE_TENSOR_FILE ? ids_find_version(g->ids, tensors, n->number) : IDS_NONE;
}

const struct gguf_tensor *node_tensor(const struct snapshot *g, const struct node *n)
{
    uint32_t i = tensor_place(g, n);
    return i == IDS_NONE ? NULL : &g->gguf->tensor[i];
}

uint64_t node_inode(const struct snapshot *g, const struct node *n)
{
    if (n->kind == NODE_WHOLE)
        return ino_row(n->row);
    if (n->kind == NODE_TENSOR_FILE)
        return ino_tensor_file(ids_of(g->ids, tensor_place(g, n)).number, n->row);
    return ino_of(n);
}

const struct row *node_row(const struct node *n)
{
    bool root = n->kind == NODE_DIR || n->kind == NODE_WHOLE;
    enum files_where where = root ? FILES_ROOT : FILES_TENSOR;
    bool has = (root || n->kind == NODE_TENSOR_FILE) && n->row < files_count(where);
    return has ? files_row(where, n->row) : NULL;
}

bool node_is_dir(const struct node *n)
{
    return n->kind == NODE_ROOT || n->kind == NODE_DIR || n->kind == NODE_TENSOR;
}

static int tensor_check(const struct tree *t, const struct snapshot *g, const struct node *n)
{
    const struct gguf_tensor *tensor = node_tensor(g, n);
    bool row = n->kind == NODE_TENSOR || n->row < files_count(FILES_TENSOR);
    if (!tensor)
        return row && n->number < atomic_load(&t->newest.numbers) ? -ESTALE : -ENOENT;
    if (n->kind == NODE_TENSOR)
        return 0;
    return row && files_exists(g, files_row(FILES_TENSOR, n->row), tensor) ? 0 : -ENOENT;
}

int node_check(const struct tree *t, const struct snapshot *g, const struct node *n)
{
    bool ok = false;
    switch (n->kind) {
    case NODE_NONE:
        break;
    case NODE_ROOT:
        ok = true;
        break;
    case NODE_DIR:
        ok = n->row < files_count(FILES_ROOT) && files_root[n->row].flags & ROW_DIR;
        break;
    case NODE_WHOLE:
        ok = n->row < files_count(FILES_ROOT) && !(files_root[n->row].flags & ROW_DIR) &&
             (files_root[n->row].flags & ROW_STATE || n->number == g->number); /* tree_view_of() */
        break;
    case NODE_TENSOR:
    case NODE_TENSOR_FILE:
        return tensor_check(t, g, n);
    case NODE_KEY:
        ok = true;
        break;
    }
    return ok ? 0 : -ENOENT;
}

/* ---- the views that it shows ---- */

static bool is_whole(const struct node *n)
{
    return n->kind == NODE_WHOLE && n->row < files_count(FILES_ROOT);
}

/* Of what is held for a node: one for all files of a version of a tensor, and for all views of a
 * state of the model but for those that count states of their own. */
static uint64_t held_key(const struct node *n)
{
    if (n->kind == NODE_TENSOR_FILE)
        return ino_tensor(n->number);
    return node_row(n)->flags & ROW_STATE ? ino_whole(n->number, n->row)
                                          : ino_make(INO_WHOLE, n->number, 0);
}

/* What is held for a node, made if needed. NULL: no memory. */
static struct held *hold(struct tree *t, const struct node *n, struct snapshot *g)
{
    struct held *h = held_get(&t->held, held_key(n));
    if (h && !h->snap && n->kind == NODE_WHOLE) {
        h->snap = snapshot_ref(g);
        h->state = n->state;
    }
    return h;
}

/* What no open file needs any more, and with the last reference of the kernel the whole: *ret takes
 * the references that are to be dropped. */
static void reap(struct tree *t, struct held *h, struct view *ret)
{
    if (h->opens)
        return;
    *ret = h->kept;
    h->kept = VIEW_INIT;
    if (h->lookups)
        return;
    if (ret->snap)
        snapshot_unref(h->snap); /* not the last: the view has one */
    else
        ret->snap = h->snap;
    held_remove(&t->held, h);
}

/* True if an open file shows what the next state lacks. */
static bool is_lost(const struct held *h, const struct snapshot *next)
{
    if (!h->opens || h->kept.snap)
        return false;
    uint32_t version = ino_node(h->key).number;
    return h->snap || ids_find_version(next->ids, next->gguf->n_tensors, version) == IDS_NONE;
}

void tree_keep_views(void *tree, const struct snapshot *next)
{
    struct tree *t = tree;
    struct snapshot *now = t->newest.view.snap;
    for (struct held *h = NULL; (h = held_next(&t->held, h)) != NULL;)
        if (is_lost(h, next))
            h->kept = newest_view_as(&t->newest, h->snap ? h->snap : now);
}

/* The view that a node shows. Under the lock of the newest. */
static int find_view(struct tree *t, struct node *n, struct view *ret)
{
    bool whole = is_whole(n);
    struct held *h = whole || n->kind == NODE_TENSOR_FILE ? held_find(&t->held, held_key(n)) : NULL;
    struct snapshot *now = t->newest.view.snap, *snap = h && h->snap ? h->snap : now;
    if (h && whole)
        n->state = h->state;
    if (h && h->kept.snap)
        *ret = view_ref(&h->kept);
    else if (whole && (snap->ids != now->ids ||
                       (!h && (node_row(n)->flags & ROW_STATE || n->number != snap->number))))
        return -ESTALE;
    else
        *ret = newest_view_as(&t->newest, snap);
    return 0;
}

int tree_view_of(struct tree *t, struct node *n, struct view *ret)
{
    lock_take(&t->newest.lock);
    int r = find_view(t, n, ret);
    lock_drop(&t->newest.lock);
    return r;
}

int tree_hold_view(struct tree *t, struct node *n, struct view *ret, struct held **held)
{
    bool holds = is_whole(n) || n->kind == NODE_TENSOR_FILE;
    lock_take(&t->newest.lock);
    int r = find_view(t, n, ret);
    struct held *h = r == 0 && holds ? hold(t, n, ret->snap) : NULL;
    if (h)
        h->opens++;
    lock_drop(&t->newest.lock);
    *held = h;
    return r == 0 && holds && !h ? -ENOMEM : r;
}

struct view tree_held_view(struct tree *t, const struct held *h)
{
    lock_take(&t->newest.lock);
    struct snapshot *snap = h && h->snap ? h->snap : t->newest.view.snap;
    struct view v = h && h->kept.snap ? view_ref(&h->kept) : newest_view_as(&t->newest, snap);
    lock_drop(&t->newest.lock);
    return v;
}

void tree_let_go(struct tree *t, struct held *h)
{
    CLEANUP(view_free) struct view v = VIEW_INIT;
    if (!h)
        return;
    lock_take(&t->newest.lock);
    h->opens--;
    reap(t, h, &v);
    lock_drop(&t->newest.lock);
}

/* While nothing is edited: of the tree before. */
static struct live_counts count_notes(struct tree *t)
{
    struct live_counts c = {0};
    LOCKED(&t->newest.lock);
    for (struct note n = {0}; unsaved_next(&t->notes, &n);)
        c.refused++;
    return c;
}

static struct live_counts counts(struct tree *t)
{
    struct live *l = atomic_load(&t->live);
    struct live_counts c = l ? live_count(l) : count_notes(t);
    c.changed = c.changed || begin_is_changed(t, l);
    return c;
}

bool tree_changed(struct tree *t)
{
    return counts(t).changed;
}

int node_number_state(struct tree *t, const struct snapshot *g, struct node *n)
{
    struct live_counts c = counts(t);
    int r = 0;
    n->state = state_number(&c);
    lock_take(&t->newest.lock);
    bool same = t->states && t->state == n->state && t->state_snap == g->number;
    if (!same && t->states == UINT32_MAX)
        r = -EOVERFLOW;
    else if (!same)
        t->states++;
    t->state = n->state;
    t->state_snap = g->number;
    n->number = t->states;
    lock_drop(&t->newest.lock);
    return r;
}

int node_known(struct tree *t, const struct view *v, const struct node *n)
{
    if (n->kind != NODE_WHOLE)
        return 0;
    lock_take(&t->newest.lock);
    struct held *h = hold(t, n, v->snap);
    if (h)
        h->lookups++;
    lock_drop(&t->newest.lock);
    return h ? 0 : -ENOMEM;
}

void node_forget(struct tree *t, const struct node *n, uint64_t times)
{
    CLEANUP(view_free) struct view v = VIEW_INIT;
    if (!is_whole(n))
        return;
    lock_take(&t->newest.lock);
    struct held *h = held_find(&t->held, held_key(n));
    if (h) {
        h->lookups -= min_u64(h->lookups, times);
        reap(t, h, &v);
    }
    lock_drop(&t->newest.lock);
}

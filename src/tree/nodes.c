/* SPDX-License-Identifier: MIT */
/*
 * Finds the content that nodes show, in the newest state of the model or in one that the kernel or
 * an open file still refers to: see nodes.h.
 *
 * In every view, tensor i of the snapshot is tensor i of the store. States with the same table of
 * tensors (model/snapshot.h) can share a store. When a state with another table becomes the newest,
 * open files whose data it lacks keep the view being replaced.
 */
#include "tree/nodes.h"

#include <errno.h>
#include <stdlib.h>

#include "base/bytes.h"
#include "tree/history.h"

/* ---- the kinds of nodes ---- */

const struct gguf_tensor *node_tensor(const struct snapshot *g, const struct node *n)
{
    const uint32_t tensors = g->gguf->n_tensors;
    const bool is = n->kind == NODE_TENSOR || n->kind == NODE_TENSOR_FILE;
    const uint32_t i = is ? ids_find(g->ids, tensors, n->number) : IDS_NONE;
    return i == IDS_NONE ? NULL : &g->gguf->tensor[i];
}

uint64_t node_inode(const struct node *n)
{
    return n->kind == NODE_WHOLE ? ino_row(n->row) : ino_of(n);
}

const struct row *node_row(const struct node *n)
{
    bool root = n->kind == NODE_DIR || n->kind == NODE_WHOLE;
    enum files_where where = root ? FILES_ROOT : FILES_TENSOR;
    bool has = (root || n->kind == NODE_TENSOR_FILE) && n->row < files_count(where);
    return has ? files_row(where, n->row) : NULL;
}

bool node_has(const struct node *n, unsigned flags)
{
    const struct row *row = node_row(n);
    return row && row->flags & flags;
}

struct about node_about(const struct view *v, const struct node *n)
{
    return (struct about){.v = v, .row = node_row(n), .t = node_tensor(v->snap, n)};
}

bool node_is_dir(const struct node *n)
{
    return n->kind == NODE_ROOT || n->kind == NODE_DIR || n->kind == NODE_TENSOR;
}

int node_check(const struct tree *t, const struct snapshot *g, const struct node *n)
{
    const struct gguf_tensor *tensor = node_tensor(g, n);
    const struct row *row = node_row(n);
    if ((n->kind == NODE_TENSOR || n->kind == NODE_TENSOR_FILE) && !tensor)
        return n->number < atomic_load(&t->newest.numbers) ? -ESTALE : -ENOENT;
    const bool ok = n->kind == NODE_TENSOR_FILE ? row && files_exists(g, row, tensor)
                    : n->kind == NODE_WHOLE     ? node_has(n, ROW_WHOLE)
                    : n->kind == NODE_DIR       ? node_has(n, ROW_DIR)
                                                : n->kind;
    return ok ? 0 : -ENOENT;
}

/* ---- the views of nodes ---- */

static bool is_view_of_whole(const struct node *n)
{
    return n->kind == NODE_WHOLE && n->row < files_count(FILES_ROOT);
}

/* Return the key under which data is held for a node. All files of a tensor share a key, as do all
 * views of the whole in one state. */
static uint64_t held_key(const struct node *n)
{
    return ino_make(n->kind == NODE_TENSOR_FILE ? NODE_TENSOR : NODE_WHOLE, n->number, 0);
}

/* Return the data held for a node, or NULL. */
static struct held *find_held(const struct tree *t, const struct node *n)
{
    const uint64_t key = held_key(n);
    struct link *l = table_first(&t->held, hash_number(key));
    while (l && ((struct held *)l)->key != key)
        l = table_next(l);
    return (struct held *)l;
}

/* Return the data held for a node, creating it if needed. Returns NULL if out of memory. */
static struct held *hold(struct tree *t, const struct node *n, struct snapshot *g)
{
    struct held *h = find_held(t, n);
    if (!h && (h = calloc(1, sizeof(*h))) != NULL) {
        h->key = held_key(n);
        if (table_add(&t->held, &h->link, hash_number(h->key)) < 0) {
            free(h);
            return NULL;
        }
    }
    if (h && !h->snap && n->kind == NODE_WHOLE)
        h->snap = REF(g);
    return h;
}

/* Release the data that open files no longer need; once the kernel's last reference is gone,
 * release all data. Moves to *ret the references that the caller must drop. */
static void reap(struct tree *t, struct held *h, struct view *ret)
{
    if (h->opens)
        return;
    *ret = h->kept;
    h->kept = VIEW_INIT;
    if (h->lookups)
        return;
    if (ret->snap)
        snapshot_unref(h->snap); /* not the last reference: the view holds another */
    else
        ret->snap = h->snap;
    table_remove(&t->held, &h->link);
    free(h);
}

/* True if open files can be read from this state: it has the tensor, or all tensors are as in the
 * snapshot of the whole-model view. */
static bool is_in(const struct snapshot *g, const struct held *h)
{
    return h->snap ? h->snap->ids == g->ids
                   : ids_find(g->ids, g->gguf->n_tensors, ino_node(h->key).number) != IDS_NONE;
}

void tree_keep_views(void *tree, const struct snapshot *next)
{
    struct tree *t = tree;
    struct snapshot *now = t->newest.view.snap;
    for (struct link *l = NULL; (l = table_each(&t->held, l)) != NULL;) {
        struct held *h = (struct held *)l;
        if (is_in(next, h)) /* again: its removal was taken back */
            view_free(&h->kept);
        else if (h->opens && is_in(now, h))
            h->kept = newest_view_as(&t->newest, h->snap ? h->snap : now);
    }
}

/* Get the view that a node shows. Call with the lock of `newest` held. */
static int find_view(struct tree *t, const struct node *n, struct view *ret)
{
    bool whole = is_view_of_whole(n);
    struct held *h = whole || n->kind == NODE_TENSOR_FILE ? find_held(t, n) : NULL;
    struct snapshot *now = t->newest.view.snap, *snap = h && h->snap ? h->snap : now;
    if (h && h->kept.snap)
        *ret = view_ref(&h->kept);
    else if (whole && (snap->ids != now->ids || (!h && n->number != snap->number)))
        return -ESTALE;
    else
        *ret = newest_view_as(&t->newest, snap);
    return 0;
}

int tree_view_of(struct tree *t, const struct node *n, struct view *ret)
{
    lock_take(&t->newest.lock);
    int r = find_view(t, n, ret);
    lock_drop(&t->newest.lock);
    return r;
}

int tree_hold_view(struct tree *t, const struct node *n, struct view *ret, struct held **held)
{
    bool holds = is_view_of_whole(n) || n->kind == NODE_TENSOR_FILE;
    lock_take(&t->newest.lock);
    int r = find_view(t, n, ret);
    struct held *h = r == 0 && holds ? hold(t, n, ret->snap) : NULL;
    if (h)
        h->opens++;
    lock_drop(&t->newest.lock);
    *held = h;
    return r == 0 && holds && !h ? -ENOMEM : r;
}

struct view tree_held_view(struct tree *t, const struct held *h, struct image *file)
{
    if (t->writable) /* in a read-only tree, no part of the view changes */
        lock_take(&t->newest.lock);
    const struct view *from = h->kept.snap ? &h->kept : &t->newest.view;
    struct snapshot *snap = !h->kept.snap && h->snap ? h->snap : from->snap;
    struct view v = {REF(snap), REF(from->store), REF(file)};
    if (t->writable)
        lock_drop(&t->newest.lock);
    return v;
}

void tree_let_go(struct tree *t, struct held **h)
{
    CLEANUP(view_free) struct view v = VIEW_INIT;
    if (!*h)
        return;
    lock_take(&t->newest.lock);
    (*h)->opens--;
    reap(t, *h, &v);
    lock_drop(&t->newest.lock);
    *h = NULL;
}

void node_free(struct tree *t)
{
    for (struct link *l = table_each(&t->held, NULL), *next; l; l = next) {
        struct held *h = (struct held *)l;
        next = table_each(&t->held, l);
        snapshot_unref(h->snap);
        view_free(&h->kept);
        free(h);
    }
    table_free(&t->held);
}

int node_known(struct tree *t, const struct view *v, const struct node *n)
{
    if (n->kind != NODE_WHOLE)
        return 0;
    LOCKED(&t->newest.lock);
    struct held *h = hold(t, n, v->snap);
    if (h)
        h->lookups++;
    return h ? 0 : -ENOMEM;
}

void node_forget(struct tree *t, const struct node *n, uint64_t times)
{
    CLEANUP(view_free) struct view v = VIEW_INIT;
    if (!is_view_of_whole(n))
        return;
    lock_take(&t->newest.lock);
    struct held *h = find_held(t, n);
    if (h) {
        h->lookups -= min_u64(h->lookups, times);
        reap(t, h, &v);
    }
    lock_drop(&t->newest.lock);
}

void node_state(struct tree *t, const struct node *n, struct buf *out)
{
    if (node_has(n, ROW_ERRORS))
        errors_text(t, out);
    else if (node_has(n, ROW_STATE))
        state_text(t, out);
}

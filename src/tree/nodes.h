/* SPDX-License-Identifier: MIT */
/*
 * What nodes are, and what they show: the newest state of the model, or one that the kernel or an open file
 * still has. Private to this layer.
 */
#ifndef TREE_NODES_H
#define TREE_NODES_H

#include "tree/internal.h"

/* ---- what a node is ---- */

/* True if it is this folder at the root. */
static inline bool node_is_folder(const struct node *n, uint32_t row)
{
    return n->kind == NODE_DIR && n->row == row;
}

/* The tensor that a node belongs to, NULL if it belongs to none. */
const struct gguf_tensor *node_tensor(const struct snapshot *g, const struct node *n);
/* A node's st_ino. It exists in the snapshot. */
uint64_t node_inode(const struct snapshot *g, const struct node *n);
/* The row of a node; NULL: not a row (root, tensor folder, key). */
const struct row *node_row(const struct node *n);
/* -ENOENT if there is no such node, -ESTALE if there was once; keys_attr() says that of keys. */
int node_check(const struct tree *t, const struct snapshot *g, const struct node *n);
bool node_is_dir(const struct node *n);

/* ---- the views that it shows ---- */

/* The view that a node shows: an older snapshot for NODE_WHOLE, and n->state is set. -ESTALE. */
int tree_view_of(struct tree *t, struct node *n, struct view *ret);
/*
 * The same for a file that is opened. *held may be NULL; tree_let_go() it. From then on
 * tree_held_view() is what the file is read from: for a view of the whole its own snapshot, for a
 * tensor the newest that has that version of it; with `file` as the view's, which may be NULL.
 */
int tree_hold_view(struct tree *t, struct node *n, struct view *ret, struct held **held);
struct view tree_held_view(struct tree *t, const struct held *h, struct image *file);
void tree_let_go(struct tree *t, struct held *h);
/* A lookup has shown a draft by this node, which is not the newest; and whether one has since this was asked last. */
void node_looked(struct tree *t, const struct node *n);
bool node_was_looked(struct tree *t, const struct node *n);
/* A view was opened to be written: open files of this node show what is written. */
void node_written(struct tree *t, const struct node *n);
/* struct newest's leaving(): open files keep the views that they need. */
void tree_keep_views(void *tree, const struct snapshot *next);
/* Free what is held. */
void node_free(struct tree *t);
/* The kernel gets a reference to a node that is not a key; to that of the state of the mount as it is now, which n becomes.
 * 0, -ENOMEM, -EOVERFLOW. */
int node_known(struct tree *t, const struct view *v, struct node *n);
/* The kernel drops so many of them. */
void node_forget(struct tree *t, const struct node *n, uint64_t times);

/* ---- texts ---- */

/* The text of a row, but for the state of the mount, which follows it in some. */
void render_row(const struct tree *t, const struct view *v, const struct node *n, struct buf *out);
/* That state, of a node that shows it. */
void node_state(struct tree *t, const struct node *n, struct buf *out);

#endif

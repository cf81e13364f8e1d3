/* SPDX-License-Identifier: MIT */
/* Finds the kinds of nodes, and their content in the newest state of the model or in one that the
 * kernel or an open file still refers to. Private to this layer. */
#ifndef TREE_NODES_H
#define TREE_NODES_H

#include "tree/internal.h"

/* ---- the kinds of nodes ---- */

/* Returns true if the node is this directory at the root. */
static inline bool node_is_folder(const struct node *n, uint32_t row)
{
    return n->kind == NODE_DIR && n->row == row;
}

/* Return the tensor that a node belongs to, or NULL. */
const struct gguf_tensor *node_tensor(const struct snapshot *g, const struct node *n);
/* Return the tensor's number and version, or IDS_NONE. */
struct tensor_id node_id(const struct snapshot *g, const struct node *n);
/* Return the st_ino of a node that exists in the snapshot. */
uint64_t node_inode(const struct snapshot *g, const struct node *n);
/* Return the row of a node, or NULL if it has none (root, tensor directory, key). */
const struct row *node_row(const struct node *n);
/* Returns true if the node is a row with one of these flags. */
bool node_has(const struct node *n, unsigned flags);
/* Return the subject for calls to the functions of the node's row in a view. */
struct about node_about(const struct view *v, const struct node *n);
/* Return 0 if the node exists, -ESTALE if it once did, or -ENOENT. For keys, keys_attr() checks
 * this. */
int node_check(const struct tree *t, const struct snapshot *g, const struct node *n);
bool node_is_dir(const struct node *n);

/* ---- the views of nodes ---- */

/* Get the view that a node shows; for NODE_WHOLE it may be of an older snapshot. May return
 * -ESTALE. */
int tree_view_of(struct tree *t, struct node *n, struct view *ret);
/*
 * Get the view for a file being opened. *held may become NULL; release it with tree_let_go(). From
 * then on the file is read from tree_held_view(), which returns the file's own snapshot for a view
 * of the whole, and for a tensor the newest one that has this version of it. `file`, which may be
 * NULL, becomes the view's `file`.
 */
int tree_hold_view(struct tree *t, struct node *n, struct view *ret, struct held **held);
struct view tree_held_view(struct tree *t, const struct held *h, struct image *file);
void tree_let_go(struct tree *t, struct held **h);
/* Record that a lookup has shown a draft with this node, which is not the newest. The second
 * function returns whether that has happened since it was last called. */
void node_looked(struct tree *t, const struct node *n);
bool node_was_looked(struct tree *t, struct held *h, uint32_t row);
/* Record that a view was opened for writing: open files of this node now show the bytes written. */
void node_written(struct tree *t, const struct node *n);
/* Implements leaving() of struct newest: lets open files keep the views that they need. */
void tree_keep_views(void *tree, const struct snapshot *next);
/* Free everything held. */
void node_free(struct tree *t);
/* Count one more reference of the kernel to a node that is not a key. If the node shows the state
 * of the mount, *n becomes the node of the present state. Returns 0, -ENOMEM or -EOVERFLOW. */
int node_known(struct tree *t, const struct view *v, struct node *n);
/* Drop `times` references of the kernel. */
void node_forget(struct tree *t, const struct node *n, uint64_t times);

/* If the node shows the state of the mount, append it. */
void node_state(struct tree *t, const struct node *n, struct buf *out);

#endif

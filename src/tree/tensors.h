/* SPDX-License-Identifier: MIT */
/* Handles tensors/ when it can be edited (live/tensors.h): implements the parts of folder.h and
 * file.h that apply there. Private to this layer. */
#ifndef TREE_TENSORS_H
#define TREE_TENSORS_H

#include "live/tensors.h"
#include "tree/file.h"
#include "tree/nodes.h"
#include "tree/tree.h"

/* Return true for tensors/ and everything in it. */
static inline bool tensors_in(const struct node *n)
{
    return node_is_folder(n, ROOT_TENSORS) || n->kind == NODE_TENSOR || n->kind == NODE_TENSOR_FILE;
}

/* Return true for tensors/ and the directories in it if tensors can be edited. */
static inline bool tensors_has(const struct tree *t, const struct node *dir)
{
    return t->opt.tensors && tensors_in(dir) && dir->kind != NODE_TENSOR_FILE;
}

/* Return true for tensors/ and everything in it in a tree whose keys can be edited but whose
 * tensors cannot. */
static inline bool tensors_fixed(const struct tree *t, const struct node *n)
{
    return t->writable && !t->opt.tensors && tensors_in(n);
}
#define TENSORS_FIXED "tensors are read-only here: -o tensors=edit makes them editable"

/* Return the struct live that edits tensors, or NULL if editing has not begun. */
struct live *tensors_live(const struct tree *t);
/* Return the facts about the tensor that a node belongs to; all zero if it belongs to none. */
struct live_folder tensors_facts(const struct tree *t, const struct node *n);

/* Get the size of a view that is being written. Returns false for any other node. */
bool tensors_draft_size(const struct tree *t, const struct node *n, uint64_t *ret);

/* Return true if opening the node with these flags opens a view for writing; if so, call
 * tensors_open(). */
bool tensors_opens(struct tree *t, const struct node *n, int flags);
int tensors_open(struct tree_file *f, int flags);
/* Handle a file opened for reading that may be written while it is open. */
void tensors_opened(struct tree_file *f);
/* A file is released, for which the kernel has dropped its pages if it was `cold`. If the kernel did not
 * hear of the open, set that to 0 before. */
void tensors_warm(const struct tree_file *f);
/* Read from the draft of the file's node. Returns -ESTALE if there is none. */
int tensors_read_draft(const struct tree_file *f, uint64_t off, size_t n, struct reply *r);
/* Read the stored bytes for a file that was opened by tensors_open(). */
int tensors_read_own(struct tree_file *f, uint64_t off, size_t n, struct reply *r);
/* Handle fsync of a file opened for reading: everything that was accepted is written. */
int tensors_fsync(struct tree *t, const struct node *n, struct live_wait *w);

/* These calls change a name in tensors/ or in a tensor's directory, once editing has begun. The first
 * one creates a file in a tensor's directory, or truncates a view. */
int tensors_create(struct tree *t, const struct node *dir, const char *name, int flags,
                   struct tree_entry *ret, struct tree_file **file);
int tensors_mkdir(struct tree *t, const char *name, struct tree_entry *ret);
int tensors_unlink(struct tree *t, const struct node *dir, const char *name);

#endif

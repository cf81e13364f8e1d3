/* SPDX-License-Identifier: MIT */
/*
 * Handles tensors/ while it can be edited (live/tensors.h): the part of folder.h, file.h and
 * edits.h that applies there. Private to this layer.
 */
#ifndef TREE_TENSORS_H
#define TREE_TENSORS_H

#include "live/tensors.h"
#include "tree/file.h"
#include "tree/nodes.h"
#include "tree/tree.h"

/* True for tensors/ and everything in it. */
static inline bool tensors_in(const struct node *n)
{
    return node_is_folder(n, ROOT_TENSORS) || n->kind == NODE_TENSOR || n->kind == NODE_TENSOR_FILE;
}

/* True for such a directory, if tensors can be edited. */
static inline bool tensors_has(const struct tree *t, const struct node *dir)
{
    return t->opt.tensors && tensors_in(dir) && dir->kind != NODE_TENSOR_FILE;
}

/* True for tensors/ and everything in it, in a tree whose keys can be edited but not its
 * tensors. */
static inline bool tensors_fixed(const struct tree *t, const struct node *n)
{
    return t->writable && !t->opt.tensors && tensors_in(n);
}
#define TENSORS_FIXED "tensors are read-only here: -o tensors=edit makes them editable"

/* Return the state that edits tensors, or NULL if there is none yet. */
struct live *tensors_live(const struct tree *t);
/* Get the facts about the tensor that a node belongs to. */
void tensors_facts(struct tree *t, const struct snapshot *g, const struct node *n,
                   struct live_folder *ret);
/* True for the directory of a new tensor. *views: the rows that it has. */
bool tensors_is_making(struct tree *t, const struct node *n, uint32_t *views);

/*
 * Get the entry of a node that no snapshot has: the directory of a new tensor, an ignored view in
 * it, a draft. Returns false for any other node.
 */
bool tensors_pending(struct tree *t, const struct node *n, struct tree_entry *ret);
/* Get the entry of any node in tensors/. */
int tensors_entry(struct tree *t, const struct view *v, const struct node *n,
                  struct tree_entry *ret);
/*
 * Get the entry of a node that was replaced after the kernel looked it up, with the present
 * attributes of the file: a program that opens it can be made to look again only once. May return
 * -ESTALE.
 */
int tensors_replaced(struct tree *t, const struct node *n, struct tree_entry *ret);
/* Look up a file that no snapshot has in a tensor's directory. Returns 1, 0 if it is a view of a
 * tensor of the model, or -errno. */
int tensors_lookup(struct tree *t, const struct node *dir, const char *name,
                   struct tree_entry *ret);
/* Look up a file of a tensor's directory that has a draft, perhaps with another node. Returns false
 * if it has none. */
bool tensors_look(struct tree *t, const struct node *dir, struct node *file,
                  struct tree_entry *ret);
/* Helper i of a directory. 1; 0: there are no more. */
int tensors_helper_at(struct tree *t, const struct node *dir, uint64_t i, bool attrs,
                      char name[TREE_NAME_MAX + 1], struct tree_entry *ret);

/* True if a node is opened as a view that is written; then open it. */
bool tensors_opens(struct tree *t, const struct node *n, int flags);
int tensors_open(struct tree_file *f, int flags);
/* Open the draft of a node that no longer shows any other content. May return -ESTALE. */
int tensors_join(struct tree_file *f);
/* Handle a file opened for reading that may be written meanwhile. Returns 1: open the present
 * f->node; or -ESTALE: look it up again. */
int tensors_opened(struct tree_file *f);
/* Read the draft of its node. Returns false if the stored bytes must be read. */
bool tensors_read(const struct tree_file *f, uint64_t off, size_t n, struct reply *r, int *ret);
/* Handle fsync of a file opened for reading; files that belong to no tensor have nothing to wait
 * for. */
int tensors_fsync(struct tree *t, const struct node *n, struct live_wait *w);
/* Handle truncate(2): open the view, truncate it and close it. */
int tensors_truncate(struct tree *t, const struct node *n, uint64_t size, struct live_wait *w);

/* Create a file in a tensor's directory, or truncate a view. */
int tensors_create(struct tree *t, const struct node *dir, const char *name, int flags,
                   struct tree_entry *ret, struct tree_file **file);
int tensors_mkdir(struct tree *t, const char *name, struct tree_entry *ret);
int tensors_unlink(struct tree *t, const struct node *dir, const char *name);
int tensors_rename(struct tree *t, const struct node *dir, const char *name,
                   const struct node *into, const char *to, unsigned flags, struct live_wait *w);

#endif

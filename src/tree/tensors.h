/* SPDX-License-Identifier: MIT */
/*
 * tensors/ while it can be edited (live/tensors.h): the calls of tree.h, for a folder in it or for
 * itself. Private to this layer.
 */
#ifndef TREE_TENSORS_H
#define TREE_TENSORS_H

#include "live/tensors.h"
#include "tree/internal.h"

/* True if that is tensors/, or a tensor's folder, of a tree whose tensors can be edited. */
bool tensors_has(const struct tree *t, const struct node *dir);
/* What edits it; NULL: nothing, or not yet. */
struct live *tensors_live(const struct tree *t);

/* The folder of this name, as its node. -ENOENT. */
int tensors_find(struct tree *t, struct live *l, const char *name, struct node *ret);
/*
 * What is known of the tensor that a node belongs to. fresh: the newest snapshot is to show it as
 * it is now.
 */
int tensors_facts(struct tree *t, const struct snapshot *g, const struct node *n, bool fresh,
                  struct live_folder *ret);

int tensors_unlink(struct tree *t, const struct node *dir, const char *name);
int tensors_rmdir(struct tree *t, const struct node *dir, const char *name);
int tensors_rename(struct tree *t, const struct node *dir, const char *name,
                   const struct node *into, const char *to, unsigned flags, struct live_wait *w);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * Whether and how tensors/ can be edited (live/tensors.h), for what shows it. Private to this layer.
 */
#ifndef TREE_EDITABLE_H
#define TREE_EDITABLE_H

#include "live/tensors.h"
#include "tree/internal.h"

/* True if that is tensors/, or a tensor's folder, of a tree whose tensors can be edited. */
bool tensors_has(const struct tree *t, const struct node *dir);
/* tensors/ and what is in it, of a tree whose keys can be edited and its tensors not. */
bool tensors_fixed(const struct tree *t, const struct node *n);
#define TENSORS_FIXED "tensors are read-only here: -o tensors=edit makes them editable"
/* What edits it; NULL: nothing, or not yet. */
struct live *tensors_live(const struct tree *t);

/*
 * What is known of the tensor that a node belongs to. fresh: the newest snapshot is to show it as
 * it is now.
 */
int tensors_facts(struct tree *t, const struct snapshot *g, const struct node *n, bool fresh,
                  struct live_folder *ret);

#endif

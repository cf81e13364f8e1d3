/* SPDX-License-Identifier: MIT */
/* Computes attributes and extended attributes. */
#ifndef TREE_ATTR_H
#define TREE_ATTR_H

#include "tree/tree.h"

/* Write the value, or the names, each followed by a NUL, to `out`. May return -ENODATA. */
int tree_getxattr(struct tree *t, uint64_t node, const char *name, struct buf *out);
int tree_listxattr(struct tree *t, uint64_t node, struct buf *out);
int tree_setxattr(struct tree *t, uint64_t node, const char *name, const void *value, size_t n,
                  struct live_wait *w);
int tree_removexattr(struct tree *t, uint64_t node, const char *name);

/* ---- private to this layer ---- */

/* Get the entry of a node that is not a key. Measures views of the whole. */
int node_entry(struct tree *t, const struct view *v, const struct node *n, struct tree_entry *ret);
/* Get the entry of any node, whose facts are in `a`. */
void node_entry_as(struct tree *t, const struct view *v, const struct node *n,
                   const struct live_attr *a, struct tree_entry *ret);
/* Set only the numbers and the type, which is enough for a plain listing. */
void brief_entry(uint64_t ino, uint64_t inode, mode_t type, struct tree_entry *ret);

#endif

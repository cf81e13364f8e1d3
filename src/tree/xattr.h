/* SPDX-License-Identifier: MIT */
/* Extended attributes of a tree. */
#ifndef TREE_XATTR_H
#define TREE_XATTR_H

#include "tree/tree.h"

/* The value, or the NUL-separated names, into `out`. -ENODATA. */
int tree_getxattr(struct tree *t, uint64_t node, const char *name, struct buf *out);
int tree_listxattr(struct tree *t, uint64_t node, struct buf *out);

int tree_setxattr(struct tree *t, uint64_t node, const char *name, const void *value, size_t n,
                  struct live_wait *w);
int tree_removexattr(struct tree *t, uint64_t node, const char *name);

#endif

/* SPDX-License-Identifier: MIT */
/* metadata/, as kept by live (live/live.h), whether or not the model can be edited. Private to this layer. */
#ifndef TREE_KEYS_H
#define TREE_KEYS_H

#include "tree/file.h"
#include "tree/internal.h"
#include "tree/tree.h"

int keys_entry(struct tree *t, const struct live_attr *a, struct tree_entry *ret);
/* f: an open file of the key, or NULL. */
int keys_attr(struct tree *t, uint32_t number, const struct tree_file *f, struct tree_entry *ret);
int keys_open(struct tree *t, struct tree_file *f, int flags);
int keys_create(struct tree *t, struct live *l, const char *name, int flags, struct tree_entry *ret,
                struct tree_file **file);

#endif

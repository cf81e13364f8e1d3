/* SPDX-License-Identifier: MIT */
/* What is in the folders of a tree. */
#ifndef TREE_FOLDER_H
#define TREE_FOLDER_H

#include "tree/file.h"
#include "tree/tree.h"

struct tree_dir;

int tree_lookup(struct tree *t, uint64_t parent, const char *name, struct tree_entry *ret);
/* file: one that is open, whose size is that of the text that it writes; or NULL. */
int tree_getattr(struct tree *t, uint64_t node, const struct tree_file *file,
                 struct tree_entry *ret);
/* The kernel knows a node n times less. */
void tree_forget(struct tree *t, uint64_t node, uint64_t n);

int tree_opendir(struct tree *t, uint64_t node, struct tree_dir **ret);
void tree_closedir(struct tree_dir *d);
/* True if the kernel may keep what it read of this folder. */
bool tree_dir_cacheable(const struct tree *t, const struct tree_dir *d);

/*
 * The entry at *cookie (0: the first) of a folder, in the model's order, "." and ".." first. 1:
 * `name` and `ret` are set and *cookie is that of the next; 0: there are no more. With `attrs`, all
 * of ret->attr is set, else st_ino and the type in st_mode only. Of a view of the whole these are
 * set in any case, and ret->node is 0: to measure it may take a while, see tree_lookup().
 */
int tree_readdir(struct tree *t, struct tree_dir *d, uint64_t *cookie, bool attrs,
                 char name[TREE_NAME_MAX + 1], struct tree_entry *ret);

#endif

/* SPDX-License-Identifier: MIT */
/* The contents of a tree's directories. */
#ifndef TREE_FOLDER_H
#define TREE_FOLDER_H

#include "tree/file.h"
#include "tree/tree.h"

struct tree_dir;

int tree_lookup(struct tree *t, uint64_t parent, const char *name, struct tree_entry *ret);
/* file: an open file whose size is that of the text it writes; or NULL. */
int tree_getattr(struct tree *t, uint64_t node, const struct tree_file *file,
                 struct tree_entry *ret);
/* The kernel drops n references to a node. */
void tree_forget(struct tree *t, uint64_t node, uint64_t n);

int tree_opendir(struct tree *t, uint64_t node, struct tree_dir **ret);
void tree_closedir(struct tree_dir *d);
/* True if the kernel may cache this directory. */
bool tree_dir_cacheable(const struct tree *t, const struct tree_dir *d);

/*
 * The entry at *cookie (0: the first) of a directory, in the model's order, "." and ".." first. 1: sets `name` and
 * `ret`, and *cookie to that of the next; 0: there are no more. With `attrs`, all of ret->attr is set, else only
 * st_ino and the type in st_mode. For a whole-model view it is always the latter, and ret->node is 0: measuring it
 * may take a while, see tree_lookup().
 */
int tree_readdir(struct tree *t, struct tree_dir *d, uint64_t *cookie, bool attrs,
                 char name[TREE_NAME_MAX + 1], struct tree_entry *ret);

#endif

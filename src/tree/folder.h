/* SPDX-License-Identifier: MIT */
/* Finds, lists, creates, removes and renames the entries in a tree's directories. */
#ifndef TREE_FOLDER_H
#define TREE_FOLDER_H

#include "tree/file.h"
#include "tree/tree.h"

struct tree_dir;

int tree_lookup(struct tree *t, uint64_t parent, const char *name, struct tree_entry *ret);
/* Get the attributes of a node. If `file`, an open file, is not NULL, the size is that of the text
 * being written to it. */
int tree_getattr(struct tree *t, uint64_t node, const struct tree_file *file,
                 struct tree_entry *ret);
/* Drop n of the kernel's references to a node. */
void tree_forget(struct tree *t, uint64_t node, uint64_t n);

int tree_opendir(struct tree *t, uint64_t node, struct tree_dir **ret);
void tree_closedir(struct tree_dir *d);
/* Return true if the kernel may cache this directory. */
bool tree_dir_cacheable(const struct tree *t, const struct tree_dir *d);

/*
 * Get the entry at *cookie (0: the first) of a directory; "." and ".." come first, then the entries
 * in the model's order. Returns 1 after setting `name`, `ret` and *cookie (to that of the next
 * entry), or 0 at the end. With `attrs`, sets all of ret->attr, else only st_ino and the type in
 * st_mode. For a whole-model view, sets only st_ino and the type, and ret->node to 0, because
 * measuring the view may take a while: see tree_lookup().
 */
int tree_readdir(struct tree *t, struct tree_dir *d, uint64_t *cookie, bool attrs,
                 char name[TREE_NAME_MAX + 1], struct tree_entry *ret);

/* ---- names that change ---- */

/*
 * In a tree that is not writable, these calls return -EROFS. docs/editing.md says what a name
 * means, when an edit is accepted and when it is durable. Calls that take a wait may return
 * LIVE_PARKED.
 */
int tree_create(struct tree *t, uint64_t parent, const char *name, int flags,
                struct tree_entry *ret, struct tree_file **file);
/* Handle mknod(2) of a regular file; bytes written to it soon afterwards are its first content. */
int tree_mknod(struct tree *t, uint64_t parent, const char *name, struct tree_entry *ret);
/* Sync a directory. Afterwards all edits accepted so far are durable. */
int tree_fsyncdir(struct tree *t, struct live_wait *w);
int tree_unlink(struct tree *t, uint64_t parent, const char *name);
/* Rename, with the flags of renameat2(2). */
int tree_rename(struct tree *t, uint64_t parent, const char *name, uint64_t new_parent,
                const char *new_name, unsigned flags, struct live_wait *w);
/* Create a new tensor's directory. The second function removes a tensor with everything in it. */
int tree_mkdir(struct tree *t, uint64_t parent, const char *name, struct tree_entry *ret);
int tree_rmdir(struct tree *t, uint64_t parent, const char *name);

#endif

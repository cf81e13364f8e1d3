/* SPDX-License-Identifier: MIT */
/* Handles the calls that create, remove and rename files in metadata/ and tensors/ in a writable
 * tree. */
#ifndef TREE_EDITS_H
#define TREE_EDITS_H

#include "tree/file.h"
#include "tree/tree.h"

/*
 * In a tree that is not writable, these calls return -EROFS. docs/editing.md says what a name
 * means, when an edit is accepted and when it is durable. If a call takes a wait, its result may be
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
int tree_symlink(struct tree *t, uint64_t parent, const char *name, const char *target,
                 struct tree_entry *ret);
int tree_readlink(struct tree *t, uint64_t node, struct buf *out);

/* Get entries for the files in metadata/ as kept by live/live.h, whether or not the model can be
 * edited. Private to this layer. */
void keys_entry(struct tree *t, const struct live_attr *a, struct tree_entry *ret);
/* f is an open file of the key, or NULL. */
int keys_attr(struct tree *t, uint32_t number, const struct tree_file *f, struct tree_entry *ret);
int keys_open(struct tree_file *f, int flags);

#endif

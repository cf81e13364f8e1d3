/* SPDX-License-Identifier: MIT */
/* The calls that create, remove and rename files in metadata/ and tensors/ of a writable tree. */
#ifndef TREE_EDITS_H
#define TREE_EDITS_H

#include "tree/file.h"
#include "tree/tree.h"

/*
 * -EROFS elsewhere and otherwise. What a name means, when an edit is accepted and when it is durable:
 * docs/editing.md. If there is a wait the result may be LIVE_PARKED.
 */
int tree_create(struct tree *t, uint64_t parent, const char *name, int flags,
                struct tree_entry *ret, struct tree_file **file);
/* mknod(2) of a regular file: what is written to it soon afterwards is its first content. */
int tree_mknod(struct tree *t, uint64_t parent, const char *name, struct tree_entry *ret);
/* On a directory: everything accepted so far is durable afterwards. */
int tree_fsyncdir(struct tree *t, struct live_wait *w);
int tree_unlink(struct tree *t, uint64_t parent, const char *name);
/* flags as for renameat2(2). */
int tree_rename(struct tree *t, uint64_t parent, const char *name, uint64_t new_parent,
                const char *new_name, unsigned flags, struct live_wait *w);
/* A new tensor's directory; a tensor with all that is in it. */
int tree_mkdir(struct tree *t, uint64_t parent, const char *name, struct tree_entry *ret);
int tree_rmdir(struct tree *t, uint64_t parent, const char *name);
int tree_symlink(struct tree *t, uint64_t parent, const char *name, const char *target,
                 struct tree_entry *ret);
int tree_readlink(struct tree *t, uint64_t node, struct buf *out);

/*
 * The files of metadata/, as kept by live (live/live.h), whether or not the model can be edited. For this layer.
 */
int keys_entry(struct tree *t, const struct live_attr *a, struct tree_entry *ret);
/* f: an open file of the key, or NULL. */
int keys_attr(struct tree *t, uint32_t number, const struct tree_file *f, struct tree_entry *ret);
int keys_open(struct tree_file *f, int flags);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * tensors/ while it can be edited (live/tensors.h): what folder.h, file.h and edits.h do there. Private to this layer.
 */
#ifndef TREE_TENSORS_H
#define TREE_TENSORS_H

#include "live/tensors.h"
#include "tree/file.h"
#include "tree/nodes.h"
#include "tree/tree.h"

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

/* The entry of a folder in tensors/, which may be in the making. */
int tensors_entry(struct tree *t, const struct view *v, const struct node *n,
                  struct tree_entry *ret);
/* A node in the folder of a tensor in the making, or that folder: 1; 0: it is not one; -errno. */
int tensors_making(struct tree *t, const struct node *n, struct tree_entry *ret);
/* True if that is the folder of a tensor in the making. *views: the rows that it has. */
bool tensors_is_making(struct tree *t, const struct node *n, uint32_t *views);
/* A name in it. */
int tensors_making_lookup(struct tree *t, const struct node *dir, const char *name,
                          struct tree_entry *ret);
/* A helper's name in a tensor's folder. 0: it is a view's; 1; -ENOENT, -errno. */
int tensors_helper(struct tree *t, const struct node *dir, const char *name,
                   struct tree_entry *ret);
/* Helper i of a folder. 1; 0: there are no more; -errno. */
int tensors_helper_at(struct tree *t, const struct node *dir, uint64_t i, bool attrs,
                      char name[TREE_NAME_MAX + 1], struct tree_entry *ret);
/* Open a view to be written. 1: done; 0: it is to be read as it is stored. */
int tensors_open(struct tree *t, struct tree_file *f, int flags);
/* Open the draft of a node that shows nothing else any more. -ESTALE. */
int tensors_join(struct tree *t, struct tree_file *f);
/* A file was opened to be read, which may be written. -ESTALE: it is to be looked up again. */
int tensors_opened(struct tree *t, struct tree_file *f);
/* Read what is written to its node. False: it is to be read as it is stored. */
bool tensors_read(const struct tree_file *f, uint64_t off, size_t n, struct reply *r, int *ret);
/* The entry of a draft's node. 0: it is not one; 1; -errno. */
int tensors_draft(struct tree *t, const struct node *n, struct tree_entry *ret);
/* The entry of a node that was replaced after the kernel looked it up, with the attributes of the file as
 * it is now: a program that opens it can be made to look again only once. -ESTALE. */
int tensors_replaced(struct tree *t, const struct node *n, struct tree_entry *ret);
/* A file of a tensor's folder that has a draft, which may show by another node. As above. */
int tensors_look(struct tree *t, const struct node *dir, struct node *file, struct tree_entry *ret);
/* A file in a tensor's folder is made: a view anew. */
int tensors_create(struct tree *t, const struct node *dir, const char *name, int flags,
                   struct tree_entry *ret, struct tree_file **file);
/* Of a file that was opened to be read; of others than a tensor's there is nothing to wait for. */
int tensors_fsync(struct tree *t, const struct node *n, struct live_wait *w);
/* truncate(2): it is opened, cut and closed. */
int tensors_truncate(struct tree *t, const struct node *n, uint64_t size, struct live_wait *w);

int tensors_unlink(struct tree *t, const struct node *dir, const char *name);
int tensors_mkdir(struct tree *t, const struct node *dir, const char *name, struct tree_entry *ret);
int tensors_rmdir(struct tree *t, const struct node *dir, const char *name);
int tensors_rename(struct tree *t, const struct node *dir, const char *name,
                   const struct node *into, const char *to, unsigned flags, struct live_wait *w);

#endif

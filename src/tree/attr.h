/* SPDX-License-Identifier: MIT */
/* Computes access rights, attributes and extended attributes. */
#ifndef TREE_ATTR_H
#define TREE_ATTR_H

#include <sys/stat.h>

#include "tree/tree.h"

struct tree_file;

/*
 * ---- access rights ----
 *
 * The owner, group and mode of a file in the tree grant no more than the model's files do. The
 * kernel enforces them (default_permissions).
 */
struct grant {
    uid_t uid;
    gid_t gid;
    mode_t bits; /* permission bits */
};

/* Return the rights that a file or directory grants; with an access ACL, those of its owner alone.
 * The descriptor may be O_PATH. */
struct grant grant_of(int fd, const struct stat *st);
/* Return the rights that two files grant together: if the groups differ, those of the owner alone;
 * if the owners differ, the daemon's user may read. */
struct grant grant_both(const struct grant *a, const struct grant *b);
/* Return the rights that are left of g if one must search a directory on the way: of others and the
 * group, those who may search it; if the owners differ, the daemon's user takes the owner's place. */
struct grant grant_below(const struct grant *g, const struct grant *dir);
/* Return the rights with what options override. */
struct grant grant_shown(const struct tree_options *o, struct grant g);

/* ---- attributes ---- */

/* Set the attributes in an entry, but for its st_ino. */
void entry_fill(struct tree_entry *e, mode_t mode, const struct grant *shown, uint64_t size,
                struct timespec mtime);

/* Append to `out` the value or, in the second function, the names, each followed by a NUL. May
 * return -ENODATA. */
int tree_getxattr(struct tree *t, uint64_t node, const char *name, struct buf *out);
int tree_listxattr(struct tree *t, uint64_t node, struct buf *out);
int tree_setxattr(struct tree *t, uint64_t node, const char *name, const void *value, size_t n,
                  struct live_wait *w);
int tree_removexattr(struct tree *t, uint64_t node, const char *name);

/* ---- private to this layer ---- */

/* Return the rights that all files of the model grant; they are at most a second old. */
struct grant tree_grant(struct tree *t, const struct view *v);
/* Get the entry for a node that is not a key, in the view that it shows. Measures whole-model views. */
int node_entry(struct tree *t, const struct node *n, struct tree_entry *ret);
/* Get the entry for a file in metadata/. */
void key_entry(struct tree *t, const struct live_attr *a, struct tree_entry *ret);
/* Set only the numbers and the type, which is enough for a plain listing. */
void brief_entry(const struct tree *t, uint64_t ino, uint64_t inode, mode_t type,
                 struct tree_entry *ret);

#endif

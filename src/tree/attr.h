/* SPDX-License-Identifier: MIT */
/* Computes access rights, attributes and extended attributes. */
#ifndef TREE_ATTR_H
#define TREE_ATTR_H

#include <sys/stat.h>

#include "base/lock.h"
#include "tree/tree.h"

struct tree_file;

/*
 * ---- access rights ----
 *
 * The owner, group and mode of a file in the tree grant no more than the model's files do. The
 * kernel enforces them (default_permissions).
 *
 *     struct rights r = {0};
 *     r = rights_add(&r, fd, path, base, writable);     for each file of the model, in order
 *     rights_settle(&r);
 *     ... r.of[i].shown, r.all, r.names ...
 *     if (rights_again(&r, fd, arg, &lock)) ...           the rights have changed
 *     free(r.of);
 *
 * A node made from several files that share an owner and group has that owner and group, and a
 * class of callers gets a bit if every file grants it. If owners or groups differ, the daemon's
 * user is the owner, and other classes get only what every file grants to everyone. Named users and
 * groups in an ACL count as classes that anyone but the owner may belong to.
 *
 * A file reached by a link grants nothing to callers who could not search the directories that
 * really contain it. Directories that also lead to the link are skipped, because a mount shows the
 * entries of its directory wherever that directory is.
 *
 * Only one thread may change a struct rights, and only under the lock that readers take.
 */

/* The rights granted by a file or by a directory on the way to it. */
struct grant {
    uid_t uid;
    gid_t gid;
    mode_t
        bits; /* for a directory, each class that may search it has all three bits, others none */
};

/* A file of the model. */
struct right {
    struct stat st;   /* compared to detect that the rights may have changed */
    struct grant way; /* granted by the directories on the way to the file */
    /* rights of the nodes made from this file alone: its tensors; for the first file, also the root
     * and the keys */
    struct grant shown;
};

struct rights {
    struct right *of; /* owned; one per file */
    size_t n, cap;
    struct grant all; /* rights of the nodes made from all files: the whole-model views */
    /* Rights of tensors/: users who may read all files may read it, and users who may read the
     * first file may search it. Includes execute bits. */
    struct grant names;
    uint64_t hash; /* hash of all rights that nodes show */
    bool writable; /* the first file can be written */
};

/* Return the rights that two files grant together. Both grant the daemon's user, `self`, at least
 * `known`, a set of bits in 07. */
struct grant grant_both(const struct grant *a, const struct grant *b, uid_t self, mode_t known);
/* Return the rights granted by a file that is open as fd and known to be at this real path;
 * directories on the way to `base`, and `base` itself, are skipped. */
struct grant grant_of_real(int fd, const struct stat *st, const char *real, const char *base);

/*
 * Add a file of the model that was found by `path` and is open as fd, for writing if `writable`.
 * `base` is the real path of the directory that was requested. Returns 0, -ENOMEM or -errno from
 * fstat().
 */
int rights_add(struct rights *r, int fd, const char *path, const char *base, bool writable);
/* Compute the rights that nodes show. */
void rights_settle(struct rights *r);
/* Compute these rights again for the current files, whose descriptors fd() returns. Directories are
 * not checked again. Returns true if the result has changed. */
bool rights_again(struct rights *r, int (*fd)(const void *arg, uint32_t file), const void *arg,
                  struct lock *lock);

/* ---- attributes ---- */

/* Append to `out` the value or, in the second function, the names, each followed by a NUL. May
 * return -ENODATA. */
int tree_getxattr(struct tree *t, uint64_t node, const char *name, struct buf *out);
int tree_listxattr(struct tree *t, uint64_t node, struct buf *out);
int tree_setxattr(struct tree *t, uint64_t node, const char *name, const void *value, size_t n,
                  struct live_wait *w);
int tree_removexattr(struct tree *t, uint64_t node, const char *name);

/* ---- private to this layer ---- */

/* Get the entry for a node that is not a key. Measures whole-model views. */
int node_entry(struct tree *t, const struct view *v, const struct node *n, struct tree_entry *ret);
/* Get the entry for a file in metadata/; f is an open file of the key, or NULL. */
void key_entry(struct tree *t, const struct live_attr *a, struct tree_entry *ret);
int key_attr(struct tree *t, uint32_t number, const struct tree_file *f, struct tree_entry *ret);
/* Set only the numbers and the type, which is enough for a plain listing. */
void brief_entry(uint64_t ino, uint64_t inode, mode_t type, struct tree_entry *ret);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * Computes the access rights of the files in the tree: an owner, group and mode that grant no more
 * than the files of the model do. The kernel enforces them (default_permissions).
 *
 *     struct rights r = RIGHTS_INIT;
 *     r = rights_add(&r, fd, path, base, writable);     for each file of the model, in order
 *     rights_settle(&r);
 *     ... r.of[i].shown, r.all, r.names ...
 *     if (rights_again(&r, fd, arg, &lock)) ...           the files have others by now
 *     rights_free(&r);
 *
 * Nodes made from one file have that file's owner, group and bits. Nodes made from several files
 * with one owner and group have these, and a class of callers has a bit if every file grants it. If
 * owners or groups differ, the daemon's user is the owner, and other classes get only what every
 * file grants to everyone. Named users and groups in an ACL count as classes that anybody but the
 * owner may be in.
 *
 * A file reached by a link grants nothing to callers who could not search the directories that
 * really contain it. Directories that also lead to the link are skipped, because a mount shows the
 * content of its directory wherever that is.
 *
 * Only one thread may change struct rights, holding the lock that readers hold.
 */
#ifndef TREE_RIGHTS_H
#define TREE_RIGHTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <time.h>

#include "base/lock.h"

/* The rights granted by a file or by a directory on the way to it. */
struct grant {
    uid_t uid;
    gid_t gid;
    /* bits in 0777; for a directory, each class that may search it has all three bits, any other
     * none */
    mode_t bits;
};

/* Identifies a state of a file; it differs if the file's rights may have changed. */
struct right_id {
    uint64_t dev, ino;
    int64_t ctime, ctime_nsec;
};

/* A file of the model. */
struct right {
    struct right_id id;
    struct grant way; /* rights that the directories on the way to it grant */
    /* rights of the nodes made from it alone: its tensors; for the first file, also the root and
     * the keys */
    struct grant shown;
};

struct rights {
    struct right *of; /* owned; one per file */
    size_t n, cap;
    struct grant all; /* rights of the nodes made from all files: the views of the whole */
    /* Rights of tensors/: users who may read all files may read it, and users who may read the
     * first file may search it. Includes execute bits. */
    struct grant names;
    uint64_t hash; /* hash of all rights that nodes show */
    bool writable; /* the first file can be written */
};

#define RIGHTS_INIT ((struct rights){0})

/* Return the rights that two files grant together. `self` is the daemon's user, to which both grant
 * at least `known`, a set of bits in 07. */
struct grant grant_both(const struct grant *a, const struct grant *b, uid_t self, mode_t known);
/* Return the rights granted by a file that is open as fd and known to be at this real path;
 * directories that lead to `base` are skipped. */
struct grant grant_of_real(int fd, const struct stat *st, const char *real, const char *base);

/*
 * Add a file of the model that was found by `path` and is open as fd, for writing if `writable`.
 * `base` is the real path of the directory that was requested. Returns 0, -ENOMEM or -errno from
 * fstat().
 */
int rights_add(struct rights *r, int fd, const char *path, const char *base, bool writable);
/* Compute the rights that nodes show. */
void rights_settle(struct rights *r);
/* Compute these rights again for the present files: fd() returns a descriptor for each file, or -1.
 * Directories are not checked again. Returns true if the result has changed. */
bool rights_again(struct rights *r, int (*fd)(const void *arg, uint32_t file), const void *arg,
                  struct lock *lock);
void rights_free(struct rights *r);

#endif

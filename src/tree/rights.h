/* SPDX-License-Identifier: MIT */
/*
 * Access rights of the files of the tree: owner, group and bits that give nobody more than the
 * files of the model do. The kernel enforces them (default_permissions).
 *
 *     struct rights r = RIGHTS_INIT;
 *     r = rights_add(&r, fd, path, base, writable);       for each file of the model, the first first
 *     rights_settle(&r);
 *     ... r.of[i].shown, r.all, r.names ...
 *     if (rights_again(&r, fd, arg, &lock)) ...           the files have others by now
 *     rights_free(&r);
 *
 * What is made of one file has that file's owner, group and bits; and so has what is made of several of one owner and
 * group, where a class of callers has a bit if each file gives it. Of other files the daemon's user is
 * the owner, and no other class has what one of them does not give to everyone. Named users and groups of an ACL count as classes that anybody
 * but the owner may be in.
 *
 * A file that is reached by a link gives nothing to callers who could not search the folders that
 * it really is in. Those that lead to the link as well are left out: a mount shows what is in the
 * folder that it was given, wherever that is.
 *
 * Threads: one changes it, under the lock that others read it with.
 */
#ifndef TREE_RIGHTS_H
#define TREE_RIGHTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <time.h>

#include "base/lock.h"

/* What a file gives, or a folder on the way to it. */
struct grant {
    uid_t uid;
    gid_t gid;
    mode_t bits; /* 0777. Of a folder: all three of a class that may search it, else none */
};

/* A file of the model. */
struct right {
    dev_t dev; /* these show whether it has other rights than before */
    ino_t ino;
    struct timespec ctime;
    struct grant way; /* what the folders give that lead to it */
    struct grant
        shown; /* for what is made of it alone: its tensors; of the first also the root and the keys */
};

struct rights {
    struct right *of; /* owned; by file */
    size_t n, cap;
    struct grant all; /* for what is made of all: the views of the whole */
    /* For tensors/: read by users who may read all, searched by users who may read the first. Its
     * bits have those of execution. */
    struct grant names;
    uint64_t hash; /* of what is shown */
    bool writable; /* the first one */
};

#define RIGHTS_INIT ((struct rights){0})

/* What two give. `self`: the daemon's user, to which both give at least `known` of 07. */
struct grant grant_both(const struct grant *a, const struct grant *b, uid_t self, mode_t known);
/* What a file gives that is open as fd, and known to be at this real path, to which `base` leads. 0, -errno. */
int grant_of_real(int fd, const struct stat *st, const char *real, const char *base,
                  struct grant *ret);

/*
 * One more file of the model, open as fd, for writing if it is `writable`, found by `path`; `base` is the real path of
 * the folder that was asked for. 0, -ENOMEM, -errno (fstat).
 */
int rights_add(struct rights *r, int fd, const char *path, const char *base, bool writable);
/* Compute what is shown. */
void rights_settle(struct rights *r);
/*
 * The same of the files as they are now: fd() has each of them open, or -1. Folders are taken as they were. True: something
 * else is shown.
 */
bool rights_again(struct rights *r, int (*fd)(const void *arg, uint32_t file), const void *arg,
                  struct lock *lock);
void rights_free(struct rights *r);

#endif

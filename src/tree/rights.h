/* SPDX-License-Identifier: MIT */
/*
 * Access rights of the files of the tree: owner, group and bits that give nobody more than the
 * files of the model do. The kernel enforces them (default_permissions).
 *
 *     struct rights r = RIGHTS_INIT;
 *     r = rights_add(&r, fd, path, base);       for each file of the model, the first first
 *     rights_settle(&r, geteuid(), writable);
 *     ... r.own, r.all, r.names, r.file[i] ...
 *     if (rights_again(&r, fd, arg, &now)) ...       the files may have others by now
 *     rights_free(&r);
 *
 * What is made of one file has that file's owner, group and bits. What is made of several has one
 * owner and one group too, but a caller may be another file's owner, or a member of its group or
 * not. So a class of callers has a bit only if every file gives it to all that could be in the
 * class. Named users and groups of an ACL count as classes that anybody but the owner may be in.
 *
 * A file that is reached by a link gives nothing to callers who could not search the folders that
 * it really is in. Those that lead to the link as well are left out: a mount shows what is in the
 * folder that it was given, wherever that is.
 *
 * Threads: immutable once settled.
 */
#ifndef TREE_RIGHTS_H
#define TREE_RIGHTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <time.h>

/* What a file gives, or a folder on the way to it. */
struct grant {
    uid_t uid;
    gid_t gid;
    mode_t bits;   /* 0777. Of a folder: all three of a class that may search it, else none */
    bool folder;   /* not the model's: says nothing of whose the tree is */
    uint32_t file; /* the file of the model that it belongs to */
};

/* What shows that a file has other rights than before. */
struct rights_of {
    dev_t dev;
    ino_t ino;
    struct timespec ctime;
};

struct rights {
    struct rights_of *of; /* owned; by file */
    struct grant *grant;  /* owned: by file, each file before its folders */
    size_t n, cap;
    uint32_t files;
    struct grant *file; /* owned: for what is made of file i alone: its tensors */
    struct grant own;   /* the same of the first: the root, metadata/ and the keys */
    struct grant all;   /* for what is made of all: the views of the whole */
    /* For tensors/: read by users who may read all, searched by users who may read the first. Its
     * bits have those of execution. */
    struct grant names;
    uint64_t hash; /* of what is shown */
    uid_t self;    /* as of rights_settle() */
    bool writable;
};

#define RIGHTS_INIT ((struct rights){0})

/*
 * One more file of the model, open as fd, found by `path`; `base` is the real path of the folder
 * that was asked for. 0, -ENOMEM, -errno (fstat).
 */
int rights_add(struct rights *r, int fd, const char *path, const char *base);

/* The same of a file that is known to be at this real path, as long as it may. */
int rights_add_real(struct rights *r, int fd, const char *real, const char *base);

/* Changes when rights_add_real() may give something else: of a file with these attributes. 0: nothing can be said, as
 * something was changed just now. */
uint64_t rights_stamp(const struct stat *file, const char *real, const char *base);

/* Compute what is shown. `self` is the daemon's user, which could open all files; writable: the first
 * one for writing. 0, -ENOMEM. */
int rights_settle(struct rights *r, uid_t self, bool writable);
/*
 * The same of the files as they are now: fd() has each of them open, or -1. Folders are taken as they were.
 * 1: *ret shows something else; 0: nothing changed, *ret is empty; -ENOMEM.
 */
int rights_again(struct rights *r, int (*fd)(const void *arg, uint32_t file), const void *arg,
                 struct rights *ret);
void rights_free(struct rights *r);

#endif

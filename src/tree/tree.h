/* SPDX-License-Identifier: MIT */
/*
 * The file system, without libfuse: a model as a tree of folders and files.
 *
 * Calling sequence: tree_open() -> any number of the other calls, from any threads -> tree_close().
 * Files are named by node numbers (ino.h); the root is INO_ROOT. Functions return 0 or -errno with
 * the meaning that the system call of the same name has, and leave outputs untouched on failure.
 */
#ifndef TREE_TREE_H
#define TREE_TREE_H

#include <sys/stat.h>
#include <sys/statvfs.h>

#include "base/err.h"
#include "tree/files.h"
#include "tree/ino.h"
#include "tree/name.h"

struct tree;
struct tree_file;

struct tree_options {
    bool partial;                     /* show an incomplete download */
    bool views_all;                   /* list the rows that are hidden otherwise */
    bool set_uid, set_gid, set_umask; /* override what derives from the model file */
    uid_t uid;
    gid_t gid;
    mode_t umask;
};

struct tree_entry {
    uint64_t node;
    struct stat attr;
    bool fixed; /* neither the entry nor the attributes will ever change in this mount */
};

/* Open the model at `path` (symbolic links are followed). */
int tree_open(const char *path, const struct tree_options *o, struct tree **ret, struct err *e);
void tree_close(struct tree *t);

/* The model's real path; good until tree_close(). */
const char *tree_path(const struct tree *t);
/* Lines for the log about what is unusual in the model: call until NULL, from i = 0. */
const char *tree_warning(const struct tree *t, unsigned i);

int tree_lookup(struct tree *t, uint64_t parent, const char *name, struct tree_entry *ret);
int tree_getattr(struct tree *t, uint64_t node, struct tree_entry *ret);
int tree_statfs(struct tree *t, struct statvfs *ret);

/*
 * The entry at *cookie (0: the first) of a folder, in the model's order, "." and ".." first.
 * 1: `name` and `ret` are set and *cookie is that of the next; 0: there are no more. With
 * `attrs`, all of ret->attr is set, else st_ino and the type in st_mode only.
 */
int tree_readdir(struct tree *t, uint64_t dir, uint64_t *cookie, bool attrs,
                 char name[TREE_NAME_MAX + 1], struct tree_entry *ret);

/* Open a file for reading. It keeps the generation that it saw, if that is what it shows. */
int tree_open_file(struct tree *t, uint64_t node, struct tree_file **ret);
void tree_release(struct tree_file *f);
/* Bytes at `off`, fewer than n at the end of the file only. `r->scratch` is the caller's. */
int tree_read(struct tree *t, struct tree_file *f, uint64_t off, size_t n, struct reply *r);
/* Let go of what the answer's pieces point to. */
void tree_reply_done(struct reply *r);

/* Extended attributes: the value, or the NUL-separated names, into `out`. -ENODATA. */
int tree_getxattr(struct tree *t, uint64_t node, const char *name, struct buf *out);
int tree_listxattr(struct tree *t, uint64_t node, struct buf *out);

#endif

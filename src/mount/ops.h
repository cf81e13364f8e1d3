/* SPDX-License-Identifier: MIT */
/*
 * The FUSE callbacks: each unpacks a request, calls the tree, and replies exactly once. The
 * session's user data is a struct mnt; each open file or folder has a struct handle. Callbacks that
 * edit are in ops_edit.c.
 */
#ifndef MOUNT_OPS_H
#define MOUNT_OPS_H

#define FUSE_USE_VERSION 312
#include <fuse_lowlevel.h>

#include <stdatomic.h>

#include "mount/daemon.h"
#include "mount/handles.h"
#include "tree/tree.h"

extern const struct fuse_lowlevel_ops mnt_ops;

/* Seconds for which the kernel caches what never changes: longer than any mount lives. */
#define FOREVER 1e9

struct mnt {
    struct tree *tree;
    struct handles handles;
    /*
     * The last file that mknod(2) made, still open, owned; or NULL. It has no value yet: the next
     * open for writing, most likely of the same file, takes over its draft.
     */
    _Atomic(struct tree_file *) made;
    int status;                   /* daemon.h; -1: none */
    char daemon[DAEMON_TEXT_MAX]; /* value of DAEMON_XATTR */
};

static inline struct mnt *mnt_of(fuse_req_t req)
{
    return fuse_req_userdata(req);
}

static inline struct tree *tree_of(fuse_req_t req)
{
    return mnt_of(req)->tree;
}

static inline struct handle *handle_of(const struct fuse_file_info *fi)
{
    return (struct handle *)(uintptr_t)fi->fh;
}

static inline struct reader *reader_of(const struct fuse_file_info *fi)
{
    return handle_of(fi)->reader;
}

static inline struct tree_file *file_of(const struct fuse_file_info *fi)
{
    return reader_file(reader_of(fi));
}

double mnt_timeout(const struct tree_entry *e);
struct fuse_entry_param mnt_entry(const struct tree_entry *e);
/* Reply with an entry, or with -r. */
void mnt_reply_entry(fuse_req_t req, int r, const struct tree_entry *e);
/* Fill in the handle of an open file, and the kernel's caching. Takes ownership of `f`: on -ENOMEM it
 * is released. */
int mnt_fill_open(struct mnt *m, struct fuse_file_info *fi, struct tree_file *f);

/* Release the file that mknod made before, and keep this one open (or NULL). */
void mnt_made(struct mnt *m, struct tree_file *f);

void op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set,
                struct fuse_file_info *fi);
void op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
               struct fuse_file_info *fi);
void op_write(fuse_req_t req, fuse_ino_t ino, const char *bytes, size_t n, off_t off,
              struct fuse_file_info *fi);
void op_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void op_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi);
void op_fsyncdir(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi);
void op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name);
void op_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t new_parent,
               const char *new_name, unsigned flags);
void op_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name);
void op_readlink(fuse_req_t req, fuse_ino_t ino);
void op_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value, size_t n,
                 int flags);
void op_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name);
void op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode);
void op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t dev);
void op_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t new_parent, const char *new_name);
void op_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name);

#endif

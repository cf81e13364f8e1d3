/* SPDX-License-Identifier: MIT */
/* The FUSE callbacks that edit, for the table in ops.c. */
#ifndef MOUNT_OPS_EDIT_H
#define MOUNT_OPS_EDIT_H

#include "mount/mnt.h"

void op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set,
                struct fuse_file_info *fi);
void op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
               struct fuse_file_info *fi);
void op_write(fuse_req_t req, fuse_ino_t ino, const char *bytes, size_t n, off_t off,
              struct fuse_file_info *fi);
void op_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t off, off_t n,
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

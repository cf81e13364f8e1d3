/* SPDX-License-Identifier: MIT */
/*
 * The FUSE callbacks: each unpacks a request, asks the tree, and replies exactly once. The session's
 * user data is the struct tree; a file's handle is its struct tree_file.
 */
#ifndef MOUNT_OPS_H
#define MOUNT_OPS_H

#define FUSE_USE_VERSION 312
#include <fuse_lowlevel.h>

extern const struct fuse_lowlevel_ops mnt_ops;

#endif

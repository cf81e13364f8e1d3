/* SPDX-License-Identifier: MIT */
/* The FUSE callbacks: each unpacks a request, calls the shelf, and replies exactly once. */
#ifndef MOUNT_OPS_H
#define MOUNT_OPS_H

#include "mount/mnt.h"

extern const struct fuse_lowlevel_ops mnt_ops;

#endif

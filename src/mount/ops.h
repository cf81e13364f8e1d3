/* SPDX-License-Identifier: MIT */
/*
 * The FUSE callbacks. Each unpacks a request, calls the shelf, and replies exactly once. The
 * session's user data is a struct mnt; each open file or directory has a struct handle.
 *
 * Any thread may call these functions.
 */
#ifndef MOUNT_OPS_H
#define MOUNT_OPS_H

#include <stdatomic.h>

#include "mount/handle.h"

/* Number of threads, and of the kernel's background requests: in a mount of a directory, a model on a
 * slow disk is not to hold up the others, as with libfuse's 10 threads and the kernel's 12
 * requests. */
#define MNT_REQUESTS 64

struct mnt {
    struct shelf *shelf;
    struct handles handles;
    atomic_bool ending; /* a signal ends the mount: no edit begins, and conversions are cut short */
    atomic_bool begun;  /* the first request has been answered, or is being answered */
    dev_t dev;          /* the mount's device; 0: unknown */
    unsigned readahead; /* in KiB */
};

extern const struct fuse_lowlevel_ops mnt_ops;

#endif

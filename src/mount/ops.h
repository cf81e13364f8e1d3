/* SPDX-License-Identifier: MIT */
/*
 * The FUSE callbacks. Each unpacks a request, calls the shelf, and replies exactly once. The
 * session's user data is a struct mnt; each open file or directory has a struct handle.
 *
 * Any thread may run them.
 */
#ifndef MOUNT_OPS_H
#define MOUNT_OPS_H

#define FUSE_USE_VERSION 312
#include <fuse_lowlevel.h>

#include <stdatomic.h>

#include "mount/control.h"
#include "mount/handle.h"

/*
 * Number of requests that a mount of a directory handles at a time, which limits both its threads
 * and the kernel's background requests. A request for a hanging disk keeps its place, and must not
 * block others. (libfuse's 10 threads and the kernel's 12 requests are soon used up.)
 */
#define MNT_FOLDER_REQUESTS 1000

struct mnt {
    struct shelf *shelf;
    struct handles handles;
    struct control *control;
    struct fuse_session *session; /* once it is mounted */
    atomic_bool checks;           /* rights have changed, so each open is checked */
    int dead;                     /* replaces the session's descriptor: see session.h */
};

extern const struct fuse_lowlevel_ops mnt_ops;

#endif

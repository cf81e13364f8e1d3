/* SPDX-License-Identifier: MIT */
/*
 * The FUSE callbacks: each unpacks a request, calls the shelf, and replies exactly once. A struct
 * mnt is the session's user data; each open file or directory has a struct handle.
 *
 * Threads: any.
 */
#ifndef MOUNT_OPS_H
#define MOUNT_OPS_H

#define FUSE_USE_VERSION 312
#include <fuse_lowlevel.h>

#include <stdatomic.h>

#include "mount/control.h"
#include "mount/handle.h"

/*
 * Number of requests that a mount of a directory handles at a time: threads, and background
 * requests of the kernel. A request for a hanging disk keeps its place, and must not block others.
 * (libfuse's 10 threads and the kernel's 12 requests are soon used up.)
 */
#define MNT_FOLDER_REQUESTS 1000

struct mnt {
    struct shelf *shelf;
    struct handles handles;
    struct control *control;
    struct fuse_session *session; /* once it is mounted */
    atomic_bool checks;           /* rights have changed, so each open is checked */
    int dead;                     /* replacement for the session's descriptor: session.h */
};

extern const struct fuse_lowlevel_ops mnt_ops;

#endif

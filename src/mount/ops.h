/* SPDX-License-Identifier: MIT */
/*
 * The FUSE callbacks, and the kernel's handles for open files and directories. Each callback
 * unpacks a request, calls the shelf, and replies exactly once. The session's user data is a struct
 * mnt; each open file or directory has a struct handle.
 *
 * The kernel asks for the next stretch of a file when the program begins to use the previous one,
 * and the program waits if the reply is late. So after answering a read, a thread decodes the next
 * stretch. If the next stretch is requested before it is ready, the request is parked, and the same
 * thread answers it. Bytes that need no decoding are not prepared. A handle holds at most one
 * stretch, as plain bytes that keep no snapshot of the model alive. It holds no stretch if the file
 * is not read in order or has been read to its end.
 *
 * Any thread may call these functions.
 */
#ifndef MOUNT_OPS_H
#define MOUNT_OPS_H

#define FUSE_USE_VERSION 312
#include <fuse_lowlevel.h>

#include <stdatomic.h>

#include "base/lock.h"
#include "shelf/shelf.h"

/* Maximum number of bytes read ahead for all open files together. */
#define AHEAD_TOTAL ((size_t)64 << 20)

/* The open handles, protected by `lock`. */
struct handles {
    struct lock lock;
    struct handle *first;
    unsigned long changes; /* number of times that a handle was opened or closed */
};

/* Return true if nothing is open and nothing has been opened or closed since *seen, an earlier
 * value of `changes` (0: since the beginning). *seen becomes the current value. */
bool handles_idle(struct handles *l, unsigned long *seen);
/* Close all remaining handles: at an unmount, the kernel does not wait for the daemon to read the
 * last release requests. Call after the last request. */
void handles_end(struct handles *l);

/* Number of threads of a mount of a directory, and of the kernel's background requests there: a model
 * on a slow disk is not to hold up the others, as with libfuse's 10 threads and the kernel's 12
 * requests. */
#define MNT_FOLDER_REQUESTS 64

struct mnt {
    struct shelf *shelf;
    struct handles handles;
    atomic_bool ending; /* a signal ends the mount: no edit begins, and conversions are cut short */
    bool begun;         /* the first request has been answered */
};

extern const struct fuse_lowlevel_ops mnt_ops;

#endif

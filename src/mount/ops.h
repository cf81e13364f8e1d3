/* SPDX-License-Identifier: MIT */
/*
 * The FUSE callbacks, and the kernel's handles of open files and directories. Each callback unpacks
 * a request, calls the shelf, and replies exactly once. The session's user data is a struct mnt;
 * each open file or directory has a struct handle.
 *
 * The kernel asks for the next stretch of a file when the program begins to use the last one, and
 * the program waits if the reply is late. So the thread that has answered a read goes on to decode
 * the next stretch. If a request for it arrives before it is ready, the request is parked and
 * answered by the same thread. Bytes that need no decoding are not prepared. A handle holds at most
 * one stretch, as plain bytes that keep no snapshot of the model alive, and none if the file is not
 * read in order or has been read to its end.
 *
 * At an unmount the kernel does not wait until its last releases have been read. So handles that
 * are still in the list when the session has ended are closed then, and no written data is lost.
 *
 * Any thread may call these functions: handle_close() once, after the handle's last request has
 * been answered, and handles_end() only after the last request of all.
 */
#ifndef MOUNT_OPS_H
#define MOUNT_OPS_H

#define FUSE_USE_VERSION 312
#include <fuse_lowlevel.h>

#include <stdatomic.h>

#include "base/lock.h"
#include "shelf/shelf.h"

/* Limit on the bytes read ahead for all open files together. */
#define AHEAD_TOTAL ((size_t)64 << 20)

struct handle;

/* Protected by mount_lock. */
struct handles {
    struct handle *first;
    unsigned long changes; /* how often a handle was opened or closed */
    unsigned edits;        /* edits begun and not yet ended */
    bool closed;           /* no more edits may begin */
};

/* Make a handle. It owns the opened file or directory and, if it writes, an edit that lasts as long
 * as it is open. If there is no memory, closes the file or directory and returns NULL. */
struct handle *handle_open(struct handles *l, struct tree_file *file, struct shelf_dir *dir,
                           bool writes);
void handle_close(struct handles *l, struct handle *h);
/* Answer a read of a file with exactly one reply. This thread sends it, unless another is already
 * preparing these bytes and sends it later. */
void handle_read(struct handle *h, fuse_req_t req, uint64_t off, size_t size);

/* Return true if nothing is open and nothing was opened or closed since *seen (0: since the
 * beginning). *seen becomes the current count. Call with the lock held. */
bool handles_idle(struct handles *l, unsigned long *seen);
/* Begin an edit. Returns false if no more edits may begin. The edit ends on its own or passes to a
 * handle. */
bool handles_edit(struct handles *l);
void handles_edited(struct handles *l);
/* Prevent new edits unless one is in progress. Returns true if they are now prevented. */
bool handles_no_edits(struct handles *l);
/* Close all remaining handles. */
void handles_end(struct handles *l);

/*
 * Number of requests that a mount of a directory handles at a time, which limits both its threads
 * and the kernel's background requests. A request for a hanging disk keeps its place, and must not
 * block others. (libfuse's 10 threads and the kernel's 12 requests are soon used up.)
 */
#define MNT_FOLDER_REQUESTS 1000

struct control;

struct mnt {
    struct shelf *shelf;
    struct handles handles;
    struct control *control;
    struct fuse_session *session; /* once it is mounted */
    atomic_bool checks;           /* rights have changed, so each open is checked */
    int dead;                     /* replaces the session's descriptor: see session.h */
    bool begun;                   /* the first request was answered */
};

extern const struct fuse_lowlevel_ops mnt_ops;

#endif

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
 * At an unmount, the kernel does not wait for the daemon to read the last release requests. So when
 * the session has ended, all handles that are still in the list are closed, and no written data is
 * lost.
 *
 * Any thread may call these functions. Call handle_close() once for each handle, after its last
 * request has been answered, and handles_end() only after the last request for any handle.
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

struct handle;

/* Protected by mount_lock. */
struct handles {
    struct handle *first;
    unsigned long changes; /* number of times that a handle was opened or closed */
    unsigned edits;        /* edits begun and not yet ended */
    bool closed;           /* no more edits may begin */
};

/* Make a handle that owns an open file or directory. If `writes`, the handle also owns an edit,
 * which lasts as long as the handle is open. If memory runs out, closes the file or directory, ends
 * the edit, and returns NULL. */
struct handle *handle_open(struct handles *l, struct tree_file *file, struct shelf_dir *dir,
                           bool writes);
void handle_close(struct handles *l, struct handle *h);
/* Answer a read of a file with exactly one reply. This thread sends the reply unless another thread
 * is already preparing these bytes. */
void handle_read(struct handle *h, fuse_req_t req, uint64_t off, size_t size);

/* Return true if nothing is open and nothing has been opened or closed since *seen, an earlier
 * value of `changes` (0: since the beginning). *seen becomes the current value. Call with the lock
 * held. */
bool handles_idle(struct handles *l, unsigned long *seen);
/* Begin an edit. Returns false if no more edits may begin. The caller ends the edit with
 * handles_edited() or passes it to a handle. */
bool handles_edit(struct handles *l);
void handles_edited(struct handles *l);
/* Prevent new edits unless an edit is in progress. Returns true if new edits are now prevented. */
bool handles_no_edits(struct handles *l);
/* Close all remaining handles. */
void handles_end(struct handles *l);

/* Maximum number of requests that a mount of a directory handles at a time. It limits both the
 * threads and the kernel's background requests. A request to a hung disk keeps its slot but must
 * not block other requests. (libfuse's default of 10 threads and the kernel's default of 12
 * requests would soon be used up.) */
#define MNT_FOLDER_REQUESTS 1000

struct control;

struct mnt {
    struct shelf *shelf;
    struct handles handles;
    struct control *control;
    struct fuse_session *session; /* set once the mount exists */
    atomic_bool checks;           /* rights have changed, so each open is checked */
    int dead;                     /* descriptor that replaces the session's: see session.h */
    bool begun;                   /* the first request has been answered */
};

extern const struct fuse_lowlevel_ops mnt_ops;

#endif

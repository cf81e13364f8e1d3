/* SPDX-License-Identifier: MIT */
/*
 * Open files and directories of a mount, and reads of files.
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
#ifndef MOUNT_HANDLE_H
#define MOUNT_HANDLE_H

#define FUSE_USE_VERSION 312
#include <fuse_lowlevel.h>
#include <sys/queue.h>

#include "base/lock.h"
#include "shelf/shelf.h"

/*
 * The stretch ahead is NONE; BUSY while one thread prepares or sends it; or READY, until a read
 * takes it. While it is sent, no read matches it.
 */
enum ahead { AHEAD_NONE, AHEAD_BUSY, AHEAD_READY };

struct handle {
    struct tree_file *file; /* owned; NULL for a directory */
    struct shelf_dir *dir;  /* owned; NULL for a file */
    struct handles *in;
    atomic_uint refs; /* one of the open handle, one of each thread that reads ahead */
    /* The remaining members are protected by the lock of `in`. In BUSY, the thread that prepares the
     * stretch accesses `room` without the lock. */
    LIST_ENTRY(handle) in_list;
    uint64_t upto; /* where the last read ended */
    unsigned run;  /* number of reads in a row that each began where the previous one ended */
    enum ahead state;
    uint64_t off;        /* the stretch's offset in the file */
    size_t size;         /* number of bytes requested for the stretch */
    struct reply answer; /* in READY: the answer, in `room` */
    uint8_t *room;       /* owned: memory for the answer, counted in `rooms`, or NULL */
    fuse_req_t waiting;  /* parked until the stretch is ready, or NULL */
    size_t waiting_size;
};

/* The open handles, protected by `lock`. */
struct handles {
    struct lock lock;
    LIST_HEAD(, handle) list;
    unsigned long changes; /* number of times that a handle was opened or closed */
};

/* Make a handle that owns an open file or directory (the other is NULL). If memory runs out, closes
 * it and returns NULL. */
struct handle *handle_open(struct handles *l, struct tree_file *file, struct shelf_dir *dir);
/* Call once for each handle, after its last request has been answered. */
void handle_close(struct handles *l, struct handle *h);

/* Return true if nothing is open and nothing has been opened or closed since *seen, an earlier
 * value of `changes` (0: since the beginning). *seen becomes the current value. */
bool handles_idle(struct handles *l, unsigned long *seen);
/* Close all remaining handles: at an unmount, the kernel does not wait for the daemon to read the
 * last release requests. Call after the last request. */
void handles_end(struct handles *l);

/* Answer a read of a file that needs no results, now or when the bytes are ready. */
void handle_read(struct handle *h, fuse_req_t req, uint64_t off, size_t size);
/* Read a file and reply; then the file may already be closed. Returns 0, or LIVE_PARKED if results
 * must be computed first: nothing was sent, and w->done() will be called. *mapped is set if the
 * answer was in a mapping. */
int answer_read(struct tree_file *f, fuse_req_t req, uint64_t off, size_t size, struct live_wait *w,
                bool *mapped);

#endif

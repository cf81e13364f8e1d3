/* SPDX-License-Identifier: MIT */
/*
 * The kernel's handles of open files and folders.
 *
 * The kernel sends the release of a handle when it has the replies to all other requests for it. Another
 * thread may serve the release while those that replied are still in their calls. So each request for a
 * handle uses it to the end of its call, and the handle is closed with its last use, by whichever thread.
 * The first use is the opening's, and a release drops that.
 *
 * At an unmount the kernel does not wait for its last releases to be read. Handles still in the
 * list after the session has ended are closed then, so that no written data is lost.
 *
 * Threads: any; handles_end() only after the last request.
 */
#ifndef MOUNT_HANDLES_H
#define MOUNT_HANDLES_H

#include <pthread.h>
#include <stdbool.h>

#include "base/lock.h"
#include "mount/reader.h"

/* One of the first two is set, and owned. All but what is protected is constant, and
 * other threads read it after handle_use() only. */
struct handle {
    struct reader *reader;
    struct shelf_dir *dir;
    struct passed *passed; /* passing.h; the caller's */
    struct lock listing;   /* protects what `dir` lists: one call after another */
    /* Protected by the list's lock: */
    unsigned uses;
    struct handle *prev, *next;
};

struct handles {
    pthread_mutex_t lock;
    struct handle *first;
    unsigned long changes; /* how often one was opened or closed */
};

#define HANDLES_INIT                      \
    {                                     \
        .lock = PTHREAD_MUTEX_INITIALIZER \
    }

/* A handle with one use. It owns the opened reader or folder. NULL: no memory, and that was closed. */
struct handle *handle_open(struct handles *l, struct reader *reader, struct shelf_dir *dir,
                           struct passed *passed);
/* Use a handle that is open. */
void handle_use(struct handles *l, struct handle *h);
/* Drop a use. With the last one the handle is closed, and what it had in `passed` is returned; else
 * NULL. */
struct passed *handle_drop(struct handles *l, struct handle *h);
/* True if nothing is open, and nothing was opened or closed since *seen, which becomes the count of
 * now (0: since the beginning). */
bool handles_idle(struct handles *l, unsigned long *seen);
/* Close all handles that are left. */
void handles_end(struct handles *l);

#endif

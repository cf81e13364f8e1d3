/* SPDX-License-Identifier: MIT */
/*
 * The files and folders that are open: what the kernel has handles of.
 *
 * At an unmount the kernel does not wait until its last releases are heard. What is still in the
 * list when the session has ended is closed then, so that nothing that was written is forgotten.
 *
 * Threads: any; handles_end() when no request is served any more.
 */
#ifndef MOUNT_HANDLES_H
#define MOUNT_HANDLES_H

#include <pthread.h>
#include <stdbool.h>

#include "mount/reader.h"

/* One of the two is set, and owned. */
struct handle {
    struct reader *reader;
    struct tree_dir *dir;
    struct handle *prev, *next; /* protected by the list's lock */
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

/* A handle of what was opened, which passes to it. NULL (no memory): it has been closed. */
struct handle *handle_open(struct handles *l, struct reader *reader, struct tree_dir *dir);
void handle_close(struct handles *l, struct handle *h);
/* True if nothing is open, and nothing was opened or closed since *seen, which becomes the count of
 * now (0: since the beginning). */
bool handles_idle(struct handles *l, unsigned long *seen);
/* Close all that are left. */
void handles_end(struct handles *l);

#endif

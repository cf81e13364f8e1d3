/* SPDX-License-Identifier: MIT */
/*
 * The kernel's handles of open files and folders.
 *
 * At an unmount the kernel does not wait for its last releases to be read. Handles still in the
 * list after the session has ended are closed then, so that no written data is lost.
 *
 * Threads: any; handles_end() only after the last request.
 */
#ifndef MOUNT_HANDLES_H
#define MOUNT_HANDLES_H

#include <stdbool.h>

#include "base/lock.h"
#include "mount/reader.h"

/* One of the first two is set, and owned. */
struct handle {
    struct reader *reader;
    struct shelf_dir *dir;
    bool writes;                /* it is an edit for as long as it is open */
    struct handle *prev, *next; /* protected by the list's lock */
};

struct handles {
    struct lock lock;
    struct handle *first;
    unsigned long changes; /* how often one was opened or closed */
    unsigned edits;        /* that have begun and not ended */
    bool closed;           /* there will be no more */
};

#define HANDLES_INIT      \
    {                     \
        .lock = LOCK_INIT \
    }

/* A handle, which owns the opened reader or folder, and an edit, if it writes. NULL: no memory, and these were closed. */
struct handle *handle_open(struct handles *l, struct reader *reader, struct shelf_dir *dir,
                           bool writes);
void handle_close(struct handles *l, struct handle *h);
/* True if nothing is open, and nothing was opened or closed since *seen, which becomes the count of
 * now (0: since the beginning). */
bool handles_idle(struct handles *l, unsigned long *seen);
/* An edit begins: false, if there are to be no more of them. It ends, or is that of a handle from then on. */
bool handles_edit(struct handles *l);
void handles_edited(struct handles *l);
/* No edit begins any more, if none has begun that has not ended. */
bool handles_no_edits(struct handles *l);
/* Close all handles that are left. */
void handles_end(struct handles *l);

#endif

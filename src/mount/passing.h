/* SPDX-License-Identifier: MIT */
/*
 * FUSE passthrough: the kernel answers reads of model.gguf from the model's file itself, with that
 * file's pages, and the daemon takes no part. It needs libfuse 3.17, Linux 6.9 and root; without
 * them everything is read through the daemon.
 *
 *     passing_begin(&p, connection);                       at the kernel's first request
 *     r = passing_open(&p, device, node, file, flags, &x); fi->backing_id = passing_id(x)
 *     passing_close(&p, device, x);                        when the handle is released
 *
 * The kernel demands that all open handles of a node agree: all are read through the daemon, or all
 * from one backing file. So the first handle of a node decides for those that are opened beside it.
 *
 * Threads: any; passing_begin() before the others.
 */
#ifndef MOUNT_PASSING_H
#define MOUNT_PASSING_H

#define FUSE_USE_VERSION 312
#include <fuse_lowlevel.h>

#include <stdatomic.h>

#include "base/lock.h"
#include "shelf/shelf.h"

enum { PASSING_BUCKETS = 64 };

struct passed; /* a node that is open */

struct passing {
    atomic_bool on;   /* the kernel has agreed, and has not said that this process may not */
    struct lock lock; /* protects what follows */
    bool logged;      /* the log says that it is in use */
    struct passed *bucket[PASSING_BUCKETS]; /* owned */
};

#define PASSING_INIT      \
    {                     \
        .lock = LOCK_INIT \
    }

/* True if this program was built with it. */
bool passing_built(void);
/* True if this process may use it, too, as far as is known before it is tried. */
bool passing_possible(void);
/* Ask the kernel for it, if it is possible. */
void passing_begin(struct passing *p, struct fuse_conn_info *conn);
/* A handle of a node is opened. device: the session's descriptor. *ret: NULL for all but model.gguf.
 * 0, -ENOMEM. */
int passing_open(struct passing *p, int device, uint64_t node, struct shelf_file *f, int flags,
                 struct passed **ret);
/* The backing file for the reply to open; 0: none. Good until the handle is closed. */
int passing_id(const struct passed *x);
/* x may be NULL. */
void passing_close(struct passing *p, int device, struct passed *x);
/* At the end, with handles that the kernel never released. */
void passing_free(struct passing *p);

#endif

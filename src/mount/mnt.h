/* SPDX-License-Identifier: MIT */
/*
 * A mount, and what the FUSE callbacks share: a struct mnt is the session's user data, each open file
 * or folder has a struct handle.
 *
 * Threads: any.
 */
#ifndef MOUNT_MNT_H
#define MOUNT_MNT_H

#define FUSE_USE_VERSION 312
#include <fuse_lowlevel.h>

#include <stdatomic.h>

#include "base/order.h"
#include "live/tensors.h"
#include "mount/control.h"
#include "mount/handles.h"
#include "mount/teller.h"
#include "shelf/shelf_file.h"

/* Seconds for which the kernel caches what never changes: longer than any mount lives. */
#define FOREVER 1e9

/*
 * Requests of a mount of a folder at a time: threads, and requests of the kernel ahead of programs. One
 * for a disk that does not answer keeps its place, and must hold up no others. (libfuse's 10 threads
 * and the kernel's 12 requests are soon used up.)
 */
#define MNT_FOLDER_REQUESTS 1000

struct mnt {
    struct shelf *shelf;
    struct handles handles;
    struct teller teller;
    struct control *control;
    int dead; /* to take the place of the session's descriptor: connection.h */
};

static inline struct mnt *mnt_of(fuse_req_t req)
{
    return fuse_req_userdata(req);
}

static inline struct shelf *shelf_of(fuse_req_t req)
{
    return mnt_of(req)->shelf;
}

/* The handle of a request, complete since the reply to its opening. */
static inline struct handle *handle_of(const struct fuse_file_info *fi)
{
    struct handle *h = (struct handle *)(uintptr_t)fi->fh;
    order_after(h);
    return h;
}

static inline struct reader *reader_of(const struct fuse_file_info *fi)
{
    return handle_of(fi)->reader;
}

static inline struct shelf_file *file_of(const struct fuse_file_info *fi)
{
    return reader_file(reader_of(fi));
}

/* How long attributes are cached. */
double mnt_timeout(const struct tree_entry *e);
struct fuse_entry_param mnt_entry(const struct tree_entry *e);
/* Reply with an entry, or with -r. */
void mnt_reply_entry(fuse_req_t req, int r, const struct tree_entry *e);
/* Fill in the handle of an open file, and how the kernel reads it. Takes ownership of `f`, and of an
 * edit if it writes: on -ENOMEM they are released. */
int mnt_fill_open(struct mnt *m, struct fuse_file_info *fi, struct shelf_file *f, bool writes);

#endif

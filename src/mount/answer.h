/* SPDX-License-Identifier: MIT */
/*
 * Answers to reads: the bytes of an open file, in scratch memory or where they are, and one reply;
 * at once, or when what they show is computed.
 *
 * Threads: any.
 */
#ifndef MOUNT_ANSWER_H
#define MOUNT_ANSWER_H

#define FUSE_USE_VERSION 312
#include <fuse_lowlevel.h>

#include "shelf/shelf_file.h"

/* What became of a read: replied to, with the bytes of a mapping, or not yet. */
enum answered { ANSWERED, ANSWERED_MAPPED, ANSWER_PARKED };

/*
 * Read and reply, but for a file that shelf_waits(): if what it shows is not computed yet, nothing is
 * replied and w->done() is called later (ANSWER_PARKED). The file is not used
 * after the reply: it may be closed then.
 */
enum answered answer_read(struct shelf_file *f, fuse_req_t req, uint64_t off, size_t size,
                          struct live_wait *w);
/* Reply with what was read, or with the error. */
void answer_reply(fuse_req_t req, int err, struct reply *a);

/* Read a file that shelf_waits(), and reply: now, or when the result is known. */
void answer_computed(struct shelf_file *f, fuse_req_t req, uint64_t off, size_t size);

/* Before a request waits that edits: a signal that is to stop its program reaches shelf_interrupt(), if it comes
 * first; answer_stopped() knows of all. */
void answer_interruptible(fuse_req_t req, struct shelf *s);
/* True if the program is to stop. */
bool answer_stopped(fuse_req_t req);

#endif

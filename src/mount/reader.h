/* SPDX-License-Identifier: MIT */
/*
 * Reads of an open file, and working ahead of a program that reads it in order.
 *
 * The kernel asks for the next stretch of a file when the program begins to use the last one, and
 * the program waits if the answer is late. So the thread that has answered a read goes on to make
 * (decode, or copy from the mapping) the stretch that will be asked for next. A request that comes
 * meanwhile is parked and answered by the same thread.
 *
 * A reader holds at most one stretch, and only plain bytes: no generation of the model is kept
 * alive by it. All readers together hold at most AHEAD_TOTAL bytes; one that has not read in order,
 * or has come to the end of the file, holds none.
 *
 * Threads: any; reader_close() once, after the last request has been answered.
 */
#ifndef MOUNT_READER_H
#define MOUNT_READER_H

#define FUSE_USE_VERSION 312
#include <fuse_lowlevel.h>

#include "tree/tree.h"

/* Bytes that are made ahead for all open files together. */
#define AHEAD_TOTAL ((size_t)64 << 20)

struct reader;

/* `file` passes to the reader on success. NULL: no memory. */
struct reader *reader_open(struct tree *t, struct tree_file *file);
void reader_close(struct reader *r);
struct tree_file *reader_file(const struct reader *r);

/*
 * Answer a read: exactly one reply, by this thread or by one that is at these bytes already. brief:
 * it may end before a byte that is missing.
 */
void reader_read(struct reader *r, fuse_req_t req, uint64_t off, size_t size, bool brief);

#endif

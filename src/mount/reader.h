/* SPDX-License-Identifier: MIT */
/*
 * Reads of an open file, and working ahead of a program that reads it in order.
 *
 * The kernel asks for the next stretch of a file when the program begins to use the last one, and
 * the program waits if the reply is late. So the thread that has answered a read decodes the stretch that
 * comes next. A request that arrives meanwhile is parked, and the same thread answers it. What needs no
 * decoding needs no preparation.
 *
 * A reader holds at most one stretch, and only plain bytes: it does not keep a snapshot of the
 * model alive. All readers together hold at most AHEAD_TOTAL bytes. A reader that has not read in
 * order, or has reached the end of the file, holds none.
 *
 * Threads: any; reader_close() once, after the last request has been answered.
 */
#ifndef MOUNT_READER_H
#define MOUNT_READER_H

#define FUSE_USE_VERSION 312
#include <fuse_lowlevel.h>

#include "shelf/shelf_file.h"

/* Limit on the bytes read ahead for all open files together. */
#define AHEAD_TOTAL ((size_t)64 << 20)

struct reader;

/* On success the reader owns `file`. NULL: no memory. */
struct reader *reader_open(struct shelf_file *file);
void reader_close(struct reader *r);
struct shelf_file *reader_file(const struct reader *r);

/* Answer a read: exactly one reply, by this thread, by the one that already prepares these bytes, or later. */
void reader_read(struct reader *r, fuse_req_t req, uint64_t off, size_t size);

#endif

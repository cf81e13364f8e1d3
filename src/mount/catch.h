/* SPDX-License-Identifier: MIT */
/*
 * Captures standard error. libfuse and fusermount3 write there why something failed. To report that
 * in one line, their output meanwhile goes to a file in memory.
 *
 * Threads: standard error belongs to the whole process; only before threads are started. catch_last()
 * from any.
 */
#ifndef MOUNT_CATCH_H
#define MOUNT_CATCH_H

#include <stddef.h>

struct caught {
    int stderr_fd; /* the real one, or -1: nothing is captured */
    int file;
};

struct caught catch_begin(void);
/* Restore standard error. dst gets the last line that was captured, as of catch_last(). */
void catch_end(struct caught *c, char *dst, size_t size);

/* The last line of such a file (-1: empty), without the writer's name and safe to print. */
void catch_last(int file, char *dst, size_t size);

#endif

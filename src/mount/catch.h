/* SPDX-License-Identifier: MIT */
/*
 * What others write to standard error, caught. libfuse and fusermount3 tell there why something
 * failed; for one line, ours, what they write meanwhile goes to a file in memory.
 *
 * Threads: standard error is the process's; only before threads are started.
 */
#ifndef MOUNT_CATCH_H
#define MOUNT_CATCH_H

#include <stddef.h>

struct caught {
    int stderr_fd; /* the real one, or -1: nothing is caught */
    int file;
};

struct caught catch_begin(void);
/* Give standard error back. The last line that was caught, without the name of who wrote it and safe
 * to print, or an empty one, into dst. */
void catch_end(struct caught *c, char *dst, size_t size);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * Calls that may hang, made by a process of their own: one that accesses a mount whose daemon does not
 * answer may not end before the daemon does.
 *
 * Threads: only before any are started (a process is forked).
 */
#ifndef MOUNT_ASIDE_H
#define MOUNT_ASIDE_H

#include "base/buf.h"

/* The most bytes of a result: a path. */
#define ASIDE_MOST 8192

/*
 * Call fn in another process, for at most some milliseconds. What it writes to `out` is appended to
 * *said, which may be NULL. What it returned (0..255), -ETIMEDOUT, -errno.
 */
int aside(int (*fn)(const void *arg, int out), const void *arg, int ms, struct buf *said);

#endif

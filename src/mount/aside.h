/* SPDX-License-Identifier: MIT */
/*
 * Calls that may hang, made by a process of their own: one that accesses a mount whose daemon does not
 * answer may not end before the daemon does.
 *
 * Threads: only before any are started (a process is forked).
 */
#ifndef MOUNT_ASIDE_H
#define MOUNT_ASIDE_H

#include <stdbool.h>

#include "base/buf.h"

/* The most bytes of a result: an extended attribute. */
#define ASIDE_MOST 65536

/*
 * Call fn in another process, for at most some milliseconds. What it writes to `out` is appended to
 * *said, which may be NULL. What it returned (0..255), -ETIMEDOUT, -errno.
 */
int aside(int (*fn)(const void *arg, int out), const void *arg, int ms, struct buf *said);
/*
 * The same for a call that may take any time: after each so many milliseconds `still` is asked, until
 * it returns false (-ETIMEDOUT). If this process ends first, the other one is interrupted (SIGINT).
 */
int aside_watched(int (*fn)(const void *arg, int out), const void *arg, int ms,
                  bool (*still)(const void *arg), struct buf *said);

#endif

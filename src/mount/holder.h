/* SPDX-License-Identifier: MIT */
/*
 * Which process holds the lock of a model that is to be mounted, and whether to wait for it.
 *
 *   a ggufs whose session has ended   is waited for: it writes what is pending, and ends
 *   one that is still being mounted,  is waited for a moment: it will serve, fail, or end
 *   whose mount is out of sight, or
 *   of another user (if not root's)
 *   one that serves a mount           keeps the lock
 *   anything else                     keeps the lock: another program, another user's process,
 *                                     another machine
 *
 * Threads: before any are started.
 */
#ifndef MOUNT_HOLDER_H
#define MOUNT_HOLDER_H

#include <stdbool.h>

#include "base/err.h"

/*
 * As struct tree_options.wait; `arg` is the model's name, for a line to standard error if this takes
 * longer than a second.
 */
bool holder_wait(void *arg, int dir, const char *name, bool busy, struct err *why);

#endif

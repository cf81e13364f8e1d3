/* SPDX-License-Identifier: MIT */
/*
 * Finds the process that holds the lock of a model to be mounted, and decides whether to wait for
 * it.
 *
 *   a ggufs whose session has ended   wait: it writes pending edits, and ends
 *   one that is still being mounted,  wait a moment: it will serve, fail, or end
 *   whose mount cannot be seen, or
 *   of another user (except root)
 *   one that serves a mount           do not wait
 *   anything else                     do not wait: another program, another user's process,
 *                                     another machine
 *
 * Threads: before any are started.
 */
#ifndef MOUNT_HOLDER_H
#define MOUNT_HOLDER_H

#include <stdbool.h>

#include "base/err.h"

/*
 * As struct tree_options.wait; `arg` is the model's name, for a line to standard error if this
 * takes longer than a second.
 */
bool holder_wait(void *arg, int dir, const char *name, bool busy, struct err *why);

#endif

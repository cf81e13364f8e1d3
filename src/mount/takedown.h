/* SPDX-License-Identifier: MIT */
/*
 * Mounts from outside of their daemon: whether it lives, and taking them down.
 *
 * Threads: only before any are started (processes are forked, standard error is caught).
 */
#ifndef MOUNT_TAKEDOWN_H
#define MOUNT_TAKEDOWN_H

#include <stdbool.h>

#include "base/err.h"

enum mount_life {
    MOUNT_ALIVE,
    MOUNT_DEAD,    /* its daemon has ended: all calls give ENOTCONN */
    MOUNT_UNKNOWN, /* no answer in time, or it is closed to this user */
};

/* Ask the file system at `at`, for at most some milliseconds: a process of its own asks, as the call
 * cannot be given up where a daemon hangs. */
enum mount_life mount_life(const char *at, int ms);

/* Unmount what is at `at`, a real path: as root, else by fusermount3. lazy: although it is in use.
 * 0, -EBUSY, -errno. */
int mount_take_down(const char *at, bool lazy, struct err *e);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * Find out if the daemon of a mount lives, and take mounts down.
 *
 * Threads: any.
 */
#ifndef MOUNT_TAKEDOWN_H
#define MOUNT_TAKEDOWN_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"

enum mount_life {
    MOUNT_ALIVE,
    MOUNT_DEAD,    /* its daemon has ended: all calls give ENOTCONN */
    MOUNT_UNKNOWN, /* no answer in time, or this user may not access it */
};

/* Probe the file system at `at`, for at most some milliseconds. A separate process makes the call,
 * which cannot be abandoned if a daemon hangs. */
enum mount_life mount_life(const char *at, int ms);

/* True if the list of mounts has this device, or cannot be read. */
bool mount_is_there(dev_t dev);

/* Unmount the mount at `at`, a real path: as root directly, else by fusermount3. lazy: even if it is in
 * use. 0, -EBUSY, -errno. */
int mount_take_down(const char *at, bool lazy, struct err *e);

#endif

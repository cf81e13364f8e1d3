/* SPDX-License-Identifier: MIT */
/*
 * -o auto_unmount: a small process that outlives the daemon and removes the dead mount if the
 * daemon is killed. (libfuse's own looks for the dead mount as root, which may not access the mount
 * of an ordinary user, and leaves it.)
 *
 *     int guard = -1;
 *     r = guard_begin(mountpoint, &guard, &e);   before there are threads, and much memory
 *     ... mount, serve, unmount ...
 *     guard_end(&guard);                         or the process ends, in any way
 *
 * The guard holds nothing but a socket, of which the daemon has the other end. When that is closed
 * it checks the mount point and unmounts a mount without a daemon.
 */
#ifndef MOUNT_GUARD_H
#define MOUNT_GUARD_H

#include "base/err.h"

/* Start the guard of a mount point, an absolute path. *ret: the socket. 0, -errno. */
int guard_begin(const char *mountpoint, int *ret, struct err *e);
/* Let the guard end, if one was started; *guard becomes -1. */
void guard_end(int *guard);

#endif

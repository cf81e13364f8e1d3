/* SPDX-License-Identifier: MIT */
/*
 * -o auto_unmount: a small process that outlives the daemon and unmounts what it leaves behind when
 * it is killed. (That of libfuse looks for the dead mount as root, to whom the mount of an ordinary
 * user is closed, and leaves it.)
 *
 *     int guard = -1;
 *     r = guard_begin(mountpoint, &guard, &e);   before there are threads, and much memory
 *     ... mount, serve, unmount ...
 *     guard_end(&guard);                         or the process ends, in any way
 *
 * The guard holds nothing but a socket, of which the daemon has the other end. When that is closed it
 * looks at the mount point: a mount there that nobody serves any more is unmounted.
 */
#ifndef MOUNT_GUARD_H
#define MOUNT_GUARD_H

#include "base/err.h"

/* Start the guard of a mount point, an absolute path. *ret: this process' end. 0, -errno. */
int guard_begin(const char *mountpoint, int *ret, struct err *e);
/* Let the guard go, if there is one; *guard becomes -1. */
void guard_end(int *guard);

#endif

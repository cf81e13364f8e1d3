/* SPDX-License-Identifier: MIT */
/*
 * Mount points: whether the daemon of a mount lives, how a mount is removed, and what a new one
 * needs.
 *
 * Threads: any, unless a call says otherwise.
 */
#ifndef MOUNT_SPOT_H
#define MOUNT_SPOT_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"

enum mount_life {
    MOUNT_ALIVE,
    MOUNT_DEAD,    /* its daemon has ended: all calls fail with ENOTCONN */
    MOUNT_UNKNOWN, /* no answer in time, or this user may not access it */
};

/*
 * Probe the file system at `at`, for at most some milliseconds. A separate process makes the call,
 * since it cannot be abandoned if a daemon hangs.
 */
enum mount_life mount_life(const char *at, int ms);

/* True if the list of mounts has this device, or cannot be read. */
bool mount_is_there(dev_t dev);

/*
 * Unmount the mount at `at`, a real path: directly as root, else with fusermount3. lazy: even if it is in use. 0,
 * -EBUSY, -errno.
 */
int mount_take_down(const char *at, bool lazy, struct err *e);

/*
 * -o auto_unmount: a small process that outlives the daemon and removes the dead mount if the
 * daemon is killed. (libfuse's own looks for the dead mount as root, which may not access the mount
 * of an ordinary user, and leaves it.) It holds one end of a socket; *ret is the daemon's end. When
 * that end is closed, however the daemon ends, the process checks the mount point, an absolute
 * path. Call this before any thread is started and much memory is allocated. 0, -errno.
 */
int guard_begin(const char *mountpoint, int *ret, struct err *e);

/* ---- a new mount ---- */

/*
 * Make *mountpoint (owned, replaced) a real path and check that a model can be mounted there: an
 * existing directory, neither with a ggufs on it nor inside one. A dead mount of ggufs on it is
 * removed first, with a line in the log. A file system that mount(8) has mounted (/dev/fd/N) is
 * accepted. 0, -errno with a line. Call before threads are started.
 */
int spot_prepare(char **mountpoint, struct err *e);

/*
 * The device of the mounted file system, found without accessing it, since this process would have
 * to reply and does not serve yet. `fd`: the session's descriptor. *mountpoint is replaced by the
 * real path if mount(8) has mounted it. 0: unknown. Call it before other programs can see the
 * mount, because the call keeps it busy for a moment.
 */
dev_t spot_device(char **mountpoint, int fd);

/*
 * A claim, held while the file system is being mounted: if several processes mount on one directory
 * at the same time, the others wait, and then see the mount of the first. Close *claim; -1: no
 * claim could be made. 0, or -errno with a line: a ggufs is mounted there now.
 */
int spot_claim(const char *mountpoint, int *claim, struct err *e);

#endif

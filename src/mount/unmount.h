/* SPDX-License-Identifier: MIT */
/*
 * Finds out whether the daemon of a mount of ggufs on this machine is alive, and removes mounts.
 * Implements --list and --unmount.
 *
 * Any thread may call these functions, except mnt_list() and mnt_unmount(), which must be called
 * before threads are started.
 */
#ifndef MOUNT_UNMOUNT_H
#define MOUNT_UNMOUNT_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"

enum mount_life {
    MOUNT_ALIVE,
    MOUNT_DEAD,    /* its daemon has ended: all calls fail with ENOTCONN */
    MOUNT_UNKNOWN, /* no answer in time, or this user may not access it */
};

/* Time limit in milliseconds for probing one mount or a whole list. */
#define MOUNT_ANSWER_MS 2000

/* Probe the file system at `at` for at most `ms` milliseconds. A separate process makes the call,
 * because a call cannot be abandoned if a daemon hangs. */
enum mount_life mount_life(const char *at, int ms);
/* Do the same in this process, waiting for as long as it takes. */
enum mount_life mount_ask(const char *at);

/* Return true if the list of mounts has this device or cannot be read. */
bool mount_is_there(dev_t dev);

/*
 * Unmount the mount at `at`, which is a real path: directly if run by root, otherwise with
 * fusermount3. With `lazy`, a mount that is in use is unmounted as well. Returns 0, -EBUSY or
 * another -errno.
 */
int mount_take_down(const char *at, bool lazy, struct err *e);

/*
 * Append a line that is safe to print for each mount, "MODEL on MOUNTPOINT, read-write, process
 * 12", or with `json` an array of objects. The entries in the list of mounts come first, in its
 * order; daemons without an entry follow, which are still writing or are mounted in another mount
 * namespace.
 *
 *     mountpoint, model   texts
 *     mode                "rw" or "ro"
 *     reason              why it is read-only; null if it is read-write or the reason is unknown
 *     pid of the daemon; null if it is not visible
 *     user                numeric id of the mount's owner; null if not known
 *     state               "alive"; "dead": the daemon was killed; "ending": unmounted but still
 *                         writing; "hidden": mounted elsewhere; "stopped": the daemon is;
 *                         "unknown": no answer in time, or it is another user's
 *
 * A mount is probed only if its daemon cannot be seen. All probes together take at most
 * MOUNT_ANSWER_MS milliseconds. Returns 0 or -errno.
 */
int mnt_list(bool json, struct buf *out, struct err *e);

/*
 * Write pending edits, unmount, and wait until the daemon has ended. (fusermount3 -u and umount(8)
 * return before that, and cannot report edits that could not be written.) Appends lines about edits
 * that are not in the file to `lost`, safe to print and each ending in a newline. Returns 0, or
 * -errno with either the daemon's error or the reason why it is still mounted.
 */
int mnt_unmount(const char *mountpoint, struct buf *lost, struct err *e);

#endif

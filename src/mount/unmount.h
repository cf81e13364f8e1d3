/* SPDX-License-Identifier: MIT */
/*
 * Mounts of ggufs on this machine: whether the daemon of one lives, how it is removed; --list and --unmount.
 *
 * Threads: any; mnt_list() and mnt_unmount() before threads are started.
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

/* Milliseconds for probing one mount, or a whole list. */
#define MOUNT_ANSWER_MS 2000

/*
 * Probe the file system at `at`, for at most some milliseconds. A separate process makes the call,
 * since it cannot be abandoned if a daemon hangs.
 */
enum mount_life mount_life(const char *at, int ms);
/* The same in this process, which waits for as long as it takes. */
enum mount_life mount_ask(const char *at);

/* True if the list of mounts has this device, or cannot be read. */
bool mount_is_there(dev_t dev);

/*
 * Unmount the mount at `at`, a real path: directly as root, else with fusermount3. lazy: even if it
 * is in use. Returns 0, -EBUSY or -errno.
 */
int mount_take_down(const char *at, bool lazy, struct err *e);

/*
 * Append a line for each mount, "MODEL on MOUNTPOINT, read-write, process 12", safe to print; or
 * with json an array of objects. Entries of the list of mounts come first, in its order; then
 * daemons without an entry: they are still writing, or are mounted in another mount namespace.
 *
 *     mountpoint, model   texts
 *     mode                "rw" or "ro"
 *     reason              why it is read-only; null if it is read-write, or unknown
 *     pid of the daemon; null if it is not visible
 *     user                number of the mount's owner; null if not known
 *     state               "alive"; "dead": the daemon was killed; "ending": it is unmounted and still
 *                         writing; "hidden": it is mounted elsewhere; "stopped": the daemon is;
 *                         "unknown": no answer in time, or another user's
 *
 * A mount is probed only if its daemon cannot be seen, and all of them together for at most
 * MOUNT_ANSWER_MS milliseconds. Returns 0 or -errno.
 */
int mnt_list(bool json, struct buf *out, struct err *e);

/*
 * Write pending edits, unmount, and wait until the daemon has ended: fusermount3 -u and umount(8)
 * return before that, and cannot report edits that could not be written. Lines about edits that are
 * not in the file are appended to `lost`, safe to print, each with its newline. Returns 0, or
 * -errno with the daemon's reason, or the reason why it is still mounted.
 */
int mnt_unmount(const char *mountpoint, struct buf *lost, struct err *e);

#endif

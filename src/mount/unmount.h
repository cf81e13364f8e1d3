/* SPDX-License-Identifier: MIT */
/*
 * Probes and removes ggufs mounts, and implements --list and --unmount. Call mnt_list() and
 * mnt_unmount() before threads are started.
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

/* Time limit in milliseconds for probing one mount or a whole list of mounts. */
#define MOUNT_ANSWER_MS 2000
/* Probe the file system at `at` for at most `ms` milliseconds, in a separate process, because a
 * call to a daemon that hangs cannot be abandoned. */
enum mount_life mount_life(const char *at, int ms);
/* Like mount_life(), but in this process and without a time limit. */
enum mount_life mount_ask(const char *at);

/* Return true if the list of mounts contains this device or cannot be read. */
bool mount_is_there(dev_t dev);

/* Unmount the mount at `at`, a real path: directly if run by root, otherwise with fusermount3. With
 * `lazy`, even a mount that is in use is unmounted. */
int mount_take_down(const char *at, bool lazy, struct err *e);

/*
 * Append a line for each mount, "MODEL on MOUNTPOINT, read-write, process 12", or with `json` an
 * array of objects. The mounts come first. Daemons without a mount here follow; they are still
 * writing, or their mount is in another mount namespace.
 *
 *     mountpoint, model   paths
 *     mode                "rw" or "ro"
 *     reason              why the mount is read-only; null if read-write or unknown
 *     pid                 the daemon's process; null if it is not visible
 *     user                numeric id of the mount's owner; null if unknown
 *     state               "alive"; "dead": the daemon was killed; "ending": unmounted but still
 *                         writing; "hidden": mounted elsewhere; "stopped": the daemon is stopped;
 *                         "unknown": no answer in time, or the mount is another user's
 *
 * A mount is probed only if its daemon cannot be seen.
 */
int mnt_list(bool json, struct buf *out, struct err *e);

/* Write pending edits, unmount, and wait until the daemon has ended. `lost` receives lines about
 * edits that are not in the file. Returns 0, or -errno with either the daemon's error or the reason
 * why the mount still exists. */
int mnt_unmount(const char *mountpoint, struct buf *lost, struct err *e);

#endif

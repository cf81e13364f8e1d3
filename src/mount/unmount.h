/* SPDX-License-Identifier: MIT */
/* Listing and unmounting the mounts of ggufs on this machine: --list, --unmount. Call before threads are started. */
#ifndef MOUNT_UNMOUNT_H
#define MOUNT_UNMOUNT_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/err.h"

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
 * ANSWER_MS milliseconds. 0, -errno.
 */
int mnt_list(bool json, struct buf *out, struct err *e);

/*
 * Write pending edits, unmount, wait until the daemon has ended: fusermount3 -u and umount(8)
 * return before that, and cannot report edits that could not be written. Lines about edits that are
 * not in the file go to `lost`, safe to print, each with its newline. 0, or -errno with the
 * daemon's reason, or the reason why it is still mounted.
 */
int mnt_unmount(const char *mountpoint, struct buf *lost, struct err *e);

#endif

/* SPDX-License-Identifier: MIT */
/* The mounts of ggufs on this machine: ggufs --list. */
#ifndef MOUNT_LIST_H
#define MOUNT_LIST_H

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
 *     pid                 of the daemon; null if it cannot be seen
 *     user                number of the mount's owner; null if not known
 *     state               "alive"; "dead": the daemon was killed; "ending": it is unmounted and still
 *                         writing; "hidden": it is mounted elsewhere; "stopped": the daemon is;
 *                         "unknown": no answer in time, or another user's
 *
 * A mount is probed only if its daemon cannot be seen, and all of them together for at most
 * LIST_ANSWER_MS milliseconds. 0, -errno. Call before threads are started.
 */
#define LIST_ANSWER_MS 2000
int mnt_list(bool json, struct buf *out, struct err *e);

#endif

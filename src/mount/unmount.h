/* SPDX-License-Identifier: MIT */
/*
 * Unmounting, and waiting for the daemon: fusermount3 -u and umount(8) return before the daemon has
 * ended, and know nothing of edits that could not be written. What the daemon says of itself
 * (daemon.h) is read through /proc when it has ended.
 */
#ifndef MOUNT_UNMOUNT_H
#define MOUNT_UNMOUNT_H

#include "base/buf.h"
#include "base/err.h"

/*
 * Write what is pending, unmount, wait until the daemon has ended. Lines about edits that are not in
 * the file go into `lost`, safe to print, each with its newline. 0, or -errno with the daemon's
 * reason or with why it is still mounted.
 */
int mnt_unmount(const char *mountpoint, struct buf *lost, struct err *e);

#endif

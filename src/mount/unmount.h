/* SPDX-License-Identifier: MIT */
/*
 * Unmounts, and waits for the daemon. fusermount3 -u and umount(8) return before the daemon has
 * ended, and cannot report edits that could not be written.
 */
#ifndef MOUNT_UNMOUNT_H
#define MOUNT_UNMOUNT_H

#include "base/buf.h"
#include "base/err.h"

/*
 * Write pending edits, unmount, wait until the daemon has ended. Lines about edits that are not in
 * the file go into `lost`, safe to print, each with its newline. 0, or -errno with the daemon's
 * reason, or the reason why it is still mounted.
 */
int mnt_unmount(const char *mountpoint, struct buf *lost, struct err *e);

#endif

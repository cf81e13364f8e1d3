/* SPDX-License-Identifier: MIT */
/*
 * Unmounting, and waiting for the daemon: fusermount3 -u and umount(8) return before the daemon has
 * ended, and know nothing of edits that could not be written.
 *
 * Who unmounts learns the daemon's process and where it will leave its last words from an extended
 * attribute of the mount's root, and reads them through /proc when it has ended.
 */
#ifndef MOUNT_UNMOUNT_H
#define MOUNT_UNMOUNT_H

#include <stddef.h>

#include "base/err.h"

/* The attribute: "PID FD". Not listed. */
#define DAEMON_XATTR "user.ggufs.daemon"
#define DAEMON_TEXT_MAX 32

/* In the daemon: a place for its last words, and the attribute's value. The descriptor, or -errno. */
int daemon_begin(char text[DAEMON_TEXT_MAX]);
/* In the daemon, before it ends: how it went (e->code 0: well). */
void daemon_end(int fd, const struct err *e);

/*
 * Write what is pending, unmount, wait until the daemon has ended. 0, or -errno with its words or
 * with why it is still mounted.
 */
int mnt_unmount(const char *mountpoint, struct err *e);

#endif

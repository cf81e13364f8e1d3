/* SPDX-License-Identifier: MIT */
/* Finds the processes that use a mount, without accessing the mount. */
#ifndef MOUNT_USERS_H
#define MOUNT_USERS_H

#include "shelf/mounts.h"

/*
 * Append "process 12 (bash), process 34 (vim) and 5 more", safe to print: processes with an open
 * file, a mapping, a working folder or a program there, if this process may see them; and mounts
 * inside of it. Appends nothing if it is not in use. Errors stay in the buf. Returns true if a use is
 * seen that is not by another process of this program: an --unmount has the mount open for a moment.
 */
bool mount_users(const struct mounts *ms, const struct mount *m, struct buf *out);

/*
 * The same of other mount namespaces in which a device is mounted: the processes in them that this one may see.
 * True if there are any, or if the kernel knows the device still.
 */
bool mount_lives_on(dev_t dev, struct buf *out);

#endif

/* SPDX-License-Identifier: MIT */
/* Which processes use a mount. Nothing is asked of the mount itself. */
#ifndef MOUNT_USERS_H
#define MOUNT_USERS_H

#include "mount/mounts.h"

/*
 * "process 12 (bash), process 34 (vim) and 5 more", safe to print: those that have an open file, a
 * mapping, a working folder or a program there, as far as this process may see them; and mounts
 * inside of it. Nothing if it is not in use. Errors stay in the buf.
 */
void mount_users(const struct mounts *ms, const struct mount *m, struct buf *out);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * The list of mounts as the kernel shows it (/proc/PID/mountinfo). Reading it asks no file system,
 * so that a mount that is dead or hangs does no harm.
 *
 * Threads: any; no state.
 */
#ifndef MOUNT_MOUNTS_H
#define MOUNT_MOUNTS_H

#include "base/buf.h"

/* A path in which white space and backslashes are octal escapes (\ooo), and back in its place. */
void path_escape(struct buf *out, const char *path);
void path_unescape(char *text);

#endif

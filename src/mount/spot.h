/* SPDX-License-Identifier: MIT */
/* Prepares a mount point. */
#ifndef MOUNT_SPOT_H
#define MOUNT_SPOT_H

#include <sys/types.h>

#include "base/err.h"

/*
 * Make *mountpoint (owned, replaced) a real path and check that a model can be mounted there: an
 * existing folder, neither with a ggufs on it nor inside of one. A dead mount of ggufs on it is
 * taken down first, with a line in the log. A file system that mount(8) has mounted (/dev/fd/N) is
 * accepted. 0, -errno with a line. Call before threads are started.
 */
int spot_prepare(char **mountpoint, struct err *e);

/*
 * The device of the file system that was mounted, found without accessing it: it is this process, which
 * does not reply yet. `fd`: the session's descriptor. *mountpoint is replaced by the real path if mount(8)
 * has mounted it. 0: not known. Call it before other programs can see the mount, because the call keeps
 * it busy for a moment.
 */
dev_t spot_device(char **mountpoint, int fd);

/*
 * A claim, held while the file system is being mounted: if several processes mount on one folder at
 * the same time, the others wait, and then see the mount of the first. Close *claim; -1: no claim
 * could be made. 0, or -errno with a line: a ggufs is mounted there now.
 */
int spot_claim(const char *mountpoint, int *claim, struct err *e);

#endif

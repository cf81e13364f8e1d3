/* SPDX-License-Identifier: MIT */
/* Runs a mount from beginning to end. */
#ifndef MOUNT_SESSION_H
#define MOUNT_SESSION_H

#include "mount/options.h"

/*
 * Mount o->model, become a daemon unless the options say otherwise, and serve until the mount is
 * unmounted or ended by SIGTERM, SIGINT or SIGHUP. The parent exits with 0 when the mount is live,
 * and does not return. Returns 0, or -errno with a message in *e and nothing mounted.
 *
 * While the mount exists, the daemon holds a shared flock(2) on the directory below the mount point,
 * until its process has ended.
 *
 * A signal is taken by a thread of its own, while the loop still serves: no edit begins any more,
 * conversions and computations are cut short, and pending edits are written. Only then the loop
 * ends, and once all requests are answered, the session is unmounted: libfuse closes the device
 * first, and a late reply would be written to whatever file got its number. At an unmount the loop
 * ends by itself; what was written and lacks only its release is judged then.
 */
int mnt_run(struct mnt_options *o, struct err *e);

#endif

/* SPDX-License-Identifier: MIT */
/* A mount from its beginning to its end. */
#ifndef MOUNT_SESSION_H
#define MOUNT_SESSION_H

#include "mount/options.h"

/*
 * Mount o->model, become a daemon unless the options say otherwise, and serve until unmounted or
 * ended by SIGTERM, SIGINT or SIGHUP. In the parent it does not return: the parent exits 0 when the
 * mount is live. 0, or -errno with a line in *e (nothing is mounted then).
 */
int mnt_run(struct mnt_options *o, struct err *e);

#endif

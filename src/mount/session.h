/* SPDX-License-Identifier: MIT */
/* Runs a mount from beginning to end. */
#ifndef MOUNT_SESSION_H
#define MOUNT_SESSION_H

#include "mount/options.h"

/*
 * Mount o->model, become a daemon unless the options say otherwise, and serve until the mount is
 * unmounted or ended by SIGTERM, SIGINT or SIGHUP. The parent does not return, but exits with 0
 * when the mount is live. Returns 0, or -errno with a message in *e, without a mount.
 */
int mnt_run(struct mnt_options *o, struct err *e);

/*
 * ---- the connection to the kernel ----
 *
 * Another thread replies to calls that wait for the disk, even after the session has ended. libfuse
 * writes the reply to the session's descriptor number. If that number were free, the next file to
 * be opened would get it, and a reply would overwrite the start of a model. So the end of a pipe
 * without a reader, at which replies fail, keeps the number in use until the last reply.
 *
 *     connection_reserve(&dead, &e);    before it is mounted: there may be no descriptor later
 *     connection_cut(se, &dead);        the loop has returned
 *     ... the last replies ...
 *     connection_end(se);
 *
 * The calls come from one thread; others may reply between the last two.
 */

/* *dead: the end of a pipe; owned. Returns 0 or -errno. */
int connection_reserve(int *dead, struct err *e);
/*
 * Make all of the kernel's requests fail from now on. *dead becomes -1. SIGPIPE must be ignored
 * (signals_begin()). Does not unmount. Returns true if the connection had not ended before.
 */
bool connection_cut(struct fuse_session *se, int *dead);
/* Destroy the session without unmounting: libfuse sees that the connection has ended. */
void connection_end(struct fuse_session *se);

#endif

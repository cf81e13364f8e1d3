/* SPDX-License-Identifier: MIT */
/* A mount from beginning to end. */
#ifndef MOUNT_SESSION_H
#define MOUNT_SESSION_H

#include "mount/options.h"

/*
 * Mount o->model, become a daemon unless the options say otherwise, and serve until unmounted or ended by SIGTERM,
 * SIGINT or SIGHUP. In the parent this does not return: it exits 0 once the mount is live. 0, or -errno with a line
 * in *e (nothing is mounted then).
 */
int mnt_run(struct mnt_options *o, struct err *e);

/*
 * ---- the connection to the kernel ----
 *
 * Calls that wait for the disk get their reply from another thread, even after the session has
 * ended. libfuse writes it to the session's descriptor number. If that number were free, the next
 * file that is opened would get it: a reply would overwrite the start of a model. So the number
 * stays in use until the last reply: by the end of a pipe without a reader, at which replies fail.
 *
 *     connection_reserve(&dead, &e);    before it is mounted: there may be no descriptor later
 *     connection_cut(se, &dead);        the loop has returned
 *     ... the last replies ...
 *     connection_end(se);
 *
 * The calls come from one thread; others may reply between the last two.
 */

/* *dead: the end of a pipe; owned. 0, -errno. */
int connection_reserve(int *dead, struct err *e);
/*
 * From here on all of the kernel's requests fail. *dead becomes -1. SIGPIPE must be ignored (signals_begin()). Does
 * not unmount. True if the connection had not ended before.
 */
bool connection_cut(struct fuse_session *se, int *dead);
/* Destroy the session. Does not unmount: libfuse sees that the connection has ended. */
void connection_end(struct fuse_session *se);

#endif

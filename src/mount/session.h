/* SPDX-License-Identifier: MIT */
/* Runs a mount from beginning to end. */
#ifndef MOUNT_SESSION_H
#define MOUNT_SESSION_H

#include "mount/options.h"

/*
 * Mount o->model, become a daemon unless the options say otherwise, and serve until the mount is
 * unmounted or ended by SIGTERM, SIGINT or SIGHUP. The parent exits with 0 when the mount is live,
 * and does not return. Returns 0, or -errno with a message in *e and nothing mounted.
 */
int mnt_run(struct mnt_options *o, struct err *e);

/*
 * ---- the connection to the kernel ----
 *
 * Calls that wait for the disk are answered even after the session has ended. libfuse writes the
 * reply to the session's descriptor number. If that number were free, the next file to be opened
 * would get it, and a reply could overwrite the start of a model. So the write end of a pipe
 * without a reader keeps the number in use until the last reply; any reply written to the pipe
 * fails.
 *
 *     connection_reserve(&dead, &e);    before mounting: later, no descriptor may be free
 *     connection_cut(se, &dead);        the loop has returned
 *     ... the last replies ...
 *     connection_end(se);
 */

/* Set *dead to the write end of a pipe without a reader (caller-owned). Returns 0 or -errno. */
int connection_reserve(int *dead, struct err *e);
/* Make all of the kernel's requests fail from now on, without unmounting. *dead becomes -1. SIGPIPE
 * must be ignored (signals_begin()). Returns true if the connection had not already ended. */
bool connection_cut(struct fuse_session *se, int *dead);
/* Destroy the session. libfuse does not unmount, because it sees that the connection has ended. */
void connection_end(struct fuse_session *se);

#endif

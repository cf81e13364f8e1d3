/* SPDX-License-Identifier: MIT */
/*
 * A session's connection to the kernel: its first exchange, the size of requests, how it ends.
 *
 * Calls that wait for the disk get their reply from another thread, also after the session has ended.
 * libfuse writes it to the number of the session's descriptor. If that number were free, the next
 * file that is opened would get it: a reply would overwrite the start of a model. So the number keeps
 * a descriptor until the last reply: the end of a pipe that nobody reads, at which replies fail.
 *
 *     connection_reserve(&dead, &e);    before it is mounted: there may be no descriptor later
 *     connection_cut(se, &dead);        the loop has returned
 *     ... the last replies ...
 *     connection_end(se);
 *
 * Threads: the calls come from one thread; others may reply between the last two.
 */
#ifndef MOUNT_CONNECTION_H
#define MOUNT_CONNECTION_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"

struct fuse_session;

/* *dead: the end of a pipe; owned. 0, -errno. */
int connection_reserve(int *dead, struct err *e);
/*
 * All requests of the kernel fail from here on. *dead becomes -1. SIGPIPE must be ignored
 * (signals_begin()). It unmounts nothing. True if the connection had not ended before.
 */
bool connection_cut(struct fuse_session *se, int *dead);
/* Destroy the session. It unmounts nothing: libfuse sees that the connection has ended. */
void connection_end(struct fuse_session *se);

/* ---- the first exchange ---- */

/*
 * Answer the kernel's first request, which negotiates the protocol. By one thread, before any other
 * request is answered.
 */
void first_exchange(struct fuse_session *se);

/* ---- readahead of the kernel ---- */

/*
 * The kernel's readahead on a mount: the size of its requests when a file is read in order. FUSE
 * mounts get 128 KiB. With 1 MiB a request carries eight times as much, and sequential reads cost
 * about half. It is set through /sys/class/bdi, which root may write.
 *
 * Set it if the process may, else do nothing. Call it after the first exchange with the kernel,
 * which lowers an earlier setting.
 */
void readahead_set(dev_t dev, unsigned kib);

#endif

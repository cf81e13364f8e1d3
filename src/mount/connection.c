/* SPDX-License-Identifier: MIT */
/* How a connection to the kernel ends: see connection.h. */
#include "mount/connection.h"

#define FUSE_USE_VERSION 312
#include <fuse_lowlevel.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

int connection_reserve(int *dead, struct err *e)
{
    int end[2];
    *dead = -1;
    if (pipe2(end, O_CLOEXEC) < 0)
        return err_set(e, -errno, "cannot make a pipe: %s", strerror(errno));
    (void)close(end[0]);
    *dead = end[1];
    return 0;
}

bool connection_cut(struct fuse_session *se, int *dead)
{
    struct pollfd p = {.fd = fuse_session_fd(se)};
    bool lived = poll(&p, 1, 0) <= 0; /* a signal interrupts it if there is nothing to report */
    fuse_session_exit(se); /* libfuse's loop takes that back; it logs no reply that fails */
    while (dup3(*dead, fuse_session_fd(se), O_CLOEXEC) < 0 && (errno == EINTR || errno == EBUSY))
        ;
    (void)close(*dead);
    *dead = -1;
    return lived;
}

/* libfuse polls its descriptor: an error, as of a pipe that nobody reads, is an ended connection. */
void connection_end(struct fuse_session *se)
{
    fuse_session_unmount(se);
    fuse_session_destroy(se);
}

/* SPDX-License-Identifier: MIT */
/* The connection to the kernel: see connection.h. */
#include "mount/connection.h"

#define FUSE_USE_VERSION 312
#include <fuse_lowlevel.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/sysmacros.h>
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

/* ---- the first exchange ---- */

/*
 * Older libfuse (3.14) offers FUSE_CAP_PARALLEL_DIROPS, and does not pass it on. Without it the kernel
 * sends one lookup or listing of a folder at a time, so that a name on a disk that does not answer
 * holds up its whole folder. So the answer is caught on its way to the kernel, and the flag added.
 */

/* Have the session write to a socket; its end is returned, and *real is the kernel's. -1: it does not. */
static int catch_answer(struct fuse_session *se, int *real)
{
    int end[2];
    *real = fcntl(fuse_session_fd(se), F_DUPFD_CLOEXEC, 0);
    if (*real < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, end) < 0)
        return -1;
    int r = dup3(end[1], fuse_session_fd(se), O_CLOEXEC);
    (void)close(end[1]);
    if (r >= 0)
        return end[0];
    (void)close(end[0]);
    return -1;
}

/* Add the flag to an answer of so many bytes, if it is one. */
static void allow_parallel(char *answer, size_t n)
{
    struct fuse_out_header head;
    uint32_t flags;
    const size_t at = sizeof(head) + offsetof(struct fuse_init_out, flags);
    if (n < at + sizeof(flags))
        return;
    memcpy(&head, answer, sizeof(head));
    if (head.error)
        return;
    memcpy(&flags, answer + at, sizeof(flags));
    flags |= FUSE_PARALLEL_DIROPS;
    memcpy(answer + at, &flags, sizeof(flags));
}

void first_exchange(struct fuse_session *se)
{
    struct fuse_buf buf = {.mem = NULL};
    char answer[256];
    int real, caught = -1;
    ssize_t n = 0;
    if (fuse_session_receive_buf(se, &buf) > 0) {
        caught = catch_answer(se, &real);
        fuse_session_process_buf(se, &buf);
        if (caught >= 0) {
            n = recv(caught, answer, sizeof(answer), MSG_DONTWAIT);
            (void)dup3(real, fuse_session_fd(se), O_CLOEXEC);
            (void)close(caught);
        }
        if (n > 0) {
            allow_parallel(answer, (size_t)n);
            n = write(real, answer, (size_t)n);
        }
        if (real >= 0)
            (void)close(real);
    }
    free(buf.mem);
}

/* ---- readahead of the kernel ---- */

void readahead_set(dev_t dev, unsigned kib)
{
    char path[64], value[16];
    (void)snprintf(path, sizeof(path), "/sys/class/bdi/%u:%u/read_ahead_kb", major(dev),
                   minor(dev));
    int n = snprintf(value, sizeof(value), "%u", kib);
    int fd = dev ? open(path, O_WRONLY | O_CLOEXEC) : -1;
    if (fd < 0)
        return;
    ssize_t ignored = write(fd, value, (size_t)n);
    (void)ignored;
    (void)close(fd);
}

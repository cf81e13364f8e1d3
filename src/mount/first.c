/* SPDX-License-Identifier: MIT */
/*
 * The first exchange: see first.h.
 *
 * Older libfuse (3.14) offers FUSE_CAP_PARALLEL_DIROPS, and does not pass it on. Without it the kernel
 * sends one lookup or listing of a folder at a time, so that a name on a disk that does not answer
 * holds up its whole folder. So the answer is caught on its way to the kernel, and the flag added.
 */
#include "mount/mnt.h"

#include "mount/first.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

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

/* SPDX-License-Identifier: MIT */
/*
 * Preloaded into a program, this library makes reads of kernel requests after an unmount fail with
 * ECONNABORTED instead of ENODEV. The kernel does this if an unmount comes while a request is being
 * read, which a test cannot arrange.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

static ssize_t aborted(ssize_t n)
{
    if (n < 0 && errno == ENODEV)
        errno = ECONNABORTED;
    return n;
}

ssize_t read(int fd, void *dst, size_t n)
{
    return aborted(syscall(SYS_read, fd, dst, n));
}

ssize_t splice(int from, off64_t *from_off, int to, off64_t *to_off, size_t n, unsigned flags)
{
    return aborted(syscall(SYS_splice, from, from_off, to, to_off, n, flags));
}

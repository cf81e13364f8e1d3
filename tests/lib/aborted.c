/* SPDX-License-Identifier: MIT */
/*
 * Preloaded into the program: after the file system has been unmounted, reads of kernel requests
 * fail with ECONNABORTED instead of ENODEV. The kernel does this to a reader caught in the middle
 * of taking a request, which a test cannot arrange.
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

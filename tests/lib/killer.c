/* SPDX-License-Identifier: MIT */
/*
 * Preloaded into a program, this library kills the program before a chosen system call that changes
 * files. KILL_AT names a file that contains a number n. Once the file exists, such calls are
 * counted, and SIGKILL ends the program before the n-th one. If the file contains a second number,
 * an errno, the n-th call fails with that error instead, and the file is removed.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Number of calls left; negative if not yet known. */
static atomic_long left = -1;
static atomic_int failure; /* errno to return; 0: kill the program */

static long read_number(void)
{
    char text[32] = "";
    const char *name = getenv("KILL_AT");
    int fd = name ? (int)syscall(SYS_openat, AT_FDCWD, name, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0)
        return -1;
    (void)!read(fd, text, sizeof(text) - 1);
    (void)close(fd);
    char *end;
    long n = strtol(text, &end, 10);
    atomic_store(&failure, (int)strtol(end, NULL, 10));
    return n;
}

/* True if this call must fail. */
static bool step(void)
{
    long none = -1;
    if (atomic_load(&left) < 0) {
        long n = read_number();
        if (n <= 0)
            return false;
        (void)atomic_compare_exchange_strong(&left, &none, n);
    }
    if (atomic_load(&left) <= 0 || atomic_fetch_sub(&left, 1) != 1)
        return false;
    if (atomic_load(&failure)) {
        (void)syscall(SYS_unlinkat, AT_FDCWD, getenv("KILL_AT"), 0);
        errno = atomic_load(&failure);
        return true;
    }
    (void)kill(getpid(), SIGKILL);
    for (;;)
        (void)pause();
}

/* Define a call that may fail, or end the program. */
#define CALL(type, name, params, ...)      \
    type name params                       \
    {                                      \
        if (step())                        \
            return -1;                     \
        return (type)syscall(__VA_ARGS__); \
    }

CALL(ssize_t, pwrite, (int fd, const void *src, size_t n, off_t off), SYS_pwrite64, fd, src, n, off)
CALL(int, ftruncate, (int fd, off_t size), SYS_ftruncate, fd, size)
CALL(int, fsync, (int fd), SYS_fsync, fd)
CALL(ssize_t, copy_file_range,
     (int from, off64_t *from_off, int to, off64_t *to_off, size_t n, unsigned flags),
     SYS_copy_file_range, from, from_off, to, to_off, n, flags)
CALL(int, fchmod, (int fd, mode_t mode), SYS_fchmod, fd, mode)
CALL(int, renameat2, (int dir, const char *from, int into, const char *to, unsigned flags),
     SYS_renameat2, dir, from, into, to, flags)
CALL(int, linkat, (int from, const char *name, int dir, const char *to, int flags), SYS_linkat,
     from, name, dir, to, flags)
CALL(int, unlinkat, (int dir, const char *name, int flags), SYS_unlinkat, dir, name, flags)

int ioctl(int fd, unsigned long what, ...)
{
    va_list more;
    va_start(more, what);
    void *arg = va_arg(more, void *);
    va_end(more);
    if (step())
        return -1;
    return (int)syscall(SYS_ioctl, fd, what, arg);
}

int openat(int dir, const char *name, int flags, ...)
{
    va_list more;
    va_start(more, flags);
    unsigned mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, unsigned) : 0;
    va_end(more);
    if (flags & O_CREAT && step())
        return -1;
    return (int)syscall(SYS_openat, dir, name, flags, mode);
}

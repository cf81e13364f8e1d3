/* SPDX-License-Identifier: MIT */
/*
 * Preloaded into a program, this library puts a gate before each copy of data, so that tests
 * control how long a copy takes. GATE names a FIFO: copy_file_range() waits until a process has
 * opened the FIFO for writing and closed it again, and does not wait if there is no FIFO. GATE_FREE
 * does the same for munmap() of LARGE bytes or more, which releases a replaced model file;
 * GATE_ACCESS for faccessat(), which opening a model begins with.
 *
 * GATE_CLOCK names a file with a number of milliseconds: CLOCK_MONOTONIC shows that time, counted
 * from a base that no machine ever reaches, so no timed wait ends by itself.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define LARGE ((size_t)32 << 20)
#define BEGIN 1000000000 /* seconds */

static void pass(const char *gate)
{
    char byte;
    int fd = gate ? open(gate, O_RDONLY | O_CLOEXEC) : -1;
    if (fd >= 0) {
        (void)!read(fd, &byte, 1);
        (void)close(fd);
    }
}

int munmap(void *at, size_t n)
{
    if (n >= LARGE)
        pass(getenv("GATE_FREE"));
    return (int)syscall(SYS_munmap, at, n);
}

int faccessat(int dir, const char *name, int mode, int flags)
{
    pass(getenv("GATE_ACCESS"));
    return (int)syscall(SYS_faccessat2, dir, name, mode, flags);
}

ssize_t copy_file_range(int from, off64_t *from_off, int to, off64_t *to_off, size_t n,
                        unsigned flags)
{
    pass(getenv("GATE"));
    return syscall(SYS_copy_file_range, from, from_off, to, to_off, n, flags);
}

int clock_gettime(clockid_t clock, struct timespec *ret)
{
    char text[32] = "";
    const char *name = clock == CLOCK_MONOTONIC ? getenv("GATE_CLOCK") : NULL;
    int fd = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0)
        return (int)syscall(SYS_clock_gettime, clock, ret);
    (void)!read(fd, text, sizeof(text) - 1);
    (void)close(fd);
    long ms = strtol(text, NULL, 10);
    *ret = (struct timespec){BEGIN + ms / 1000, ms % 1000 * 1000000};
    return 0;
}

/* SPDX-License-Identifier: MIT */
/*
 * Preloaded into the program, a gate before each copy of data: GATE names a FIFO, at which
 * copy_file_range() waits until somebody has opened it for writing and closed it again. Without
 * the FIFO it does not wait. So a test decides how long a copy takes. GATE_FREE is the same for
 * munmap() of LARGE bytes or more, by which a model file that was replaced is let go of.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LARGE ((size_t)64 << 20)

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

ssize_t copy_file_range(int from, off64_t *from_off, int to, off64_t *to_off, size_t n,
                        unsigned flags)
{
    pass(getenv("GATE"));
    return syscall(SYS_copy_file_range, from, from_off, to, to_off, n, flags);
}

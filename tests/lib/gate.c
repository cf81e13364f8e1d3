/* SPDX-License-Identifier: MIT */
/*
 * Preloaded into the program, a gate before each copy of data: GATE names a FIFO, at which
 * copy_file_range() waits until somebody has opened it for writing and closed it again. Without
 * the FIFO it does not wait. So a test decides how long a copy takes.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

ssize_t copy_file_range(int from, off64_t *from_off, int to, off64_t *to_off, size_t n,
                        unsigned flags)
{
    char byte;
    const char *gate = getenv("GATE");
    int fd = gate ? open(gate, O_RDONLY | O_CLOEXEC) : -1;
    if (fd >= 0) {
        (void)!read(fd, &byte, 1);
        (void)close(fd);
    }
    return syscall(SYS_copy_file_range, from, from_off, to, to_off, n, flags);
}

/* SPDX-License-Identifier: MIT */
/* The kernel's readahead on a mount: see readahead.h. */
#include "mount/readahead.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/sysmacros.h>
#include <unistd.h>

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

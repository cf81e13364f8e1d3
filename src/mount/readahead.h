/* SPDX-License-Identifier: MIT */
/*
 * The kernel's readahead on a mount: the size of its requests when a file is read in order. FUSE
 * mounts get 128 KiB. With 1 MiB a request carries eight times as much, and sequential reads cost
 * about half. It is set through /sys/class/bdi, which root may write.
 */
#ifndef MOUNT_READAHEAD_H
#define MOUNT_READAHEAD_H

#include <sys/types.h>

/* The default, if the process may set it. */
#define READAHEAD_DEFAULT_KIB 1024

/*
 * The device number of a new mount, found without accessing its file system (which is this process,
 * and does not reply yet). 0: unknown. Call it before other programs can see the mount, because the
 * call keeps it busy for a moment.
 */
dev_t readahead_device(const char *mountpoint);

/*
 * Set it if the process may, else do nothing. Call it after the first exchange with the kernel,
 * which lowers an earlier setting.
 */
void readahead_set(dev_t dev, unsigned kib);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * The kernel's readahead on a mount: the size of its requests when a file is read in order. FUSE
 * mounts get 128 KiB. With 1 MiB a request carries eight times as much, and sequential reads cost
 * about half. It is set through /sys/class/bdi, which root may write.
 */
#ifndef MOUNT_READAHEAD_H
#define MOUNT_READAHEAD_H

#include <sys/types.h>

/*
 * Set it if the process may, else do nothing. Call it after the first exchange with the kernel,
 * which lowers an earlier setting.
 */
void readahead_set(dev_t dev, unsigned kib);

#endif

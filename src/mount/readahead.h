/* SPDX-License-Identifier: MIT */
/*
 * The kernel's readahead on a mount: how much it asks for at a time when a file is read in order.
 * FUSE mounts get 128 KiB; with 1 MiB a request carries eight times as much, and sequential reads
 * are about half as dear. It is set through /sys/class/bdi, which root may write.
 */
#ifndef MOUNT_READAHEAD_H
#define MOUNT_READAHEAD_H

#include <sys/types.h>

/* What is set when nothing is asked for, if the process may. */
#define READAHEAD_DEFAULT_KIB 1024

/*
 * The device number of a fresh mount, found without asking its file system (which is this process,
 * and does not answer yet). 0 if it cannot be told. Before anybody can know of the mount: looking
 * at it keeps it busy for a moment.
 */
dev_t readahead_device(const char *mountpoint);

/*
 * Set it, where the process may; elsewhere nothing happens. After the first exchange with the
 * kernel, at which it lowers what was set before.
 */
void readahead_set(dev_t dev, unsigned kib);

#endif

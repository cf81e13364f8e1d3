/* SPDX-License-Identifier: MIT */
/*
 * The kernel's readahead on a mount: how much it asks for at a time when a file is read in order.
 * FUSE mounts get 128 KiB; with 1 MiB a request carries eight times as much, and sequential reads
 * are about half as dear. It is set through /sys/class/bdi, which root may write.
 */
#ifndef MOUNT_READAHEAD_H
#define MOUNT_READAHEAD_H

/* What is set when nothing is asked for, if the process may. */
#define READAHEAD_DEFAULT_KIB 1024

/*
 * Start to set it on a mount that is about to be served: the kernel lowers what is set before the
 * file system's first answer, so this waits, in a thread of its own, until the mount answers.
 * `mountpoint` is an absolute path, good until readahead_end(). Where the process may not, nothing
 * happens. Call readahead_end() after the
 * mount has ended.
 */
struct readahead;
struct readahead *readahead_begin(const char *mountpoint, unsigned kib);
void readahead_end(struct readahead *r);

#endif

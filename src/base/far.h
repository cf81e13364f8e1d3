/* SPDX-License-Identifier: MIT */
/*
 * Reading a mapped file of another machine: no more than is asked for, in large pieces, and ahead of
 * programs that read in order.
 *
 * Where a page is touched, the kernel fetches its readahead around it, which may be set to many MiB.
 * Where the bytes have to travel, the mapping is therefore marked as read at random, and the pages
 * that a read needs are asked for before they are touched. On disks of this machine the kernel's way
 * is kept.
 */
#ifndef BASE_FAR_H
#define BASE_FAR_H

#include <stdbool.h>
#include <stdint.h>

#include "base/map.h"
#include "base/runs.h"

/* Bytes that are fetched ahead, at most. */
#define FAR_AHEAD ((uint64_t)2 << 20)

/*
 * True if the file is served by another machine, or by a process that may be in touch with one: NFS,
 * SMB, 9p, Ceph, FUSE and others by the type of the file system. Also if that type cannot be found.
 */
bool far_file(int fd);
/* Have exactly what pread(2) asks for read from fd, or what the kernel finds right. */
void far_exact(int fd, bool exact);

/* For a mapping of a file that is far: what is read of it in order. */
void far_init(struct runs *r, const struct map *m);

/*
 * Note a read of bytes [off, off + n) of a part that ends at `end`, and ask the kernel for the pages,
 * of these or of more. Does not wait for them. Any thread.
 */
void far_want(struct runs *r, const struct map *m, uint64_t off, uint64_t n, uint64_t end);

#endif

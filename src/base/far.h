/* SPDX-License-Identifier: MIT */
/*
 * Reading a mapped file that lies on another machine: no more than is asked for, in large pieces, and ahead of
 * programs that read in order.
 *
 * When a page is touched, the kernel also fetches the readahead around it, which may be many MiB. Where the bytes
 * have to travel, the mapping is therefore marked as read at random, and the pages that a read needs are asked for
 * before they are touched. For local disks the kernel's default is kept.
 */
#ifndef BASE_FAR_H
#define BASE_FAR_H

#include <stdbool.h>
#include <stdint.h>

#include <stdatomic.h>

#include "base/map.h"

/* The most that is fetched ahead, in bytes. */
#define FAR_AHEAD ((uint64_t)2 << 20)

/*
 * True if the file is served by another machine, or by a process that may be in touch with one: NFS, SMB, 9p, Ceph,
 * FUSE and others, by the type of the file system. Also true if that type cannot be found.
 */
bool far_file(int fd);
/* Read from fd exactly what pread(2) asks for, or (false) as much as the kernel chooses. */
void far_exact(int fd, bool exact);

/* A mapping that is read in order. Where threads overtake each other, less is fetched ahead. */
struct far_run {
    atomic_uint_least64_t next; /* the furthest end of a read */
    atomic_uint_least64_t have; /* bytes read in order up to there */
    atomic_uint_least64_t upto; /* the end of what was asked for */
};

/* For a mapping of a far file. */
void far_init(const struct map *m);

/*
 * Announce a read of bytes [off, off + n), in a part that ends at `end`: ask the kernel for these pages and, after
 * reads in order, for as much again as was read, at most FAR_AHEAD, within the same part. Does not wait for them. Any
 * thread. Returns the end of what was asked for.
 */
uint64_t far_want(struct far_run *r, const struct map *m, uint64_t off, uint64_t n, uint64_t end);

#endif

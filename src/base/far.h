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

#include <stdatomic.h>

#include "base/map.h"

/* Bytes that are fetched ahead, at most. */
#define FAR_AHEAD ((uint64_t)2 << 20)

/*
 * True if the file is served by another machine, or by a process that may be in touch with one: NFS,
 * SMB, 9p, Ceph, FUSE and others by the type of the file system. Also if that type cannot be found.
 */
bool far_file(int fd);
/* Have exactly what pread(2) asks for read from fd, or what the kernel finds right. */
void far_exact(int fd, bool exact);

/* What is read of a mapping in order. Where threads overtake each other, less is fetched ahead. */
struct far_run {
    atomic_uint_least64_t next; /* the furthest end of a read */
    atomic_uint_least64_t have; /* bytes that were read in order up to there */
    atomic_uint_least64_t upto; /* the end of what was asked for */
};

/* For a mapping of a file that is far. */
void far_init(const struct map *m);

/*
 * A read of bytes [off, off + n) of a part that ends at `end` follows: ask the kernel for these pages, and,
 * behind reads in order, for as much more as was read, at most FAR_AHEAD, of the same part. Does not wait
 * for them. Any thread. Returns the end of what was asked for.
 */
uint64_t far_want(struct far_run *r, const struct map *m, uint64_t off, uint64_t n, uint64_t end);

#endif

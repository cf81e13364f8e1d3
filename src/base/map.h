/* SPDX-License-Identifier: MIT */
/*
 * A file mapped for reading, and a guard for code that reads from a mapping.
 *
 * A mapped page can disappear because the file is truncated or the medium fails. Reading it then
 * raises SIGBUS. Code that reads mapped bytes therefore runs under map_guard(), which turns the
 * signal into -EIO. If the file now ends within a page, the rest of that page reads as zeros,
 * without a signal, so call map_check() after the read to find out whether the bytes still existed.
 *
 * System calls that take a mapped buffer (writev) fail with EFAULT and need no guard.
 */
#ifndef BASE_MAP_H
#define BASE_MAP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct map {
    int fd;              /* not owned */
    const uint8_t *data; /* NULL when size is 0 */
    uint64_t size;       /* bytes mapped */
};

/* Map the first `size` bytes of fd, read-only and shared. Returns 0, or the -errno of mmap(2). */
int map_open(struct map *m, int fd, uint64_t size);
void map_close(struct map *m);

/* Return 0 if the file still has its first `end` bytes, otherwise -EIO. */
int map_check(const struct map *m, uint64_t end);

/*
 * Run fn(arg), which may read mapped pages. If a page has disappeared, fn is abandoned midway, so
 * it must not allocate or lock, directly or indirectly. Returns the result of fn, or -EIO. Guards
 * must not be nested. Any thread that does not block SIGBUS may call this.
 */
int map_guard(int (*fn)(void *arg), void *arg);

/* Copy like memcpy(), but under map_guard(), because pages of both buffers may have disappeared.
 * Returns 0 or -EIO. */
int map_copy(void *dst, const void *src, size_t n);

/* Install the SIGBUS handler that map_guard() needs, once per process. Returns 0 or -errno. */
int map_guard_init(void);

/*
 * ---- files on other machines ----
 *
 * When a page is touched, the kernel also fetches the readahead around it, which may be many MiB.
 * Where the bytes come over a network, the mapping is therefore marked as read at random, and the
 * pages that a read needs are requested before they are touched. So only requested bytes are read,
 * in large pieces, and ahead of programs that read in order. For local disks the kernel's default
 * is kept.
 */

/* Limit on the bytes fetched ahead. */
#define FAR_AHEAD ((uint64_t)2 << 20)

/*
 * Return true if the file system's type shows that the file is served by another machine or by a
 * process that may contact one (NFS, SMB, 9p, Ceph, FUSE and others), or if that type cannot be
 * found.
 */
bool far_file(int fd);
/* Make reads of fd fetch exactly what pread(2) asks for or, if `exact` is false, as much as the
 * kernel chooses. */
void far_exact(int fd, bool exact);

/* The state of a mapping that is read in order. If threads overtake each other, less is fetched
 * ahead. */
struct far_run {
    atomic_uint_least64_t next; /* the highest end of any read so far */
    atomic_uint_least64_t have; /* number of bytes read in order up to `next` */
    atomic_uint_least64_t upto; /* the end of the requested bytes */
};

/* Prepare the mapping of a far file. */
void far_init(const struct map *m);

/*
 * Announce a read of bytes [off, off + n) in a part that ends at `end`. Asks the kernel for these
 * pages and, if reads have been sequential, for as many bytes again as were read, up to FAR_AHEAD
 * and within the same part. Does not wait for them. Returns the end of the requested bytes. Any
 * thread may call this.
 */
uint64_t far_want(struct far_run *r, const struct map *m, uint64_t off, uint64_t n, uint64_t end);

#endif

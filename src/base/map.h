/* SPDX-License-Identifier: MIT */
/*
 * A file mapped for reading, and a guard for code that reads from a mapping.
 *
 * A mapped page can go away: the file is cut, or the medium fails. Touching it then raises SIGBUS.
 * Code that reads mapped bytes therefore runs under map_guard(), which turns that into -EIO. A
 * page that became partly empty reads as zeros instead, without a signal: map_check() after the
 * read tells whether the bytes were still there.
 *
 * System calls that take a mapped buffer (writev) answer EFAULT and need no guard.
 */
#ifndef BASE_MAP_H
#define BASE_MAP_H

#include <stddef.h>
#include <stdint.h>

struct map {
    int fd;              /* not owned */
    const uint8_t *data; /* NULL when size is 0 */
    uint64_t size;       /* bytes mapped */
};

/* Map the first `size` bytes of fd, read-only and shared. 0, or -errno of mmap(2). */
int map_open(struct map *m, int fd, uint64_t size);
void map_close(struct map *m);

/* 0 if the file still has its first `end` bytes, else -EIO. */
int map_check(const struct map *m, uint64_t end);

/*
 * Run fn(arg), which may touch mapped pages but must not allocate, lock or call what does: when a
 * page is gone it is abandoned midway. Returns what fn returned, or -EIO. Nests not; any thread.
 */
int map_guard(int (*fn)(void *arg), void *arg);

/* Install the SIGBUS handler that map_guard() needs, once per process. 0, or -errno. */
int map_guard_init(void);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * A file mapped for reading, and a guard for code that reads from a mapping.
 *
 * A mapped page can disappear: the file is truncated, or the medium fails. Reading it then raises
 * SIGBUS. Code that reads mapped bytes therefore runs under map_guard(), which turns the signal
 * into -EIO. If the file now ends within a page, the rest of that page reads as zeros, without a
 * signal: call map_check() after the read to find out whether the bytes still existed.
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
    uint64_t own; /* how many of them the file itself must have: more may be mapped after them */
};

/* Map the first `size` bytes of fd, read-only and shared. 0, or -errno of mmap(2). */
int map_open(struct map *m, int fd, uint64_t size);
void map_close(struct map *m);

/* 0 if the file still has its first `end` bytes, not counting those past `own`; else -EIO. */
int map_check(const struct map *m, uint64_t end);

/*
 * Run fn(arg), which may read mapped pages. It must not allocate or lock, directly or indirectly:
 * if a page has disappeared, it is abandoned midway. Returns what fn returned, or -EIO. Must not be
 * nested. Callable from any thread that does not block SIGBUS.
 */
int map_guard(int (*fn)(void *arg), void *arg);

/* memcpy() under map_guard(): pages of both may have disappeared. 0, -EIO. */
int map_copy(void *dst, const void *src, size_t n);

/* Install the SIGBUS handler that map_guard() needs, once per process. 0, or -errno. */
int map_guard_init(void);

#endif

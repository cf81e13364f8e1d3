/* SPDX-License-Identifier: MIT */
/*
 * Pages of a mapped file, brought into memory by another thread, before a program's reads get there.
 *
 * Where a page is touched that is not in memory, the thread that touches it waits for the disk, and
 * while it decodes, the disk waits for it. The kernel's readahead of mapped pages covers some of that;
 * here a thread of its own touches what comes next, so that neither waits. Other ways cost more:
 * posix_fadvise(WILLNEED) would need no thread, but it reads into single pages, which takes longer than
 * not to read ahead; MADV_POPULATE_READ looks up each page that is mapped already.
 *
 * Requires map_guard_init().
 *
 * Threads: any. The thread is started when it is first needed, and stays: a process may fork before.
 */
#ifndef BASE_FETCH_H
#define BASE_FETCH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/map.h"

/*
 * Have the pages of bytes [off, off + n) of the mapping fetched. release(owner) is called when that is
 * done: until then the mapping must stay. False: nothing is begun, and release() is not called. So it
 * is if they seem to be in memory (the kernel says so to those that may write the file, or own it),
 * or if too much waits.
 */
bool fetch_pages(const struct map *m, uint64_t off, uint64_t n, void *owner,
                 void (*release)(void *owner));

#endif

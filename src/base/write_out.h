/* SPDX-License-Identifier: MIT */
/*
 * Bytes of a file on their way to the disk, begun by another thread: an fsync that follows waits for less,
 * and the thread that wrote them does not do the file system's work of finding blocks for them.
 *
 * Threads: any. What begins it is a job of the pool (pool.h).
 */
#ifndef BASE_WRITE_OUT_H
#define BASE_WRITE_OUT_H

#include "base/sys.h"

/*
 * As sys_begin_sync(), soon. release(owner) is called when that is done: until then fd must stay open. If
 * too much waits it is called at once, and nothing is begun.
 */
void write_out(const struct sys *s, int fd, uint64_t off, uint64_t n, void *owner,
               void (*release)(void *owner));

#endif

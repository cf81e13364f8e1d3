/* SPDX-License-Identifier: MIT */
/*
 * Lets another thread start writing a file's bytes to disk: a later fsync waits for less, and the thread that wrote
 * them is spared the file system's work of allocating blocks.
 *
 * Threads: any. The work is a job of the pool (pool.h).
 */
#ifndef BASE_WRITE_OUT_H
#define BASE_WRITE_OUT_H

#include "base/sys.h"

/*
 * Like sys_begin_sync(), but soon. release(owner) is called when that is done; fd must stay open until then. If too
 * much is queued, release is called at once and nothing is started.
 */
void write_out(const struct sys *s, int fd, uint64_t off, uint64_t n, void *owner,
               void (*release)(void *owner));

#endif

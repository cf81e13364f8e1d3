/* SPDX-License-Identifier: MIT */
/* Where the bytes of a model come from. Threads: a source may be read by any number at a time. */
#ifndef GGUF_SOURCE_H
#define GGUF_SOURCE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* Where bytes come from: a file or memory. read: exactly n bytes at off; 0 or -errno. */
struct source {
    uint64_t size;
    int (*read)(const struct source *s, uint64_t off, void *dst, size_t n);
    const void *mem; /* source_mem */
    int fd;          /* the file, whose holes are those of the source; -1: memory */
};

struct source source_mem(const void *bytes, size_t n);
/* A regular file, not owned. 0, -EISDIR, -EINVAL (not a regular file), -errno. */
int source_fd(int fd, struct source *ret, struct err *e);

#endif

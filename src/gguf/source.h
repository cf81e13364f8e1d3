/* SPDX-License-Identifier: MIT */
/*
 * Sources of a model's bytes, and recognition of files passed by mistake. Any number of threads may
 * read a source at the same time.
 */
#ifndef GGUF_SOURCE_H
#define GGUF_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* A file or memory. read() reads exactly n bytes at off, and returns 0 or -errno. */
struct source {
    uint64_t size;
    int (*read)(const struct source *s, uint64_t off, void *dst, size_t n);
    const void *mem; /* for source_mem() */
    int fd;          /* the file, which has the same holes as the source; -1: memory */
};

struct source source_mem(const void *bytes, size_t n);
/* Make a source from a regular file, which the caller still owns. Returns 0, -EISDIR, -EINVAL (not
 * a regular file) or -errno. */
int source_fd(int fd, struct source *ret, struct err *e);

/* ---- files passed by mistake ---- */

struct sniffed {
    const char *what; /* "a git-lfs pointer" */
    const char *todo; /* "'git lfs pull' in its directory downloads the model" */
};

/* Recognise a file of `size` bytes by its first n bytes; SNIFF_BYTES are enough. Returns NULL if
 * the kind of file is unknown or the file begins with GGUF's magic. */
#define SNIFF_BYTES 4096
const struct sniffed *sniff_bytes(const uint8_t *bytes, size_t n, uint64_t size);

/* True for the name of one part of a file that was cut into several: "x.gguf.part1of2",
 * "x.gguf-split-a", "x.gguf.001". */
bool sniff_part(const char *name);
/* Set *e for a path that could not be opened. If the path is a URL and no such file exists, the
 * message gives advice; otherwise it explains `code`. Returns code. */
int sniff_no_file(const char *path, int code, struct err *e);
/* Set *e for a path that is a directory. Returns -EISDIR. */
int sniff_folder(struct err *e);

#endif

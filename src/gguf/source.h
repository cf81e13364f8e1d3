/* SPDX-License-Identifier: MIT */
/*
 * Where the bytes of a model come from, and recognising what was passed by mistake. Threads: a source may be read by
 * any number at a time.
 */
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
    int fd;          /* the file, whose holes are the source's; -1: memory */
};

struct source source_mem(const void *bytes, size_t n);
/* A source on a regular file, which it does not own. 0, -EISDIR, -EINVAL (not a regular file), -errno. */
int source_fd(int fd, struct source *ret, struct err *e);

/*
 * ---- files passed by mistake ----
 *
 * Recognised by their first bytes or by their path, with advice. There is a table for each; a kind is a row.
 */

struct sniffed {
    const char *what; /* "a git-lfs pointer" */
    const char *todo; /* "'git lfs pull' in its directory downloads the model" */
};

/* Enough bytes to recognise every kind. */
#define SNIFF_BYTES 4096

/*
 * Recognise a file of `size` bytes by its first n bytes. NULL: unknown; GGUF files are always unknown, whatever
 * follows their magic.
 */
const struct sniffed *sniff_bytes(const uint8_t *bytes, size_t n, uint64_t size);

/* The same for a path that is not a file name but a URL. */
const struct sniffed *sniff_path(const char *path);
/* A path could not be opened: fill e with what it looks like, if recognised, else why. Returns code. */
int sniff_no_file(const char *path, int code, struct err *e);
/* The path is a directory: -EISDIR, with advice. */
int sniff_folder(struct err *e);

#endif

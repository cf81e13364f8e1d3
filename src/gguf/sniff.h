/* SPDX-License-Identifier: MIT */
/*
 * What people give in place of a GGUF file by mistake, recognised by its first bytes or by its path,
 * and what to do about it. One table each: a kind is a row.
 *
 * Threads: pure functions.
 */
#ifndef GGUF_SNIFF_H
#define GGUF_SNIFF_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct sniffed {
    const char *what; /* "a git-lfs pointer" */
    const char *todo; /* "'git lfs pull' in its folder downloads the model" */
};

/* Bytes that are enough to recognise every kind. */
#define SNIFF_BYTES 4096

/*
 * The kind of a file of `size` bytes of which the first n are given; NULL if it is not known here.
 * A GGUF file is not, whatever follows its magic.
 */
const struct sniffed *sniff_bytes(const uint8_t *bytes, size_t n, uint64_t size);

/* The same for a path that names no file: a URL. */
const struct sniffed *sniff_path(const char *path);
/* A path could not be opened: fill e with what it is, if it names no file, else why. Returns code. */
int sniff_no_file(const char *path, int code, struct err *e);
/* The path is a folder: -EISDIR, with what to do. */
int sniff_folder(struct err *e);

#endif

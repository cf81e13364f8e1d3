/* SPDX-License-Identifier: MIT */
/*
 * One of the two models being compared: its files are open, and its tensors can be read from where they lie. A split
 * model is one model. What an interrupted edit has yet to write is read as if it were written.
 *
 * Nothing is mapped: reads go to the reader's own memory, however large the model is.
 *
 * Threads: immutable once opened; any.
 */
#ifndef DIFF_SIDE_H
#define DIFF_SIDE_H

#include "edit/open.h"

struct side_place {
    uint64_t off; /* in its file */
    size_t file;
};

struct side {
    const char *label;       /* not owned: the user's name for it */
    struct gguf *g;          /* owned: the whole model */
    struct model_file *file; /* owned: as many as shards.n, or one */
    struct shards shards;
    struct side_place *place; /* owned: one per tensor */
};

/* Open the model at `path`, or the one whose shard it is. 0, or -errno with a line. Free it in either case. */
int side_open(struct side *s, const char *path, const char *label, struct err *e);
void side_free(struct side *s);

/* Bytes [off, off + n) of a tensor's data. 0; -EIO: the file was cut, or the medium failed. */
int side_read(const struct side *s, uint32_t tensor, uint64_t off, void *dst, size_t n);
/*
 * How far a hole of the file reaches, in the tensor's bytes from `off` on: zeros that need not be read. Returns the
 * first byte that may not be in the hole; `off` if there is none.
 */
uint64_t side_hole(const struct side *s, uint32_t tensor, uint64_t off);

#endif

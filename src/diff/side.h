/* SPDX-License-Identifier: MIT */
/*
 * One of the two compared models: its files are open, and its tensors can be read in place. A split
 * model is one model. Unwritten bytes of an interrupted edit are read as if they were written.
 *
 * No file is mapped: reads go to the reader's own memory, however large the model is.
 *
 * Any thread may use a side, which is immutable once opened.
 */
#ifndef DIFF_SIDE_H
#define DIFF_SIDE_H

#include "edit/open.h"

struct side_place {
    uint64_t off; /* offset in its file */
    size_t file;
};

struct side {
    const char *label;       /* not owned: the name given by the user */
    struct gguf *g;          /* owned: the whole model */
    struct model_file *file; /* owned: shards.n files, or one */
    struct shards shards;
    struct side_place *place; /* owned: one per tensor */
};

/* Open the model at `path`, or the model of the shard at `path`. Returns 0, or -errno with a
 * message. Free it in either case. */
int side_open(struct side *s, const char *path, const char *label, struct err *e);
void side_free(struct side *s);

/* Read bytes [off, off + n) of a tensor's data. Returns 0, or -EIO if the file was truncated or the
 * medium failed. */
int side_read(const struct side *s, uint32_t tensor, uint64_t off, void *dst, size_t n);
/* Return the first byte of the tensor at or after `off` that may lie outside the holes of the file:
 * `off` itself if it is in no hole. The bytes of a hole are zeros that need not be read. */
uint64_t side_hole(const struct side *s, uint32_t tensor, uint64_t off);

#endif

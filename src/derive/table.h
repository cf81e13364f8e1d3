/* SPDX-License-Identifier: MIT */
/*
 * Writes files with one line per tensor, including a table for people with aligned columns, and
 * computes the end of each line in files whose length is known before their content. These ends are
 * computed on first use and kept with the snapshot.
 *
 * Any thread may call these functions; they are pure functions of an immutable model.
 */
#ifndef DERIVE_TABLE_H
#define DERIVE_TABLE_H

#include "derive/kept.h"
#include "model/snapshot.h"

/*
 * Write the columns NAME, TYPE, SHAPE (in NumPy's order), BYTES, SHARE and, for a split model, the
 * number of the SHARD. No column has an offset, which would depend on other tensors' sizes, so that
 * two models can be compared. A line follows for each role, which consists of the tensors that have
 * the same name in all blocks. Names are made safe to print. A name longer than TABLE_NAME_MOST
 * pushes the rest of its line to the right.
 */
#define TABLE_NAME_MOST 64
void table_text(const struct snapshot *g, struct buf *out);

/* ---- ends of lines ---- */

/* Number of a snapshot's parts that keep lines; DERIVED_SHA256 and DERIVED_MOMENTS number them. */
enum { LINES_SLOTS = 2 };

struct lines {
    struct snapshot_part part; /* must come first; the snapshot owns this struct */
    uint64_t head;             /* number of bytes before the first line */
    uint64_t end[];            /* offset of the end of each tensor's line */
};

/* Return the lines, or NULL without memory. */
const struct lines *lines_get(struct snapshot *g, enum derived what);

uint64_t lines_size(const struct lines *l, const struct snapshot *g);
/* Find the tensors [*first, *last) whose lines overlap bytes [off, end), with off below the size.
 * The range is empty if only the head overlaps them. */
void lines_range(const struct lines *l, const struct snapshot *g, uint64_t off, uint64_t end,
                 uint32_t *first, uint32_t *last);
/* Return the offset at which the line of tensor i begins. */
static inline uint64_t lines_begin(const struct lines *l, uint32_t i)
{
    return i ? l->end[i - 1] : l->head;
}

#define HASH_HEX 64 /* number of digits */

/*
 * Write a line of `hashes` in the format of gguf-hash: "sha256 HASH FILE:TENSOR\n", with names made
 * safe to print. FILE is the name of the model's file, or in a split model that of the file with
 * the tensor.
 */
void hashes_line(const struct snapshot *g, uint32_t i, const char *hex, struct buf *out);

#endif

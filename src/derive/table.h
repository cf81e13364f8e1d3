/* SPDX-License-Identifier: MIT */
/*
 * Files of a line per tensor: a table for people, columns aligned; and where each line ends of files whose length is known
 * before their content. Made once in a snapshot, when it is first asked for, and kept with it.
 *
 * Threads: pure functions of an immutable model; any.
 */
#ifndef DERIVE_TABLE_H
#define DERIVE_TABLE_H

#include "base/buf.h"
#include "model/snapshot.h"

/*
 * NAME, TYPE, SHAPE (in NumPy's order), BYTES, SHARE, and of a split model the number of the SHARD: nothing
 * that another tensor's size moves, so that two models can be compared. Then a line for each role: tensors that
 * have the same name in all blocks. Names are made safe to print. What is longer than TABLE_NAME_MOST
 * pushes the rest of its line to the right.
 */
#define TABLE_NAME_MOST 64
void table_text(const struct snapshot *g, struct buf *out);

/* ---- where lines end ---- */

enum lines_of { LINES_STATS, LINES_HASHES, LINES_SLOTS };

struct lines {
    struct snapshot_part part; /* of the snapshot, which owns this */
    uint64_t head;             /* bytes before the first line */
    uint64_t end[];            /* of the line of each tensor */
};

/* NULL: no memory. */
const struct lines *lines_get(struct snapshot *g, enum lines_of what);

uint64_t lines_size(const struct lines *l, const struct snapshot *g);
/* The tensors whose lines hold bytes of [off, end), off below the size: from *first to before *last;
 * none in the head. */
void lines_range(const struct lines *l, const struct snapshot *g, uint64_t off, uint64_t end,
                 uint32_t *first, uint32_t *last);
/* Where the line of tensor i begins. */
static inline uint64_t lines_begin(const struct lines *l, uint32_t i)
{
    return i ? l->end[i - 1] : l->head;
}

#define HASH_HEX 64 /* digits */

/*
 * A line of `hashes` as gguf-hash writes and checks it: "sha256    HASH  FILE:TENSOR\n", names made
 * safe to print. FILE is the name of the model's file; of a split model that which holds the tensor.
 */
void hashes_line(const struct snapshot *g, uint32_t i, const char *hex, struct buf *out);

#endif

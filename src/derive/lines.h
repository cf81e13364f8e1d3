/* SPDX-License-Identifier: MIT */
/*
 * Files of a line per tensor whose length is known before their content: where each line ends. Made
 * once in a snapshot, when it is first asked for, and kept with it.
 *
 * Threads: immutable; any.
 */
#ifndef DERIVE_LINES_H
#define DERIVE_LINES_H

#include "derive/digest.h"
#include "model/snapshot.h"

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

/*
 * A line of `hashes` as gguf-hash writes and checks it: "sha256    HASH  FILE:TENSOR\n", names made
 * safe to print. FILE is the name of the model's file; of a split model that which holds the tensor.
 */
void hashes_line(const struct snapshot *g, uint32_t i, const char hex[DIGEST_HEX], struct buf *out);

#endif

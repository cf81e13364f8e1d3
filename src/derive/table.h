/* SPDX-License-Identifier: MIT */
/*
 * The tensors of a model as a table for people: a line per tensor, columns aligned.
 *
 * Threads: pure functions of an immutable model.
 */
#ifndef DERIVE_TABLE_H
#define DERIVE_TABLE_H

#include "base/buf.h"
#include "model/snapshot.h"

/*
 * NAME, TYPE, SHAPE (in NumPy's order), OFFSET, BYTES, and of a split model SHARD. Names are made safe
 * to print. A name or shape that is longer than TABLE_NAME_MOST pushes the rest of its line to the right, so that
 * it does not make every line as long.
 */
#define TABLE_NAME_MOST 64
void table_text(const struct snapshot *g, struct buf *out);

#endif

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
 * NAME, TYPE, SHAPE (in NumPy's order), BYTES, SHARE, and of a split model the number of the SHARD: nothing
 * that another tensor's size moves, so that two models can be compared. Then a line for each role: tensors that
 * have the same name in all blocks. Names are made safe to print. What is longer than TABLE_NAME_MOST
 * pushes the rest of its line to the right.
 */
#define TABLE_NAME_MOST 64
void table_text(const struct snapshot *g, struct buf *out);

#endif

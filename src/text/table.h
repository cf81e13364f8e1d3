/* SPDX-License-Identifier: MIT */
/* Texts in columns. Threads: pure functions. */
#ifndef TEXT_TABLE_H
#define TEXT_TABLE_H

#include "base/buf.h"

/* Columns of a terminal that a text takes: bytes that continue a character do not count. */
size_t text_columns(const uint8_t *p, size_t n);

/*
 * `lines` with their cells, which have tabs between, put below each other, two blanks between. sides[i] says how column i is aligned: 'l' or 'r'. A cell that is longer than `most` pushes the rest of
 * its line to the right, and so does the last one of a line that has fewer than there are sides.
 */
void text_table(const struct buf *lines, const char *sides, size_t most, struct buf *out);

#endif

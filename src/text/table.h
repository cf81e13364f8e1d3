/* SPDX-License-Identifier: MIT */
/* Texts in columns, by pure functions. */
#ifndef TEXT_TABLE_H
#define TEXT_TABLE_H

#include "base/buf.h"

/* Return the number of terminal columns of a text: continuation bytes of UTF-8 do not count. */
size_t text_columns(const uint8_t *p, size_t n);

/*
 * Print `lines`, whose cells are separated by tabs, as aligned columns two blanks apart. sides[i]
 * aligns column i: 'l' or 'r'. A cell longer than `most` pushes the rest of its line to the right,
 * as does the last cell of a line with fewer cells than `sides`.
 */
void text_table(const struct buf *lines, const char *sides, size_t most, struct buf *out);

#endif

/* SPDX-License-Identifier: MIT */
/* Texts in columns: see table.h. */
#include "text/table.h"

#include <string.h>

#include "base/bytes.h"

enum { COLUMNS_MOST = 16 };

size_t text_columns(const uint8_t *p, size_t n)
{
    size_t ret = 0;
    for (size_t i = 0; i < n; i++)
        ret += (p[i] & 0xc0) != 0x80;
    return ret;
}

struct cell {
    const uint8_t *at;
    size_t len;
    size_t column;
    bool ends; /* the cell ends its line */
};

/* Move to the cell after c; a zeroed c gets the first. Returns false at the end. */
static bool next_cell(const struct buf *lines, struct cell *c)
{
    const uint8_t *end = lines->data + lines->len;
    bool first = !c->at || c->ends;
    c->at = c->at ? c->at + c->len + 1 : lines->data;
    if (!c->at || c->at >= end)
        return false;
    c->column = first ? 0 : c->column + 1;
    c->len = 0;
    while (c->at[c->len] != '\t' && c->at[c->len] != '\n')
        c->len++;
    c->ends = c->at[c->len] == '\n';
    return true;
}

void text_table(const struct buf *lines, const char *sides, size_t most, struct buf *out)
{
    size_t width[COLUMNS_MOST] = {0}, last = strlen(sides) - 1;
    for (struct cell c = {0}; next_cell(lines, &c);) {
        size_t n = text_columns(c.at, c.len);
        if (n <= most && (!c.ends || c.column == last))
            width[c.column] = max_u64(width[c.column], n);
    }
    for (struct cell c = {0}; next_cell(lines, &c);) {
        size_t n = text_columns(c.at, c.len), pad = width[c.column] > n ? width[c.column] - n : 0;
        buf_printf(out, "%s%*s", c.column ? "  " : "", sides[c.column] == 'r' ? (int)pad : 0, "");
        buf_add(out, c.at, c.len);
        if (c.ends)
            buf_char(out, '\n');
        else if (sides[c.column] == 'l')
            buf_printf(out, "%*s", (int)pad, "");
    }
}

/* SPDX-License-Identifier: MIT */
/* Growable bytes: see buf.h. */
#include "base/buf.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/err.h"

uint8_t *buf_extend(struct buf *b, size_t n)
{
    size_t need;
    if (b->err)
        return NULL;
    if (__builtin_add_overflow(b->len, n, &need)) {
        b->err = b->measure ? -EOVERFLOW : -ENOMEM;
        return NULL;
    }
    if (!b->measure && need > b->cap && array_grow(&b->data, &b->cap, need - 1, 1) < 0) {
        b->err = -ENOMEM;
        return NULL;
    }
    uint8_t *at = b->measure || !b->data ? NULL : b->data + b->len;
    b->len = need;
    return at;
}

void buf_add(struct buf *b, const void *p, size_t n)
{
    uint8_t *at = buf_extend(b, n);
    if (at && n)
        memcpy(at, p, n);
}

void buf_char(struct buf *b, char c)
{
    buf_add(b, &c, 1);
}

void buf_str(struct buf *b, const char *s)
{
    buf_add(b, s, strlen(s));
}

void buf_printf(struct buf *b, const char *fmt, ...)
{
    char small[256];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(small, sizeof(small), fmt, ap);
    va_end(ap);
    if (n >= 0 && (size_t)n < sizeof(small)) {
        buf_add(b, small, (size_t)n);
        return;
    }
    char *large = NULL;
    va_start(ap, fmt);
    n = vasprintf(&large, fmt, ap);
    va_end(ap);
    if (n < 0) {
        b->err = b->err ? b->err : -ENOMEM;
        return;
    }
    buf_add(b, large, (size_t)n);
    free(large);
}

void buf_uint(struct buf *b, uint64_t v, size_t width, bool big)
{
    uint8_t tmp[8];
    put_uint(tmp, v, width, big);
    buf_add(b, tmp, width);
}

void buf_zero(struct buf *b, size_t n)
{
    uint8_t *at = buf_extend(b, n);
    if (at && n)
        memset(at, 0, n);
}

uint8_t *buf_steal(struct buf *b)
{
    uint8_t *data = b->data;
    *b = BUF_INIT;
    return data;
}

void buf_free(struct buf *b)
{
    free(b->data);
    *b = BUF_INIT;
}

int array_grow(void *array, size_t *cap, size_t n, size_t size)
{
    size_t want = *cap ? 2 * *cap : 16, bytes;
    void *old;
    if (n < *cap)
        return 0;
    if (want <= n)
        want = n + 1;
    if (want == 0 || __builtin_mul_overflow(want, size, &bytes))
        return -ENOMEM;
    memcpy(&old, array, sizeof(old));
    void *now = realloc(old, bytes);
    if (!now)
        return -ENOMEM;
    memcpy(array, &now, sizeof(now));
    *cap = want;
    return 0;
}

enum { COLUMNS_MOST = 16 };

struct cell {
    const uint8_t *at;
    size_t len;
    size_t column;
    bool ends; /* the last cell of its line */
};

/* Move to the cell after c; if c is zeroed, to the first one. Returns false at the end. */
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

void buf_table(const struct buf *lines, const char *sides, size_t most, struct buf *out)
{
    size_t width[COLUMNS_MOST] = {0}, last = strlen(sides) - 1;
    if (buf_error(lines)) {
        out->err = out->err ? out->err : buf_error(lines);
        return;
    }
    for (struct cell c = {0}; next_cell(lines, &c);) {
        size_t n = utf8_columns(c.at, c.len);
        if (n <= most && (!c.ends || c.column == last))
            width[c.column] = max_u64(width[c.column], n);
    }
    for (struct cell c = {0}; next_cell(lines, &c);) {
        size_t n = utf8_columns(c.at, c.len), pad = width[c.column] > n ? width[c.column] - n : 0;
        buf_printf(out, "%s%*s", c.column ? "  " : "", sides[c.column] == 'r' ? (int)pad : 0, "");
        buf_add(out, c.at, c.len);
        if (c.ends)
            buf_char(out, '\n');
        else if (sides[c.column] == 'l')
            buf_printf(out, "%*s", (int)pad, "");
    }
}

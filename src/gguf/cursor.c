/* SPDX-License-Identifier: MIT */
/* The cursor that loads a header while it is parsed: see cursor.h. */
#include "gguf/cursor.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"

/* Bytes loaded at a time, at least: most headers without a tokenizer fit. */
#define LOAD_STEP ((uint64_t)64 << 10)
/* Bytes loaded beyond what is asked for, at most: so many may lie behind the header. */
#define AHEAD_MOST ((uint64_t)2 << 20)

/* "key 3 'general.name': ", as far as known. */
static void describe(const struct cursor *c, struct buf *b)
{
    char name[SHOW_MAX];
    if (!c->item)
        return;
    buf_printf(b, "%s %llu", c->item, (unsigned long long)c->item_no);
    if (c->name_len > 0)
        buf_printf(b, " '%s'", show(name, c->bytes + c->name_off, (size_t)c->name_len));
    buf_str(b, ": ");
}

static int fill(const struct cursor *c, struct err *e, int code, const char *field, uint64_t at,
                const char *fmt, va_list ap) __attribute__((format(printf, 6, 0)));

/* "ITEM: FIELD at byte AT: REASON" */
static int fill(const struct cursor *c, struct err *e, int code, const char *field, uint64_t at,
                const char *fmt, va_list ap)
{
    char reason[256], byte[32];
    (void)vsnprintf(reason, sizeof(reason), fmt, ap);
    int n = snprintf(byte, sizeof(byte), " at byte %llu", (unsigned long long)at);
    CLEANUP(buf_free) struct buf b = BUF_INIT;
    describe(c, &b);
    (void)err_set(e, code, "%.*s%s%s: %s", (int)b.len, b.data ? (const char *)b.data : "", field,
                  byte, reason);
    if (e)
        e->where = (unsigned)(b.len + strlen(field)) + (unsigned)n;
    return code;
}

int cursor_fail(const struct cursor *c, int code, const char *field, uint64_t at, const char *fmt,
                ...)
{
    va_list ap;
    va_start(ap, fmt);
    int r = fill(c, c->err, code, field, at, fmt, ap);
    va_end(ap);
    return r;
}

int cursor_fault(const struct cursor *c, int code, const char *field, uint64_t at, const char *fmt,
                 ...)
{
    struct err e = {0};
    va_list ap;
    va_start(ap, fmt);
    int r = fill(c, c->fault ? &e : c->err, code, field, at, fmt, ap);
    va_end(ap);
    if (!c->fault)
        return r;
    c->fault(c->fault_arg, &e);
    return 0;
}

static int grow(struct cursor *c, uint64_t need)
{
    uint64_t cap = max_u64(c->cap * 2, LOAD_STEP);
    cap = min_u64(max_u64(cap, need), c->src->size);
    if (cap > SIZE_MAX)
        return -ENOMEM;
    uint8_t *bytes = realloc(c->bytes, (size_t)cap);
    if (!bytes)
        return -ENOMEM;
    c->bytes = bytes;
    c->cap = cap;
    return 0;
}

int cursor_load(struct cursor *c, uint64_t n, const char *field)
{
    if (n > cursor_left(c))
        return cursor_fail(c, -EBADMSG, field, c->pos,
                           "the file ends: %llu bytes needed, %llu left" CURSOR_CUT,
                           (unsigned long long)n, (unsigned long long)cursor_left(c));
    uint64_t end = c->pos + n;
    if (c->given)
        return cursor_fail(c, -EBADMSG, field, c->pos, "is not in the header");
    if (end > GGUF_MAX_HEADER)
        return cursor_fail(c, -EFBIG, field, c->pos, "the header is over %llu bytes",
                           (unsigned long long)GGUF_MAX_HEADER);
    int r = end > c->cap ? grow(c, end) : 0;
    /* Ahead as much as is loaded, within limits: work follows the header's size. */
    uint64_t ahead = min_u64(max_u64(c->have, LOAD_STEP), AHEAD_MOST);
    uint64_t upto = min_u64(max_u64(end, c->have + ahead), c->cap);
    if (r == 0)
        r = c->src->read(c->src, c->have, c->bytes + c->have, (size_t)(upto - c->have));
    if (r < 0)
        return cursor_fail(c, r, field, c->pos, "%s", strerror(-r));
    c->have = upto;
    return 0;
}

int cursor_string(struct cursor *c, const char *field, uint64_t *off, uint64_t *len)
{
    uint64_t at = c->pos, n;
    int r = cursor_uint(c, c->fmt.len_width, field, &n);
    if (r < 0)
        return r;
    if (n > GGUF_MAX_STRING)
        return cursor_fail(c, -EBADMSG, field, at, "a length of %llu is over the limit of %llu",
                           (unsigned long long)n, (unsigned long long)GGUF_MAX_STRING);
    r = cursor_need(c, n, field);
    if (r < 0)
        return r;
    c->strings++;
    c->nul_ends += n > 0 && c->bytes[c->pos + n - 1] == 0;
    *off = c->pos;
    *len = n;
    c->pos += n;
    return 0;
}

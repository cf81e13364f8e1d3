/* SPDX-License-Identifier: MIT */
/*
 * Reading JSON values from the text of a metadata array: one JSON value a line (JSON Lines), or one
 * JSON array over any number of lines.
 *
 *     struct items it = items_begin(&r, false);
 *     while ((n = items_next(&it)) > 0)
 *         ... read one value at r.at: reader_string(), reader_word(), or an inner items_begin() ...
 *     if (n < 0) return n;
 *
 * Numbers are words here (see text/scan.h), so they stay exact. Strings are bytes, so bytes that
 * are not UTF-8 survive (\udc80 to \udcff are the bytes 0x80 to 0xff, see text/json.h).
 *
 * Errors are -EINVAL or -EILSEQ with "line N: ..." in r->err.
 */
#ifndef TEXT_JSON_READ_H
#define TEXT_JSON_READ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

struct reader {
    const uint8_t *start; /* of the text: for line numbers */
    const uint8_t *at;    /* the next byte */
    const uint8_t *end;
    struct err *err; /* may be NULL */
};

/* Fail at r->at: "line N: ...". Returns code. */
int reader_fail(const struct reader *r, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* The string at r->at, decoded, appended to out (which may only measure). */
int reader_string(struct reader *r, struct buf *out);

/* The run of bytes at r->at up to a space, bracket, comma or quote; empty is an error. */
int reader_word(struct reader *r, const uint8_t **word, size_t *n);

static inline bool reader_at(const struct reader *r, uint8_t c)
{
    return r->at < r->end && *r->at == c;
}

void reader_skip_space(struct reader *r);

struct items {
    struct reader *r;
    bool bracket; /* [a, b]; else a value a line */
    bool first;
};

/* The values of the array at r->at, "[". */
struct items items_begin_array(struct reader *r);
/*
 * The values of a whole text: lines; or an array if it begins with "[" and may_be_array. Blank
 * lines before a "[" are skipped.
 */
struct items items_begin_text(struct reader *r, bool may_be_array);
/* 1: r->at is at the next value. 0: no more values, r->at is behind the array. Else -errno. */
int items_next(struct items *it);

#endif

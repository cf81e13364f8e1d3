/* SPDX-License-Identifier: MIT */
/*
 * JSON (RFC 8259): metadata values, on one line with ", " between elements, and whole texts.
 *
 * All bytes survive: valid UTF-8 is copied (characters unsafe on a terminal are escaped), and a
 * byte that is not part of valid UTF-8 becomes the lone surrogate escape \udcXX (Python's
 * surrogateescape). Integers keep all their digits, over the full ranges of u64 and i64.
 *
 * Any thread may call these functions. Errors are kept in the buf (base/buf.h).
 */
#ifndef TEXT_JSON_H
#define TEXT_JSON_H

#include "base/buf.h"
#include "base/err.h"
#include "gguf/value.h"

/* Append n bytes as a JSON string, with its quotes. */
void json_string(struct buf *out, const void *bytes, size_t n);

/*
 * json_value() appends a value as strict JSON, with non-finite floats as strings such as "NaN".
 * json_line_value() appends a value for a line of metadata/KEY, with non-finite floats as the bare
 * words NaN, Infinity and -Infinity.
 */
void json_value(struct buf *out, const struct gguf_value *v);
void json_line_value(struct buf *out, const struct gguf_value *v);

/* ---- objects and lists ---- */

enum { JSON_DEPTH = 8 };

/*
 * An object or list being written, perhaps inside another one.
 *
 *     struct json j = {.out = &text};
 *     json_begin(&j, NULL, "[\n");            with "\n": one line per member
 *     json_begin(&j, NULL, "{");
 *     json_text(&j, "model", path);           {"model": "/a.gguf", "pid": 12}
 *     buf_printf(json_item(&j, "pid"), "%ld", pid);
 *     json_end(&j);
 *     json_end(&j);
 *
 * For elements of a list, the name is NULL.
 */
struct json {
    struct buf *out;
    unsigned depth;
    bool more; /* the next member needs a comma */
    struct {
        char close;
        bool lines;
    } level[JSON_DEPTH];
};

void json_begin(struct json *j, const char *name, const char *open);
void json_end(struct json *j);
/* Begin the next member. The caller writes its value to the returned buf. */
struct buf *json_item(struct json *j, const char *name);
/* Add a string member; a NULL text becomes null. */
void json_text(struct json *j, const char *name, const char *text);
/* Add a string member whose text, of any length, is made safe to print. */
void json_shown(struct json *j, const char *name, const char *text);

/*
 * ---- reading ----
 *
 * Reads the values of a metadata array's text: one JSON value per line (JSON Lines), or one JSON
 * array over any number of lines.
 *
 *     struct items it = items_begin_text(&r, true);
 *     while ((n = items_next(&it)) > 0)
 *         ... read one value at r.at: reader_string(), reader_word(), items_begin_array() ...
 *     if (n < 0) return n;
 *
 * Numbers are words here (see text/number.h), so they stay exact. Strings are bytes, so bytes that
 * are not UTF-8 survive. Errors are -EINVAL or -EILSEQ with "line N: ..." in r->err.
 */

struct reader {
    const uint8_t *start; /* start of the text, for line numbers */
    const uint8_t *at;    /* the next byte */
    const uint8_t *end;
    struct err *err; /* may be NULL */
};

/* Fail at r->at: "line N: ...". Returns code. */
int reader_fail(const struct reader *r, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Decode the string at r->at, and append it to out (which may be in measure mode). */
int reader_string(struct reader *r, struct buf *out);

/* Read the word at r->at, which ends before a space, bracket, comma or quote. An empty word is
 * an error. */
int reader_word(struct reader *r, const uint8_t **word, size_t *n);

static inline bool reader_at(const struct reader *r, uint8_t c)
{
    return r->at < r->end && *r->at == c;
}

void reader_skip_space(struct reader *r);

struct items {
    struct reader *r;
    bool bracket; /* [a, b]; else one value per line */
    bool first;
};

/* Begin the array at r->at, which starts with "[". */
struct items items_begin_array(struct reader *r);
/*
 * Begin the values of a whole text: one per line or, if the text begins with "[" and may_be_array
 * is true, those of an array. Blank lines before a "[" are skipped.
 */
struct items items_begin_text(struct reader *r, bool may_be_array);
/* Move to the next value. Returns 1 with r->at at that value, 0 with r->at after the array if no
 * values are left, or -errno. */
int items_next(struct items *it);

#endif

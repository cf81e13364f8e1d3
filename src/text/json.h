/* SPDX-License-Identifier: MIT */
/*
 * Writes JSON (RFC 8259): metadata values, on one line with ", " between elements, and whole texts.
 * text.c reads it.
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

/* Return the length of the run at p that needs no escaping in a JSON string: ordinary ASCII, and
 * valid UTF-8 that is safe to show on a terminal. */
size_t json_run(const uint8_t *p, size_t n);
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

#endif

/* SPDX-License-Identifier: MIT */
/*
 * JSON (RFC 8259): metadata values, on one line with ", " between elements, and whole texts.
 *
 * Any bytes survive: valid UTF-8 is copied (what no terminal is to see is escaped), a byte that is not part of valid UTF-8 becomes the lone
 * surrogate escape \udcXX (Python's surrogateescape). Integers have all their digits, over the
 * whole of u64 and i64.
 *
 * Threads: any. Errors stay in the buf (base/buf.h).
 */
#ifndef TEXT_JSON_H
#define TEXT_JSON_H

#include "base/buf.h"
#include "gguf/value.h"

/* n bytes as a JSON string, with its quotes. */
void json_string(struct buf *out, const void *bytes, size_t n);

/* Strict JSON, for metadata.json: non-finite floats are the strings "NaN", "Infinity", ... */
void json_value(struct buf *out, const struct gguf_value *v);

/* For a line of metadata/KEY: non-finite floats are the bare words NaN, Infinity, -Infinity. */
void json_line_value(struct buf *out, const struct gguf_value *v);

/* ---- objects and lists ---- */

enum { JSON_DEPTH = 8 };

/*
 * An object or a list that is being written, one in another.
 *
 *     struct json j = {.out = &text};
 *     json_begin(&j, NULL, "[\n");            with "\n": each of its members has a line
 *     json_begin(&j, NULL, "{");
 *     json_text(&j, "model", path);           {"model": "/a.gguf", "pid": 12}
 *     buf_printf(json_item(&j, "pid"), "%ld", pid);
 *     json_end(&j);
 *     json_end(&j);
 *
 * What is in a list has no name: NULL.
 */
struct json {
    struct buf *out;
    unsigned depth;
    bool more; /* a comma comes before the next one */
    struct {
        char close;
        bool lines;
    } level[JSON_DEPTH];
};

void json_begin(struct json *j, const char *name, const char *open);
void json_end(struct json *j);
/* The next member: the caller writes its value to what is returned. */
struct buf *json_item(struct json *j, const char *name);
/* NULL: null. */
void json_text(struct json *j, const char *name, const char *text);
/* Made safe to print, however long. */
void json_shown(struct json *j, const char *name, const char *text);

/* Length of the run at p that needs no escape in a JSON string: ordinary ASCII, valid UTF-8
 * that a terminal may see. */
size_t json_plain_run(const uint8_t *p, size_t n);

#endif

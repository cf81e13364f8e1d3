/* SPDX-License-Identifier: MIT */
/*
 * Metadata values as JSON (RFC 8259): one line, ", " between elements.
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

/* Length of the run at p that needs no escape in a JSON string: ordinary ASCII, valid UTF-8
 * that a terminal may see. */
size_t json_plain_run(const uint8_t *p, size_t n);

#endif

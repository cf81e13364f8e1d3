/* SPDX-License-Identifier: MIT */
/*
 * A metadata value as the text of its file metadata/KEY. The inverse is text/text_parse.h.
 *
 *   integer, float, bool   decimal (text/number.h), true or false; newline
 *   string                 its bytes, verbatim; one newline
 *   array                  an element a line, each a JSON value (text/json.h); empty: no bytes
 *
 * A buf in measure mode (base/buf.h) measures the text without storing it.
 * Threads: any. Errors stay in the buf.
 */
#ifndef TEXT_TEXT_H
#define TEXT_TEXT_H

#include "base/buf.h"
#include "gguf/value.h"

void text_value(struct buf *out, const struct gguf_value *v);

#endif

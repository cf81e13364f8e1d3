/* SPDX-License-Identifier: MIT */
/*
 * A metadata value from the text of its file: the inverse of text/text.h, and more forgiving.
 *
 *   integer, float, bool  see text/scan.h; space, tab, CR and LF around it are dropped
 *   string                the bytes, without one newline at the end if there is one; UTF-8
 *   array                 a JSON value a line, or (but for arrays of arrays) one JSON array, over
 *                         any number of lines. CRLF and blank lines at the end, or before a "["
 *                         that begins the text, are dropped; no text at all is an empty array
 *   array of arrays       a JSON array each line, or over any number of lines. Each has its own
 *                         element type: the one that is given (text/type_name.h), else that of the
 *                         old array at the same place (or of the last one) if it fits, else by its
 *                         values (text/shape.h)
 *
 * Errors: -EINVAL not a value of this type, -ERANGE outside its range, -EILSEQ a string that is not
 * UTF-8, -EFBIG over 1 GiB, -ENOMEM. In arrays the line of err says which line of the text.
 * Threads: any.
 */
#ifndef TEXT_TEXT_PARSE_H
#define TEXT_TEXT_PARSE_H

#include "base/buf.h"
#include "base/err.h"
#include "gguf/value.h"
#include "text/type_name.h"

/*
 * Append the value's bytes, as the file stores them behind the value type, to payload. fmt: of the
 * model, version 2 or 3. elem: an array's element type, else ignored.
 *
 * old: the value that the file shows (of the same format), or NULL. If it has the same type, then
 * its own text gives its own bytes, whatever they are. In any other text, NaNs, true bools and
 * inner arrays that did not change keep their bytes.
 *
 * On failure payload is as before (except for buf_error() after -ENOMEM).
 */
int text_parse(const struct gguf_format *fmt, uint32_t type, uint32_t elem, const uint8_t *text,
               size_t n, const struct gguf_value *old, struct buf *payload, struct err *e);
/* The same where the types of inner arrays may be given. */
int text_parse_as(const struct gguf_format *fmt, const struct type_name *t, const uint8_t *text,
                  size_t n, const struct gguf_value *old, struct buf *payload, struct err *e);

#endif

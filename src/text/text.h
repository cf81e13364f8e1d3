/* SPDX-License-Identifier: MIT */
/*
 * Converts metadata values to the text of their files metadata/KEY and back, and types to names.
 *
 *   integer, float, bool   decimal (text/number.h), true or false; newline
 *   string                 its bytes, verbatim; one newline
 *   array                  one JSON value per line (text/json.h); empty: no bytes
 *
 * A buf in measure mode (base/buf.h) measures the text without storing it. Any thread may call
 * these functions. Errors are kept in the buf.
 */
#ifndef TEXT_TEXT_H
#define TEXT_TEXT_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "gguf/value.h"
#include "text/name.h"

void text_value(struct buf *out, const struct gguf_value *v);

/*
 * ---- a type as text ----
 *
 * "u8" ... "string", "array[u8]" ... "array[string]". Arrays of arrays are shown, not edited: they
 * have the type of all their inner arrays, "array[array[u8]]", or "array[array]" where those differ
 * or where there are none.
 */

/* Append the name of a value's type. The buf must not be in measure mode. */
void type_name_put(const struct gguf_value *v, struct buf *out);
/* Parse the name of a type; that of an array of arrays gives array[array]. Returns false if there
 * is no such type. */
bool type_name_get(const char *name, size_t n, uint32_t *type, uint32_t *elem);

/* Parse "KEY:TYPE", the name of a file, where TYPE names a type. Returns false for other names. */
bool type_of_name(const char *file, char key[TREE_NAME_MAX + 1], uint32_t *type, uint32_t *elem);

/* ---- a value from its text ---- */

/*
 * The accepted texts include more than text_value() writes:
 *
 *   integer, float, bool  see text/number.h; space, tab, CR and LF around it are dropped
 *   string                the bytes, without one newline at the end if there is one; UTF-8
 *   array                 one JSON value per line, or one JSON array over any number of lines. CRLF
 *                         and blank lines at the end, or before a "[" that begins the text, are
 *                         dropped; no text at all is an empty array
 *
 * Errors: -EINVAL not a value of this type, -ERANGE outside its range, -EILSEQ a string that is not
 * UTF-8, -EFBIG over 1 GiB, -EOPNOTSUPP a change of an array of arrays, -ENOMEM. For arrays, err
 * names the line of the text.
 */

/*
 * Append the value's bytes to payload, as the file stores them after the value type. fmt: the
 * model's format, version 2 or 3.
 *
 * old: the value that the file shows (in the same format), or NULL. If it has the same type, then
 * its own text always yields its own bytes. In any other text, unchanged NaNs, true bools and inner
 * arrays keep their bytes.
 *
 * On failure, payload is unchanged (except for buf_error() after -ENOMEM).
 */
int text_parse(const struct gguf_format *fmt, uint32_t type, uint32_t elem, const uint8_t *text,
               size_t n, const struct gguf_value *old, struct buf *payload, struct err *e);

/* Return true if this text, which is being written, ends in a newline and can only be followed by blanks
 * or by more lines of an array, so that an error in it is final. */
bool text_is_whole(const uint8_t *text, size_t n);

/* ---- the type of a new value ---- */

/*
 * Choose the type of a new value. row: the key's row, or NULL. A count is u64 if it does not fit
 * into u32; if the row allows one value per layer, a text of several lines or in brackets is an
 * array.
 *
 * Without a row the text alone decides: true or false is bool; an integer is the first of u32, i32,
 * u64, i64 that can hold it; any other number (-0, a point, an exponent, inf, nan) is f32, or f64
 * if f32 is too narrow; a JSON array with values of a single kind is an array of that kind (of
 * strings if it has no values); anything else is a string. text_parse() accepts the text as this
 * type.
 */
void text_new_type(const struct key_row *row, const uint8_t *text, size_t n, uint32_t *type,
                   uint32_t *elem);

#endif

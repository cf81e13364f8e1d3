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

void text_value(struct buf *out, const struct gguf_value *v);

/*
 * ---- a type as text ----
 *
 * The type of a value as text, including the type of each inner array:
 *
 *     type  = "u8" ... "string" | "array[" list "]"
 *     list  = "u8" ... "string"             elements, not arrays
 *           | "array"                       arrays of the types that fit their values
 *           | inner {"," inner}             arrays of these types, in this order;
 *     inner = "array[" list "]" ["*" N]     each N times, the last one for all that follow
 *
 * So array[array[u8]] is an array of arrays of u8, and array[array[i32]*2,array[string]] has two
 * arrays of i32 and then one or more of strings.
 */

/* Maximum length of a name, below the kernel's limit for an attribute. */
#define TYPE_NAME_MOST 32768

struct type_name {
    uint32_t type, elem;
    struct text inner; /* the list of inner types, if there is one; a range of the name */
};

/* Append the name of a value's type. If it would be longer than TYPE_NAME_MOST, inner types are
 * left out: array[array]. The buf must not be in measure mode. */
void type_name_put(const struct gguf_value *v, struct buf *out);
/* Parse a name. Returns false if there is no such type. ret->inner points into the name. */
bool type_name_get(const char *name, size_t n, struct type_name *ret);

/* ---- a value from its text ---- */

/*
 * The accepted texts include more than text_value() writes:
 *
 *   integer, float, bool  see text/number.h; space, tab, CR and LF around it are dropped
 *   string                the bytes, without one newline at the end if there is one; UTF-8
 *   array                 one JSON value per line, or (except for arrays of arrays) one JSON array,
 *                         over any number of lines. CRLF and blank lines at the end, or before a
 *                         "[" that begins the text, are dropped; no text at all is an empty array
 *   array of arrays       one JSON array per line, or over any number of lines. Each has its own
 *                         element type: the specified type, or else that of the old array in the
 *                         same place (or of the last old array) if it fits, or else one that its
 *                         values suggest
 *
 * Errors: -EINVAL not a value of this type, -ERANGE outside its range, -EILSEQ a string that is not
 * UTF-8, -EFBIG over 1 GiB, -ENOMEM. For arrays, err names the line of the text.
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
int text_parse(const struct gguf_format *fmt, const struct type_name *t, const uint8_t *text,
               size_t n, const struct gguf_value *old, struct buf *payload, struct err *e);

/* ---- a text while it is still being written ---- */

/*
 * Check the first n bytes of a text that is still being written. Returns 0, or the error that
 * text_parse() would return no matter how the text continues. It misses some of these errors, but
 * never refuses a text that can still become valid (strings are not checked, because they may equal
 * the old value). It reads the first line of an array, and at most 4096 bytes.
 */
int text_prefix_check(uint32_t type, uint32_t elem, const uint8_t *text, size_t n);

/* ---- the type of a new value ---- */

/*
 * Choose the type of a new value. row: the key's row, or NULL. A count is u64 if it does not fit
 * into u32; if the row allows one value per layer, a text of several lines or in brackets is an
 * array.
 *
 * Without a row the text alone decides: true or false is bool; an integer is the first of u32, i32,
 * u64, i64 that can hold it; any other number (-0, a point, an exponent, inf, nan) is f32, or f64
 * if f32 is too narrow; a JSON array with values of a single kind at each depth is an array of that
 * kind (of strings if it has no values); anything else is a string. If the values are themselves
 * arrays, the text is read as one line of an array of arrays: it is that array's only element.
 * text_parse() accepts the text as this type.
 */
void text_new_type(const struct key_row *row, const uint8_t *text, size_t n, uint32_t *type,
                   uint32_t *elem);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * The type of a new metadata value, from its key's row in the table of standardized keys and from
 * its text. Threads: any.
 */
#ifndef TEXT_TEXT_INFER_H
#define TEXT_TEXT_INFER_H

#include <stddef.h>
#include <stdint.h>

#include "gguf/keys.h"

/*
 * From the text alone: true or false is bool; an integer is the first of u32, i32, u64, i64 that
 * holds it; another number (-0, a point, an exponent, inf, nan) is f32, or f64 if f32 is too
 * narrow; a JSON array whose values are of one kind, at each depth, is an array of them (without
 * values: of strings); anything else is a string. The text of an array of arrays is one inner
 * array, its only element, as a line of such a text is. text_parse() accepts the text as the type
 * found here.
 */
void text_infer(const uint8_t *text, size_t n, uint32_t *type, uint32_t *elem);

/*
 * row: of the key, or NULL. A count is u64 where it needs to be; where a value may be given for
 * each layer, text of several lines or in brackets is an array.
 */
void text_new_type(const struct key_row *row, const uint8_t *text, size_t n, uint32_t *type,
                   uint32_t *elem);

#endif

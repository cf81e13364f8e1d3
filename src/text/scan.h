/* SPDX-License-Identifier: MIT */
/*
 * A number or truth value from its text, the whole of the n bytes.
 *
 *   integer  an optional sign (+ or -) and decimal digits; leading zeros are allowed
 *   float    what strtod(3) takes in the C locale, in decimal: an integer, 1.5, .5, 5., 1e-5; nan,
 *            inf, infinity in any case; an optional sign. Rounded correctly to the given type: too
 *            small becomes 0, too large is an error
 *   bool     true, false
 *
 * Nothing depends on the locale. Threads: any.
 */
#ifndef TEXT_SCAN_H
#define TEXT_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct integer {
    bool minus;
    uint64_t magnitude;
};

/* 0, -EINVAL: not an integer, -ERANGE: its magnitude is over u64. */
int scan_integer(const uint8_t *p, size_t n, struct integer *ret);
/* True if the integer type (enum gguf_value_type) holds it; -0 is 0. */
bool integer_fits(uint32_t type, const struct integer *v);

/*
 * A value of any type but string and array, as its bits (low width bytes).
 * 0, -EINVAL: not a value of this type, -ERANGE: outside its range, -ENOMEM.
 */
int scan_scalar(uint32_t type, const uint8_t *p, size_t n, uint64_t *bits);

/* True if the text is a float as above (of whatever size), integers included. */
bool scan_is_float(const uint8_t *p, size_t n);
/* True if more text could complete it to nan, inf or infinity. */
bool scan_begins_word(const uint8_t *p, size_t n);

/* Space, tab, CR and LF: allowed around numbers and between JSON values. */
static inline bool is_space(uint8_t c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* Drop such bytes at both ends. */
void scan_trim(const uint8_t **p, size_t *n);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * Numbers as decimal text, and back.
 *
 * Integers are exact. A float is written as the shortest decimal that parses back to the same bits
 * (at its own precision; if there are several, the one nearest to the value), laid out as in
 * Python: plain notation if the place value of the first digit is from 10^-4 to 10^15 (0.0001,
 * 10000), exponent notation otherwise (1e-05, 3.4028235e+38). No ".0" is added. Finite floats are
 * valid JSON numbers. For other floats the caller passes a table of words.
 *
 * The program stays in the C locale. Any thread may call these functions.
 */
#ifndef TEXT_NUMBER_H
#define TEXT_NUMBER_H

#include "base/buf.h"
#include "gguf/value.h"

struct float_names {
    const char *nan, *inf, *minus_inf;
};

extern const struct float_names float_names_text; /* "nan", "inf", "-inf" */

/* Append v, which is a float32 if `single` is true. */
void text_float(struct buf *out, double v, bool single, const struct float_names *names);

/* Append the text of a value of any kind except string and array. */
void text_scalar(struct buf *out, const struct gguf_value *v, const struct float_names *names);

/*
 * ---- from text ----
 *
 * Reads a number or truth value that fills all n bytes.
 *
 *   integer  an optional sign (+ or -) and decimal digits; leading zeros are allowed
 *   float    what strtod(3) takes in the C locale, in decimal: an integer, 1.5, .5, 5., 1e-5; nan,
 *            inf, infinity in any case; an optional sign. Rounded correctly to the given type: too
 *            small becomes 0, too large is an error
 *   bool     true, false
 */

struct integer {
    bool minus;
    uint64_t magnitude;
};

/* Read an integer. Returns 0, -EINVAL (not an integer) or -ERANGE (magnitude above u64). */
int scan_integer(const uint8_t *p, size_t n, struct integer *ret);
/* True if the integer type (enum gguf_value_type) can hold *v. -0 counts as 0. */
bool integer_fits(uint32_t type, const struct integer *v);

/*
 * Read a value of any type except string and array. Stores the value in the low bytes of *bits,
 * using as many as the type has. Returns 0, -EINVAL (not a value of this type), -ERANGE (out of
 * range) or -ENOMEM.
 */
int scan_scalar(uint32_t type, const uint8_t *p, size_t n, uint64_t *bits);

/* Space, tab, CR and LF: allowed around numbers and between JSON values. */
static inline bool is_space(uint8_t c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static inline bool is_digit(int c)
{
    return c >= '0' && c <= '9';
}

/* Drop spaces at both ends. */
void scan_trim(const uint8_t **p, size_t *n);

#endif

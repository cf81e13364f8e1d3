/* SPDX-License-Identifier: MIT */
/*
 * Numbers as decimal text.
 *
 * Integers are exact. A float is the shortest decimal that parses back to the same bits (at its own
 * precision; of several, the one nearest to the value), laid out as in Python: plain notation where
 * the first digit counts 10^-4 to 10^15 (0.0001, 10000), exponent notation otherwise (1e-05,
 * 3.4028235e+38). No ".0" is added. Finite floats are valid JSON numbers. The caller passes a table
 * with the words for the others.
 *
 * Nothing depends on the locale. Threads: any.
 */
#ifndef TEXT_NUMBER_H
#define TEXT_NUMBER_H

#include "base/buf.h"
#include "gguf/value.h"

struct float_names {
    const char *nan, *inf, *minus_inf;
};

extern const struct float_names float_names_text; /* nan, inf, -inf */

void text_u64(struct buf *out, uint64_t v);
void text_i64(struct buf *out, int64_t v);
void text_f32(struct buf *out, float v, const struct float_names *names);
void text_f64(struct buf *out, double v, const struct float_names *names);

/* A value of any kind but string and array. */
void text_scalar(struct buf *out, const struct gguf_value *v, const struct float_names *names);

#endif

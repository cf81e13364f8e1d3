/* SPDX-License-Identifier: MIT */
/*
 * The kinds of values of a JSON array in a text, and so the element types that it can have.
 * Private to text_parse and text_infer.
 */
#ifndef TEXT_SHAPE_H
#define TEXT_SHAPE_H

#include "text/json_read.h"

enum shape_kind {
    SHAPE_STRING = 1 << 0,
    SHAPE_BOOL = 1 << 1,
    SHAPE_INTEGER = 1 << 2,
    SHAPE_FLOAT = 1 << 3,
    SHAPE_ARRAY = 1 << 4,
};

struct shape {
    unsigned kinds;        /* of the elements: set of enum shape_kind; 0 when empty */
    uint64_t max;          /* largest magnitude of an integer that is not negative ... */
    uint64_t max_negative; /* ... and of one that is */
    bool huge;             /* an integer is over u64 */
    bool minus_zero;       /* an integer is -0: of the types, only floats hold it */
    bool wide;             /* a float is outside the range of f32 */
    bool mixed;            /* an array further in has no type (shape_type()) */
    unsigned depth;        /* levels of nested arrays, itself included */
};

/* Add the value whose text is the word; false: not a JSON value (a bare word). */
bool shape_add_word(struct shape *s, const uint8_t *word, size_t n);

/*
 * Read the array at r->at, "[", past its end. Brackets may be GGUF_MAX_DEPTH deep. 0, or an error
 * in r->err.
 */
int shape_array(struct reader *r, struct shape *s);

/* True if an array of this element type can hold the values. */
bool shape_fits(const struct shape *s, uint32_t elem);

/*
 * The element type for values of one kind: for integers the first of u32, i32, u64, i64 that holds
 * all; for numbers with a float or a -0 among them f32 (f64 if one is outside the range of f32);
 * string, bool, array. False if the kinds are mixed, an integer is too large, or there are no
 * values.
 */
bool shape_type(const struct shape *s, uint32_t *elem);

#endif

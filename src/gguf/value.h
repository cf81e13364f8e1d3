/* SPDX-License-Identifier: MIT */
/*
 * Typed metadata values as they are stored in the file.
 *
 * A struct gguf_value is a view: it points into bytes that it does not own (the header of a parsed
 * model) and that were checked when they were parsed. Arrays are walked element by element:
 *
 *     struct gguf_value v = gguf_value(g, kv), item;
 *     for (struct gguf_walk w = gguf_walk(&v); gguf_next(&w, &item);) ...
 *
 * Source: the GGUF specification's gguf_metadata_value_type.
 */
#ifndef GGUF_VALUE_H
#define GGUF_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum gguf_value_type {
    GGUF_U8 = 0,
    GGUF_I8 = 1,
    GGUF_U16 = 2,
    GGUF_I16 = 3,
    GGUF_U32 = 4,
    GGUF_I32 = 5,
    GGUF_F32 = 6,
    GGUF_BOOL = 7, /* one byte; any value but 0 is true */
    GGUF_STRING = 8,
    GGUF_ARRAY = 9,
    GGUF_U64 = 10, /* this type and the next two exist since version 2 */
    GGUF_I64 = 11,
    GGUF_F64 = 12,
    GGUF_VALUE_TYPES
};

enum gguf_kind {
    GGUF_KIND_UINT,
    GGUF_KIND_INT,
    GGUF_KIND_FLOAT,
    GGUF_KIND_BOOL,
    GGUF_KIND_STRING,
    GGUF_KIND_ARRAY
};

/* A row for each value type: the only list of them. */
struct gguf_type_row {
    const char *name; /* "u8" ... "f64", "bool", "string", "array" */
    uint8_t width;    /* size of a value in bytes; 0: not fixed */
    uint8_t kind;     /* enum gguf_kind */
};

extern const struct gguf_type_row gguf_types[GGUF_VALUE_TYPES];

/* How to read the numbers and strings of a file. */
struct gguf_format {
    uint8_t version;   /* 1, 2 or 3 */
    bool big;          /* byte order of every number */
    bool draft;        /* version 1 as in the first draft of the specification */
    bool nul;          /* the length of every string counts a trailing NUL (early writers) */
    uint8_t len_width; /* bytes of a count, string length or dimension: 4 in version 1, else 8 */
};

struct gguf_value {
    const struct gguf_format *fmt;
    const uint8_t *data; /* number: its bytes; string: its text; array: its first element */
    /* Size of a number or string in bytes, without a counted NUL. Not used for arrays. */
    uint64_t len;
    uint64_t count; /* number of elements of an array */
    uint8_t type;   /* enum gguf_value_type */
    uint8_t elem;   /* element type of an array */
};

/* Return the value of `type` whose bytes, already checked, begin at p. */
struct gguf_value gguf_value_at(const struct gguf_format *fmt, uint32_t type, const uint8_t *p);

/* A walk over the elements of an array. */
struct gguf_walk {
    const struct gguf_format *fmt;
    const uint8_t *at; /* the next element's bytes; after the walk, the end of the array */
    uint64_t left;     /* elements left */
    uint8_t elem;      /* their type */
};

struct gguf_walk gguf_walk(const struct gguf_value *array);
/* Get the next element. Returns false at the end. */
bool gguf_next(struct gguf_walk *w, struct gguf_value *item);

/* Return the end of the value's bytes, walking arrays whose elements vary in size. */
const uint8_t *gguf_value_end(const struct gguf_value *v);

/* Return a number. The type's kind determines which function to call (for a bool gguf_uint(), which
 * returns 0 or another number). */
uint64_t gguf_uint(const struct gguf_value *v);
int64_t gguf_int(const struct gguf_value *v);
double gguf_float(const struct gguf_value *v); /* F32 and F64, exact */

/* Write "u32", "string", "array[i32]" or "array[array]", at most 16 bytes with the NUL. */
#define GGUF_TYPE_NAME_MAX 16
const char *gguf_type_name(const struct gguf_value *v, char dst[GGUF_TYPE_NAME_MAX]);

#endif

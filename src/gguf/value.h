/* SPDX-License-Identifier: MIT */
/*
 * Metadata: typed values as they are stored in the file, and the names and types of keys.
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
#include <string.h>

/* A range of bytes that is text. */
struct text {
    const char *at;
    size_t len;
};

static inline bool text_is(struct text t, const char *word)
{
    return t.at && t.len == strlen(word) && memcmp(t.at, word, t.len) == 0;
}

static inline bool text_same(struct text a, struct text b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.at, b.at, a.len) == 0);
}

static inline bool text_begins(struct text t, const char *word)
{
    return t.len >= strlen(word) && memcmp(t.at, word, strlen(word)) == 0;
}

/* Return true if t ends with the tail and other bytes precede it. */
static inline bool text_ends(struct text t, const char *tail)
{
    return t.len > strlen(tail) && memcmp(t.at + t.len - strlen(tail), tail, strlen(tail)) == 0;
}

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
    GGUF_U64 = 10, /* U64, I64 and F64 were added in version 2 */
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

/* A row of gguf_types, the only list of value types. */
struct gguf_type_row {
    const char *name; /* "u8" ... "f64", "bool", "string", "array" */
    uint8_t width;    /* size of a value in bytes; 0: not fixed */
    uint8_t kind;     /* enum gguf_kind */
};

extern const struct gguf_type_row gguf_types[GGUF_VALUE_TYPES];

/* How a file stores numbers and strings. */
struct gguf_format {
    uint8_t version;   /* 1, 2 or 3 */
    bool big;          /* every number is big-endian */
    bool draft;        /* version 1 as in the first draft of the specification */
    bool nul;          /* every string's length counts a NUL at its end (early writers) */
    uint8_t len_width; /* bytes of a count, string length or dimension: 4 in version 1, else 8 */
};

struct gguf_value {
    const struct gguf_format *fmt;
    const uint8_t *data; /* number: its bytes; string: its text; array: its first element */
    uint64_t len;        /* size in bytes of a number or string, without the NUL of fmt->nul */
    uint64_t count;      /* number of elements of an array */
    uint8_t type;        /* enum gguf_value_type */
    uint8_t elem;        /* element type of an array */
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
/* Get the next element. At the end, returns false and leaves *item unchanged. */
bool gguf_next(struct gguf_walk *w, struct gguf_value *item);

/* Return the end of the value's bytes, walking arrays whose elements vary in size. */
const uint8_t *gguf_value_end(const struct gguf_value *v);

/* Return a number. Use the function that matches the type; for a bool, use gguf_uint(), which
 * returns 0 for false. */
uint64_t gguf_uint(const struct gguf_value *v);
int64_t gguf_int(const struct gguf_value *v);
double gguf_float(const struct gguf_value *v); /* for F32 and F64; the result is exact */

/* Write "u32", "string", "array[i32]" or "array[array]", at most 16 bytes including the NUL. */
#define GGUF_TYPE_NAME_MAX 16
const char *gguf_type_name(const struct gguf_value *v, char dst[GGUF_TYPE_NAME_MAX]);

/*
 * ---- keys ----
 *
 * A table of standardized keys with the types that writers use and readers demand, from the GGUF
 * specification and, for later keys, llama.cpp's writer. Where the specification says uint64 for a
 * count or length, writers use u32: such a key has the flag KEY_COUNT here.
 */

#define KEY_MAX 65535 /* in bytes; the specification's limit */

#define KEY_RESERVE "ggufs.reserve" /* spaces that give the header room to grow (edit/plan.h) */
#define KEY_SPLIT_PREFIX "split."

enum key_flags {
    KEY_COUNT = 1 << 0,     /* u32; a value too large for it becomes u64, which readers refuse */
    KEY_PER_LAYER = 1 << 1, /* one value, or an array (of elem) with one per layer */
    KEY_SIGN = 1 << 2,      /* u32 and i32 are both in use */
};

struct key_row {
    /* Segments separated by dots. [arch]: an architecture; {i}: a number; {name}: any segment. */
    const char *pattern;
    uint8_t type;  /* enum gguf_value_type */
    uint8_t elem;  /* element type of an array, including one that a flag allows */
    uint8_t flags; /* set of enum key_flags */
};

extern const struct key_row key_table[];
extern const size_t key_table_len;

/* Return the row of a key, or NULL if the key is not standardized. */
const struct key_row *key_find(const char *key, size_t n);

/* True if a value of this type (for an array, with elements of type `elem`) fits the row. */
bool key_type_fits(const struct key_row *row, uint32_t type, uint32_t elem);

/*
 * True if a key may be created with this name: segments of ASCII letters, digits, "_" and "-",
 * separated by single dots, at most KEY_MAX bytes. The specification allows neither upper case nor
 * "-", but both are widely used and are safe in a file name.
 */
bool key_valid(const char *key, size_t n);

/* True for keys that only this program writes: `split.*` and `ggufs.reserve`. */
bool key_is_own(const char *key, size_t n);

/* True if the specification allows the key: like key_valid(), but without upper case and "-". */
bool key_lower_snake(const char *key, size_t n);

#endif

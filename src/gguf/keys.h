/* SPDX-License-Identifier: MIT */
/*
 * Syntax of metadata keys, and the table of standardized keys with the types that writers use and
 * readers demand.
 *
 * Sources: the GGUF specification, and llama.cpp's writer for later keys. Where the specification
 * says uint64 for a count or length, writers use u32: such a key is a count here. Threads:
 * everything is constant.
 */
#ifndef GGUF_KEYS_H
#define GGUF_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KEY_MAX 65535 /* in bytes, by the specification */

/* Keys that only this program writes: spaces into which the header grows (edit/plan.h), and the
 * common prefix of the keys of split models. */
#define KEY_RESERVE "ggufs.reserve"
#define KEY_SPLIT_PREFIX "split."

enum key_flags {
    KEY_COUNT = 1 << 0,     /* u32; a new value that needs more is u64, which readers refuse */
    KEY_PER_LAYER = 1 << 1, /* one value, or an array (of elem) with one per layer */
    KEY_SIGN = 1 << 2,      /* u32 and i32 are both in use */
};

struct key_row {
    /* Segments separated by dots. [arch]: an architecture; {i}: a number; {name}: any segment. */
    const char *pattern;
    uint8_t type;  /* enum gguf_value_type */
    uint8_t elem;  /* element type of an array, also where a flag allows an array */
    uint8_t flags; /* set of enum key_flags */
};

extern const struct key_row key_table[];
extern const size_t key_table_len;

/* Return the row of a key, or NULL if the key is not standardized. */
const struct key_row *key_find(const char *key, size_t n);

/* An index of the rows by their last segment, for looking up many keys. */
#define KEY_ROWS_MOST 512
struct key_index {
    uint16_t first[256], next[KEY_ROWS_MOST]; /* row numbers, counted from 1; 0 ends a chain */
};
void key_index(struct key_index *ret);
const struct key_row *key_index_find(const struct key_index *x, const char *key, size_t n);

/* True if a value of this type (for an array, with elements of type `elem`) fits the row. */
bool key_type_fits(const struct key_row *row, uint32_t type, uint32_t elem);

/*
 * True if a key may be created with this name: segments of ASCII letters, digits, "_" and "-",
 * separated by single dots, at most KEY_MAX bytes. The specification allows neither upper case nor
 * "-", but both are in wide use, and safe in a file name.
 */
bool key_valid(const char *key, size_t n);

/* True for keys that only this program writes: `split.*` and `ggufs.reserve`. */
bool key_is_own(const char *key, size_t n);

/* True if the specification allows the key: as for key_valid(), without upper case and "-". */
bool key_lower_snake(const char *key, size_t n);

#endif

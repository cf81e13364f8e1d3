/* SPDX-License-Identifier: MIT */
/* Classifies names in metadata/: a key, or one of the files that editors and other tools create
 * beside the file being edited. Also parses the names of types. Any thread may call it. */
#ifndef LIVE_HELPER_H
#define LIVE_HELPER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "text/name.h"
#include "text/type_name.h"

/* ---- the future type of a value, if known before there is a value ---- */

struct typed {
    bool set;
    uint32_t type, elem;
    /* The list of the types of inner arrays (type_name.h), constant; NULL if unknown. */
    const char *inner;
};

/* Parse the name of a type: "u32", "array[string]", "array[array[u8]]". Returns false if there is
 * no such type, or if this process already has too many lists of inner types. */
bool type_by_name(const char *name, size_t n, struct typed *ret);
/* Return the type of a value, including those of inner arrays. */
struct typed type_of_value(const struct gguf_value *v);

/* Return the type in the form that text_parse_as() expects. */
struct type_name type_to_parse(const struct typed *t);
void type_put(const struct typed *t, struct buf *out);

/* ---- names ---- */

enum name_class {
    NAME_KEY,     /* may be a key: it follows the syntax in the specification */
    NAME_HELPER,  /* matches a known pattern; lives in memory and never becomes a key */
    NAME_STRAY,   /* cannot be a key, as it has no dot, and matches no known pattern */
    NAME_INVALID, /* none of these */
};

/* True if a key has this file name of n bytes, which is not NUL-terminated. */
typedef bool key_known_fn(void *ctx, const char *file, size_t n);

/*
 * A helper's name begins with "." or "#", ends in "~", or has no dot; or it is a key's name with a
 * suffix: .bak .orig .tmp .new .old .rej .swp .save, a dot and six letters or digits, or six
 * letters or digits and .bck.
 */
enum name_class name_classify(const char *file, key_known_fn *known, void *ctx);

/* Parse "KEY:TYPE", where TYPE names a value type. Returns false for other names. */
bool name_typed(const char *file, char key[TREE_NAME_MAX + 1], struct typed *ret);

#endif

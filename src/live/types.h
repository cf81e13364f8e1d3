/* SPDX-License-Identifier: MIT */
/*
 * The type that a value is to have, where that is known before there is a value.
 *
 * Threads: any.
 */
#ifndef LIVE_TYPES_H
#define LIVE_TYPES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "text/type_name.h"

struct typed {
    bool set;
    uint32_t type, elem;
    const char
        *inner; /* the list of types of inner arrays (type_name.h), constant; NULL: unknown */
};

/* A type by name: "u32", "array[string]", "array[array[u8]]". False: no such type, or one more list
 * of inner types than a process keeps. */
bool type_by_name(const char *name, size_t n, struct typed *ret);
/* The type of a value, with those of inner arrays. */
struct typed type_of_value(const struct gguf_value *v);

/* The same for text_parse_as(). */
struct type_name type_to_parse(const struct typed *t);
/* Its name. */
void type_put(const struct typed *t, struct buf *out);

#endif

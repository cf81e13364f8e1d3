/* SPDX-License-Identifier: MIT */
/*
 * The type of a value as a text, with the types of inner arrays, each of which has its own:
 *
 *     type  = "u8" ... "string" | "array[" list "]"
 *     list  = "u8" ... "string"             elements, not arrays
 *           | "array"                       arrays of whatever type fits their values
 *           | inner {"," inner}             arrays of these types, in this order;
 *     inner = "array[" list "]" ["*" N]     each N times, the last one for all that follow
 *
 * So array[array[u8]] is an array of arrays of u8, and array[array[i32]*2,array[string]] has two
 * arrays of i32 and then one or more of strings.
 *
 * Threads: any.
 */
#ifndef TEXT_TYPE_NAME_H
#define TEXT_TYPE_NAME_H

#include "base/buf.h"
#include "gguf/value.h"

/* The longest name that is made or read: less than the kernel passes as an attribute. */
#define TYPE_NAME_MOST 32768

/* A list as above: bytes of a name, not owned. p NULL: none. */
struct type_list {
    const char *p;
    size_t n;
};

struct type_name {
    uint32_t type, elem;
    struct type_list inner; /* of an array of arrays: what they are, if the name says so */
};

/* A longer name than TYPE_NAME_MOST leaves inner types out: array[array]. */
void type_name_put(const struct gguf_value *v, struct buf *out);
/* False if there is no such type. ret->inner points into the name. */
bool type_name_get(const char *name, size_t n, struct type_name *ret);
/* True if the value is of the type that the list of inner types names. */
bool type_name_is(const struct gguf_value *v, struct type_list inner);

/* The lists of inner arrays, one after another. */
struct type_walk {
    struct type_list left; /* from the present item on */
    uint64_t used;         /* how often that was taken */
};

static inline struct type_walk type_walk(struct type_list list)
{
    return (struct type_walk){.left = list};
}

/* The next inner array: its element type, and the list of its own elements if they are arrays.
 * False: the list does not say. */
bool type_walk_next(struct type_walk *w, uint32_t *elem, struct type_list *inner);

#endif

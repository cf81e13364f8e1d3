/* SPDX-License-Identifier: MIT */
/*
 * The type of a value as text, including the type of each inner array:
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

/* The longest name written or read: less than the kernel passes as an attribute. */
#define TYPE_NAME_MOST 32768

/* A list as above: bytes of a name, not owned. p NULL: no list. */
struct type_list {
    const char *p;
    size_t n;
};

struct type_name {
    uint32_t type, elem;
    struct type_list inner; /* of an array of arrays: the inner types, if the name gives them */
};

/* A name longer than TYPE_NAME_MOST leaves inner types out: array[array]. The buf must not be in measure mode. */
void type_name_put(const struct gguf_value *v, struct buf *out);
/* False if there is no such type. ret->inner points into the name. */
bool type_name_get(const char *name, size_t n, struct type_name *ret);
/* True if the value's inner arrays have the types in the list. */
bool type_name_is(const struct gguf_value *v, struct type_list inner);

/* An inner type of a list. */
struct type_node {
    /* the next one; NULL: this is the last, and applies to all that follow */
    const struct type_node *next;
    const struct type_node *inner; /* the first node of its own list; NULL: it has none */
    uint64_t times;
    uint32_t elem; /* the element type of such arrays */
};

/*
 * Parse the inner types of a list from type_name_get(). The first is *ret: owned, free() drops them all; NULL: the
 * list is empty. The name is not needed afterwards. 0 or -ENOMEM.
 */
int type_nodes(struct type_list list, struct type_node **ret);

/* A walk over the types of inner arrays. */
struct type_walk {
    const struct type_node *at; /* the current one; NULL: the list does not say */
    uint64_t used;              /* how many times it was used */
};

static inline struct type_walk type_walk(const struct type_node *list)
{
    return (struct type_walk){.at = list};
}

/* The type of the next inner array; NULL: the list does not say. */
const struct type_node *type_walk_next(struct type_walk *w);

#endif

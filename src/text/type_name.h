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
 * Any thread may call these functions.
 */
#ifndef TEXT_TYPE_NAME_H
#define TEXT_TYPE_NAME_H

#include "base/buf.h"
#include "gguf/value.h"

/* Maximum length of a name, below the kernel's limit for an attribute. */
#define TYPE_NAME_MOST 32768

/* A list as described above: a range of a name, which it does not own. p is NULL if there is no
 * list. */
struct type_list {
    const char *p;
    size_t n;
};

struct type_name {
    uint32_t type, elem;
    struct type_list inner; /* inner types of an array of arrays, if the name gives them */
};

/* Append the name of a type. If it would be longer than TYPE_NAME_MOST, inner types are left out:
 * array[array]. The buf must not be in measure mode. */
void type_name_put(const struct gguf_value *v, struct buf *out);
/* Parse a name. Returns false if there is no such type. ret->inner points into the name. */
bool type_name_get(const char *name, size_t n, struct type_name *ret);
/* True if the value's inner arrays have the types in the list. */
bool type_name_is(const struct gguf_value *v, struct type_list inner);

/* An inner type of a list. */
struct type_node {
    /* The next type, or NULL if this is the last, which applies to all arrays that follow. */
    const struct type_node *next;
    const struct type_node *inner; /* first node of its own list, or NULL */
    uint64_t times;
    uint32_t elem; /* element type of these arrays */
};

/*
 * Parse the inner types of a list from type_name_get(). Sets *ret to the first node, or NULL if the
 * list is empty; free() on it drops all nodes. The name is not needed afterwards. Returns 0 or
 * -ENOMEM.
 */
int type_nodes(struct type_list list, struct type_node **ret);

/* A walk over the types of inner arrays. */
struct type_walk {
    const struct type_node *at; /* the current node; NULL: the list does not say */
    uint64_t used;              /* number of times the node was used */
};

static inline struct type_walk type_walk(const struct type_node *list)
{
    return (struct type_walk){.at = list};
}

/* Return the type of the next inner array, or NULL if the list does not say. */
const struct type_node *type_walk_next(struct type_walk *w);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * A shelf, and where a node is in it: in the shelf itself, in a model's tree, or one of the extra files of a model's
 * folder. Private to the shelf.
 *
 * Threads: any.
 */
#ifndef SHELF_AT_H
#define SHELF_AT_H

#include <stdatomic.h>

#include "shelf/slots.h"

struct shelf {
    struct shelf_options opt;
    struct tree *one;         /* owned: a model that is mounted alone; NULL: it is a folder */
    _Atomic(uint64_t) rights; /* its tree_look() of the last time; 0: never */
    bool store;               /* the folder is a store when it is mounted */
    struct reach reach;
    struct slots slots;
};

/* Of a model's folder what is not its tree's, by numbers in its slot that no tree uses. */
enum { EXTRA_SOURCE = 1, EXTRA_ERROR = 2, EXTRA_SHARDS = 16 };

static inline uint64_t extra_ino(uint32_t extra)
{
    return ino_make(INO_FIXED, extra, 0);
}

/* The number of an extra file: EXTRA_SOURCE, EXTRA_ERROR, EXTRA_SHARDS + i; 0: not an extra file. */
static inline uint32_t extra_of(uint64_t local)
{
    bool fixed = (local & 3) == INO_FIXED && (local >> INO_KIND_BITS & INO_MAX_ROWS) == 0;
    return fixed ? (uint32_t)(local >> (INO_KIND_BITS + INO_ROW_BITS)) : 0;
}

/* A node of a mount, as the calls see it. */
struct at {
    uint64_t node;  /* of the slot: a folder or text, or the folder of the model that it is in */
    uint64_t local; /* the number in the slot */
    bool in_tree;   /* of a model; else it is: */
    bool own;       /* a folder or text of the shelf itself */
    bool model;     /* a model's folder in a mount of many */
    uint32_t extra; /* a file in such a folder */
    struct use use; /* at_leave() it */
};
struct at at_node(const struct shelf *s, uint64_t node);

/* Use the tree that has a node, opened if it is closed. -errno. */
int at_enter(struct shelf *s, struct at *at);
static inline void at_leave(struct at *at)
{
    slot_leave(&at->use);
}
/* If r is 0 the kernel gets this entry of the tree in use, and knows its slot from then on. Returns r. */
int at_given(const struct use *u, int r, struct tree_entry *e);
/* An entry of a tree, with the numbers of the mount. */
void entry_in_slot(const struct use *u, struct tree_entry *e);

/* The line of a model that cannot be opened: 1; 0: it can be. */
int model_error(struct shelf *s, uint64_t node, struct buf *out);

struct shelf_file {
    struct shelf *shelf;
    struct use use; /* of a model's file */
    struct tree_file *file;
    int fd; /* of a store's text; else -1 */
    struct buf text;
};

#endif

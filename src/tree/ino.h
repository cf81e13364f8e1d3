/* SPDX-License-Identifier: MIT */
/*
 * Node numbers, by which the kernel names files. They are computed, not stored in a table:
 *
 *     slot << 39 | object << 7 | row << 2 | kind
 *
 * The slot is that of the model in a mount of many models; a tree has one model and slot 0. Row 0
 * is the object itself; row 1 + i is row i of the object's table of files. The kind determines the
 * object:
 *
 *     0   a state of the model: a view of the model has a node for each (number of the snapshot).
 *         `info`, which also shows the state of the mount (history.h), counts its own numbers.
 *     1   always 0: the root, and with a row a directory at the root
 *     2   a tensor: its directory
 *     3   a metadata key: its file
 *
 * Object numbers are never reused during the life of a mount. Slot numbers are reused once all have
 * been used and the kernel has forgotten the oldest.
 *
 * st_ino is the node number (in a mount of many models a hash of it, shelf/slots.h), except for
 * views of the whole, whose st_ino is that of a directory at the root with their row and is the
 * same in each state. To the kernel each state is a new file, so that the pages and attributes of
 * one node never change; to people it is the same file. st_ino stays below 2^32 in a mount of one
 * model with fewer than 2^25 tensors and keys, for programs whose ino_t has 32 bits.
 */
#ifndef TREE_INO_H
#define TREE_INO_H

#include <stdbool.h>
#include <stdint.h>

/* Each kind is a number times 2, plus 1 if it has a row. */
enum node_kind {
    NODE_NONE = 0,
    NODE_WHOLE = 1,
    NODE_ROOT = 2,
    NODE_DIR = 3,
    NODE_TENSOR = 4,
    NODE_TENSOR_FILE = 5,
    NODE_KEY = 6
};

struct node {
    enum node_kind kind;
    uint32_t row; /* row in its table; meaningless for an even kind */
    /* number of the tensor or key; for NODE_WHOLE, that of the snapshot or state */
    uint32_t number;
};

enum {
    INO_KIND_BITS = 2,
    INO_ROW_BITS = 5,
    INO_OBJECT_BITS = 32,
    INO_LOCAL_BITS = INO_OBJECT_BITS + INO_ROW_BITS + INO_KIND_BITS,
    INO_SLOT_BITS = 63 - INO_LOCAL_BITS, /* positive even if a program treats it as signed */
    INO_MAX_ROWS = (1 << INO_ROW_BITS) - 1,
    INO_ROOT = 1
};
#define INO_MAX_SLOTS ((uint32_t)1 << INO_SLOT_BITS)

enum ino_kind { INO_WHOLE, INO_FIXED, INO_TENSOR, INO_KEY };

static inline uint64_t ino_make(enum ino_kind kind, uint32_t object, uint32_t row)
{
    return ((uint64_t)object << INO_ROW_BITS | row) << INO_KIND_BITS | (uint64_t)kind;
}

static inline uint64_t ino_row(uint32_t row)
{
    return ino_make(INO_FIXED, 0, 1 + row);
}

static inline uint64_t ino_tensor(uint32_t tensor)
{
    return ino_make(INO_TENSOR, tensor, 0);
}

static inline uint64_t ino_tensor_file(uint32_t tensor, uint32_t row)
{
    return ino_make(INO_TENSOR, tensor, 1 + row);
}

static inline uint64_t ino_key(uint32_t key)
{
    return ino_make(INO_KEY, key, 0);
}

static inline uint64_t ino_whole(uint32_t number, uint32_t row)
{
    return ino_make(INO_WHOLE, number, 1 + row);
}

/* Make a number in the mount from a slot and a local number. The next two functions do the
 * reverse. */
static inline uint64_t ino_in_slot(uint32_t slot, uint64_t local)
{
    return (uint64_t)slot << INO_LOCAL_BITS | local;
}

static inline uint32_t ino_slot(uint64_t ino)
{
    return (uint32_t)(ino >> INO_LOCAL_BITS);
}

static inline uint64_t ino_local(uint64_t ino)
{
    return ino & (((uint64_t)1 << INO_LOCAL_BITS) - 1);
}

static inline struct node ino_node(uint64_t ino)
{
    const uint32_t row = (uint32_t)(ino >> INO_KIND_BITS) & INO_MAX_ROWS;
    const uint32_t object = (uint32_t)(ino >> (INO_KIND_BITS + INO_ROW_BITS));
    const enum ino_kind kind = ino & 3;
    if (ino_slot(ino) || (kind == INO_KEY && row) || (kind == INO_FIXED && object))
        return (struct node){NODE_NONE, 0, 0};
    return (struct node){(enum node_kind)(2 * kind + (row > 0)), row - 1, object};
}

static inline uint64_t ino_of(const struct node *n)
{
    const bool row = n->kind % 2;
    return ino_make((enum ino_kind)(n->kind / 2), n->number, row ? 1 + n->row : 0);
}

#endif

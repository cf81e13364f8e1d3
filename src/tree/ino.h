/* SPDX-License-Identifier: MIT */
/*
 * Node numbers: what the kernel calls a file by. They are arithmetic, no table stands behind them.
 *
 *     1                              the root
 *     2 + row                        a folder at the root, row of the table of root files
 *     1 << 32 | tensor << 4          a tensor's folder
 *     1 << 32 | tensor << 4 | 1+row  a file in it, row of the table of tensor files
 *     1 << 40 | key                  a metadata key
 *     1 << 62 | gen << 24 | state << 8 | row
 *                                    a view of the whole model, a node for each generation; of
 *                                    `info` also for each state of the mount (state.h)
 *
 * st_ino is the node number, but for views of the whole, whose st_ino is 2 + row in each
 * generation: to the kernel they are new files (so that pages and attributes of one node never
 * change), to people the same one.
 */
#ifndef TREE_INO_H
#define TREE_INO_H

#include <stdbool.h>
#include <stdint.h>

enum node_kind {
    NODE_NONE,
    NODE_ROOT,
    NODE_DIR,
    NODE_TENSOR,
    NODE_TENSOR_FILE,
    NODE_KEY,
    NODE_WHOLE
};

struct node {
    enum node_kind kind;
    uint32_t row;    /* of its table; without meaning for NODE_ROOT, NODE_TENSOR, NODE_KEY */
    uint32_t number; /* of the tensor or key */
    uint64_t gen;    /* NODE_WHOLE: number of the generation */
    uint32_t state;  /* NODE_WHOLE: of the mount, where the row shows it; else 0 */
};

#define INO_ROOT 1u
#define INO_ROWS 2u
#define INO_TENSORS ((uint64_t)1 << 32)
#define INO_KEYS ((uint64_t)1 << 40)
#define INO_WHOLE ((uint64_t)1 << 62)

static inline uint64_t ino_row(uint32_t row)
{
    return INO_ROWS + (uint64_t)row;
}

static inline uint64_t ino_tensor(uint32_t tensor)
{
    return INO_TENSORS + ((uint64_t)tensor << 4);
}

static inline uint64_t ino_tensor_file(uint32_t tensor, uint32_t row)
{
    return ino_tensor(tensor) + 1 + row;
}

static inline uint64_t ino_key(uint32_t key)
{
    return INO_KEYS + key;
}

static inline uint64_t ino_whole(uint64_t gen, uint32_t row)
{
    return INO_WHOLE | gen << 24 | row;
}

static inline uint64_t ino_state(uint64_t ino, uint32_t state)
{
    return ino | (uint64_t)state << 8;
}

static inline struct node ino_node(uint64_t ino)
{
    if (ino >= INO_WHOLE)
        return (struct node){NODE_WHOLE, (uint32_t)(ino & 0xff), 0, (ino & ~INO_WHOLE) >> 24,
                             (uint32_t)(ino >> 8 & 0xffff)};
    if (ino >= INO_KEYS)
        return (struct node){NODE_KEY, 0, (uint32_t)(ino - INO_KEYS), 0, 0};
    if (ino >= INO_TENSORS) {
        uint64_t at = ino - INO_TENSORS;
        uint32_t tensor = (uint32_t)(at >> 4), slot = (uint32_t)(at & 15);
        return slot ? (struct node){NODE_TENSOR_FILE, slot - 1, tensor, 0, 0}
                    : (struct node){NODE_TENSOR, 0, tensor, 0, 0};
    }
    if (ino >= INO_ROWS)
        return (struct node){NODE_DIR, (uint32_t)(ino - INO_ROWS), 0, 0, 0};
    return (struct node){ino == INO_ROOT ? NODE_ROOT : NODE_NONE, 0, 0, 0, 0};
}

#endif

/* SPDX-License-Identifier: MIT */
/* Stands in for editable tensors until this core has them: tree/tensors.c is compiled, but -o
 * tensors=edit is refused. */
#ifndef LIVE_TENSORS_H
#define LIVE_TENSORS_H

#include <errno.h>

#include "live/live.h"

enum tensor_view {
    TENSOR_RAW,
    TENSOR_F32,
    TENSOR_F32_NPY,
    TENSOR_F16,
    TENSOR_F16_NPY,
    TENSOR_BF16,
    TENSOR_TYPE,
    TENSOR_SHAPE,
    TENSOR_ASIDE,
    TENSOR_HELPER
};

struct live_folder {
    uint64_t generation;
    uint32_t hidden;
    bool removed;
    struct timespec mtime;
};

struct live_view;

static inline int live_tensor_find(struct live *l, const char *file, uint32_t *number)
{
    (void)l;
    (void)file;
    (void)number;
    return -EROFS;
}

static inline int live_tensor_of_version(struct live *l, uint32_t version, uint32_t *number)
{
    (void)l;
    (void)version;
    (void)number;
    return -EROFS;
}

static inline int live_tensor_folder(struct live *l, uint32_t number, bool fresh,
                                     struct live_folder *ret)
{
    (void)l;
    (void)number;
    (void)fresh;
    (void)ret;
    return -EROFS;
}

static inline int live_tensor_make(struct live *l, const char *file, uint32_t *number)
{
    (void)l;
    (void)file;
    (void)number;
    return -EROFS;
}

static inline bool live_making(struct live *l, uint32_t number, uint32_t *views)
{
    (void)l;
    (void)number;
    (void)views;
    return false;
}

static inline bool live_making_at(struct live *l, uint64_t *i, char name[TREE_NAME_MAX + 1],
                                  uint32_t *number)
{
    (void)l;
    (void)i;
    (void)name;
    (void)number;
    return false;
}

static inline int live_making_view(struct live *l, uint32_t number, uint32_t row, uint32_t *node)
{
    (void)l;
    (void)number;
    (void)row;
    (void)node;
    return -EROFS;
}

static inline bool live_making_leaves(struct live *l, uint32_t number, uint32_t row,
                                      enum tensor_view view)
{
    (void)l;
    (void)number;
    (void)row;
    (void)view;
    return false;
}

static inline int live_making_unlink(struct live *l, uint32_t number, uint32_t row)
{
    (void)l;
    (void)number;
    (void)row;
    return -EROFS;
}

static inline int live_tensor_rename(struct live *l, const char *from, const char *to,
                                     unsigned flags, struct live_wait *w)
{
    (void)l;
    (void)from;
    (void)to;
    (void)flags;
    (void)w;
    return -EROFS;
}

static inline int live_tensor_remove(struct live *l, const char *file)
{
    (void)l;
    (void)file;
    return -EROFS;
}

static inline int live_view_unlink(struct live *l, uint32_t number, uint32_t row)
{
    (void)l;
    (void)number;
    (void)row;
    return -EROFS;
}

static inline void live_view_show(struct live *l, uint32_t number, uint32_t row)
{
    (void)l;
    (void)number;
    (void)row;
}

static inline int live_tensor_fsync(struct live *l, uint32_t number, struct live_wait *w)
{
    (void)l;
    (void)number;
    (void)w;
    return -EROFS;
}

static inline int live_tensor_error(struct live *l, uint32_t number, struct buf *out)
{
    (void)l;
    (void)number;
    (void)out;
    return -EROFS;
}

static inline void live_tensor_forgive(struct live *l, uint32_t number)
{
    (void)l;
    (void)number;
}

#endif

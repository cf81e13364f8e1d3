/* SPDX-License-Identifier: MIT */
/* Stands in for editable tensors until this core has them: tree/tensors.c is compiled, but -o
 * tensors=edit is refused. */
#ifndef LIVE_VIEWS_H
#define LIVE_VIEWS_H

#include "live/tensors.h"

struct live_view_attr {
    uint32_t tensor, row;
    uint64_t size;
    bool helper;
};

static inline int live_view_open(struct live *l, uint32_t tensor, uint32_t row,
                                 enum tensor_view view, int flags, uint32_t *node,
                                 struct live_view **ret, bool *cold)
{
    (void)l;
    (void)tensor;
    (void)row;
    (void)view;
    (void)flags;
    (void)node;
    (void)ret;
    (void)cold;
    return -EROFS;
}

static inline int live_view_join(struct live *l, uint32_t node, uint32_t row,
                                 struct live_view **ret)
{
    (void)l;
    (void)node;
    (void)row;
    (void)ret;
    return -EROFS;
}

static inline bool live_view_written(struct live *l, uint32_t tensor, uint32_t node, uint32_t row,
                                     bool *cold)
{
    (void)l;
    (void)tensor;
    (void)node;
    (void)row;
    (void)cold;
    return false;
}

static inline void live_view_look(struct live *l, uint32_t tensor, uint32_t row, uint32_t *node)
{
    (void)l;
    (void)tensor;
    (void)row;
    (void)node;
}

static inline int live_view_attr(struct live *l, uint32_t node, uint32_t row,
                                 struct live_view_attr *ret)
{
    (void)l;
    (void)node;
    (void)row;
    (void)ret;
    return -EROFS;
}

static inline int live_view_read(struct live *l, struct live_view *h, uint64_t off, void *dst,
                                 size_t n, size_t *got)
{
    (void)l;
    (void)h;
    (void)off;
    (void)dst;
    (void)n;
    (void)got;
    return -EROFS;
}

static inline int live_view_write(struct live *l, struct live_view *h, uint64_t off,
                                  const void *bytes, size_t n, struct live_wait *w)
{
    (void)l;
    (void)h;
    (void)off;
    (void)bytes;
    (void)n;
    (void)w;
    return -EROFS;
}

static inline int live_view_truncate(struct live *l, struct live_view *h, uint64_t size)
{
    (void)l;
    (void)h;
    (void)size;
    return -EROFS;
}

static inline int live_view_allocate(struct live *l, struct live_view *h, uint64_t off, uint64_t n,
                                     bool keep_size)
{
    (void)l;
    (void)h;
    (void)off;
    (void)n;
    (void)keep_size;
    return -EROFS;
}

static inline int live_view_flush(struct live *l, struct live_view *h, struct live_wait *w)
{
    (void)l;
    (void)h;
    (void)w;
    return -EROFS;
}

static inline int live_view_fsync(struct live *l, struct live_view *h, struct live_wait *w)
{
    (void)l;
    (void)h;
    (void)w;
    return -EROFS;
}

static inline void live_view_release(struct live *l, struct live_view *h)
{
    (void)l;
    (void)h;
}

static inline int live_helper_create(struct live *l, uint32_t tensor, const char *name, int flags,
                                     struct live_view **ret, uint32_t *node)
{
    (void)l;
    (void)tensor;
    (void)name;
    (void)flags;
    (void)ret;
    (void)node;
    return -EROFS;
}

static inline int live_helper_find(struct live *l, uint32_t tensor, const char *name,
                                   uint32_t *node)
{
    (void)l;
    (void)tensor;
    (void)name;
    (void)node;
    return -EROFS;
}

static inline bool live_helper_at(struct live *l, uint32_t tensor, uint64_t i,
                                  char name[TREE_NAME_MAX + 1], uint32_t *node)
{
    (void)l;
    (void)tensor;
    (void)i;
    (void)name;
    (void)node;
    return false;
}

static inline int live_helper_unlink(struct live *l, uint32_t tensor, const char *name)
{
    (void)l;
    (void)tensor;
    (void)name;
    return -EROFS;
}

static inline int live_helper_rename(struct live *l, uint32_t tensor, const char *name,
                                     const char *to, uint32_t row, enum tensor_view view,
                                     struct live_wait *w)
{
    (void)l;
    (void)tensor;
    (void)name;
    (void)to;
    (void)row;
    (void)view;
    (void)w;
    return -EROFS;
}

#endif

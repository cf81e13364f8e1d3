/* SPDX-License-Identifier: MIT */
/* Values and drafts of a change from plain bytes. */
#ifndef TESTS_LIB_CHANGES_H
#define TESTS_LIB_CHANGES_H

#include <string.h>

#include "edit/change.h"

/* edit_set() of a copy of these n bytes. */
static inline int set_bytes(struct edit_change *c, const char *key, size_t key_len, uint32_t type,
                            const void *bytes, size_t n, uint64_t rank, struct err *e)
{
    struct buf b = BUF_INIT;
    buf_add(&b, bytes, n);
    struct edit_value *v = edit_value_make(type, &b);
    int r = v ? edit_set(c, key, key_len, v, rank, e) : -1;
    edit_value_unref(v);
    return r;
}

/* A draft in memory with a copy of them. NULL: no memory. */
static inline struct edit_draft *memory_draft(const void *bytes, size_t n)
{
    struct edit_draft *d = NULL;
    if (edit_draft_memory(n, &d) == 0 && n > 0)
        memcpy(d->bytes, bytes, n);
    return d;
}

#endif

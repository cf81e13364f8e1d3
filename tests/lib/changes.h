/* SPDX-License-Identifier: MIT */
/* Builds values and drafts for a change from plain bytes. */
#ifndef TESTS_LIB_CHANGES_H
#define TESTS_LIB_CHANGES_H

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/sys.h"
#include "edit/change.h"

/* Call edit_set() with a copy of n bytes. */
static inline int set_bytes(struct edit_change *c, const char *key, size_t key_len, uint32_t type,
                            const void *bytes, size_t n, struct err *e)
{
    struct buf b = BUF_INIT;
    buf_add(&b, bytes, n);
    int r = edit_set(c, key, key_len, type, &b, e);
    buf_free(&b);
    return r;
}

/* Make a log with a copy of the bytes. Returns NULL on failure. */
static inline struct log *memory_draft(const void *bytes, size_t n)
{
    struct log *d = NULL;
    int fd = memfd_create("draft", MFD_CLOEXEC);
    if (fd >= 0 && (sys_write_all(&sys_libc, fd, bytes, n, 0) < 0 || log_make(fd, &d, NULL) < 0))
        (void)close(fd);
    return d;
}

static inline void log_drop(struct log **d)
{
    log_unref(*d);
}

#endif

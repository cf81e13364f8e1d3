/* SPDX-License-Identifier: MIT */
/* The content of helpers: see helpers.h. */
#include "live/helpers.h"

#include <errno.h>
#include <unistd.h>

#include "base/sys.h"

int helper_read(struct live *l, struct view_draft *d, uint64_t off, void *dst, size_t n,
                size_t *got)
{
    (void)l;
    *got = 0;
    while (*got < n) {
        ssize_t k = sys_libc.pread(&sys_libc, d->fd, (uint8_t *)dst + *got, n - *got, off + *got);
        if (k == -EINTR)
            continue;
        if (k <= 0)
            return (int)k;
        *got += (size_t)k;
    }
    return 0;
}

int helper_write(struct live *l, struct view_draft *d, bool append, uint64_t off, const void *bytes,
                 size_t n)
{
    (void)l;
    if (append)
        off = view_draft_size(d);
    if (off > INT64_MAX || n > INT64_MAX - off)
        return -EFBIG;
    return sys_write_all(&sys_libc, d->fd, bytes, n, off);
}

int helper_truncate(struct live *l, struct view_draft *d, uint64_t size)
{
    (void)l;
    return size > INT64_MAX ? -EFBIG : sys_libc.ftruncate(&sys_libc, d->fd, size);
}

/* SPDX-License-Identifier: MIT */
/* The content of helpers: see helpers.h. */
#include "live/helpers.h"

#include <errno.h>
#include <unistd.h>

#include "base/sys.h"

int helper_read(const struct view_draft *d, uint64_t off, void *dst, size_t n, size_t *got)
{
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

int helper_write(const struct live_view *h, uint64_t off, const void *bytes, size_t n)
{
    if (h->append)
        off = view_draft_size(h->d);
    if (off > INT64_MAX || n > INT64_MAX - off)
        return -EFBIG;
    return sys_write_all(&sys_libc, h->d->fd, bytes, n, off);
}

int helper_truncate(const struct view_draft *d, uint64_t size)
{
    return size > INT64_MAX ? -EFBIG : sys_libc.ftruncate(&sys_libc, d->fd, size);
}

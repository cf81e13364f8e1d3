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
    uint64_t size = atomic_load(&d->size);
    if (append)
        off = size;
    if (off > INT64_MAX || n > INT64_MAX - off)
        return -EFBIG;
    int r = sys_write_all(&sys_libc, d->fd, bytes, n, off);
    while (r == 0 && size < off + n && !atomic_compare_exchange_weak(&d->size, &size, off + n))
        ;
    return r;
}

int helper_truncate(struct live *l, struct view_draft *d, uint64_t size)
{
    (void)l;
    int r = size > INT64_MAX ? -EFBIG : sys_libc.ftruncate(&sys_libc, d->fd, size);
    if (r == 0)
        atomic_store(&d->size, size);
    return r;
}

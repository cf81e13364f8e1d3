/* SPDX-License-Identifier: MIT */
/* The content of helpers: see helpers.h. */
#include "live/helpers.h"

#include <errno.h>
#include <unistd.h>

#include "base/lock.h"
#include "base/bytes.h"
#include "base/sys.h"

int helper_read_own(const struct draft *d, uint64_t off, void *dst, size_t n, size_t *got)
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

int helper_read(struct live *l, struct draft *d, uint64_t off, void *dst, size_t n, size_t *got)
{
    lock_take(&l->lock);
    bool into = d->into;
    lock_drop(&l->lock);
    return into ? VIEW_INTO : helper_read_own(d, off, dst, n, got);
}

static int write_own(struct draft *d, bool append, uint64_t off, const void *bytes, size_t n)
{
    uint64_t size = atomic_load(&d->size);
    if (append)
        off = size;
    if (off > INT64_MAX || n > INT64_MAX - off)
        return -EFBIG;
    d->writes++;
    int r = sys_write_all(&sys_libc, d->fd, bytes, n, off);
    if (r == 0)
        atomic_store(&d->size, max_u64(size, off + n));
    return r;
}

int helper_write(struct live *l, struct draft *d, bool append, uint64_t off, const void *bytes,
                 size_t n)
{
    (void)l;
    lock_take(&d->io);
    int r = d->into ? VIEW_INTO : write_own(d, append, off, bytes, n);
    lock_drop(&d->io);
    return r;
}

static int truncate_own(struct draft *d, uint64_t size)
{
    int r = size > INT64_MAX ? -EFBIG : sys_libc.ftruncate(&sys_libc, d->fd, size);
    d->writes++;
    if (r == 0)
        atomic_store(&d->size, size);
    return r;
}

int helper_truncate(struct live *l, struct draft *d, uint64_t size)
{
    (void)l;
    lock_take(&d->io);
    int r = d->into ? VIEW_INTO : truncate_own(d, size);
    lock_drop(&d->io);
    return r;
}

struct live_view *helper_flushed(struct live *l, struct live_view *h)
{
    lock_take(&l->lock);
    h->d->unflushed -= h->writes && !h->flushed;
    h->flushed = true;
    struct live_view *into = h->d->into;
    lock_drop(&l->lock);
    return into;
}

struct live_view *helper_released(struct draft *d, const struct live_view *h)
{
    struct live_view *into = d->handles ? NULL : d->into;
    d->unflushed -= h->writes && !h->flushed;
    if (into) {
        atomic_store(&d->size, draft_size(into->d));
        d->into = NULL;
    }
    return into;
}

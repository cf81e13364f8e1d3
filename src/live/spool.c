/* SPDX-License-Identifier: MIT */
/* A file of new bytes: see spool.h. */
#include "live/spool.h"

#include <errno.h>

/* A file that is as large is not begun to be appended to any more. */
#define LARGE ((uint64_t)1 << 30)
/* The same with all its holes: file systems have files of 16 TiB and more. */
#define LONG ((uint64_t)1 << 36)

/* What is as long begins at a multiple of it, so that it can be mapped, and cloned. */
#define PAGE ((uint64_t)4096)

static int new_file(struct spool *s, struct err *e)
{
    struct edit_draft *d;
    int fd = edit_draft_open(s->f, e);
    if (fd < 0)
        return fd;
    int r = edit_draft_file(fd, &d, e);
    if (r < 0) {
        sys_close(s->f->sys, &fd);
        return r;
    }
    edit_draft_unref(s->file);
    s->file = d;
    atomic_store(&s->end, 0);
    atomic_store(&s->used, 0);
    return 0;
}

int spool_begin(struct spool *s, const struct edit_file *f, struct err *e)
{
    int r = 0;
    s->f = f;
    if (!s->file || atomic_load(&s->used) >= LARGE || atomic_load(&s->end) >= LONG)
        r = new_file(s, e);
    s->begun = atomic_load(&s->end);
    return r;
}

uint64_t spool_take(struct spool *s, uint64_t n)
{
    uint64_t end = atomic_load(&s->end), at;
    do
        at = n >= PAGE ? (end + PAGE - 1) / PAGE * PAGE : end;
    while (!atomic_compare_exchange_weak(&s->end, &end, at + n));
    atomic_fetch_add(&s->used, n);
    return at;
}

uint64_t spool_reserve(struct spool *s, uint64_t n, uint64_t phase)
{
    uint64_t at = (atomic_load(&s->end) + PAGE - 1) / PAGE * PAGE + phase % PAGE;
    atomic_store(&s->end, at + n);
    return at;
}

int spool_fill(struct spool *s, uint64_t at, const void *bytes, size_t n)
{
    atomic_fetch_add(&s->used, n);
    return spool_put(s, at, bytes, n);
}

int spool_put(const struct spool *s, uint64_t at, const void *bytes, size_t n)
{
    return sys_write_all(s->f->sys, s->file->src.fd, bytes, n, at);
}

int spool_end(struct spool *s, struct edit_draft **ret)
{
    struct edit_draft *d = edit_draft_part(s->file, atomic_load(&s->end));
    if (!d)
        return -ENOMEM;
    *ret = d;
    return 0;
}

void spool_back(struct spool *s)
{
    atomic_store(&s->end, s->begun);
}

void spool_free(struct spool *s)
{
    edit_draft_unref(s->file);
    s->file = NULL;
}

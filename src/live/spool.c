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

static void drop(struct spool *s)
{
    edit_draft_unref(s->to);
    s->to = NULL;
    s->end = 0;
    atomic_store(&s->used, 0);
}

/* What is in memory is not appended to: it is as large as it has to be. */
static bool is_full(const struct spool *s)
{
    return draft_bytes_in_memory(s->to) || atomic_load(&s->used) >= LARGE || s->end >= LONG;
}

void spool_begin(struct spool *s, const struct edit_file *f)
{
    s->f = f;
    if (s->to && is_full(s))
        drop(s);
    s->begun = s->end;
}

/* Room for n bytes at the end. *aligned: it is that of a file. */
static int make_room(struct spool *s, uint64_t n, bool *aligned, struct err *e)
{
    struct edit_draft *to;
    int r = draft_bytes_room(s->f, s->to, s->end + n, 0, &to, e);
    if (r < 0)
        return r;
    if (to != s->to)
        edit_draft_unref(s->to);
    s->to = to;
    *aligned = !draft_bytes_in_memory(to);
    return 0;
}

static uint64_t next_page(uint64_t n)
{
    return (n + PAGE - 1) / PAGE * PAGE;
}

int spool_take(struct spool *s, uint64_t n, uint64_t *at, struct err *e)
{
    bool aligned;
    int r = make_room(s, n, &aligned, e);
    if (r < 0)
        return r;
    *at = aligned && n >= PAGE ? next_page(s->end) : s->end;
    s->end = *at + n;
    atomic_fetch_add(&s->used, n);
    return 0;
}

int spool_reserve(struct spool *s, uint64_t n, uint64_t phase, uint64_t *at, struct err *e)
{
    bool aligned;
    int r = make_room(s, n, &aligned, e);
    if (r < 0)
        return r;
    *at = aligned ? next_page(s->end) + phase % PAGE : s->end;
    s->end = *at + n;
    return 0;
}

int spool_fill(struct spool *s, uint64_t at, const void *bytes, size_t n)
{
    atomic_fetch_add(&s->used, n);
    return spool_put(s, at, bytes, n);
}

int spool_put(const struct spool *s, uint64_t at, const void *bytes, size_t n)
{
    return draft_bytes_write(s->f, s->to, bytes, n, at);
}

int spool_end(struct spool *s, struct edit_draft **ret)
{
    struct edit_draft *d = edit_draft_part(s->to, s->end);
    if (!d)
        return -ENOMEM;
    *ret = d;
    return 0;
}

void spool_back(struct spool *s)
{
    s->end = s->begun;
}

void spool_free(struct spool *s)
{
    drop(s);
}

/* SPDX-License-Identifier: MIT */
/* The log of a model: see logs.h. */
#include "live/logs.h"

#include <errno.h>
#include <string.h>

#include "edit/temp.h"

/* To a log that has as many bytes nothing is added. */
#define LARGE ((uint64_t)1 << 30)
/* The same with all its holes: file systems have files of 16 TiB and more. */
#define LONG ((uint64_t)1 << 36)

void logs_init(struct logs *s, const struct edit_file *f)
{
    *s = (struct logs){.f = f};
    lock_init(&s->lock);
}

static void drop(struct logs *s)
{
    log_unref(s->now);
    s->now = NULL;
}

void logs_free(struct logs *s)
{
    drop(s);
    lock_destroy(&s->lock);
}

static int make(struct logs *s, struct err *e)
{
    int fd = temp_unnamed(s->f, e);
    if (fd < 0)
        return fd;
    int r = log_make(fd, &s->now, e);
    if (r < 0)
        sys_close(s->f->sys, &fd);
    else
        atomic_store(&s->now->end, LOG_ROOM);
    return r;
}

/* Nothing refers to it. Under the lock no other reference is made. */
static bool is_unused(const struct log *log)
{
    return atomic_load(&log->refs) == 1;
}

static bool is_full(const struct log *log)
{
    return atomic_load(&log->used) >= LARGE || log_end(log) >= LONG;
}

int logs_take(struct logs *s, uint64_t n, uint64_t phase, struct log **ret, uint64_t *at,
              struct err *e)
{
    int r = -EBUSY;
    lock_take(&s->lock);
    if (s->now && (is_unused(s->now) || is_full(s->now)))
        drop(s);
    while (r == -EBUSY) {
        r = s->now ? 0 : make(s, e);
        if (r == 0)
            r = log_take(s->now, n, phase, at);
        if (r == -EBUSY)
            drop(s);
    }
    if (r == 0)
        *ret = log_ref(s->now);
    lock_drop(&s->lock);
    return r;
}

int logs_put(const struct logs *s, struct log *log, uint64_t at, const void *bytes, size_t n)
{
    atomic_fetch_add(&log->used, n);
    return sys_write_all(s->f->sys, log->src.fd, bytes, n, at);
}

int logs_take_zeros(struct logs *s, uint64_t n, struct log **ret, uint64_t *at, struct err *e)
{
    int r = logs_take(s, n, 0, ret, at, e);
    if (r == 0)
        r = logs_put(s, *ret, *at + n - 1, "", 1); /* the rest is a hole */
    else
        return r;
    if (r < 0)
        log_unref(*ret);
    return r < 0 ? err_set(e, r, "cannot write a draft beside the model: %s", strerror(-r)) : 0;
}

void logs_rest(struct logs *s)
{
    lock_take(&s->lock);
    if (s->now && is_unused(s->now))
        drop(s);
    lock_drop(&s->lock);
}

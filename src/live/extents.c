/* SPDX-License-Identifier: MIT */
/* The log of an edited model, and stretches of a view that lie in it (extents.h). */
#include "live/extents.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/sys.h"

/* ---- the log ---- */

/* A log that ends here is no longer extended, so that its space is freed one day. */
#define LARGE ((uint64_t)1 << 30)

static int make_log(const struct logs *s, struct log **ret, struct err *e)
{
    int fd = edit_unnamed(s->f, e);
    if (fd < 0)
        return fd;
    int r = log_make(fd, ret, e);
    if (r < 0)
        sys_close(s->f->sys, &fd);
    return r;
}

/* Take out a log that nothing else refers to, so that no new references can be made. Call with the
 * lock held. */
static struct log *take_unused(struct logs *s)
{
    struct log **at = &s->now, *log;
    while ((log = *at) && atomic_load(&log->refs) > 1)
        at = &log->next;
    if (log)
        *at = log->next;
    return log;
}

void logs_rest(struct logs *s)
{
    struct log *log;
    do {
        lock_take(s->lock);
        log = take_unused(s);
        lock_drop(s->lock);
        log_unref(log);
    } while (log);
}

int logs_take(struct logs *s, uint64_t n, uint64_t phase, struct log **ret, uint64_t *at,
              struct err *e)
{
    struct log *made;
    logs_rest(s);
    lock_take(s->lock);
    while (!s->now || log_end(s->now) >= LARGE || atomic_load(&s->now->lost)) {
        lock_drop(s->lock);
        int r = make_log(s, &made, e);
        if (r < 0)
            return r;
        lock_take(s->lock);
        made->next = s->now;
        s->now = made;
    }
    *at = log_take(s->now, n, phase);
    *ret = REF(s->now);
    lock_drop(s->lock);
    return 0;
}

int logs_put(const struct logs *s, struct log *log, uint64_t at, const void *bytes, size_t n)
{
    return sys_write_all(s->f->sys, log->src.fd, bytes, n, at);
}

int logs_check(const struct logs *s, const struct extents *of, struct err *e)
{
    struct log *last = NULL;
    int r = 0;
    for (size_t i = 0; r == 0 && i < of->n; i++)
        if (of->of[i].log && of->of[i].log != last)
            r = log_check(last = of->of[i].log, s->f->sys, false, e);
    return r;
}

int logs_failed(int r, struct err *e)
{
    return err_sys(e, r, "cannot write a draft beside the model");
}

/* ---- bytes written to a view ---- */

void extents_free(struct extents *s)
{
    for (size_t i = 0; i < s->n; i++)
        log_unref(s->of[i].log);
    free(s->of);
    *s = (struct extents){0};
}

static uint64_t end_of(const struct extent *x)
{
    return x->at + x->len;
}

/* Return the index of the first extent that ends after `off`, or the number of extents. */
static size_t extents_find(const struct extents *s, uint64_t off)
{
    const size_t i = UPTO(s->of, at, s->n, off);
    return i && end_of(&s->of[i - 1]) > off ? i - 1 : i;
}

/* Return the part [lo, hi) of an extent, with a new reference. */
static struct extent part(const struct extent *x, uint64_t lo, uint64_t hi)
{
    struct extent ret = *x;
    ret.at = lo;
    ret.len = hi - lo;
    ret.src += lo - x->at;
    if (ret.log)
        (void)REF(ret.log);
    return ret;
}

/* Merge extent i with the next one if that one continues it. */
static void join(struct extents *s, size_t i)
{
    struct extent *x = &s->of[i], *next = x + 1;
    if (i + 1 >= s->n || next->at != end_of(x) || next->log != x->log || next->epoch != x->epoch ||
        (x->log && next->src != x->src + x->len))
        return;
    x->len += next->len;
    log_unref(next->log);
    memmove(next, next + 1, (s->n - i - 2) * sizeof(*next));
    s->n--;
}

/* Replace bytes [lo, hi) with this extent, taking ownership of its reference, or with nothing if n
 * is 0. The list must have room for two more extents. */
static void replace_range(struct extents *s, uint64_t lo, uint64_t hi, const struct extent *with,
                          size_t n)
{
    struct extent now[3] = {{0}};
    size_t first = extents_find(s, lo), last = first, k = 0;
    if (first < s->n && s->of[first].at < lo)
        now[k++] = part(&s->of[first], s->of[first].at, lo);
    if (n)
        now[k++] = *with;
    for (; last < s->n && s->of[last].at < hi; last++) {
        if (end_of(&s->of[last]) > hi)
            now[k++] = part(&s->of[last], hi, end_of(&s->of[last]));
        log_unref(s->of[last].log);
    }
    memmove(s->of + first + k, s->of + last, (s->n - last) * sizeof(*s->of));
    memcpy(s->of + first, now, k * sizeof(*now));
    s->n = first + k + (s->n - last);
    for (size_t i = first + k + 1; i-- > 0 && i + 1 >= first;)
        join(s, i);
}

int extents_put(struct extents *s, const struct extent *x)
{
    int r = array_grow(&s->of, &s->cap, s->n + 2, sizeof(*s->of));
    if (r < 0)
        return r;
    const struct extent own = part(x, x->at, end_of(x));
    replace_range(s, x->at, end_of(x), &own, 1);
    return 0;
}

void extents_drop(struct extents *s, uint64_t epoch)
{
    size_t n = 0;
    for (size_t i = 0; i < s->n; i++)
        if (s->of[i].epoch > epoch)
            s->of[n++] = s->of[i];
        else
            log_unref(s->of[i].log);
    s->n = n;
}

void extents_cut(struct extents *s, uint64_t size)
{
    if (s->n)
        replace_range(s, size, UINT64_MAX, NULL, 0);
}

int extents_copy(const struct extents *s, uint64_t off, uint64_t n, struct extents *ret)
{
    const size_t first = extents_find(s, off);
    size_t end = first;
    while (end < s->n && s->of[end].at - min_u64(off, s->of[end].at) < n)
        end++;
    int r = array_grow(&ret->of, &ret->cap, end - first + 1, sizeof(*ret->of));
    for (size_t i = first; r == 0 && i < end; i++)
        ret->of[ret->n++] = part(&s->of[i], s->of[i].at, end_of(&s->of[i]));
    return r;
}

uint64_t extents_stretch(const struct extents *s, uint64_t off, uint64_t n,
                         const struct extent **ret)
{
    const size_t i = extents_find(s, off);
    const struct extent *x = i < s->n ? &s->of[i] : NULL;
    *ret = x && x->at <= off ? x : NULL;
    if (*ret)
        return min_u64(n, end_of(x) - off);
    return x ? min_u64(n, x->at - off) : n;
}

int extent_read(const struct extent *x, uint64_t off, void *dst, size_t n)
{
    if (x->log)
        return x->log->src.read(&x->log->src, x->src + (off - x->at), dst, n);
    memset(dst, 0, n);
    return 0;
}

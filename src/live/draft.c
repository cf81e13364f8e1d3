/* SPDX-License-Identifier: MIT */
/* Drafts of texts (draft.h). */
#include "live/draft.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Every text of every draft has a version of its own. */
static void touch(struct draft *d)
{
    static _Atomic(uint64_t) versions;
    d->version = atomic_fetch_add(&versions, 1) + 1;
}

struct draft *draft_new(void)
{
    struct draft *d = calloc(1, sizeof(*d));
    if (d)
        d->whole = true;
    return d;
}

void draft_free(struct draft *d)
{
    if (d)
        buf_free(&d->text);
    free(d);
}

void draft_restart(struct draft *d)
{
    d->state = DRAFT_CLEAN;
    d->why = (struct err){0};
    d->broken = false;
    d->typed = (struct typed){0};
    d->whole = d->text.len == 0;
    touch(d);
}

void draft_empty(struct draft *d)
{
    d->state = DRAFT_EMPTIED;
    d->why = (struct err){0};
    d->broken = false;
    d->text.len = 0;
    d->whole = true;
    touch(d);
}

/* Set the length, extending the text with zeros. */
static int set_length(struct draft *d, uint64_t len)
{
    struct buf *b = &d->text;
    if (len > SIZE_MAX)
        return -EFBIG;
    if (len > b->len)
        buf_zero(b, (size_t)len - b->len);
    else
        b->len = (size_t)len;
    const int r = buf_error(b);
    b->err = 0;
    return r;
}

int draft_write(struct draft *d, uint64_t off, const void *bytes, size_t n)
{
    d->whole &= off <= d->text.len;
    d->state = DRAFT_WRITTEN;
    touch(d);
    const int r = off + n > d->text.len ? set_length(d, off + n) : 0;
    if (r == 0 && n)
        memcpy(d->text.data + off, bytes, n);
    return r;
}

int draft_resize(struct draft *d, uint64_t size)
{
    const size_t was = d->text.len;
    if (size == 0) {
        draft_empty(d);
        return 0;
    }
    const int r = set_length(d, size);
    if (r < 0 || size == was)
        return r;
    d->whole &= size <= was;
    d->state = DRAFT_WRITTEN;
    touch(d);
    return 0;
}

void draft_accepted(struct draft *d, uint64_t version, const struct typed *as)
{
    if (version > d->version) /* no draft's */
        return;
    if (version > d->accepted)
        d->accepted = version;
    if (version >= d->refused.from && version <= d->refused.upto)
        d->refused.from = version + 1;
    if (version < d->version) /* written on since */
        return;
    d->state = DRAFT_CLEAN;
    d->why = (struct err){0};
    if (d->typed.type == as->type && d->typed.elem == as->elem)
        d->typed.set = false; /* the key itself has the type now */
}

void draft_refused(struct draft *d, const struct err *e)
{
    d->state = DRAFT_REFUSED;
    d->why = *e;
    d->refused.from = d->accepted + 1;
    d->refused.upto = d->version;
    d->refused.why = e->code;
}

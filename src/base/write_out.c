/* SPDX-License-Identifier: MIT */
/* Starting to write bytes to disk: see write_out.h. */
#include "base/write_out.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/pool.h"

/* Ranges queued or being written: more would only be late. */
#define MOST 8

static atomic_uint waiting;

struct range {
    struct pool_job job; /* first member: begin() gets its address */
    const struct sys *sys;
    int fd;
    uint64_t off, n;
    void *owner;
    void (*release)(void *owner);
};

static bool begin(struct pool_job *j, struct timespec *again)
{
    struct range *r = (struct range *)j;
    (void)again;
    sys_begin_sync(r->sys, r->fd, r->off, r->n);
    (void)atomic_fetch_sub(&waiting, 1);
    r->release(r->owner);
    free(r);
    return false;
}

static bool send(const struct range *range)
{
    struct range *r = malloc(sizeof(*r));
    if (r)
        *r = *range;
    if (r && pool_do_beside(&r->job, begin) == 0)
        return true;
    free(r);
    return false;
}

void write_out(const struct sys *s, int fd, uint64_t off, uint64_t n, void *owner,
               void (*release)(void *owner))
{
    const struct range r = {
        .sys = s, .fd = fd, .off = off, .n = n, .owner = owner, .release = release};
    if (!s->begin_sync) {
        release(owner);
        return;
    }
    if (atomic_fetch_add(&waiting, 1) < MOST && send(&r))
        return;
    (void)atomic_fetch_sub(&waiting, 1);
    release(owner);
}

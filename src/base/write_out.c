/* SPDX-License-Identifier: MIT */
/* Bytes on their way to the disk: see write_out.h. */
#include "base/write_out.h"

#include "base/errand.h"

struct range {
    struct errand errand; /* first: begin() gets its address */
    const struct sys *sys;
    int fd;
    uint64_t off, n;
};

static struct errands errands = ERRANDS_INIT("write out");

static void begin(struct errand *e)
{
    const struct range *r = (const struct range *)e;
    sys_begin_sync(r->sys, r->fd, r->off, r->n);
}

void write_out(const struct sys *s, int fd, uint64_t off, uint64_t n, void *owner,
               void (*release)(void *owner))
{
    const struct range r = {.errand = {.run = begin, .owner = owner, .release = release},
                            .sys = s,
                            .fd = fd,
                            .off = off,
                            .n = n};
    if (!s->begin_sync || !errand_send(&errands, &r.errand, sizeof(r)))
        release(owner);
}

/* SPDX-License-Identifier: MIT */
/* Answers to reads: see reply.h. */
#include "tree/reply.h"

#include <string.h>

uint8_t *reply_room(struct reply *r, size_t n)
{
    uint8_t *at = r->scratch + r->len;
    r->bytes = r->scratch;
    r->len += n;
    return at;
}

void reply_copy(struct reply *r, const void *p, size_t n)
{
    memcpy(reply_room(r, n), p, n);
}

void reply_point(struct reply *r, struct mapped *m, uint64_t first, size_t n)
{
    r->mapped = mapped_ref(m);
    r->bytes = m->map.data + first;
    r->len = n;
    r->end = first + n;
}

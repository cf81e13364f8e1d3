/* SPDX-License-Identifier: MIT */
/* Reads in order: see runs.h. */
#include "base/runs.h"

#include "base/lock.h"
#include "base/bytes.h"

/* Reads in order may arrive in another order, by so many bytes: the requests of one readahead. */
#define SLACK ((uint64_t)2 << 20)

void runs_init(struct runs *r, uint64_t least, uint64_t most)
{
    *r = (struct runs){.least = least, .most = most};
    lock_init(&r->lock);
}

void runs_free(struct runs *r)
{
    lock_destroy(&r->lock);
}

static uint64_t distance(uint64_t a, uint64_t b)
{
    return a > b ? a - b : b - a;
}

/* The run that a read at `off` continues, the nearest; or a new one, in place of the oldest. */
static struct in_order *find(struct runs *r, uint64_t off)
{
    struct in_order *best = NULL, *oldest = &r->run[0];
    for (struct in_order *x = r->run; x < r->run + RUNS_MOST; x++) {
        uint64_t far = distance(x->next, off);
        if (x->used && far <= SLACK && (!best || far < distance(best->next, off)))
            best = x;
        if (x->used < oldest->used)
            oldest = x;
    }
    if (best)
        return best;
    *oldest = (struct in_order){.begin = off, .next = off, .upto = off};
    return oldest;
}

/* Reads at random places of a small region skip most of what they pass. */
static bool is_dense(const struct in_order *x)
{
    return x->have >= (x->next - x->begin) / 2;
}

uint64_t runs_note(struct runs *r, uint64_t off, uint64_t n, uint64_t end, uint64_t size,
                   uint64_t *from)
{
    uint64_t done = off + n;
    lock_take(&r->lock);
    struct in_order *x = find(r, off);
    uint64_t old = x->next, more = min_u64(x->have, r->most);
    bool dense = is_dense(x);
    x->beyond = x->beyond || (x->used && x->end != end);
    x->end = end;
    x->used = ++r->clock;
    x->begin = min_u64(x->begin, off);
    x->next = max_u64(old, done);
    x->have = min_u64(x->have + n, x->next - x->begin);
    uint64_t upto = min_u64(x->next + more, x->beyond ? size : end);
    bool ahead = x->next > old && dense && more >= r->least && x->upto < x->next + more / 2;
    *from = max_u64(x->upto, done);
    if (ahead && *from < upto)
        done = x->upto = upto;
    else
        *from = done;
    lock_drop(&r->lock);
    return done;
}

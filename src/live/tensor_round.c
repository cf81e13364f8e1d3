/* SPDX-License-Identifier: MIT */
/* A judgement of a draft, begun and ended: see tensor_draft.h. */
#include <errno.h>
#include <stdlib.h>

#include "base/bytes.h"
#include "live/tensor_draft.h"

enum {
    GRANULE = TENSOR_GRANULE,
    /* Less is copied to the spool: each sealed file takes a descriptor. */
    LEAST = (1 << 20) / GRANULE,
    /* And what has so many holes. */
    MOST_RUNS = 16,
};

/* ---- held ---- */

int tensor_draft_hold(struct tensor_draft *d, uint64_t lo, uint64_t hi)
{
    int r = 0;
    for (uint64_t i = lo / GRANULE; r == 0 && i < tensor_granules(hi); i++) {
        lock_take(&d->io);
        if (i * GRANULE < d->cut) /* else they are zeros in any case */
            r = tensor_draft_fill(d, i);
        lock_drop(&d->io);
    }
    return r;
}

/* ---- sealed ---- */

static bool is_worth(const struct tensor_draft *d)
{
    uint64_t n = 0, lo, hi;
    unsigned runs = 0;
    for (uint64_t at = 0; runs <= MOST_RUNS && bits_next(&d->fresh, at, &lo, &hi); at = hi, runs++)
        n += hi - lo;
    return n >= LEAST && runs <= MOST_RUNS;
}

/* Seal the file, if that is worth it. With both locks. */
static void seal(struct tensor_draft *d)
{
    d->seal = tensor_seal_make(d->base, d->to, &d->present, d->cut, d->shift);
    if (!d->seal)
        return;
    (void)tensor_base_ref(d->base);
    d->to->src.size = d->shift + d->size;
    atomic_store(&d->to->lends, 1);
    d->to = NULL;
    d->cut = d->size;
}

/* Whether it can be: the file then is as long as the view. With `io`. */
static bool can_seal(struct tensor_draft *d)
{
    const struct sys *s = d->f->sys;
    return d->view == TENSOR_RAW && d->to && !d->untidy && is_worth(d) &&
           tensor_draft_to_file(d) == 0 && s->ftruncate(s, d->to->src.fd, d->shift + d->size) == 0;
}

static int copy_granules(const struct tensor_draft *d, const struct bits *of, int from, int to)
{
    uint8_t bytes[GRANULE];
    const struct sys *s = d->f->sys;
    uint64_t lo, hi;
    int r = 0;
    for (uint64_t at = 0; r == 0 && bits_next(of, at, &lo, &hi); at = hi) {
        for (; r == 0 && lo < hi; lo++) {
            size_t n = (size_t)min_u64(GRANULE, d->size - lo * GRANULE);
            r = sys_read_all(s, from, bytes, n, d->shift + lo * GRANULE);
            if (r == 0)
                r = sys_write_all(s, to, bytes, n, d->shift + lo * GRANULE);
        }
    }
    return r;
}

/* The granules of both, as far as they show. 0, -ENOMEM. */
static int join(const struct tensor_draft *d, struct bits *ret)
{
    const struct bits *of[] = {&d->seal->present, &d->present};
    uint64_t lo, hi;
    int r = 0;
    for (size_t i = 0; i < 2; i++)
        for (uint64_t at = 0; r == 0 && bits_next(of[i], at, &lo, &hi); at = hi)
            r = bits_add(ret, lo, i == 0 ? min_u64(hi, tensor_granules(d->cut)) : hi);
    return r;
}

/*
 * What was sealed was not accepted: the draft goes on in that file, with what was written since. With `io`.
 * 0, -errno: then it goes on with both.
 */
static int unseal(struct tensor_draft *d)
{
    struct tensor_seal *s = d->seal;
    struct bits present = BITS_INIT;
    const struct sys *sys = d->f->sys;
    bool within = d->cut % GRANULE && d->cut < d->size; /* a granule shows some of it, and zeros */
    int r = within ? tensor_draft_fill(d, d->cut / GRANULE) : 0;
    if (r == 0)
        r = sys->ftruncate(sys, s->file->src.fd, d->shift + d->cut);
    if (r == 0 && d->to)
        r = tensor_draft_to_file(d);
    if (r == 0 && d->to)
        r = sys->ftruncate(sys, d->to->src.fd, d->shift + d->size);
    if (r == 0 && d->to)
        r = copy_granules(d, &d->present, d->to->src.fd, s->file->src.fd);
    if (r == 0)
        r = join(d, &present);
    if (r < 0) {
        bits_free(&present);
        return r;
    }
    lock_take(&d->lock);
    edit_draft_unref(d->to);
    d->to = edit_draft_ref(s->file);
    atomic_store(&d->to->lends, 0);
    bits_free(&d->present);
    d->present = present;
    d->cut = min_u64(d->cut, s->cut);
    d->seal = NULL;
    lock_drop(&d->lock);
    tensor_seal_unref(s);
    return 0;
}

/* ---- begun ---- */

static int begin(struct tensor_draft *d, struct tensor_round *ret)
{
    int r = d->seal ? unseal(d) : 0;
    bool sealing = r == 0 && can_seal(d);
    if (r < 0)
        return r;
    lock_take(&d->lock);
    struct bits none = d->judging;
    *ret = (struct tensor_round){tensor_base_ref(d->base), NULL, d->size, d->cut, d->truncations};
    if (sealing)
        seal(d);
    ret->seal = tensor_seal_ref(d->seal);
    d->judging = d->fresh;
    d->fresh = none;
    view_event(&d->state, VIEW_JUDGE);
    lock_drop(&d->lock);
    return 1;
}

int tensor_draft_begin(struct tensor_draft *d, struct tensor_round *ret)
{
    lock_take(&d->io);
    int r = view_is_due(tensor_draft_state(d)) ? begin(d, ret) : 0;
    lock_drop(&d->io);
    return r;
}

int tensor_draft_detach(struct tensor_draft *d, struct tensor_round *round, const struct npy *npy)
{
    int r = tensor_draft_hold(d, 0, round->cut);
    lock_take(&d->io);
    lock_take(&d->lock);
    if (r == 0)
        r = bits_add(&d->judging, 0, tensor_granules(d->size));
    if (r == 0)
        round->cut = d->cut = 0;
    lock_drop(&d->lock);
    lock_drop(&d->io);
    if (r == 0)
        d->layout = (struct tensor_layout){npy->header, npy->width};
    return r;
}

/* ---- ended ---- */

/* All that was judged is to be judged again. Under `lock`. */
static void put_back(struct tensor_draft *d, enum view_event event)
{
    bits_join(&d->fresh, &d->judging);
    view_event(&d->state, event);
}

int tensor_draft_end(struct tensor_draft *d, struct tensor_round *round, bool keep, int r)
{
    lock_take(&d->lock);
    bool gone = d->truncations != round->truncations;
    if (keep && gone)
        r = -EAGAIN;
    if (!keep || gone)
        put_back(d, r < 0 && r != -EAGAIN ? VIEW_REFUSE : VIEW_LEAVE);
    lock_drop(&d->lock);
    tensor_base_unref(round->base);
    tensor_seal_unref(round->seal);
    return r;
}

void tensor_draft_passed(struct tensor_draft *d, struct tensor_base *now)
{
    lock_take(&d->lock);
    struct tensor_base *before = d->base;
    struct tensor_seal *sealed = d->seal; /* the base has its bytes */
    d->base = tensor_base_ref(now);
    d->seal = NULL;
    bits_free(&d->judging);
    view_event(&d->state, VIEW_PASS);
    lock_drop(&d->lock);
    tensor_base_unref(before);
    tensor_seal_unref(sealed);
}

void tensor_draft_failed(struct tensor_draft *d)
{
    lock_take(&d->lock);
    put_back(d, VIEW_REFUSE);
    lock_drop(&d->lock);
}

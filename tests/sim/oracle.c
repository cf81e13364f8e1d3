/* SPDX-License-Identifier: MIT */
/* Registers and their assignments: see oracle.h. */
#include "oracle.h"

#include <stdio.h>

#include "scheduler.h"

void oracle_reset(struct oracle *o, const unsigned *faults)
{
    o->n = 0;
    o->time = 0;
    o->faults = faults;
}

uint64_t oracle_time(struct oracle *o)
{
    return ++o->time;
}

unsigned oracle_begin(struct oracle *o, unsigned reg, uint64_t mask)
{
    if (o->n == ASSIGNS)
        sched_fail("the oracle is full");
    o->a[o->n] = (struct assign){
        reg, mask, oracle_time(o), UINT64_MAX, {UINT64_MAX, UINT64_MAX}, UINT64_MAX, false, false};
    return o->n++;
}

unsigned oracle_begin_undo(struct oracle *o, unsigned reg)
{
    const unsigned i = oracle_begin(o, reg, 0);
    o->a[i].undoes = true;
    return i;
}

void oracle_widen(struct oracle *o, unsigned i, uint64_t mask)
{
    o->a[i].mask |= mask;
}

void oracle_end(struct oracle *o, unsigned i, enum outcome how)
{
    struct assign *a = &o->a[i];
    if (a->undoes)
        a->mask = oracle_ever(o, a->reg);
    a->undoes = false;
    a->end = oracle_time(o);
    if (how == FAILED)
        a->dead = a->end;
    a->hidden = how == HIDDEN;
    if (how >= HIDDEN)
        a->sure[0] = a->end;
    if (how == DURABLE)
        a->sure[1] = a->end;
}

void oracle_durable(struct oracle *o, unsigned i)
{
    if (o->a[i].sure[1] == UINT64_MAX)
        o->a[i].sure[1] = oracle_time(o);
    if (o->a[i].sure[0] == UINT64_MAX)
        o->a[i].sure[0] = o->a[i].sure[1];
}

void oracle_all_durable(struct oracle *o, uint64_t since)
{
    for (unsigned i = 0; i < o->n; i++)
        if (o->a[i].sure[0] <= since && !o->a[i].hidden)
            oracle_durable(o, i);
}

static bool is_over(const struct oracle *o, const struct assign *x, uint64_t a, bool disk)
{
    for (unsigned i = 0; i < o->n; i++) {
        const struct assign *y = &o->a[i];
        if (y->reg == x->reg && y->sure[disk || *o->faults] <= a && x->end <= y->start)
            return true;
    }
    return false;
}

uint64_t oracle_may(const struct oracle *o, unsigned reg, uint64_t a, uint64_t b, bool disk)
{
    uint64_t may = 0;
    for (unsigned i = 0; i < o->n; i++) {
        const struct assign *x = &o->a[i];
        if (x->reg == reg && x->start <= b && x->dead > a && !is_over(o, x, a, disk))
            may |= x->undoes ? oracle_ever(o, reg) : x->mask;
    }
    return may;
}

uint64_t oracle_ever(const struct oracle *o, unsigned reg)
{
    uint64_t ever = 0;
    for (unsigned i = 0; i < o->n; i++)
        ever |= o->a[i].reg == reg ? o->a[i].mask : 0;
    return ever;
}

bool oracle_changed(const struct oracle *o, unsigned reg, uint64_t since)
{
    for (unsigned i = 0; i < o->n; i++)
        if (o->a[i].reg == reg && o->a[i].end >= since)
            return true;
    return false;
}

bool oracle_alone(const struct oracle *o, unsigned i)
{
    bool other = false;
    for (unsigned j = 0; j < o->n; j++)
        other |= j != i && o->a[j].reg == o->a[i].reg &&
                 (o->a[j].end >= o->a[i].start || o->a[j].hidden);
    return !other;
}

void oracle_tell(const struct oracle *o, unsigned reg, char *dst, unsigned n)
{
    unsigned at = 0;
    dst[0] = '\0';
    for (unsigned i = 0; i < o->n && at < n; i++) {
        const struct assign *x = &o->a[i];
        if (x->reg == reg)
            at += (unsigned)snprintf(dst + at, n - at, " [%llx %lld-%lld sure %lld,%lld dead %lld]",
                                     (unsigned long long)x->mask, (long long)x->start,
                                     (long long)x->end, (long long)x->sure[0],
                                     (long long)x->sure[1], (long long)x->dead);
    }
}

/* SPDX-License-Identifier: MIT */
/*
 * Every accepted edit has a number, from a counter of `struct live`. What programs have open remembers
 * that of the last edit by which what they wrote was accepted: a request waits for this edit, and a loss
 * is reported by every later flush and fsync, until it is written anew.
 *
 * Threads: everything is protected by the lock of `struct live`.
 */
#ifndef LIVE_PROMISE_H
#define LIVE_PROMISE_H

#include <stdint.h>

struct promise {
    uint64_t edit; /* accepted last; 0: none was */
    uint64_t from; /* of its edits, those from this number on were lost, ... */
    int lost;      /* ... and why; 0: they were not */
};

/* It has been written anew: by this edit, or one with this number has that already. */
static inline void promise_make(struct promise *p, uint64_t edit)
{
    p->lost = 0;
    if (edit > p->edit)
        p->edit = edit;
}

/* All edits after this number are lost. */
static inline void promise_break(struct promise *p, uint64_t after, int why)
{
    if (p->edit <= after)
        return;
    p->from = after + 1;
    p->lost = why;
}

/* The result for a program whose last edit was this one: 0, or why it is lost. */
static inline int promise_kept(const struct promise *p, uint64_t edit)
{
    return edit && edit >= p->from ? p->lost : 0;
}

#endif

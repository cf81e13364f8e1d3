/* SPDX-License-Identifier: MIT */
/*
 * Where tensors that were removed stood, by their names: one that comes back gets its place again.
 *
 * An entry for A says a rank that no tensor has but one that is called A: so a rename of A has to
 * forget it.
 *
 * Threads: protected by the lock of `struct live`.
 */
#ifndef LIVE_PLACES_H
#define LIVE_PLACES_H

#include <stddef.h>
#include <stdint.h>

struct place;

struct places {
    struct place **bucket; /* owned */
    size_t buckets;        /* 0 or a power of two */
    size_t n;
};

/* Without memory nothing is noted: the tensor then comes back as the last. */
void places_note(struct places *p, const void *name, size_t n, uint64_t rank);
/* The rank, which is forgotten; `none`: it is not known. */
uint64_t places_take(struct places *p, const void *name, size_t n, uint64_t none);
void places_free(struct places *p);

#endif

/* SPDX-License-Identifier: MIT */
/* Where removed tensors stood: see places.h. */
#include "live/places.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

struct place {
    struct place *next; /* in the same bucket */
    uint64_t hash, rank;
    size_t n;
    char name[];
};

static struct place **find(const struct places *p, uint64_t hash, const void *name, size_t n)
{
    struct place **at = &p->bucket[hash & (p->buckets - 1)];
    while (*at && ((*at)->hash != hash || (*at)->n != n || memcmp((*at)->name, name, n) != 0))
        at = &(*at)->next;
    return at;
}

/* Twice as many buckets. False: no memory. */
static bool grow(struct places *p)
{
    size_t buckets = p->buckets ? p->buckets * 2 : 64;
    struct place **bucket = calloc(buckets, sizeof(struct place *));
    if (!bucket)
        return false;
    for (size_t i = 0; i < p->buckets; i++)
        for (struct place *e = p->bucket[i], *next; e; e = next) {
            next = e->next;
            e->next = bucket[e->hash & (buckets - 1)];
            bucket[e->hash & (buckets - 1)] = e;
        }
    free((void *)p->bucket);
    p->bucket = bucket;
    p->buckets = buckets;
    return true;
}

void places_note(struct places *p, const void *name, size_t n, uint64_t rank)
{
    uint64_t hash = hash_name(name, n);
    if (p->n >= p->buckets && !grow(p) && p->buckets == 0)
        return;
    struct place **at = find(p, hash, name, n);
    if (!*at) {
        *at = calloc(1, sizeof(**at) + n);
        if (!*at)
            return;
        (*at)->hash = hash;
        (*at)->n = n;
        memcpy((*at)->name, name, n);
        p->n++;
    }
    (*at)->rank = rank;
}

uint64_t places_take(struct places *p, const void *name, size_t n, uint64_t none)
{
    if (p->buckets == 0)
        return none;
    struct place **at = find(p, hash_name(name, n), name, n), *e = *at;
    if (!e)
        return none;
    uint64_t rank = e->rank;
    *at = e->next;
    free(e);
    p->n--;
    return rank;
}

void places_free(struct places *p)
{
    for (size_t i = 0; i < p->buckets; i++)
        for (struct place *e = p->bucket[i], *next; e; e = next) {
            next = e->next;
            free(e);
        }
    free((void *)p->bucket);
    *p = (struct places){0};
}

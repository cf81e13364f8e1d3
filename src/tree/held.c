/* SPDX-License-Identifier: MIT */
/* Nodes that the kernel knows: see held.h. */
#include "tree/held.h"

#include <stdlib.h>

enum { FIRST_BUCKETS = 16 };

/* The numbers are our own, so that nobody can choose some that collide. */
static size_t bucket_of(const struct held_table *h, uint64_t key)
{
    return (size_t)(key * 0x9e3779b97f4a7c15u >> 32) & (h->buckets - 1);
}

struct held *held_find(const struct held_table *h, uint64_t key)
{
    struct held *x = h->buckets ? h->bucket[bucket_of(h, key)] : NULL;
    while (x && x->key != key)
        x = x->next;
    return x;
}

static void link_in(struct held_table *h, struct held *x)
{
    struct held **at = &h->bucket[bucket_of(h, x->key)];
    x->next = *at;
    *at = x;
}

/* At most one a bucket on average. False: no memory. */
static bool grow(struct held_table *h)
{
    struct held_table more = {.buckets = h->buckets ? 2 * h->buckets : FIRST_BUCKETS, .n = h->n};
    if (h->n < h->buckets)
        return true;
    more.bucket = calloc(more.buckets, sizeof(struct held *));
    if (!more.bucket)
        return false;
    for (size_t i = 0; i < h->buckets; i++)
        for (struct held *x = h->bucket[i], *next; x; x = next) {
            next = x->next;
            link_in(&more, x);
        }
    free((void *)h->bucket);
    *h = more;
    return true;
}

struct held *held_get(struct held_table *h, uint64_t key)
{
    struct held *x = held_find(h, key);
    if (x || !grow(h))
        return x;
    x = calloc(1, sizeof(*x));
    if (!x)
        return NULL;
    x->key = key;
    link_in(h, x);
    h->n++;
    return x;
}

void held_remove(struct held_table *h, struct held *x)
{
    struct held **at = &h->bucket[bucket_of(h, x->key)];
    while (*at != x)
        at = &(*at)->next;
    *at = x->next;
    h->n--;
    free(x);
}

struct held *held_next(const struct held_table *h, const struct held *x)
{
    if (x && x->next)
        return x->next;
    for (size_t i = x ? bucket_of(h, x->key) + 1 : 0; i < h->buckets; i++)
        if (h->bucket[i])
            return h->bucket[i];
    return NULL;
}

void held_free(struct held_table *h)
{
    for (size_t i = 0; i < h->buckets; i++)
        for (struct held *x = h->bucket[i], *next; x; x = next) {
            next = x->next;
            snapshot_unref(x->snap);
            view_free(&x->kept);
            free(x);
        }
    free((void *)h->bucket);
    *h = (struct held_table){0};
}

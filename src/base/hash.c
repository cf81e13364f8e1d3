/* SPDX-License-Identifier: MIT */
/* The hash of names, and a table of links: see hash.h. */
#include "base/hash.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>

#include "base/lock.h"

/* Random bytes, which the library's XXH3 takes to make intentional collisions difficult. */
static uint8_t secret[XXH3_SECRET_SIZE_MIN];

static void make_secret(void)
{
    (void)!getrandom(secret, sizeof(secret), 0);
}

uint64_t hash_name(const void *bytes, size_t n)
{
    static struct once once = ONCE_INIT;
    once_run(&once, make_secret);
    return XXH3_64bits_withSecret(bytes, n, secret, sizeof(secret));
}

/* ---- the table ---- */

enum { ROOM_LEAST = 64 };

static int table_grow(struct table *t)
{
    size_t room = t->room ? 2 * t->room : ROOM_LEAST;
    struct link **bucket = calloc(room, sizeof(*bucket));
    if (!bucket)
        return -ENOMEM;
    for (size_t i = 0; i < t->room; i++)
        for (struct link *l = t->bucket[i], *next; l; l = next) {
            next = l->next;
            l->next = bucket[l->hash & (room - 1)];
            bucket[l->hash & (room - 1)] = l;
        }
    free((void *)t->bucket);
    t->bucket = bucket;
    t->room = room;
    return 0;
}

int table_add(struct table *t, struct link *l, uint64_t hash)
{
    if (t->n >= t->room && table_grow(t) < 0 && t->room == 0)
        return -ENOMEM;
    l->hash = hash;
    l->next = t->bucket[hash & (t->room - 1)];
    t->bucket[hash & (t->room - 1)] = l;
    t->n++;
    return 0;
}

void table_remove(struct table *t, const struct link *l)
{
    struct link **at = &t->bucket[l->hash & (t->room - 1)];
    while (*at != l)
        at = &(*at)->next;
    *at = l->next;
    t->n--;
}

static struct link *same_hash(struct link *l, uint64_t hash)
{
    while (l && l->hash != hash)
        l = l->next;
    return l;
}

struct link *table_first(const struct table *t, uint64_t hash)
{
    return t->room ? same_hash(t->bucket[hash & (t->room - 1)], hash) : NULL;
}

struct link *table_next(const struct link *l)
{
    return same_hash(l->next, l->hash);
}

struct link *table_each(const struct table *t, const struct link *l)
{
    if (l && l->next)
        return l->next;
    for (size_t i = l ? (l->hash & (t->room - 1)) + 1 : 0; i < t->room; i++)
        if (t->bucket[i])
            return t->bucket[i];
    return NULL;
}

void table_free(struct table *t)
{
    free((void *)t->bucket);
    *t = (struct table){0};
}

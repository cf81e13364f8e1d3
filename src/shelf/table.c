/* SPDX-License-Identifier: MIT */
/* A hash table of links: see table.h. */
#include "shelf/table.h"

#include <errno.h>
#include <stdlib.h>

enum { ROOM_LEAST = 64 };

static int grow(struct table *t)
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
    if (t->n >= t->room && grow(t) < 0 && t->room == 0)
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

static struct link *same(struct link *l, uint64_t hash)
{
    while (l && l->hash != hash)
        l = l->next;
    return l;
}

struct link *table_first(const struct table *t, uint64_t hash)
{
    return t->room ? same(t->bucket[hash & (t->room - 1)], hash) : NULL;
}

struct link *table_next(const struct link *l)
{
    return same(l->next, l->hash);
}

void table_free(struct table *t)
{
    free((void *)t->bucket);
    *t = (struct table){0};
}

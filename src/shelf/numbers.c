/* SPDX-License-Identifier: MIT */
/* Numbers of what is gone: see numbers.h. */
#include "shelf/numbers.h"

#include <stdbool.h>
#include <stdlib.h>

enum { ROOM_LEAST = 64 };

/* The cell of a key, or the free one where it would be; at most half of the cells are in use. */
static struct numbered *cell_of(struct numbered *cells, size_t room, uint64_t key)
{
    size_t i = (size_t)key & (room - 1);
    while (cells[i].key && cells[i].key != key)
        i = (i + 1) & (room - 1);
    return &cells[i];
}

static void put(struct numbers *s, uint64_t key, uint32_t number)
{
    struct numbered *c = cell_of(s->young, s->room, key);
    s->n += c->key == 0;
    *c = (struct numbered){key, number};
}

/* The young become the old, and the old are forgotten. */
static bool turn_over(struct numbers *s)
{
    struct numbered *cells = calloc(ROOM_LEAST, sizeof(*cells));
    if (!cells)
        return false;
    free(s->old);
    s->old = s->young;
    s->old_room = s->room;
    s->young = cells;
    s->room = ROOM_LEAST;
    s->n = 0;
    return true;
}

/* Room for one more. */
static bool make_room(struct numbers *s)
{
    if (s->room && s->n < s->room / 2)
        return true;
    if (s->n >= NUMBERS_KEPT)
        return turn_over(s);
    size_t room = s->room ? 2 * s->room : ROOM_LEAST, before = s->room;
    struct numbered *cells = calloc(room, sizeof(*cells)), *were = s->young;
    if (!cells)
        return false;
    s->young = cells;
    s->room = room;
    s->n = 0;
    for (size_t i = 0; i < before; i++)
        if (were[i].number)
            put(s, were[i].key, were[i].number);
    free(were);
    return true;
}

void numbers_keep(struct numbers *s, uint64_t key, uint32_t number)
{
    if (key && make_room(s))
        put(s, key, number);
}

static uint32_t take_from(struct numbered *cells, size_t room, uint64_t key)
{
    struct numbered *c = room ? cell_of(cells, room, key) : NULL;
    uint32_t number = c ? c->number : 0;
    if (number)
        c->number = 0; /* the key stays: others are found behind it */
    return number;
}

uint32_t numbers_take(struct numbers *s, uint64_t key)
{
    if (!key)
        return 0;
    uint32_t number = take_from(s->young, s->room, key);
    return number ? number : take_from(s->old, s->old_room, key);
}

void numbers_free(struct numbers *s)
{
    free(s->young);
    free(s->old);
    *s = (struct numbers){0};
}

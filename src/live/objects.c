/* SPDX-License-Identifier: MIT */
/* Keeps the states of tensors (objects.h). */
#include "live/objects.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/when.h"

/* ---- finding, making, naming ---- */

static void object_free(struct object *o)
{
    free(o->name);
    free(o->error);
    free(o);
}

void objects_free(struct objects *s)
{
    for (size_t i = 0; i < s->cap; i++)
        if (s->of[i])
            object_free(s->of[i]);
    table_free(&s->by_name);
    table_free(&s->nodes);
    table_free(&s->shared);
    free((void *)s->of);
    *s = (struct objects){0};
}

struct object *object_find(const struct objects *s, uint32_t number)
{
    return number < s->cap ? s->of[number] : NULL;
}

struct object *object_get(struct objects *s, uint32_t number)
{
    struct object *o = object_find(s, number);
    size_t cap = s->cap ? s->cap : 64;
    if (o)
        return o;
    while (cap <= number)
        cap *= 2;
    if (cap > s->cap) {
        struct object **of = realloc((void *)s->of, cap * sizeof(struct object *));
        if (!of)
            return NULL;
        memset((void *)(of + s->cap), 0, (cap - s->cap) * sizeof(struct object *));
        s->of = of;
        s->cap = cap;
    }
    o = calloc(1, sizeof(*o));
    if (!o)
        return NULL;
    o->number = number;
    s->of[number] = o;
    return o;
}

struct object *object_from(const struct objects *s, uint64_t number)
{
    while (number < s->cap && !s->of[number])
        number++;
    return number < s->cap ? s->of[number] : NULL;
}

void object_drop(struct objects *s, struct object *o)
{
    object_unlist(o);
    object_clear_name(s, o);
    object_set_error(s, o, NULL);
    s->of[o->number] = NULL;
    object_free(o);
}

struct object *object_named(const struct objects *s, const void *name, size_t n,
                            enum object_state state)
{
    for (struct link *l = table_first(&s->by_name, hash_name(name, n)); l; l = table_next(l)) {
        struct object *o = (struct object *)l;
        if (o->state == state && o->name_len == n && memcmp(o->name, name, n) == 0)
            return o;
    }
    return NULL;
}

int object_set_name(struct objects *s, struct object *o, const void *name, size_t n)
{
    char *copy = malloc(n + 1);
    if (!copy)
        return -ENOMEM;
    memcpy(copy, name, n);
    object_clear_name(s, o);
    if (table_add(&s->by_name, &o->link, hash_name(copy, n)) < 0) {
        free(copy);
        return -ENOMEM;
    }
    o->name = copy;
    o->name_len = n;
    return 0;
}

void object_clear_name(struct objects *s, struct object *o)
{
    if (o->name)
        table_remove(&s->by_name, &o->link);
    free(o->name);
    o->name = NULL;
    o->rank = 0;
}

/* ---- states ---- */

/* Marks an event that cannot happen in a state. */
#define NEVER OBJECT_STATES

// clang-format off
static const enum object_state states[OBJECT_STATES][OBJECT_EVENTS] = {
    /* MAKE ADD DOOM REMOVE BACK LOSE REGAIN */
    [OBJECT_STORED] = {OBJECT_NEW,    NEVER,         OBJECT_DOOMED, OBJECT_ABSENT, NEVER,         OBJECT_LOST,   NEVER},
    [OBJECT_NEW]    = {NEVER,         OBJECT_STORED, NEVER,         OBJECT_GONE,   NEVER,         NEVER,         NEVER},
    [OBJECT_DOOMED] = {NEVER,         NEVER,         OBJECT_DOOMED, OBJECT_ABSENT, OBJECT_STORED, OBJECT_LOST,   NEVER},
    [OBJECT_ABSENT] = {NEVER,         NEVER,         NEVER,         NEVER,         OBJECT_STORED, OBJECT_LOST,   NEVER},
    [OBJECT_LOST]   = {NEVER,         NEVER,         NEVER,         NEVER,         NEVER,         OBJECT_LOST,   OBJECT_GONE},
    [OBJECT_GONE]   = {NEVER,         NEVER,         NEVER,         NEVER,         NEVER,         NEVER,         NEVER},
};
// clang-format on

/* True if the object's error is that of an edit and is counted. */
static bool counts(const struct object *o)
{
    return o->error && (o->state == OBJECT_STORED || o->state == OBJECT_DOOMED);
}

void object_set_error(struct objects *s, struct object *o, const char *why)
{
    s->n_errors -= counts(o);
    free(o->error);
    o->error = why ? strdup(why) : NULL;
    s->n_errors += counts(o);
}

void object_event(struct objects *s, struct object *o, enum object_event event)
{
    const enum object_state to = states[o->state][event];
    assert(to != NEVER);
    if (event == OBJECT_DOOM)
        s->removal = when_after(1000 * OBJECTS_QUIET);
    if (to == o->state)
        return;
    object_unlist(o);
    s->n_errors -= counts(o);
    s->n_new -= o->state == OBJECT_NEW;
    o->state = to;
    s->n_new += to == OBJECT_NEW;
    s->n_errors += counts(o);
    if (to == OBJECT_DOOMED)
        object_enlist(&s->doomed, o, s->doomed.last);
    if (to == OBJECT_STORED || to == OBJECT_GONE)
        object_clear_name(s, o);
    if (event == OBJECT_BACK) {
        o->hidden = 0;
        o->generation++;
    }
}

void object_enlist(struct object_list *list, struct object *o, struct object *before)
{
    assert(!o->in);
    o->in = list;
    o->before = before;
    o->next = before ? before->next : list->first;
    *(before ? &before->next : &list->first) = o;
    *(o->next ? &o->next->before : &list->last) = o;
    list->n++;
}

void object_unlist(struct object *o)
{
    struct object_list *list = o->in;
    if (!list)
        return;
    *(o->before ? &o->before->next : &list->first) = o->next;
    *(o->next ? &o->next->before : &list->last) = o->before;
    list->n--;
    o->in = NULL;
}

void objects_sync(struct objects *s)
{
    s->now = true;
    s->syncs++;
}

bool objects_due(const struct objects *s)
{
    return s->doomed.n > 0 && (s->now || when_past(&s->removal, 0));
}

/* ---- unlinked views ---- */

uint32_t object_hidden(struct object *o)
{
    if (o->hidden && when_past(&o->hidden_at, OBJECTS_VIEWS))
        o->hidden = 0;
    return o->hidden;
}

void object_hide(struct object *o, uint32_t row)
{
    o->hidden = object_hidden(o) | (uint32_t)1 << row;
    o->hidden_at = when_now();
}

void object_unhide(struct object *o, uint32_t row)
{
    o->hidden &= ~((uint32_t)1 << row);
}

/* SPDX-License-Identifier: MIT */
/* What is known of tensors' folders: see folders.h. */
#include "live/folders.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/hash.h"
#include "base/when.h"

void folders_free(struct folders *s)
{
    for (struct folder *f = s->first, *next; f; f = next) {
        next = f->next;
        free(f->error);
        free(f);
    }
    free((void *)s->of);
    *s = (struct folders){0};
}

struct folder *folders_find(const struct folders *s, uint32_t number)
{
    return number < s->cap ? s->of[number] : NULL;
}

struct folder *folders_get(struct folders *s, uint32_t number)
{
    struct folder *f = folders_find(s, number);
    size_t cap = s->cap ? s->cap : 64;
    if (f)
        return f;
    while (cap <= number)
        cap *= 2;
    if (cap > s->cap) {
        struct folder **of = realloc((void *)s->of, cap * sizeof(struct folder *));
        if (!of)
            return NULL;
        memset((void *)(of + s->cap), 0, (cap - s->cap) * sizeof(struct folder *));
        s->of = of;
        s->cap = cap;
    }
    f = calloc(1, sizeof(*f));
    if (!f)
        return NULL;
    f->number = number;
    f->next = s->first;
    f->at = &s->first;
    if (f->next)
        f->next->at = &f->next;
    s->first = f;
    s->of[number] = f;
    return f;
}

void folders_drop(struct folders *s, struct folder *f)
{
    folders_untie(s, f);
    folder_set_error(s, f, NULL);
    s->of[f->number] = NULL;
    *f->at = f->next;
    if (f->next)
        f->next->at = f->at;
    free(f);
}

void folder_set_error(struct folders *s, struct folder *f, const char *why)
{
    s->n_errors -= f->error != NULL;
    free(f->error);
    f->error = why ? strdup(why) : NULL;
    s->n_errors += f->error != NULL;
}

/* ---- removed ---- */

void folder_doom(struct folders *s, struct folder *f)
{
    struct folder **at = &s->doomed;
    if (!f->doomed) {
        f->doomed = true;
        f->next_doomed = *at;
        *at = f;
        s->n_doomed++;
    }
    s->due = when_now();
    s->due.tv_sec += FOLDERS_QUIET;
}

void folder_back(struct folder *f)
{
    f->doomed = f->removed = false;
    f->hidden = 0;
    f->generation++;
}

struct folder *folders_take(struct folders *s)
{
    struct folder *all = NULL;
    for (struct folder *f = s->doomed, *next; f; f = next) {
        next = f->next_doomed;
        f->doomed = false;
        f->next_doomed = all;
        all = f;
    }
    s->doomed = NULL;
    s->n_doomed = 0;
    return all;
}

void folders_untie(struct folders *s, struct folder *f)
{
    struct folder **at = &s->doomed;
    while (*at && *at != f)
        at = &(*at)->next_doomed;
    if (!*at)
        return;
    *at = f->next_doomed;
    f->doomed = false;
    s->n_doomed--;
}

void folders_sync(struct folders *s)
{
    s->now = true;
    s->syncs++;
}

bool folders_due(const struct folders *s)
{
    return s->n_doomed > 0 && (s->now || when_past(&s->due, 0));
}

/* ---- views that were unlinked ---- */

uint32_t folder_hidden(struct folder *f)
{
    if (f->hidden && when_past(&f->hidden_at, FOLDERS_VIEWS))
        f->hidden = 0;
    return f->hidden;
}

void folder_hide(struct folder *f, uint32_t row)
{
    f->hidden = folder_hidden(f) | (uint32_t)1 << row;
    f->hidden_at = when_now();
}

void folder_unhide(struct folder *f, uint32_t row)
{
    f->hidden &= ~((uint32_t)1 << row);
}

/* ---- where removed tensors stood ---- */

struct place {
    struct link link; /* first */
    uint64_t rank;
    size_t n;
    char name[];
};

static struct place *find(const struct table *t, const void *name, size_t n)
{
    struct link *l = table_first(t, hash_name(name, n));
    for (; l; l = table_next(l)) {
        struct place *p = (struct place *)l;
        if (p->n == n && memcmp(p->name, name, n) == 0)
            return p;
    }
    return NULL;
}

void places_note(struct table *t, const void *name, size_t n, uint64_t rank)
{
    struct place *p = find(t, name, n);
    if (p) {
        p->rank = rank;
        return;
    }
    p = calloc(1, sizeof(*p) + n);
    if (!p)
        return;
    p->rank = rank;
    p->n = n;
    memcpy(p->name, name, n);
    if (table_add(t, &p->link, hash_name(name, n)) < 0)
        free(p);
}

uint64_t places_take(struct table *t, const void *name, size_t n, uint64_t none)
{
    struct place *p = find(t, name, n);
    const uint64_t rank = p ? p->rank : none;
    if (p)
        table_remove(t, &p->link);
    free(p);
    return rank;
}

void places_free(struct table *t)
{
    for (struct link *l; (l = table_each(t, NULL));) {
        table_remove(t, l);
        free(l);
    }
    table_free(t);
}

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

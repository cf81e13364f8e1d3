/* SPDX-License-Identifier: MIT */
/* Listings: see place.h, store.h. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shelf/store.h"

/* ---- listings ---- */

/* Where a text with its end was put. 0, -ENOMEM. */
static int add_text(struct buf *texts, const char *text, uint32_t *ret)
{
    size_t at = texts->len, n = strlen(text) + 1;
    if (at + n > UINT32_MAX)
        return -ENOMEM;
    buf_add(texts, text, n);
    *ret = (uint32_t)at;
    return buf_error(texts);
}

static uint64_t hash_text(const char *text)
{
    return hash_name(text, strlen(text));
}

/* The index is made anew, larger, when it is full. */
static int make_room(struct listing *l)
{
    struct index bigger;
    size_t room = l->room ? 2 * l->room : 64;
    int r = array_grow(&l->entry, &l->cap, l->n, sizeof(*l->entry));
    if (r < 0 || l->n < l->room)
        return r;
    if (l->n >= UINT32_MAX / 4 || index_init(&bigger, room) < 0)
        return -ENOMEM;
    for (size_t i = 0; i < l->n; i++)
        index_insert(&bigger, hash_text(entry_name(l, i)), (uint32_t)i);
    index_free(&l->index);
    l->index = bigger;
    l->room = room;
    return 0;
}

size_t listing_find(const struct listing *l, const char *name)
{
    uint32_t i;
    if (l->n == 0)
        return SIZE_MAX;
    for (struct probe p = index_probe(&l->index, hash_text(name)); index_next(&l->index, &p, &i);)
        if (strcmp(entry_name(l, i), name) == 0)
            return i;
    return SIZE_MAX;
}

bool listing_has(const struct listing *l, const char *name)
{
    char shown[TREE_NAME_MAX + 1];
    (void)name_encode(name, strlen(name), shown);
    return listing_find(l, shown) != SIZE_MAX;
}

int listing_add(struct listing *l, const char *name, const struct ref *ref)
{
    char shown[TREE_NAME_MAX + 1];
    struct entry e = {.kind = ref->kind, .shards = ref->shards, .here = ref->here};
    (void)name_encode(name, strlen(name), shown);
    for (unsigned k = 2; listing_find(l, shown) != SIZE_MAX; k++) {
        char *numbered;
        int n = asprintf(&numbered, "%s~%u", name, k);
        if (n < 0)
            return -ENOMEM;
        (void)name_encode(numbered, (size_t)n, shown);
        free(numbered);
    }
    int r = make_room(l);
    if (r == 0)
        r = add_text(&l->texts, shown, &e.name);
    if (r == 0)
        r = add_text(&l->texts, ref->a ? ref->a : "", &e.a);
    if (r == 0)
        r = add_text(&l->texts, ref->b ? ref->b : "", &e.b);
    if (r < 0)
        return r;
    l->entry[l->n] = e;
    index_insert(&l->index, hash_text(shown), (uint32_t)l->n);
    l->n++;
    return 0;
}

static int by_name(const void *a, const void *b, void *texts)
{
    const struct entry *x = a, *y = b;
    return strcmp((const char *)texts + x->name, (const char *)texts + y->name);
}

int listing_end(struct listing *l)
{
    struct index sorted;
    if (l->n == 0)
        return 0;
    qsort_r(l->entry, l->n, sizeof(*l->entry), by_name, l->texts.data);
    if (index_init(&sorted, l->n) < 0)
        return -ENOMEM;
    for (size_t i = 0; i < l->n; i++)
        index_insert(&sorted, hash_text(entry_name(l, i)), (uint32_t)i);
    index_free(&l->index);
    l->index = sorted;
    l->room = l->n;
    return 0;
}

struct ref entry_ref(const struct listing *l, size_t i)
{
    const struct entry *e = &l->entry[i];
    const char *texts = (const char *)l->texts.data;
    return (struct ref){e->kind, e->shards, texts + e->a, texts + e->b, e->here};
}

void listing_free(struct listing *l)
{
    free(l->entry);
    buf_free(&l->texts);
    index_free(&l->index);
    *l = LISTING_INIT;
}

/* ---- names ---- */

int shown_name(const char *shown, char name[TREE_NAME_MAX + 1])
{
    size_t n;
    int r = name_decode(shown, name, &n);
    if (r < 0)
        return r;
    name[n] = '\0';
    return strlen(name) == n && n > 0 && !strchr(name, '/') ? 0 : -ENOENT;
}

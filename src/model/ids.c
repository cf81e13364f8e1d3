/* SPDX-License-Identifier: MIT */
/* Numbers and versions of tensors: see ids.h. */
#include "model/ids.h"

#include <errno.h>
#include <stdlib.h>

struct ids *ids_ref(struct ids *s)
{
    if (s)
        atomic_fetch_add(&s->refs, 1);
    return s;
}

void ids_unref(struct ids *s)
{
    if (!s || atomic_fetch_sub(&s->refs, 1) != 1)
        return;
    index_free(&s->find);
    free(s->of);
    free(s);
}

/* They are our own numbers: nobody can choose some that collide. */
static uint64_t hash_number(uint32_t number)
{
    return (number + (uint64_t)1) * 0x9e3779b97f4a7c15u;
}

static uint32_t find(const struct ids *s, uint32_t n, uint32_t wanted, bool version)
{
    uint32_t i;
    if (!s)
        return wanted < n ? wanted : IDS_NONE;
    struct probe p = index_probe(&s->find, hash_number(wanted));
    while (index_next(&s->find, &p, &i))
        if ((version ? s->of[i].version : s->of[i].number) == wanted)
            return i;
    return IDS_NONE;
}

uint32_t ids_find(const struct ids *s, uint32_t n, uint32_t number)
{
    return find(s, n, number, false);
}

uint32_t ids_find_version(const struct ids *s, uint32_t n, uint32_t version)
{
    return find(s, n, version, true);
}

int ids_make(const struct tensor_id *of, uint32_t n, struct ids **ret)
{
    struct ids *s = calloc(1, sizeof(*s));
    if (!s)
        return -ENOMEM;
    atomic_init(&s->refs, 1);
    s->n = n;
    s->of = malloc(((size_t)n + 1) * sizeof(*s->of));
    int r = s->of ? index_init(&s->find, 2 * (size_t)n) : -ENOMEM;
    if (r < 0) {
        ids_unref(s);
        return r;
    }
    for (uint32_t i = 0; i < n; i++) {
        s->of[i] = of[i];
        index_insert(&s->find, hash_number(of[i].number), i);
        if (of[i].version != of[i].number)
            index_insert(&s->find, hash_number(of[i].version), i);
    }
    *ret = s;
    return 0;
}

static bool is_same(uint32_t n_before, const struct tensor_from *from, uint32_t n)
{
    bool same = n == n_before;
    for (uint32_t i = 0; i < n && same; i++)
        same = from[i].old == i && !from[i].changed;
    return same;
}

static int follow(const struct ids *before, const struct tensor_from *from, uint32_t n,
                  struct tensor_id *of, uint32_t *next)
{
    for (uint32_t i = 0; i < n; i++) {
        bool new = from[i].old == IDS_NONE;
        if ((new || from[i].changed) && *next == IDS_NONE)
            return -EOVERFLOW;
        of[i] = new ? (struct tensor_id){*next, *next} : ids_of(before, from[i].old);
        if (new || from[i].changed)
            of[i].version = (*next)++;
    }
    return 0;
}

int ids_follow(struct ids *before, uint32_t n_before, const struct tensor_from *from, uint32_t n,
               uint32_t *given, struct ids **ret)
{
    uint32_t next = *given;
    if (is_same(n_before, from, n)) {
        *ret = ids_ref(before);
        return 0;
    }
    struct tensor_id *of = malloc(((size_t)n + 1) * sizeof(*of));
    int r = of ? follow(before, from, n, of, &next) : -ENOMEM;
    if (r == 0)
        r = ids_make(of, n, ret);
    free(of);
    if (r == 0)
        *given = next;
    return r;
}

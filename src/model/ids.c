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

uint32_t ids_look(const struct ids *s, uint32_t wanted, bool version)
{
    uint32_t i;
    struct probe p = index_probe(&s->find, hash_number(wanted));
    while (index_next(&s->find, &p, &i))
        if ((version ? s->of[i].version : s->of[i].number) == wanted)
            return i;
    return IDS_NONE;
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

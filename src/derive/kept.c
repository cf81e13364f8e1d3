/* SPDX-License-Identifier: MIT */
/* Keeps results: see kept.h. */
#include "derive/kept.h"

#include <errno.h>
#include <stdlib.h>

void result_unref(struct result *r)
{
    if (!r || atomic_fetch_sub(&r->refs, 1) != 1)
        return;
    buf_free(&r->bytes);
    free(r);
}

static bool is_large(const struct result *r)
{
    return r->what == DERIVED_STATS || r->what == DERIVED_PICTURE;
}

struct result *kept_find(const struct kept *k, struct tensor_id of, enum derived what)
{
    struct link *l = table_first(&k->all, hash_number(of.number));
    for (; l; l = table_next(l)) {
        struct result *r = (struct result *)l;
        if (r->of.number == of.number && r->of.version == of.version && r->what == what)
            return r;
    }
    return NULL;
}

static void take_out(struct kept *k, struct result *r)
{
    if (!is_large(r))
        return;
    *(r->older ? &r->older->newer : &k->oldest) = r->newer;
    *(r->newer ? &r->newer->older : &k->newest) = r->older;
    k->bytes -= r->bytes.len;
}

static void put_newest(struct kept *k, struct result *r)
{
    if (!is_large(r))
        return;
    r->older = k->newest;
    r->newer = NULL;
    *(k->newest ? &k->newest->newer : &k->oldest) = r;
    k->newest = r;
    k->bytes += r->bytes.len;
}

static void drop(struct kept *k, struct result *r)
{
    take_out(k, r);
    table_remove(&k->all, &r->link);
    result_unref(r);
}

struct result *kept_use(struct kept *k, struct tensor_id of, enum derived what)
{
    struct result *r = kept_find(k, of, what);
    if (!r)
        return NULL;
    take_out(k, r);
    put_newest(k, r);
    atomic_fetch_add(&r->refs, 1);
    return r;
}

int kept_put(struct kept *k, struct tensor_id of, enum derived what, struct buf *bytes)
{
    struct result *old = kept_find(k, of, what), *r = calloc(1, sizeof(*r));
    if (!r || table_add(&k->all, &r->link, hash_number(of.number)) < 0) {
        free(r);
        return -ENOMEM;
    }
    if (old)
        drop(k, old);
    atomic_init(&r->refs, 1);
    r->of = of;
    r->what = what;
    r->bytes = *bytes;
    *bytes = BUF_INIT;
    put_newest(k, r);
    while (k->bytes > KEPT_BYTES && k->oldest != r)
        drop(k, k->oldest);
    return 0;
}

void kept_forget_others(struct kept *k, struct tensor_id of,
                        bool (*needed)(void *arg, struct tensor_id other), void *arg)
{
    struct link *next;
    for (struct link *l = table_first(&k->all, hash_number(of.number)); l; l = next) {
        struct result *r = (struct result *)l;
        next = table_next(l);
        if (r->of.number == of.number && r->of.version != of.version && !needed(arg, r->of))
            drop(k, r);
    }
}

void kept_free(struct kept *k)
{
    for (struct link *l; (l = table_each(&k->all, NULL)) != NULL;)
        drop(k, (struct result *)l);
    table_free(&k->all);
    *k = KEPT_NONE;
}

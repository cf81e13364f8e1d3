/* SPDX-License-Identifier: MIT */
/* Keeps computed results: see kept.h. */
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

static void drop(struct kept *k, struct result *r)
{
    k->bytes -= is_large(r) ? r->bytes.len : 0;
    table_remove(&k->all, &r->link);
    result_unref(r);
}

struct result *kept_use(struct kept *k, struct tensor_id of, enum derived what)
{
    struct result *r = kept_find(k, of, what);
    if (!r)
        return NULL;
    r->used = ++k->uses;
    atomic_fetch_add(&r->refs, 1);
    return r;
}

/* Return the text or picture that was used least recently. */
static struct result *oldest(const struct kept *k)
{
    struct result *ret = NULL;
    for (struct link *l = NULL; (l = table_each(&k->all, l)) != NULL;) {
        struct result *r = (struct result *)l;
        if (is_large(r) && (!ret || r->used < ret->used))
            ret = r;
    }
    return ret;
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
    r->used = ++k->uses;
    k->bytes += is_large(r) ? r->bytes.len : 0;
    for (struct result *x; k->bytes > KEPT_BYTES && (x = oldest(k)) != r;)
        drop(k, x);
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

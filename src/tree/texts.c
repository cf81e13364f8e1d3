/* SPDX-License-Identifier: MIT */
/* Rendered texts that handles share: see texts.h. */
#include "tree/texts.h"

#include <errno.h>
#include <stdlib.h>

void texts_init(struct texts *l)
{
    *l = (struct texts){0};
    lock_init(&l->lock);
}

void texts_free(struct texts *l)
{
    rendered_unref(l->kept);
    table_free(&l->all);
    lock_destroy(&l->lock);
}

/* A reference to the text, which the caller is to make if it is new. Under the lock. NULL: no memory. */
static struct rendered *find_or_add(struct texts *l, uint64_t snap, uint64_t node, bool *is_new)
{
    const uint64_t id[] = {snap, node}, hash = hash_name(id, sizeof(id));
    struct link *at = table_first(&l->all, hash);
    while (at && (((struct rendered *)at)->snap != snap || ((struct rendered *)at)->node != node))
        at = table_next(at);
    struct rendered *x = (struct rendered *)at;
    *is_new = !x;
    if (!x && (x = calloc(1, sizeof(*x))) != NULL) {
        x->in = l;
        x->snap = snap;
        x->node = node;
        if (table_add(&l->all, &x->link, hash) < 0) {
            free(x);
            return NULL;
        }
    }
    if (x)
        x->refs++;
    return x;
}

int texts_get(struct texts *l, uint64_t snap, uint64_t node,
              void (*render)(const void *arg, struct buf *out), const void *arg,
              struct rendered **ret)
{
    bool is_new;
    lock_take(&l->lock);
    struct rendered *x = find_or_add(l, snap, node, &is_new);
    lock_drop(&l->lock);
    if (!x)
        return -ENOMEM;
    if (is_new) {
        render(arg, &x->bytes);
        pool_tell(&x->made);
    } else {
        pool_wait(&x->made);
    }
    int r = buf_error(&x->bytes);
    if (r < 0)
        rendered_unref(x);
    else
        *ret = x;
    return r;
}

/* Out of the table, if that was the last reference. */
static bool drop(struct rendered *x)
{
    LOCKED(&x->in->lock);
    bool last = --x->refs == 0;
    if (last)
        table_remove(&x->in->all, &x->link);
    return last;
}

void rendered_unref(struct rendered *x)
{
    if (!x || !drop(x))
        return;
    buf_free(&x->bytes);
    free(x);
}

int texts_keep(struct texts *l, uint64_t snap, uint64_t node,
               void (*render)(const void *arg, struct buf *out), const void *arg,
               struct rendered **ret)
{
    struct rendered *old = NULL;
    int r = texts_get(l, snap, node, render, arg, ret);
    if (r < 0)
        return r;
    lock_take(&l->lock);
    if (!l->kept || l->kept->snap < snap) {
        old = l->kept;
        l->kept = *ret;
        l->kept->refs++;
    }
    lock_drop(&l->lock);
    rendered_unref(old);
    return 0;
}

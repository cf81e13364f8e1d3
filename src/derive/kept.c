/* SPDX-License-Identifier: MIT */
/* Results that are kept: see kept.h. */
#include "derive/kept.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The results of one state of a tensor. */
struct state {
    struct link link; /* first */
    struct kept_key key;
    bool hashed, measured;
    uint8_t hash[DIGEST_BYTES];
    struct moments moments;
    struct blob *blob[2]; /* text and picture, in the list of those that are kept; or NULL */
};

static struct blob **blob_of(struct state *t, enum derived what)
{
    return &t->blob[what == DERIVED_PICTURE];
}

static struct state *find(const struct kept *k, struct kept_key key)
{
    struct link *l = table_first(&k->all, hash_number(key.id));
    while (l && (((struct state *)l)->key.id != key.id ||
                 ((struct state *)l)->key.version != key.version))
        l = table_next(l);
    return (struct state *)l;
}

/* The same, made if needed. NULL: no memory. */
static struct state *make(struct kept *k, struct kept_key key)
{
    struct state *t = find(k, key);
    if (t || (t = calloc(1, sizeof(*t))) == NULL)
        return t;
    t->key = key;
    if (table_add(&k->all, &t->link, hash_number(key.id)) == 0)
        return t;
    free(t);
    return NULL;
}

/* ---- texts and pictures ---- */

void blob_unref(struct blob *b)
{
    if (!b || atomic_fetch_sub(&b->refs, 1) != 1)
        return;
    buf_free(&b->bytes);
    free(b);
}

static void unlink_blob(struct kept *k, struct blob *b)
{
    *(b->older ? &b->older->newer : &k->oldest) = b->newer;
    *(b->newer ? &b->newer->older : &k->newest) = b->older;
    k->bytes -= b->bytes.len;
}

static void link_blob(struct kept *k, struct blob *b)
{
    b->older = k->newest;
    b->newer = NULL;
    *(k->newest ? &k->newest->newer : &k->oldest) = b;
    k->newest = b;
    k->bytes += b->bytes.len;
}

static void drop_blob(struct kept *k, struct state *t, enum derived what)
{
    struct blob *b = *blob_of(t, what);
    if (!b)
        return;
    *blob_of(t, what) = NULL;
    unlink_blob(k, b);
    blob_unref(b);
}

struct blob *kept_blob(struct kept *k, struct kept_key key, enum derived what)
{
    struct state *t = find(k, key);
    struct blob *b = t ? *blob_of(t, what) : NULL;
    if (!b)
        return NULL;
    unlink_blob(k, b);
    link_blob(k, b);
    atomic_fetch_add(&b->refs, 1);
    return b;
}

int kept_put_blob(struct kept *k, struct kept_key key, enum derived what, struct buf *bytes)
{
    struct state *t = make(k, key);
    struct blob *b = t ? calloc(1, sizeof(*b)) : NULL;
    if (!b)
        return -ENOMEM;
    drop_blob(k, t, what);
    atomic_init(&b->refs, 1);
    b->key = key;
    b->what = what;
    b->bytes = *bytes;
    *bytes = BUF_INIT;
    link_blob(k, b);
    *blob_of(t, what) = b;
    while (k->bytes > KEPT_BYTES && k->oldest != b)
        drop_blob(k, find(k, k->oldest->key), k->oldest->what);
    return 0;
}

/* ---- hashes and moments ---- */

bool kept_sha256(const struct kept *k, struct kept_key key, uint8_t dst[DIGEST_BYTES])
{
    const struct state *t = find(k, key);
    if (!t || !t->hashed)
        return false;
    memcpy(dst, t->hash, DIGEST_BYTES);
    return true;
}

bool kept_moments(const struct kept *k, struct kept_key key, struct moments *dst)
{
    const struct state *t = find(k, key);
    if (!t || !t->measured)
        return false;
    *dst = t->moments;
    return true;
}

int kept_put_sha256(struct kept *k, struct kept_key key, const uint8_t hash[DIGEST_BYTES])
{
    struct state *t = make(k, key);
    if (!t)
        return -ENOMEM;
    memcpy(t->hash, hash, DIGEST_BYTES);
    t->hashed = true;
    return 0;
}

int kept_put_moments(struct kept *k, struct kept_key key, const struct moments *m)
{
    struct state *t = make(k, key);
    if (!t)
        return -ENOMEM;
    t->moments = *m;
    t->measured = true;
    return 0;
}

/* ---- all ---- */

bool kept_has(const struct kept *k, struct kept_key key, enum derived what)
{
    struct state *t = find(k, key);
    if (!t)
        return false;
    if (what == DERIVED_SHA256 || what == DERIVED_MOMENTS)
        return what == DERIVED_SHA256 ? t->hashed : t->measured;
    return *blob_of(t, what);
}

static void drop(struct kept *k, struct state *t)
{
    drop_blob(k, t, DERIVED_STATS);
    drop_blob(k, t, DERIVED_PICTURE);
    table_remove(&k->all, &t->link);
    free(t);
}

void kept_forget_others(struct kept *k, struct kept_key key,
                        bool (*needed)(void *arg, struct kept_key other), void *arg)
{
    struct link *next;
    for (struct link *l = table_first(&k->all, hash_number(key.id)); l; l = next) {
        struct state *t = (struct state *)l;
        next = table_next(l);
        if (t->key.id == key.id && t->key.version != key.version && !needed(arg, t->key))
            drop(k, t);
    }
}

void kept_free(struct kept *k)
{
    for (struct link *l; (l = table_each(&k->all, NULL)) != NULL;)
        drop(k, (struct state *)l);
    table_free(&k->all);
    *k = KEPT_NONE;
}

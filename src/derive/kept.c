/* SPDX-License-Identifier: MIT */
/* Results that are kept: see kept.h. */
#include "derive/kept.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Tensors of a page: of a model of a million few may ever be looked at. */
enum { PAGE = 256 };

struct kept_tensor {
    uint32_t version;
    bool hashed, measured; /* of this version */
    uint8_t hash[DIGEST_BYTES];
    struct moments moments;
    struct blob *blob[2]; /* text and picture, in the list of those that are kept; or NULL */
    unsigned holds;
    struct kept_tensor *other; /* owned: the same tensor in another state, which is held */
};

static struct blob **blob_of(struct kept_tensor *t, enum derived what)
{
    return &t->blob[what == DERIVED_PICTURE];
}

static void drop_blob(struct kept *k, struct kept_tensor *t, enum derived what);

/* ---- hashes and moments ---- */

static struct kept_tensor *find(const struct kept *k, struct kept_key key)
{
    size_t page = key.id / PAGE;
    struct kept_tensor *t = page < k->pages ? k->page[page] : NULL;
    t = t ? &t[key.id % PAGE] : NULL;
    while (t && t->version != key.version)
        t = t->other;
    return t;
}

static void drop_blobs(struct kept *k, struct kept_tensor *t)
{
    drop_blob(k, t, DERIVED_STATS);
    drop_blob(k, t, DERIVED_PICTURE);
}

/* The place is for another state from now on; what is held moves beside it. 0, -ENOMEM. */
static int turn_over(struct kept *k, struct kept_tensor *t, uint32_t version)
{
    struct kept_tensor *other = t->other;
    if (t->holds) {
        other = malloc(sizeof(*other));
        if (!other)
            return -ENOMEM;
        *other = *t;
    } else {
        drop_blobs(k, t);
    }
    *t = (struct kept_tensor){.version = version, .other = other};
    return 0;
}

/* The place of a tensor's state. NULL: no memory. */
static struct kept_tensor *make(struct kept *k, struct kept_key key)
{
    size_t page = key.id / PAGE;
    if (page >= k->pages) {
        size_t n = page + page / 2 + 1;
        struct kept_tensor **more = realloc(k->page, n * sizeof(*more));
        if (!more)
            return NULL;
        memset(more + k->pages, 0, (n - k->pages) * sizeof(*more));
        k->page = more;
        k->pages = n;
    }
    if (!k->page[page] && !(k->page[page] = calloc(PAGE, sizeof(struct kept_tensor))))
        return NULL;
    struct kept_tensor *t = find(k, key);
    if (t)
        return t;
    t = &k->page[page][key.id % PAGE];
    return turn_over(k, t, key.version) < 0 ? NULL : t;
}

void kept_hold(struct kept *k, struct kept_key key)
{
    struct kept_tensor *t = find(k, key);
    assert(t);
    t->holds++;
}

void kept_let_go(struct kept *k, struct kept_key key)
{
    struct kept_tensor *t = find(k, key), *place;
    assert(t && t->holds);
    if (--t->holds)
        return;
    place = &k->page[key.id / PAGE][key.id % PAGE];
    while (place != t && place->other != t)
        place = place->other;
    if (place == t)
        return;
    place->other = t->other;
    drop_blobs(k, t);
    free(t);
}

bool kept_sha256(const struct kept *k, struct kept_key key, uint8_t dst[DIGEST_BYTES])
{
    const struct kept_tensor *t = find(k, key);
    if (!t || !t->hashed)
        return false;
    memcpy(dst, t->hash, DIGEST_BYTES);
    return true;
}

bool kept_moments(const struct kept *k, struct kept_key key, struct moments *dst)
{
    const struct kept_tensor *t = find(k, key);
    if (!t || !t->measured)
        return false;
    *dst = t->moments;
    return true;
}

int kept_put_sha256(struct kept *k, struct kept_key key, const uint8_t hash[DIGEST_BYTES])
{
    struct kept_tensor *t = make(k, key);
    if (!t)
        return -ENOMEM;
    memcpy(t->hash, hash, DIGEST_BYTES);
    t->hashed = true;
    return 0;
}

int kept_put_moments(struct kept *k, struct kept_key key, const struct moments *m)
{
    struct kept_tensor *t = make(k, key);
    if (!t)
        return -ENOMEM;
    t->moments = *m;
    t->measured = true;
    return 0;
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

static void drop_blob(struct kept *k, struct kept_tensor *t, enum derived what)
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
    struct kept_tensor *t = find(k, key);
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
    struct kept_tensor *t = make(k, key);
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

bool kept_has(const struct kept *k, struct kept_key key, enum derived what)
{
    struct kept_tensor *t = find(k, key);
    if (!t)
        return false;
    if (what == DERIVED_SHA256 || what == DERIVED_MOMENTS)
        return what == DERIVED_SHA256 ? t->hashed : t->measured;
    return *blob_of(t, what);
}

void kept_free(struct kept *k)
{
    while (k->newest)
        drop_blob(k, find(k, k->newest->key), k->newest->what);
    for (size_t i = 0; i < k->pages; i++)
        free(k->page[i]); /* nothing is held any more */
    free((void *)k->page);
    *k = KEPT_NONE;
}

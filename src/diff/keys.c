/* SPDX-License-Identifier: MIT */
/* Values compared: see keys.h. */
#include "diff/keys.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/bytes.h"
#include "base/hash.h"

/* The value of a number as bits that do not depend on the file's byte order. */
static uint64_t bits_of(const struct gguf_value *v)
{
    uint64_t bits = get_uint(v->data, gguf_types[v->type].width, v->fmt->big);
    return v->type == GGUF_BOOL ? bits != 0 : bits;
}

/* Bytes can be compared: both files write this value in the same way. */
static bool same_form(const struct gguf_value *a, const struct gguf_value *b)
{
    return a->fmt->big == b->fmt->big && a->fmt->len_width == b->fmt->len_width &&
           a->fmt->nul == b->fmt->nul;
}

static bool value_same(const struct gguf_value *a, const struct gguf_value *b);

static bool same_array(const struct gguf_value *a, const struct gguf_value *b)
{
    struct gguf_value x, y;
    if (a->elem != b->elem || a->count != b->count)
        return false;
    if (same_form(a, b)) {
        size_t n = (size_t)(gguf_value_end(a) - a->data);
        if (n == (size_t)(gguf_value_end(b) - b->data) &&
            (n == 0 || memcmp(a->data, b->data, n) == 0))
            return true;
    }
    struct gguf_walk i = gguf_walk(a), k = gguf_walk(b);
    while (gguf_next(&i, &x) && gguf_next(&k, &y))
        if (!value_same(&x, &y))
            return false;
    return true;
}

/* Of the same type and content. NaNs are the same if their bits are. */
static bool value_same(const struct gguf_value *a, const struct gguf_value *b)
{
    if (a->type != b->type)
        return false;
    if (a->type == GGUF_ARRAY)
        return same_array(a, b);
    if (a->type == GGUF_STRING)
        return a->len == b->len && (a->len == 0 || memcmp(a->data, b->data, (size_t)a->len) == 0);
    return bits_of(a) == bits_of(b);
}

int keys_compare(const struct gguf *a, const struct gguf *b, const struct pair_filter *filter,
                 struct pairs *ret)
{
    int r = pairs_make(a, b, PAIR_KEYS, filter, ret);
    for (size_t i = 0; r == 0 && i < ret->n; i++) {
        struct pair *p = &ret->of[i];
        if (p->a == PAIR_NONE || p->b == PAIR_NONE)
            continue;
        struct gguf_value x = gguf_value(a, &a->kv[p->a]), y = gguf_value(b, &b->kv[p->b]);
        if (!value_same(&x, &y))
            p->status = DIFF_CHANGED;
    }
    return r;
}

/* ---- arrays ---- */

static uint64_t value_hash(const struct gguf_value *v)
{
    struct gguf_value x;
    uint64_t word[2] = {v->type, 0};
    if (v->type == GGUF_STRING)
        return hash_name(v->data, (size_t)v->len);
    if (v->type != GGUF_ARRAY) {
        word[1] = bits_of(v);
        return hash_name(word, sizeof(word));
    }
    word[0] = v->elem;
    for (struct gguf_walk i = gguf_walk(v); gguf_next(&i, &x);) {
        word[1] ^= value_hash(&x);
        word[1] = hash_name(word, sizeof(word));
    }
    return hash_name(word, sizeof(word));
}

static uint64_t *hashes(struct gguf_walk w, uint64_t n)
{
    struct gguf_value x;
    uint64_t *ret = malloc((size_t)(n + 1) * sizeof(*ret));
    for (size_t i = 0; ret && gguf_next(&w, &x); i++)
        ret[i] = value_hash(&x);
    return ret;
}

static void add_hunk(struct array_diff *d, const struct hunk *h)
{
    size_t both = h->n_a < h->n_b ? h->n_a : h->n_b;
    d->changed += both;
    d->removed += h->n_a - both;
    d->inserted += h->n_b - both;
}

/* Element by element. */
static void compare_by_place(struct gguf_walk a, struct gguf_walk b, struct array_diff *d)
{
    struct gguf_value x, y;
    while (a.left && b.left && gguf_next(&a, &x) && gguf_next(&b, &y))
        d->changed += !value_same(&x, &y);
    d->removed += a.left;
    d->inserted += b.left;
}

int array_compare(const struct gguf_value *a, const struct gguf_value *b, struct array_diff *ret)
{
    struct gguf_walk i = gguf_walk(a), k = gguf_walk(b);
    struct gguf_value x, y;
    uint64_t first = 0;
    *ret = (struct array_diff){0};
    for (struct gguf_walk j = i, l = k; gguf_next(&j, &x) && gguf_next(&l, &y);
         i = j, k = l, first++)
        if (!value_same(&x, &y))
            break;
    ret->first_a = ret->first_b = first;
    if (max_u64(i.left, k.left) > KEYS_SEARCHED) {
        compare_by_place(i, k, ret);
        return 0;
    }
    struct hunks h = HUNKS_INIT;
    uint64_t *of_a = hashes(i, i.left), *of_b = hashes(k, k.left);
    int r = of_a && of_b ? sequence_diff(of_a, (size_t)i.left, of_b, (size_t)k.left, &h) : -ENOMEM;
    for (size_t n = 0; n < h.n; n++)
        add_hunk(ret, &h.of[n]);
    if (r == 0 && h.n > 0) { /* an insertion may show at a later place, among equal elements */
        ret->first_a = first + h.of[0].a;
        ret->first_b = first + h.of[0].b;
    }
    hunks_free(&h);
    free(of_a);
    free(of_b);
    return r;
}

bool array_at(const struct gguf_value *array, uint64_t i, struct gguf_value *item)
{
    struct gguf_walk w = gguf_walk(array);
    while (gguf_next(&w, item))
        if (i-- == 0)
            return true;
    return false;
}

/* ---- lines ---- */

int lines_split(const char *text, size_t n, struct lines *ret)
{
    *ret = (struct lines){0};
    for (size_t at = 0; at < n;) {
        const char *end = memchr(text + at, '\n', n - at);
        size_t len = end ? (size_t)(end - text) - at : n - at;
        if (array_grow(&ret->of, &ret->cap, ret->n, sizeof(*ret->of)) < 0 ||
            array_grow(&ret->hash, &ret->cap_hash, ret->n, sizeof(*ret->hash)) < 0) {
            lines_free(ret);
            return -ENOMEM;
        }
        ret->hash[ret->n] = hash_name(text + at, len + (end ? 1 : 0));
        ret->of[ret->n++] = (struct line){text + at, len, !end};
        at += len + 1;
    }
    return 0;
}

void lines_free(struct lines *l)
{
    free(l->of);
    free(l->hash);
    *l = (struct lines){0};
}

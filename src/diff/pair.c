/* SPDX-License-Identifier: MIT */
/* Keys and tensors paired by name: see pair.h. */
#include "diff/pair.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "gguf/keys.h"

struct names {
    const struct gguf *g;
    enum pair_what what;
    uint32_t n;
};

static struct names names_of(const struct gguf *g, enum pair_what what)
{
    return (struct names){g, what, (uint32_t)(what == PAIR_KEYS ? g->n_kv : g->n_tensors)};
}

static const char *name_at(const struct names *s, uint32_t i, size_t *n)
{
    if (s->what == PAIR_KEYS) {
        *n = s->g->kv[i].key_len;
        return gguf_key(s->g, &s->g->kv[i]);
    }
    *n = s->g->tensor[i].name_len;
    return gguf_name(s->g, &s->g->tensor[i]);
}

static uint32_t find(const struct names *s, const char *name, size_t n)
{
    return s->what == PAIR_KEYS ? gguf_find_key(s->g, name, n) : gguf_find_tensor(s->g, name, n);
}

/* Patterns end at a NUL; a name with one is compared up to it. */
static bool matches(const struct pair_filter *f, const char *name, size_t n)
{
    if (f->n == 0)
        return false;
    char *text = strndup(name, n);
    bool ret = false;
    for (size_t i = 0; text && i < f->n && !ret; i++)
        ret = fnmatch(f->ignore[i], text, 0) == 0;
    free(text);
    return ret;
}

static bool left_out(const struct names *s, uint32_t i, const struct pair_filter *f)
{
    size_t n;
    const char *name = name_at(s, i, &n);
    bool ours =
        s->what == PAIR_KEYS && n == strlen(KEY_RESERVE) && memcmp(name, KEY_RESERVE, n) == 0;
    return ours || matches(f, name, n);
}

static void pair_all(const struct names *a, const struct names *b, const struct pair_filter *f,
                     struct pairs *ret)
{
    size_t n;
    for (uint32_t i = 0; i < a->n; i++) {
        const char *name = name_at(a, i, &n);
        uint32_t other = find(b, name, n);
        if (!left_out(a, i, f))
            ret->of[ret->n++] =
                (struct pair){i, other, other == PAIR_NONE ? DIFF_ONLY_A : DIFF_SAME};
    }
    for (uint32_t i = 0; i < b->n; i++) {
        const char *name = name_at(b, i, &n);
        if (find(a, name, n) == PAIR_NONE && !left_out(b, i, f))
            ret->of[ret->n++] = (struct pair){PAIR_NONE, i, DIFF_ONLY_B};
    }
}

/*
 * Of the pairs that both have, keep the longest run whose places in B rise; the others have moved. tail[k]
 * is the pair that ends the best run of length k + 1; before[i] the one before pair i in its run.
 */
static void mark_moved(struct pairs *p, uint32_t *tail, uint32_t *before)
{
    size_t runs = 0;
    for (uint32_t i = 0; i < p->n; i++) {
        if (p->of[i].status != DIFF_SAME)
            continue;
        size_t lo = 0, hi = runs;
        while (lo < hi) {
            size_t mid = lo + (hi - lo) / 2;
            if (p->of[tail[mid]].b < p->of[i].b)
                lo = mid + 1;
            else
                hi = mid;
        }
        before[i] = lo ? tail[lo - 1] : PAIR_NONE;
        tail[lo] = i;
        runs = lo == runs ? runs + 1 : runs;
        p->of[i].status = DIFF_MOVED;
    }
    for (uint32_t i = runs ? tail[runs - 1] : PAIR_NONE; i != PAIR_NONE; i = before[i])
        p->of[i].status = DIFF_SAME;
}

int pairs_make(const struct gguf *a, const struct gguf *b, enum pair_what what,
               const struct pair_filter *filter, struct pairs *ret)
{
    struct names in_a = names_of(a, what), in_b = names_of(b, what);
    size_t room = (size_t)in_a.n + in_b.n + 1;
    *ret = (struct pairs){calloc(room, sizeof(*ret->of)), 0};
    uint32_t *tail = calloc(room, sizeof(*tail)), *before = calloc(room, sizeof(*before));
    int r = ret->of && tail && before ? 0 : -ENOMEM;
    if (r == 0) {
        pair_all(&in_a, &in_b, filter, ret);
        mark_moved(ret, tail, before);
    } else {
        pairs_free(ret);
    }
    free(tail);
    free(before);
    return r;
}

void pairs_free(struct pairs *p)
{
    free(p->of);
    *p = (struct pairs){0};
}

void pairs_count(const struct pairs *p, size_t count[DIFF_STATUSES])
{
    memset(count, 0, DIFF_STATUSES * sizeof(*count));
    for (size_t i = 0; i < p->n; i++)
        count[p->of[i].status]++;
}

const char *diff_status_name(enum diff_status s)
{
    static const char *const name[] = {[DIFF_SAME] = "same",
                                       [DIFF_CHANGED] = "changed",
                                       [DIFF_ONLY_A] = "only_a",
                                       [DIFF_ONLY_B] = "only_b",
                                       [DIFF_MOVED] = "moved"};
    return name[s];
}

/* SPDX-License-Identifier: MIT */
/* Pairs keys and tensors by name, and compares values: see pair.h. */
#include "diff/pair.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/bytes.h"
#include "base/hash.h"
#include "gguf/value.h"

static uint32_t count(const struct gguf *g, enum pair_what what)
{
    return what == PAIR_KEYS ? g->n_kv : g->n_tensors;
}

struct text pair_name(const struct gguf *g, enum pair_what what, uint32_t i)
{
    if (what == PAIR_KEYS)
        return (struct text){gguf_key(g, &g->kv[i]), g->kv[i].key_len};
    return (struct text){gguf_name(g, &g->tensor[i]), g->tensor[i].name_len};
}

static uint32_t find(const struct gguf *g, enum pair_what what, struct text name)
{
    return what == PAIR_KEYS ? gguf_find_key(g, name.at, name.len)
                             : gguf_find_tensor(g, name.at, name.len);
}

/* Patterns end at a NUL, so a name with a NUL is compared up to it. */
static bool left_out(const struct pair_filter *f, enum pair_what what, struct text name)
{
    bool ret = what == PAIR_KEYS && text_is(name, KEY_RESERVE);
    char *text = f->n ? strndup(name.at, name.len) : NULL;
    for (size_t i = 0; text && i < f->n && !ret; i++)
        ret = fnmatch(f->ignore[i], text, 0) == 0;
    free(text);
    return ret;
}

static void pair_all(const struct gguf *a, const struct gguf *b, enum pair_what what,
                     const struct pair_filter *f, struct pairs *ret)
{
    for (uint32_t i = 0; i < count(a, what); i++) {
        struct text name = pair_name(a, what, i);
        uint32_t other = find(b, what, name);
        if (!left_out(f, what, name))
            ret->of[ret->n++] =
                (struct pair){{i, other}, other == PAIR_NONE ? DIFF_ONLY_A : DIFF_SAME};
    }
    for (uint32_t i = 0; i < count(b, what); i++) {
        struct text name = pair_name(b, what, i);
        if (find(a, what, name) == PAIR_NONE && !left_out(f, what, name))
            ret->of[ret->n++] = (struct pair){{PAIR_NONE, i}, DIFF_ONLY_B};
    }
}

/*
 * Keep the longest run of pairs that are in both models and whose places in B ascend; the others
 * have moved. tail[k] is the last pair of the best run of length k + 1; before[i] is the pair
 * before pair i in its run.
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
            if (p->of[tail[mid]].no[1] < p->of[i].no[1])
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
    size_t room = (size_t)count(a, what) + count(b, what) + 1;
    *ret = (struct pairs){calloc(room, sizeof(*ret->of)), 0};
    uint32_t *tail = calloc(room, sizeof(*tail)), *before = calloc(room, sizeof(*before));
    int r = ret->of && tail && before ? 0 : -ENOMEM;
    if (r == 0) {
        pair_all(a, b, what, filter, ret);
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

/* ---- values ---- */

/* Return a number's value as bits that do not depend on the file's byte order. */
static uint64_t bits_of(const struct gguf_value *v)
{
    uint64_t bits = get_uint(v->data, gguf_types[v->type].width, v->fmt->big);
    return v->type == GGUF_BOOL ? bits != 0 : bits;
}

/* True if bytes can be compared, because both files write this value in the same way. */
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

/* True if type and content are equal. NaNs are equal if their bits are. */
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
        if (p->no[0] == PAIR_NONE || p->no[1] == PAIR_NONE)
            continue;
        struct gguf_value x = gguf_value(a, &a->kv[p->no[0]]), y = gguf_value(b, &b->kv[p->no[1]]);
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

/* Compare the elements index by index. */
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
    if (r == 0 && h.n > 0) { /* among equal elements, an insertion may appear at a later place */
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

/*
 * ---- sequences ----
 *
 * Step d of the search stores, for each diagonal k = x - y that d insertions and removals can
 * reach, the largest x on it. All steps are kept, and walked back from the end.
 */

struct search {
    const uint64_t *a, *b;
    size_t n_a, n_b;
    uint32_t *step[SEQUENCE_MOST + 1]; /* owned; step d has d + 1 diagonals: -d, -d + 2, ... d */
    size_t d;                          /* the last step */
};

/* Return the largest x on diagonal k after step d - 1, plus one; 0 if it was not reached. */
static size_t reached(const struct search *s, size_t d, long k)
{
    long least = -(long)d;
    return k < least || k > (long)d ? 0 : s->step[d][(k - least) / 2];
}

/* Return the x on diagonal k where step d begins: after an insertion from the diagonal above, or a
 * removal from the one below. */
static size_t begin(const struct search *s, size_t d, long k)
{
    if (d == 0)
        return 1;
    size_t down = reached(s, d - 1, k + 1), right = reached(s, d - 1, k - 1);
    return right && right >= down ? right + 1 : down;
}

/* Take a step. Returns 1 if it reaches the end, 0 or -ENOMEM. */
static int take_step(struct search *s, size_t d)
{
    uint32_t *row = s->step[d] = malloc((d + 1) * sizeof(*row));
    if (!row)
        return -ENOMEM;
    for (size_t i = 0; i <= d; i++) {
        long k = 2 * (long)i - (long)d;
        size_t x = begin(s, d, k);
        row[i] = 0;
        if (x == 0 || x - 1 > s->n_a || (long)(x - 1) < k || (size_t)((long)(x - 1) - k) > s->n_b)
            continue;
        x--;
        size_t y = (size_t)((long)x - k);
        while (x < s->n_a && y < s->n_b && s->a[x] == s->b[y]) {
            x++;
            y++;
        }
        row[i] = (uint32_t)x + 1;
        if (x == s->n_a && y == s->n_b)
            return 1;
    }
    return 0;
}

/* Add a hunk before the others, or extend the first hunk if the new one ends where it begins. */
static int add_before(struct hunks *h, struct hunk one)
{
    struct hunk *last = h->n ? &h->of[h->n - 1] : NULL;
    if (last && one.a + one.n_a == last->a && one.b + one.n_b == last->b) {
        *last = (struct hunk){one.a, one.n_a + last->n_a, one.b, one.n_b + last->n_b};
        return 0;
    }
    if (array_grow(&h->of, &h->cap, h->n, sizeof(one)) < 0)
        return -ENOMEM;
    h->of[h->n++] = one;
    return 0;
}

static void reverse(struct hunks *h)
{
    for (size_t i = 0; i < h->n / 2; i++) {
        struct hunk t = h->of[i];
        h->of[i] = h->of[h->n - 1 - i];
        h->of[h->n - 1 - i] = t;
    }
}

static int walk_back(const struct search *s, struct hunks *h)
{
    long x = (long)s->n_a, y = (long)s->n_b;
    int r = 0;
    for (size_t d = s->d; d > 0 && r == 0; d--) {
        long k = x - y;
        size_t down = reached(s, d - 1, k + 1), right = reached(s, d - 1, k - 1);
        bool removed = right >= down;
        long px = (long)(removed ? right : down) - 1, py = px - (removed ? k - 1 : k + 1);
        struct hunk one = {(size_t)px, removed, (size_t)py, !removed};
        r = add_before(h, one);
        x = px;
        y = py;
    }
    reverse(h);
    return r;
}

/* Compare the elements index by index: the hunks are runs of different elements, and the excess of
 * the longer sequence. */
static int by_place(const struct search *s, struct hunks *h)
{
    size_t both = s->n_a < s->n_b ? s->n_a : s->n_b;
    int r = 0;
    for (size_t i = 0; i < both && r == 0; i++)
        if (s->a[i] != s->b[i]) {
            size_t first = i;
            while (i < both && s->a[i] != s->b[i])
                i++;
            r = add_before(h, (struct hunk){first, i - first, first, i - first});
        }
    if (r == 0 && s->n_a != s->n_b) {
        struct hunk rest = {both, s->n_a - both, both, s->n_b - both},
                    *last = h->n ? &h->of[h->n - 1] : NULL;
        if (last && last->a + last->n_a == both) {
            last->n_a += rest.n_a;
            last->n_b += rest.n_b;
        } else {
            r = add_before(h, rest);
        }
    }
    return r;
}

static int search(struct search *s, struct hunks *h)
{
    int r = 0;
    size_t d = 0;
    for (; d <= SEQUENCE_MOST && (r = take_step(s, d)) == 0; d++)
        continue;
    s->d = d;
    if (r > 0)
        r = walk_back(s, h);
    else if (r == 0)
        r = by_place(s, h);
    for (size_t i = 0; i <= SEQUENCE_MOST && s->step[i]; i++)
        free(s->step[i]);
    return r;
}

int sequence_diff(const uint64_t *a, size_t n_a, const uint64_t *b, size_t n_b, struct hunks *ret)
{
    size_t first = 0;
    while (first < n_a && first < n_b && a[first] == b[first])
        first++;
    while (n_a > first && n_b > first && a[n_a - 1] == b[n_b - 1]) {
        n_a--;
        n_b--;
    }
    if (first == n_a && first == n_b)
        return 0;
    struct search *s = calloc(1, sizeof(*s));
    if (!s)
        return -ENOMEM;
    *s = (struct search){.a = a + first, .b = b + first, .n_a = n_a - first, .n_b = n_b - first};
    int r = search(s, ret);
    for (size_t i = 0; i < ret->n; i++) {
        ret->of[i].a += first;
        ret->of[i].b += first;
    }
    free(s);
    return r;
}

void hunks_free(struct hunks *h)
{
    free(h->of);
    *h = HUNKS_INIT;
}

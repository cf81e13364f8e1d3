/* SPDX-License-Identifier: MIT */
/*
 * Hunks: see sequence.h. Step d of the search knows, for each diagonal k = x - y that d insertions and
 * removals can reach, the largest x there; the steps are kept, and walked back from the end.
 */
#include "diff/sequence.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"

struct search {
    const uint64_t *a, *b;
    size_t n_a, n_b;
    uint32_t *step[SEQUENCE_MOST + 1]; /* owned; step d has d + 1 diagonals: -d, -d + 2, ... d */
    size_t d;                          /* the last one */
};

/* The largest x on diagonal k after step d - 1, plus one; 0: it is not reached. */
static size_t reached(const struct search *s, size_t d, long k)
{
    long least = -(long)d;
    return k < least || k > (long)d ? 0 : s->step[d][(k - least) / 2];
}

/* The same of where it begins in step d: an insertion from the diagonal above, or a removal from the one below. */
static size_t begin(const struct search *s, size_t d, long k)
{
    if (d == 0)
        return 1;
    size_t down = reached(s, d - 1, k + 1), right = reached(s, d - 1, k - 1);
    return right && right >= down ? right + 1 : down;
}

/* Take a step. 1: the end is reached; 0; -ENOMEM. */
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

/* Add a hunk before the others, or grow the first of them, which then begins at its end. */
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

/* Element by element: runs of those that differ, and what one has more. */
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

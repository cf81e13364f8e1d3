/* SPDX-License-Identifier: MIT */
/* diff/print: hunks are correct, and their cost is bounded. */
#include "cu_test.h"

#include <stdlib.h>

#include "diff/print.h"

/* Check that everything between the hunks is equal in both sequences. Returns the number of
 * insertions and removals. */
static size_t check(const uint64_t *a, size_t n, const uint64_t *b, size_t m, const struct hunks *h)
{
    size_t i = 0, k = 0, changes = 0;
    for (size_t at = 0; at <= h->n; at++) {
        struct hunk end = {n, 0, m, 0}, x = at < h->n ? h->of[at] : end;
        CU_ASSERT_FATAL(x.a >= i && x.b >= k && x.a - i == x.b - k);
        CU_ASSERT(at == 0 || at == h->n || x.a > i);
        for (; i < x.a; i++, k++)
            CU_ASSERT_EQUAL(a[i], b[k]);
        i += x.n_a;
        k += x.n_b;
        changes += x.n_a + x.n_b;
    }
    CU_ASSERT_EQUAL(i, n);
    CU_ASSERT_EQUAL(k, m);
    return changes;
}

static uint64_t *numbers(size_t n, uint64_t first)
{
    uint64_t *ret = malloc(n * sizeof(*ret));
    for (size_t i = 0; ret && i < n; i++)
        ret[i] = first + i;
    return ret;
}

/* Sequences with nothing in common are compared element by element in bounded time. */
TEST("comparing different sequences takes bounded time")
{
    enum { N = 300000, M = 200000 };
    uint64_t *a = numbers(N, 0), *b = numbers(M, 1u << 30);
    CU_ASSERT_FATAL(a && b);
    b[M / 2] = a[M / 2];
    b[M / 2 + 1] = a[M / 2 + 1];
    struct hunks h = {0};
    CU_ASSERT_EQUAL(sequence_diff(a, N, b, M, &h), 0);
    CU_ASSERT_EQUAL(h.n, 2);
    CU_ASSERT_EQUAL(check(a, N, b, M, &h), N + M - 4);
    free(h.of);
    free(a);
    free(b);
}

/* SPDX-License-Identifier: MIT */
/* diff/print: hunks are correct and minimal in number, and their cost is bounded. */
#include "cu_test.h"

#include <stdlib.h>

#include "diff/print.h"
#include "soak.h"

enum { MOST = 40 };

/* Return the length of the longest common subsequence, computed with the textbook table. */
static size_t common(const uint64_t *a, size_t n, const uint64_t *b, size_t m)
{
    size_t best[MOST + 1][MOST + 1] = {{0}};
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < m; k++) {
            size_t more = best[i][k + 1] > best[i + 1][k] ? best[i][k + 1] : best[i + 1][k];
            best[i + 1][k + 1] = a[i] == b[k] ? best[i][k] + 1 : more;
        }
    return best[n][m];
}

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

TEST("random sequences are compared with the fewest changes")
{
    uint64_t state = 1;
    for (unsigned times = 0; times < 20000; times++) {
        uint64_t a[MOST], b[MOST];
        size_t n = soak_draw(&state, MOST + 1), m = soak_draw(&state, MOST + 1);
        unsigned letters = 1 + soak_draw(&state, 6);
        for (size_t i = 0; i < n; i++)
            a[i] = soak_draw(&state, letters);
        for (size_t i = 0; i < m; i++)
            b[i] = soak_draw(&state, letters);
        struct hunks h = {0};
        CU_ASSERT_EQUAL_FATAL(sequence_diff(a, n, b, m, &h), 0);
        CU_ASSERT_EQUAL(check(a, n, b, m, &h), n + m - 2 * common(a, n, b, m));
        free(h.of);
    }
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

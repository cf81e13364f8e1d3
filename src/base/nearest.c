/* SPDX-License-Identifier: MIT */
/* Guesses the intended word: see nearest.h. */
#include "base/nearest.h"

#include <ctype.h>

/* Longer words are not compared, as no option is that long. */
#define WORD_MAX 48

/* Return how many letters may be wrong: a third of them, but at least one. */
static unsigned limit(size_t len)
{
    return len < 3 ? 1 : (unsigned)(len / 3);
}

struct nearest nearest_to(const char *word, size_t len)
{
    return (struct nearest){.word = word, .len = len};
}

static bool same(char a, char b)
{
    return tolower((unsigned char)a) == tolower((unsigned char)b);
}

static unsigned least(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

/* Return the smallest number of letters that must be changed, removed, added, or swapped with a
 * neighbour. */
static unsigned distance(const char *a, size_t n, const char *b, size_t m)
{
    unsigned row[3][WORD_MAX + 1]; /* rows for this letter of a and the previous two */
    for (size_t j = 0; j <= m; j++)
        row[0][j] = (unsigned)j;
    for (size_t i = 1; i <= n; i++) {
        unsigned *now = row[i % 3], *last = row[(i + 2) % 3], *before = row[(i + 1) % 3];
        now[0] = (unsigned)i;
        for (size_t j = 1; j <= m; j++) {
            unsigned d = last[j - 1] + !same(a[i - 1], b[j - 1]);
            d = least(d, least(last[j], now[j - 1]) + 1);
            if (i > 1 && j > 1 && same(a[i - 1], b[j - 2]) && same(a[i - 2], b[j - 1]))
                d = least(d, before[j - 2] + 1);
            now[j] = d;
        }
    }
    return row[n % 3][m];
}

void nearest_offer(struct nearest *n, const char *candidate, size_t len, size_t which)
{
    if (n->len > WORD_MAX || len > WORD_MAX || n->len < 2) /* any letter is close to any other */
        return;
    unsigned d = distance(n->word, n->len, candidate, len);
    if (d > limit(n->len) || (n->found && d >= n->distance))
        return;
    n->found = true;
    n->which = which;
    n->distance = d;
}

/* SPDX-License-Identifier: MIT */
/* Statistics of values: see stats.h. Texts: stats_text.c. */
#include "derive/stats.h"

#include <math.h>
#include <string.h>

#include "base/bytes.h"
#include "quant/quant.h"

/* Move the finite values to the front, count the others. Returns how many are left. */
static size_t leave_finite(struct moments *m, float *x, size_t n)
{
    size_t left = 0;
    for (size_t i = 0; i < n; i++) {
        m->nan += x[i] != x[i];
        m->inf += isinf(x[i]) != 0;
        if (isfinite(x[i]))
            x[left++] = x[i];
    }
    return left;
}

static bool all_finite(const float *x, size_t n)
{
    return quant_all_finite((const uint8_t *)x, n);
}

void moments_add(struct moments *m, float *x, size_t n)
{
    struct moments own = MOMENTS_NONE;
    /* The quick look is at little-endian floats; elsewhere each value is looked at. */
    if (HOST_BIG || !all_finite(x, n))
        n = leave_finite(&own, x, n);
    own.n = n;
    if (n > 0) {
        struct quant_extremes e = quant_extremes(x, n);
        own.min = e.min + 0.0f; /* -0 becomes 0: which zero comes first must not matter */
        own.max = e.max + 0.0f;
        own.zeros = e.zeros;
        own.mean = quant_sum(x, n) / (double)n;
        own.squares = quant_sum_squares(x, n, own.mean);
    }
    moments_join(m, &own);
}

void moments_join(struct moments *m, const struct moments *next)
{
    uint64_t n = m->n + next->n;
    m->nan += next->nan;
    m->inf += next->inf;
    m->zeros += next->zeros;
    if (next->n == 0)
        return;
    double part = (double)next->n / (double)n, apart = next->mean - m->mean;
    m->min = m->n == 0 || next->min < m->min ? next->min : m->min;
    m->max = m->n == 0 || next->max > m->max ? next->max : m->max;
    m->squares += next->squares + apart * apart * (double)m->n * part;
    m->mean += apart * part;
    m->n = n;
}

float moments_absmax(const struct moments *m)
{
    if (m->n == 0)
        return 0;
    return -m->min > m->max ? -m->min : m->max;
}

void bins_add(struct bins *b, float *x, size_t n, float absmax)
{
    struct moments others = MOMENTS_NONE;
    if (HOST_BIG || !all_finite(x, n))
        n = leave_finite(&others, x, n);
    if (absmax > 0)
        quant_bins(x, n, absmax, b->count);
    else
        b->count[STATS_BINS / 2] += n;
}

void bins_join(struct bins *b, const struct bins *next)
{
    for (size_t i = 0; i < STATS_BINS; i++)
        b->count[i] += next->count[i];
}

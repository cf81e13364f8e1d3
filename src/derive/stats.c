/* SPDX-License-Identifier: MIT */
/* Statistics of values: see stats.h. Texts: stats_text.c. */
#include "derive/stats.h"

#include <math.h>
#include <string.h>

#include "base/bytes.h"
#include "quant/quant.h"

/*
 * Sums go side by side in lanes, which compilers keep in vectors; which value goes to which lane is
 * fixed, so that every machine gives the same bits.
 */
enum { LANES = 16 };

#define EACH_LANE for (size_t l = 0; l < LANES; l++)

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

/* n > 0 finite values. */
static void extremes(struct moments *m, const float *x, size_t n)
{
    float low[LANES], high[LANES];
    uint32_t zeros[LANES] = {0};
    EACH_LANE low[l] = high[l] = x[0];
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        EACH_LANE
        {
            float v = x[i + l];
            low[l] = v < low[l] ? v : low[l];
            high[l] = v > high[l] ? v : high[l];
            zeros[l] += v == 0;
        }
    for (size_t l = 0; i < n; i++, l++) {
        low[l] = x[i] < low[l] ? x[i] : low[l];
        high[l] = x[i] > high[l] ? x[i] : high[l];
        zeros[l] += x[i] == 0;
    }
    m->min = low[0];
    m->max = high[0];
    EACH_LANE
    {
        m->min = low[l] < m->min ? low[l] : m->min;
        m->max = high[l] > m->max ? high[l] : m->max;
        m->zeros += zeros[l];
    }
}

static double sum_lanes(const double lane[LANES])
{
    double sum = 0;
    EACH_LANE sum += lane[l];
    return sum;
}

static double sum(const float *x, size_t n)
{
    double s[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        EACH_LANE s[l] += (double)x[i + l];
    for (size_t l = 0; i < n; i++, l++)
        s[l] += (double)x[i];
    return sum_lanes(s);
}

static double sum_squares(const float *x, size_t n, double mean)
{
    double s[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        EACH_LANE
        {
            double d = (double)x[i + l] - mean;
            s[l] += d * d;
        }
    for (size_t l = 0; i < n; i++, l++) {
        double d = (double)x[i] - mean;
        s[l] += d * d;
    }
    return sum_lanes(s);
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
        extremes(&own, x, n);
        own.mean = sum(x, n) / (double)n;
        own.squares = sum_squares(x, n, own.mean);
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

/* Tables that are counted in turn: two values of one bin in a row do not wait for each other. */
enum { TURNS = 4 };

/*
 * A value is m = |x| * 16 / absmax bins away from zero. Where m is a whole number the value is an edge,
 * and belongs to the bin above it. Any other m is further from a whole number than 2^-29 of itself, as
 * floats have 24 bits and the numbers of bins five: so a factor that is off by NUDGE makes all
 * roundings fall on the right side, and the quotient need not be exact.
 */
#define NUDGE 0x1p-40
#define MOST ((double)STATS_BINS / 2)

static void bins_of(const float *x, size_t n, double scale, int32_t *bin)
{
    double up = scale * (1 + NUDGE), down = scale * (1 - NUDGE);
    for (size_t i = 0; i < n; i++) {
        int32_t below = x[i] < 0;
        double m = (double)x[i] * (below ? down : up);
        /* A file that is written meanwhile may hold larger values than before. */
        m = m < -MOST ? -MOST : m > MOST ? MOST : m;
        bin[i] = STATS_BINS / 2 + (int32_t)m - (m > -MOST ? below : 0);
    }
}

static void count_bins(uint32_t at[TURNS][STATS_BINS + 1], const float *x, size_t n, double scale)
{
    int32_t bin[STATS_STRETCH];
    bins_of(x, n, scale, bin);
    for (size_t i = 0; i < n; i++)
        at[i % TURNS][bin[i]]++;
}

void bins_add(struct bins *b, float *x, size_t n, float absmax)
{
    uint32_t at[TURNS][STATS_BINS + 1] = {{0}}; /* the last: absmax itself */
    struct moments others = MOMENTS_NONE;
    if (HOST_BIG || !all_finite(x, n))
        n = leave_finite(&others, x, n);
    if (absmax > 0)
        count_bins(at, x, n, MOST / (double)absmax);
    else
        at[0][STATS_BINS / 2] = (uint32_t)n;
    for (size_t t = 0; t < TURNS; t++) {
        at[t][STATS_BINS - 1] += at[t][STATS_BINS];
        for (size_t i = 0; i < STATS_BINS; i++)
            b->count[i] += at[t][i];
    }
}

void bins_join(struct bins *b, const struct bins *next)
{
    for (size_t i = 0; i < STATS_BINS; i++)
        b->count[i] += next->count[i];
}

/* SPDX-License-Identifier: MIT */
/*
 * Floats measured: see quant.h. Sums go side by side in lanes, which compilers keep in vectors; which
 * value goes to which lane is fixed, so that all sets give the same bits.
 */
#include "quant/kernel.h"

enum { LANES = 16 };

#define EACH_LANE for (size_t l = 0; l < LANES; l++)

struct quant_extremes IN_SET(extremes)(const float *x, size_t n)
{
    struct quant_extremes ret = {x[0], x[0], 0};
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
    EACH_LANE
    {
        ret.min = low[l] < ret.min ? low[l] : ret.min;
        ret.max = high[l] > ret.max ? high[l] : ret.max;
        ret.zeros += zeros[l];
    }
    return ret;
}

static double sum_lanes(const double lane[LANES])
{
    double sum = 0;
    EACH_LANE sum += lane[l];
    return sum;
}

double IN_SET(sum)(const float *x, size_t n)
{
    double s[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        EACH_LANE s[l] += (double)x[i + l];
    for (size_t l = 0; i < n; i++, l++)
        s[l] += (double)x[i];
    return sum_lanes(s);
}

double IN_SET(sum_squares)(const float *x, size_t n, double mean)
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

/*
 * A value is m = |x| * half / absmax bins away from zero. Where m is a whole number the value is an
 * edge, and belongs to the bin above it. Any other m is further from a whole number than 2^-29 of
 * itself, as floats have 24 bits and the numbers of bins at most five: so a factor that is off by NUDGE
 * makes all roundings fall on the right side, and the quotient need not be exact.
 */
#define NUDGE 0x1p-40

void IN_SET(bins)(const float *x, size_t n, float absmax, int32_t half, int32_t *bin)
{
    const double most = half, scale = most / (double)absmax;
    const double up = scale * (1 + NUDGE), down = scale * (1 - NUDGE);
    for (size_t i = 0; i < n; i++) {
        int32_t below = x[i] < 0;
        double m = (double)x[i] * (below ? down : up);
        m = m < -most ? -most : m > most ? most : m;
        bin[i] = half + (int32_t)m - (m > -most ? below : 0);
    }
}

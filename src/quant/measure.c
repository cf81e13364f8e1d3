/* SPDX-License-Identifier: MIT */
/* Measures floats: see quant.h. Sums are computed side by side in lanes, which compilers keep in
 * vectors. Each value always goes to the same lane, so all sets give the same bits. */
#include <math.h>

#include "quant/wide.h"

enum { LANES = 16 };

#define EACH_LANE for (size_t l = 0; l < LANES; l++)

/* Number of vectors that hold the lanes. */
enum { VECTORS = LANES / WIDE };

struct quant_extremes IN_SET(extremes)(const float *x, size_t n)
{
    struct quant_extremes ret = {x[0], x[0], 0};
    floats low[VECTORS], high[VECTORS];
    words zeros[VECTORS] = {{0}};
    size_t i = 0;
    for (size_t j = 0; j < VECTORS; j++)
        low[j] = high[j] = all_wide(x[0]);
    for (; i + LANES <= n; i += LANES)
        for (size_t j = 0; j < VECTORS; j++) {
            const floats v = wide_at(x + i + j * WIDE);
            low[j] = least_of(v, low[j]);
            high[j] = most_of(v, high[j]);
            zeros[j] -= (words)(v == 0);
        }
    for (size_t j = 0; j < VECTORS; j++)
        for (size_t l = 0; l < WIDE; l++) {
            ret.min = low[j][l] < ret.min ? low[j][l] : ret.min;
            ret.max = high[j][l] > ret.max ? high[j][l] : ret.max;
            ret.zeros += (uint32_t)zeros[j][l];
        }
    for (; i < n; i++) {
        ret.min = x[i] < ret.min ? x[i] : ret.min;
        ret.max = x[i] > ret.max ? x[i] : ret.max;
        ret.zeros += x[i] == 0;
    }
    return ret;
}

/* Return the sum of power(distance) over the distances from the mean. */
FIXED double sum_of(const float *x, size_t n, double mean, double (*power)(double d))
{
    double s[LANES] = {0}, sum = 0;
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        EACH_LANE s[l] += power((double)x[i + l] - mean);
    for (size_t l = 0; i < n; i++, l++)
        s[l] += power((double)x[i] - mean);
    EACH_LANE sum += s[l];
    return sum;
}

FIXED double first_power(double d)
{
    return d;
}

FIXED double square(double d)
{
    return d * d;
}

FIXED double fourth_power(double d)
{
    return d * d * (d * d);
}

double IN_SET(sum)(const float *x, size_t n)
{
    return sum_of(x, n, 0, first_power);
}

double IN_SET(sum_squares)(const float *x, size_t n, double mean)
{
    return sum_of(x, n, mean, square);
}

double IN_SET(sum_fourth)(const float *x, size_t n, double mean)
{
    return sum_of(x, n, mean, fourth_power);
}

/* Number of lanes in the sums below, which is small enough for them to stay in registers. */
enum { FEW = 8 };

struct apart {
    double aa[FEW], bb[FEW], ab[FEW], dd[FEW], most[FEW];
    int64_t differ[FEW];
};

FIXED void add_apart(struct apart *s, size_t l, double x, double y)
{
    const double d = x - y, m = fabs(d);
    s->aa[l] += x * x;
    s->bb[l] += y * y;
    s->ab[l] += x * y;
    s->dd[l] += d * d;
    s->most[l] = m > s->most[l] ? m : s->most[l];
    s->differ[l] += d != 0;
}

void IN_SET(distance)(const float *a, const float *b, size_t n, struct quant_distance *ret)
{
    struct apart s = {0};
    size_t i = 0;
    for (; i + FEW <= n; i += FEW)
        for (size_t l = 0; l < FEW; l++)
            add_apart(&s, l, (double)a[i + l], (double)b[i + l]);
    for (size_t l = 0; i < n; i++, l++)
        add_apart(&s, l, (double)a[i], (double)b[i]);
    for (size_t l = 0; l < FEW; l++) {
        ret->squares_a += s.aa[l];
        ret->squares_b += s.bb[l];
        ret->products += s.ab[l];
        ret->squares += s.dd[l];
        ret->max = s.most[l] > ret->max ? s.most[l] : ret->max;
        ret->differ += (uint64_t)s.differ[l];
    }
}

/* Compute the bin of each value. Returns false if a value is so close to an edge that rounding may
 * have put it on the wrong side. */
static bool number_bins(const float *restrict x, size_t n, double mean, double std,
                        uint8_t *restrict bin)
{
    const double scale = 4 / std, most = QUANT_BINS / 2 - 0.5;
    int32_t apart = 0;
    for (size_t i = 0; i < n; i++) {
        double at = ((double)x[i] - mean) * scale;
        at = at < -most ? -most : at;
        at = (at > most ? most : at) + QUANT_BINS / 2;
        const int32_t k = (int32_t)(at - 1e-9);
        apart |= k ^ (int32_t)(at + 1e-9);
        bin[i] = (uint8_t)k;
    }
    return apart == 0;
}

static double lower_edge(double mean, double std, int bin)
{
    return mean + std * (bin - QUANT_BINS / 2) / 4;
}

static void number_exactly(const float *x, size_t n, double mean, double std, uint8_t *bin)
{
    for (size_t i = 0; i < n; i++)
        bin[i] = (uint8_t)(bin[i] + (bin[i] < QUANT_BINS - 1 &&
                                     (double)x[i] >= lower_edge(mean, std, bin[i] + 1)));
}

/* Number of bytes in a vector: as in AVX2, even on machines without it. */
#ifdef __AVX2__
enum { BYTES = 32 };
#else
enum { BYTES = 16 };
#endif
typedef uint8_t bytes __attribute__((vector_size(BYTES)));

/* Number of bins counted at once, so few that they and their counts stay in registers. */
enum { COUNTED = 8 };
/* Number of values counted at once, limited because a byte of a vector counts only to 255. */
enum { PORTION = 2048 };
static_assert(PORTION / BYTES <= 255 && PORTION % BYTES == 0, "bytes");

FIXED bytes equal(bytes a, bytes b)
{
#ifdef __AVX2__
    return (bytes)_mm256_cmpeq_epi8((__m256i)a, (__m256i)b);
#else
    return (bytes)(a == b);
#endif
}

/*
 * Count how often each of the COUNTED numbers from `first` on occurs in the n vectors at `bin`, and
 * add that to `count`. Comparing each value with each number is faster than counting in memory, and
 * takes the same time for all values.
 */
static void count_numbers(const uint8_t *bin, size_t n, unsigned first, uint64_t *count)
{
    bytes found[COUNTED] = {{0}};
    for (size_t i = 0; i < n; i++) {
        bytes v;
        memcpy(&v, bin + i * BYTES, BYTES);
#pragma GCC unroll 8
        for (unsigned k = 0; k < COUNTED; k++)
            found[k] -= equal(v, (bytes){0} + (uint8_t)(first + k));
    }
    for (unsigned k = 0; k < COUNTED; k++)
        for (unsigned l = 0; l < BYTES; l++)
            count[k] += found[k][l];
}

void IN_SET(bins)(const float *x, size_t n, double mean, double std, uint64_t count[QUANT_BINS])
{
    uint8_t bin[PORTION];
    for (size_t k; n > 0; n -= k, x += k) {
        uint64_t all[QUANT_BINS + COUNTED - 1] = {0};
        k = n < PORTION ? n : PORTION;
        if (!number_bins(x, k, mean, std, bin))
            number_exactly(x, k, mean, std, bin);
        for (size_t i = k; i % BYTES; i++)
            bin[i] = UINT8_MAX; /* no bin */
        for (unsigned first = 0; first < QUANT_BINS; first += COUNTED)
            count_numbers(bin, (k + BYTES - 1) / BYTES, first, all + first);
        for (unsigned i = 0; i < QUANT_BINS; i++)
            count[i] += all[i];
    }
}

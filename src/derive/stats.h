/* SPDX-License-Identifier: MIT */
/*
 * Statistics of a tensor's values, and how they are written: `stats` and the lines of `stats.tsv`.
 *
 * Values come in any number of stretches, each measured by itself; what was measured is joined in the
 * order of the values, so that a result does not depend on how many threads there were. NaN and
 * infinities are counted and left out. Sums are in double, and stable: the deviation of each stretch
 * is taken from its own mean.
 *
 * Threads: pure functions.
 */
#ifndef DERIVE_STATS_H
#define DERIVE_STATS_H

#include "base/buf.h"
#include "gguf/gguf.h"
#include "quant/quant.h"

/* Of the finite values; without any, min and max have no meaning. */
struct moments {
    uint64_t n, zeros, nan, inf;
    float min, max;
    double mean;
    double squares; /* sum of the squared distances from the mean */
};

#define MOMENTS_NONE ((struct moments){0})

enum { STATS_BINS = QUANT_BINS };

struct bins {
    uint64_t count[STATS_BINS];
};

/* What stretches have at most, in values: they stay in the processor's first cache. A multiple of
 * every block. */
enum { STATS_STRETCH = 4096 };

/* Measure n host floats, at most STATS_STRETCH, and join that to *m. They may be moved. */
void moments_add(struct moments *m, float *x, size_t n);
/* Join what was measured of the values that follow. */
void moments_join(struct moments *m, const struct moments *next);
/* The largest magnitude of a finite value; 0 without any. */
float moments_absmax(const struct moments *m);

/*
 * Count n host floats, at most STATS_STRETCH, in equal bins from -absmax to absmax. A bin holds its
 * lower edge, the last one also the upper: exactly, as the edges are. They may be moved.
 */
void bins_add(struct bins *b, float *x, size_t n, float absmax);
void bins_join(struct bins *b, const struct bins *next);

#endif

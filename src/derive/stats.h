/* SPDX-License-Identifier: MIT */
/*
 * Statistics of a tensor's values, and how they are written: `stats` and the lines of `stats.tsv`.
 *
 * Values come in any number of stretches, each measured by itself; what was measured is joined in the
 * order of the values, so that a result does not depend on how many threads there were. NaN and
 * infinities are counted and left out. Sums are in double, and stable: the deviation of each stretch
 * is taken from its own mean. What needs the mean and deviation of all is found in a second pass.
 *
 * Threads: pure functions, but for the marks of struct alive, which threads may set side by side.
 */
#ifndef DERIVE_STATS_H
#define DERIVE_STATS_H

#include <stdatomic.h>

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

/* What stretches have at most, in values: they stay in the processor's first cache. A multiple of
 * every block. */
enum { STATS_STRETCH = 4096 };

/* Measure n host floats, at most STATS_STRETCH, and join that to *m. They may be moved. */
void moments_add(struct moments *m, float *x, size_t n);
/* Join what was measured of the values that follow. */
void moments_join(struct moments *m, const struct moments *next);
/* The largest magnitude of a finite value; 0 without any. */
float moments_absmax(const struct moments *m);

/* What the second pass finds. */
struct spread {
    uint64_t count[QUANT_BINS];
    uint64_t first; /* the first value of the largest magnitude, counted from 1; 0: none yet */
    double fourth;  /* sum of the fourth powers of the distances from the mean */
};

/* Rows and columns of the last two dimensions that have a value that is not zero. */
struct alive {
    uint64_t columns, rows; /* of a matrix */
    uint64_t matrices;
    /* A bit for each, of all matrices; column is owned by row. NULL: zeros are counted instead. */
    atomic_uint *row, *column;
};

/* 0, -ENOMEM. */
int alive_begin(struct alive *a, const struct gguf *g, const struct gguf_tensor *t);
void alive_free(struct alive *a);

/*
 * Measure n host floats from number `at` on, at most STATS_STRETCH. They may be moved.
 */
void spread_add(struct spread *s, struct alive *a, const struct moments *all, float *x, uint64_t at,
                size_t n);
void spread_join(struct spread *s, const struct spread *next);

/* `stats`: always STATS_TEXT bytes. */
#define STATS_TEXT 3603
void stats_text(const struct gguf *g, const struct gguf_tensor *t, const struct moments *m,
                const struct spread *s, const struct alive *a, struct buf *out);

/*
 * `stats.tsv`: its head, and the line of a tensor; the bytes of that are known without the moments
 * (NULL: of a type without values, where fields stay empty). Blanks behind the last field, a number, take
 * what is left of the line.
 */
void stats_head(struct buf *out);
size_t stats_line_size(const struct gguf *g, const struct gguf_tensor *t);
void stats_line(const struct gguf *g, const struct gguf_tensor *t, const struct moments *m,
                struct buf *out);

#endif

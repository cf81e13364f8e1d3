/* SPDX-License-Identifier: MIT */
/*
 * Computes statistics of a tensor's values, and writes `stats` and the files with a line per
 * tensor.
 *
 * Values are read in stretches, each measured separately. The measurements are joined in the order
 * of the values, so the result does not depend on the number of threads. NaN and infinities are
 * counted and skipped. Sums are in double precision and numerically stable, because the deviation
 * of each stretch is taken from its own mean. A second pass computes the results that depend on the
 * overall mean and deviation.
 *
 * All functions are pure, except that several threads may set marks in one struct alive at the same
 * time.
 */
#ifndef DERIVE_STATS_H
#define DERIVE_STATS_H

#include <stdatomic.h>
#include <string.h>

#include "base/buf.h"
#include "base/bytes.h"
#include "derive/work.h"
#include "gguf/gguf.h"
#include "model/snapshot.h"
#include "quant/quant.h"

/* Read values [first, first + n) of a tensor whose first block is `data` as the host's floats. May
 * run under map_guard(). */
static inline void floats_read(const struct quant_type *t, bool big, const uint8_t *data,
                               uint64_t first, size_t n, float *dst)
{
    quant_read(&quant_f32, t, big, data, 4 * first, 4 * n, dst);
    for (size_t i = 0; HOST_BIG && i < n; i++) {
        uint32_t v = get_u32((const uint8_t *)&dst[i], false);
        memcpy(&dst[i], &v, sizeof(v));
    }
}

/* Moments of the finite values. If there are no finite values, min and max are meaningless. */
struct moments {
    uint64_t n, zeros, nan, inf;
    float min, max;
    double mean;
    double squares; /* sum of the squared distances from the mean */
};

#define MOMENTS_NONE ((struct moments){0})

/* Maximum number of values in a stretch, which fits in the processor's first-level cache. A
 * multiple of every block size. */
enum { STATS_STRETCH = 4096 };

/* Measure n host floats, at most STATS_STRETCH, and add the measurement to *m. The floats may be
 * reordered. */
void moments_add(struct moments *m, float *x, size_t n);
/* Extend *m by *next, which measures the values that follow those in *m. */
void moments_join(struct moments *m, const struct moments *next);
/* Return the largest magnitude among the finite values, or 0 if there are none. */
float moments_absmax(const struct moments *m);

/* Results of the second pass. */
enum { STATS_BINS = 50 };
struct spread {
    /*
     * Finite values by their distance from the mean, in quarters of the standard deviation, from -6
     * to 6. Bin i includes its exact lower edge, mean + std * (i - STATS_BINS / 2) / 4; the first
     * and last bins also count everything beyond.
     */
    uint64_t count[STATS_BINS];
    /* number of the first value with the largest magnitude, counted from 1; 0: none yet */
    uint64_t first;
    double fourth; /* sum of the fourth powers of the distances from the mean */
};

/* The rows and columns of each matrix that contain a nonzero value. */
struct alive {
    uint64_t columns, rows; /* size of a matrix */
    uint64_t matrices;
    /* A mark for each row and column of all matrices; `row` owns `column`. NULL: zeros are counted
     * instead. */
    atomic_uchar *row, *column;
};

/* Initialise *a, with nothing marked. Returns 0 or -ENOMEM. */
int alive_begin(struct alive *a, const struct gguf *g, const struct gguf_tensor *t);
void alive_free(struct alive *a);

/* Measure n host floats, at most STATS_STRETCH; the first has index `at`. The floats may be
 * reordered. */
void spread_add(struct spread *s, struct alive *a, const struct moments *all, float *x, uint64_t at,
                size_t n);
void spread_join(struct spread *s, const struct spread *next);

/* Size of `stats` in bytes, which is always the same. */
#define STATS_TEXT 3603
void stats_text(const struct gguf *g, const struct gguf_tensor *t, const struct moments *m,
                const struct spread *s, const struct alive *a, struct buf *out);

/*
 * Write the head of `stats.tsv`, and the line of a tensor (moments NULL: its type has no values).
 * The last field is padded with blanks, so that the length of a tensor's line does not depend on
 * its moments.
 */
void stats_head(struct buf *out);
void stats_line(const struct gguf *g, const struct gguf_tensor *t, const struct moments *m,
                struct buf *out);

/* ---- tables ---- */

/*
 * Write the columns NAME, TYPE, SHAPE (in NumPy's order), BYTES, SHARE and, for a split model, the
 * number of the SHARD. No column shows an offset, because offsets depend on other tensors' sizes
 * and would make two models harder to compare. A line follows for each role, the set of all tensors
 * whose names differ only in the block's number. Names are made safe to print. A name longer than
 * TABLE_NAME_MOST pushes the rest of its line to the right.
 */
#define TABLE_NAME_MOST 64
void table_text(const struct snapshot *g, struct buf *out);

/*
 * For `hashes` and `stats.tsv`, whose lengths are known before their content: find the tensors
 * [*first, *last) whose lines overlap bytes [off, end), with off below the size, and where in the file
 * the first of these lines begins; the head counts to the first line. Returns the size of the file.
 */
uint64_t lines_find(const struct snapshot *g, enum derived what, uint64_t off, uint64_t end,
                    uint32_t *first, uint32_t *last, uint64_t *at);

#define HASH_HEX 64 /* number of digits */

/*
 * Write a line of `hashes` in the format of gguf-hash: "sha256 HASH FILE:TENSOR\n", with names made
 * safe to print. FILE is the name of the model's file, or, in a split model, of the shard that
 * contains the tensor.
 */
void hashes_line(const struct snapshot *g, uint32_t i, const char *hex, struct buf *out);

#endif

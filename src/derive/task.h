/* SPDX-License-Identifier: MIT */
/*
 * Computes a result for a tensor, such as a picture, in units of a few milliseconds. The units of a
 * hash run one after another; those of any other result run on several processors (base/pool.h).
 *
 * Any thread may call these functions; they are pure except for reading the model's files.
 */
#ifndef DERIVE_TASK_H
#define DERIVE_TASK_H

#include "base/buf.h"
#include "derive/stats.h"
#include "gguf/gguf.h"
#include "model/snapshot.h"

struct task {
    struct view view; /* owned references */
    uint32_t tensor;
    enum derived what;
    const atomic_bool *stop; /* set to true to end the task early */
    struct moments moments;  /* for DERIVED_MOMENTS and DERIVED_STATS */
    bool measured;           /* `moments` are already known */
    struct buf bytes;        /* owned: the result */
};

/* Run the task. Returns 0, -EIO (data is missing, or the file was truncated), -EINTR (stopped) or
 * -ENOMEM. */
int task_run(struct task *t);

/*
 * ---- pictures ----
 *
 * A tensor is drawn as a PNG (8-bit RGB, not compressed, so that its size is known). Each pixel
 * shows the root mean square of the finite values of its block.
 *
 * The values form a grid. With two dimensions, it consists of the tensor's rows and columns; with
 * more, the matrices are stacked; with one, rows are about as long as the square root of the number
 * of values (the last may be shorter). The grid is divided into at most PICTURE_MOST by
 * PICTURE_MOST blocks, as evenly as possible.
 *
 * From 0 to the 99.9th percentile of the pixels above 0, colours run from black through purple, red
 * and orange to pale yellow. Cyan means more than twice that percentile, green a NaN or an
 * infinity, and grey no value.
 */
#define PICTURE_MOST 1024

struct picture {
    uint64_t n;             /* number of values */
    uint64_t rows, columns; /* size of the grid; rows * columns >= n */
    uint32_t height, width; /* in pixels, at least 1 */
};

struct picture picture_of(const struct gguf *g, const struct gguf_tensor *t);
/* Return the size of the file in bytes. */
size_t picture_size(const struct picture *p);

/* Get the values [*first, *end) that row y of the pixels needs. A row is a unit, and units may run
 * in parallel. */
void picture_values(const struct picture *p, uint64_t y, uint64_t *first, uint64_t *end);

/*
 * Compute a row of pixel[height * width]: NaN for a block without values, INFINITY for one with a
 * value that is not finite. `data` is the tensor's first block; `room` has PICTURE_ROOM floats. May
 * run under map_guard().
 */
enum { PICTURE_ROOM = 4096 };
void picture_pixels(const struct picture *p, const struct quant_type *type, bool big,
                    const uint8_t *data, uint64_t y, float *room, float *pixel);

#endif

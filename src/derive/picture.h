/* SPDX-License-Identifier: MIT */
/*
 * Draws a tensor as a picture (PNG, 8-bit RGB, not compressed, so that its size is known). Each
 * pixel shows the root mean square of the finite values of its block.
 *
 * The grid of values: for two dimensions the rows and columns; for more, the matrices stacked; for
 * one, rows about as long as the square root (the last may be shorter). It is divided into at most
 * PICTURE_MOST by PICTURE_MOST blocks, as evenly as possible.
 *
 * From 0 to the 99.9th percentile of the pixels above 0: black, purple, red, orange, pale yellow.
 * Cyan: more than twice that. Green: NaN or an infinity. Grey: no value.
 *
 * Needs zlib, for its checksums. Threads: pure functions.
 */
#ifndef DERIVE_PICTURE_H
#define DERIVE_PICTURE_H

#include "base/buf.h"
#include "gguf/gguf.h"

#define PICTURE_MOST 1024

/* Return "1.2.13", or NULL if this build cannot make pictures. */
const char *picture_library(void);

struct picture {
    uint64_t n;             /* number of values */
    uint64_t rows, columns; /* of the grid; rows * columns >= n */
    uint32_t height, width; /* in pixels, at least 1 */
    uint32_t slices;        /* units per row of pixels: several if the grid is wide */
};

struct picture picture_of(const struct gguf *g, const struct gguf_tensor *t);
/* Return the size of the file in bytes. */
size_t picture_size(const struct picture *p);

/*
 * A picture is computed in units, which may run side by side: a row of pixels, or a slice of it if the row is long. A
 * unit reads values [*first, *end): at most PICTURE_UNIT, or slightly more than 1/1024 of all.
 */
#define PICTURE_UNIT ((uint64_t)4 << 20)
uint64_t picture_units(const struct picture *p);
void picture_values(const struct picture *p, uint64_t unit, uint64_t *first, uint64_t *end);

/*
 * Compute a unit's pixels into pixel[height * width]: NaN without values, INFINITY if a value is
 * not finite. `data` is the tensor's first block; `room` has PICTURE_ROOM floats. May run under
 * map_guard().
 */
enum { PICTURE_ROOM = 4096 };
void picture_pixels(const struct picture *p, const struct quant_type *type, bool big,
                    const uint8_t *data, uint64_t unit, float *room, float *pixel);

/* Write the file from all pixels. */
void picture_png(const struct picture *p, const float *pixel, struct buf *out);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * A tensor as a picture (PNG, 8-bit RGB, not compressed, so that its size is known): each pixel
 * shows the root mean square of the finite values of its block.
 *
 * The grid of values: of two dimensions the rows and columns; of more, the leading ones below each
 * other; of one, rows of about the square root (the last may end early). It is divided into
 * PICTURE_MOST by PICTURE_MOST blocks at most, as even as they can be.
 *
 * From 0 to the 99.9th percentile of the pixels above 0: black, purple, red, orange, pale yellow. Cyan: more than
 * twice that. Green: NaN or an infinity. Grey: no value.
 *
 * Needs zlib, for its checksums. Threads: pure functions.
 */
#ifndef DERIVE_PICTURE_H
#define DERIVE_PICTURE_H

#include "base/buf.h"
#include "gguf/gguf.h"

#define PICTURE_MOST 1024

/* "1.2.13"; NULL: pictures cannot be made in this build. */
const char *picture_library(void);

struct picture {
    uint64_t n;             /* values */
    uint64_t rows, columns; /* of the grid; rows * columns >= n */
    uint32_t height, width; /* pixels, at least 1 */
    uint32_t slices;        /* units of a row of pixels: of a wide grid, several */
};

struct picture picture_of(const struct gguf *g, const struct gguf_tensor *t);
/* Bytes of the file. */
size_t picture_size(const struct picture *p);

/*
 * A picture is computed in units, which may run side by side: the pixels of a row, or a slice of them where
 * the row is long. A unit reads values [*first, *end): at most PICTURE_UNIT, or a little more than the
 * 1024th part of all.
 */
#define PICTURE_UNIT ((uint64_t)4 << 20)
uint64_t picture_units(const struct picture *p);
void picture_values(const struct picture *p, uint64_t unit, uint64_t *first, uint64_t *end);

/*
 * What a unit's pixels show into pixel[height * width]: NaN without values, INFINITY with one that is not
 * finite. `data` is the tensor's first block; `room` has PICTURE_ROOM floats. May run under map_guard().
 */
enum { PICTURE_ROOM = 4096 };
void picture_pixels(const struct picture *p, const struct quant_type *type, bool big,
                    const uint8_t *data, uint64_t unit, float *room, float *pixel);

/* The file, from all pixels. */
void picture_png(const struct picture *p, const float *pixel, struct buf *out);

#endif

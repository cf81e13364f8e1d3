/* SPDX-License-Identifier: MIT */
/* Draws tensors as pictures: see picture.h. */
#include "derive/picture.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "derive/stats.h"

#ifdef GGUFS_ZLIB
#include <zlib.h>

const char *picture_library(void)
{
    return zlibVersion();
}
#else
const char *picture_library(void)
{
    return NULL;
}
#endif

/* ---- layout ---- */

/* Return the smallest integer whose square is at least n. */
static uint64_t root_up(uint64_t n)
{
    uint64_t r = (uint64_t)sqrt((double)n);
    while (r > 0 && (r - 1) * (r - 1) >= n)
        r--;
    while (r * r < n)
        r++;
    return r;
}

struct picture picture_of(const struct gguf *g, const struct gguf_tensor *t)
{
    struct picture p = {.n = t->n_elem, .columns = t->n_dims ? gguf_dim(g, t, 0) : 1};
    if (t->n_dims == 1)
        p.columns = root_up(p.n);
    p.rows = p.columns ? p.n / p.columns + (p.n % p.columns != 0) : 0;
    p.height = (uint32_t)max_u64(1, min_u64(p.rows, PICTURE_MOST));
    p.width = (uint32_t)max_u64(1, min_u64(p.columns, PICTURE_MOST));
    /* A pixel belongs to only one unit, so its mean does not depend on how the picture is
     * divided. */
    uint64_t units = p.columns / PICTURE_UNIT + 1;
    p.slices = p.rows == p.height ? (uint32_t)min_u64(units, p.width) : 1;
    return p;
}

/* Return floor(i * n / parts), where part `i` of n things divided into `parts` parts begins,
 * without overflow. */
static uint64_t part(uint64_t n, uint32_t i, uint32_t parts)
{
    return n / parts * i + n % parts * i / parts;
}

uint64_t picture_units(const struct picture *p)
{
    return (uint64_t)p->height * p->slices;
}

/* The pixels of a unit, which are [first, end) in row y. */
struct slice {
    uint32_t y, first, end;
};

static struct slice slice_of(const struct picture *p, uint64_t unit)
{
    uint32_t i = (uint32_t)(unit % p->slices);
    return (struct slice){.y = (uint32_t)(unit / p->slices),
                          .first = (uint32_t)part(p->width, i, p->slices),
                          .end = (uint32_t)part(p->width, i + 1, p->slices)};
}

/* A long grid row may be divided into several slices. */
void picture_values(const struct picture *p, uint64_t unit, uint64_t *first, uint64_t *end)
{
    struct slice s = slice_of(p, unit);
    uint64_t row = part(p->rows, s.y, p->height) * p->columns;
    if (p->slices == 1) {
        *first = row;
        *end = part(p->rows, s.y + 1, p->height) * p->columns;
    } else {
        *first = row + part(p->columns, s.first, p->width);
        *end = row + part(p->columns, s.end, p->width);
    }
    *first = min_u64(*first, p->n);
    *end = min_u64(*end, p->n);
}

/* ---- values ---- */

struct sums {
    double squares[PICTURE_MOST];
    uint64_t n[PICTURE_MOST];
    bool broken[PICTURE_MOST]; /* the block has a value that is not finite */
};

/* Add n values of one grid row, from column `at` on, advancing *x to their pixels. */
static void add_run(const struct picture *p, struct sums *s, uint32_t *x, uint64_t at,
                    const float *v, size_t n)
{
    for (size_t i = 0; i < n;) {
        while (part(p->columns, *x + 1, p->width) <= at + i)
            ++*x;
        size_t end = (size_t)min_u64(n, part(p->columns, *x + 1, p->width) - at);
        double sum = 0;
        s->n[*x] += end - i;
        for (; i < end; i++)
            if (isfinite(v[i]))
                sum += (double)v[i] * (double)v[i];
            else
                s->broken[*x] = true;
        s->squares[*x] += sum;
    }
}

/* Return the number of values from `at` on that are decoded at once: whole grid rows, or as much of
 * a long row as fits. It makes the sums of a pixel independent of where a unit begins. */
static uint64_t stretch(const struct picture *p, uint64_t at)
{
    if (p->columns <= PICTURE_ROOM)
        return PICTURE_ROOM / p->columns * p->columns;
    uint64_t column = at % p->columns;
    return min_u64(PICTURE_ROOM - column % PICTURE_ROOM, p->columns - column);
}

/* Add n values from `at` on, in one grid row or several. */
static void add_values(const struct picture *p, struct sums *s, uint32_t *x, uint64_t at,
                       const float *v, size_t n)
{
    uint64_t column = at % p->columns;
    for (size_t i = 0, len; i < n; i += len, column = 0) {
        len = (size_t)min_u64(n - i, p->columns - column);
        *x = column ? *x : 0;
        add_run(p, s, x, column, v + i, len);
    }
}

void picture_pixels(const struct picture *p, const struct quant_type *type, bool big,
                    const uint8_t *data, uint64_t unit, float *room, float *pixel)
{
    struct slice slice = slice_of(p, unit);
    struct sums s;
    uint64_t at, end;
    uint32_t x = slice.first;
    memset(&s, 0, sizeof(s));
    picture_values(p, unit, &at, &end);
    for (size_t n; at < end; at += n) {
        n = (size_t)min_u64(stretch(p, at), end - at);
        floats_read(type, big, data, at, n, room);
        add_values(p, &s, &x, at, room, n);
    }
    pixel += (size_t)slice.y * p->width;
    for (x = slice.first; x < slice.end; x++)
        pixel[x] = s.broken[x] ? INFINITY
                   : s.n[x]    ? (float)sqrt(s.squares[x] / (double)s.n[x])
                               : NAN;
}

/* ---- PNG ---- */

/*
 * A file consists of a signature and the chunks IHDR, IDAT and IEND. A chunk consists of a u32
 * length, a type, data, and the CRC-32 of type and data. The data of IDAT is a zlib stream of
 * stored blocks, whose content is the rows, each preceded by a 0 byte (no filter).
 */
enum {
    SIGNATURE = 8,
    CHUNK = 12,    /* size of a chunk without its data */
    HEADER = 13,   /* size of the data of IHDR */
    ZLIB = 2 + 4,  /* size of the stream's head and Adler-32 */
    STORED = 5,    /* size of a block's head and lengths */
    BLOCK = 65535, /* maximum number of bytes in a block */
};

static size_t pixels_size(const struct picture *p)
{
    return p->height * (1 + 3 * (size_t)p->width);
}

static size_t stream_size(const struct picture *p)
{
    size_t n = pixels_size(p);
    return ZLIB + n + STORED * ((n + BLOCK - 1) / BLOCK);
}

size_t picture_size(const struct picture *p)
{
    return SIGNATURE + 3 * CHUNK + HEADER + stream_size(p);
}

#ifdef GGUFS_ZLIB

static uint32_t bits_of(float v)
{
    uint32_t ret;
    memcpy(&ret, &v, sizeof(ret));
    return ret;
}

/*
 * Return the pixel with this `rank` among those that are above 0 and finite, sorted by size. As
 * integers, their bits sort in the same order. The upper half of the bits is found first, then the
 * lower.
 */
static float ranked(const float *pixel, size_t n, uint32_t *count, size_t rank)
{
    uint32_t found = 0;
    for (int shift = 16; shift >= 0; shift -= 16) {
        memset(count, 0, (1 << 16) * sizeof(*count));
        for (size_t i = 0; i < n; i++)
            if (pixel[i] > 0 && isfinite(pixel[i]) &&
                (shift || bits_of(pixel[i]) >> 16 == found >> 16))
                count[bits_of(pixel[i]) >> shift & 0xffff]++;
        uint32_t at = 0;
        while (rank >= count[at])
            rank -= count[at++];
        found |= at << shift;
    }
    float ret;
    memcpy(&ret, &found, sizeof(ret));
    return ret;
}

/* Return the 99.9th percentile of the pixels above 0; 0 if there are no such pixels; -1 without
 * memory. */
static double brightest(const float *pixel, size_t n)
{
    size_t bright = 0;
    for (size_t i = 0; i < n; i++)
        bright += pixel[i] > 0 && isfinite(pixel[i]);
    if (bright == 0)
        return 0;
    uint32_t *count = malloc((1 << 16) * sizeof(*count));
    double ret = count ? (double)ranked(pixel, n, count, (bright - 1) * 999 / 1000) : -1;
    free(count);
    return ret;
}

static void colour(uint8_t dst[3], float v, double most)
{
    static const uint8_t ramp[][3] = {{0, 0, 4},     {87, 16, 110},   {188, 55, 84},
                                      {249, 142, 9}, {252, 255, 164}, {252, 255, 164}};
    static const uint8_t none[] = {128, 128, 128}, broken[] = {0, 200, 0}, beyond[] = {0, 255, 255};
    if (!isfinite(v) || (double)v > 2 * most) {
        memcpy(dst, isnan(v) ? none : isinf(v) ? broken : beyond, 3);
        return;
    }
    double place = most > 0 ? 4 * fmin((double)v / most, 1) : 0;
    for (int i = 0; i < 3; i++) {
        double low = ramp[(int)place][i], high = ramp[(int)place + 1][i];
        dst[i] = (uint8_t)lround(low + (high - low) * (place - (int)place));
    }
}

static void paint(const struct picture *p, const float *pixel, double most, uint8_t *dst)
{
    for (uint32_t y = 0; y < p->height; y++) {
        *dst++ = 0;
        for (uint32_t x = 0; x < p->width; x++, dst += 3)
            colour(dst, *pixel++, most);
    }
}

/* Begin a chunk with n bytes of data. Returns the offset of the data. */
static size_t chunk_begin(struct buf *out, const char *type, size_t n)
{
    buf_uint(out, n, 4, true);
    buf_str(out, type);
    return out->len;
}

static void chunk_end(struct buf *out, size_t begin)
{
    if (buf_error(out))
        return;
    uLong crc = crc32(0, out->data + begin - 4, (uInt)(out->len - begin + 4));
    buf_uint(out, crc, 4, true);
}

static void add_stream(struct buf *out, const uint8_t *pixels, size_t n)
{
    buf_add(out, "\x78\x01", 2);
    for (size_t at = 0; at < n; at += BLOCK) {
        size_t len = (size_t)min_u64(BLOCK, n - at);
        buf_char(out, at + len == n);
        buf_uint(out, len, 2, false);
        buf_uint(out, len ^ 0xffff, 2, false);
        buf_add(out, pixels + at, len);
    }
    buf_uint(out, adler32(1, pixels, (uInt)n), 4, true);
}

void picture_png(const struct picture *p, const float *pixel, struct buf *out)
{
    CLEANUP(buf_free) struct buf pixels = BUF_INIT;
    size_t n = pixels_size(p);
    uint8_t *at = buf_extend(&pixels, n);
    double most = brightest(pixel, (size_t)p->width * p->height);
    if (!at || most < 0) {
        out->err = -ENOMEM;
        return;
    }
    paint(p, pixel, most, at);
    buf_add(out, "\x89PNG\r\n\x1a\n", SIGNATURE);
    size_t begin = chunk_begin(out, "IHDR", HEADER);
    buf_uint(out, p->width, 4, true);
    buf_uint(out, p->height, 4, true);
    buf_add(out, "\x08\x02\x00\x00\x00", 5); /* 8 bits, RGB, deflate, no filters, not interlaced */
    chunk_end(out, begin);
    begin = chunk_begin(out, "IDAT", stream_size(p));
    add_stream(out, pixels.data, n);
    chunk_end(out, begin);
    chunk_end(out, chunk_begin(out, "IEND", 0));
}

#else

void picture_png(const struct picture *p, const float *pixel, struct buf *out)
{
    (void)p;
    (void)pixel;
    out->err = -1;
}

#endif

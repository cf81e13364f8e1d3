/* SPDX-License-Identifier: MIT */
/* Results computed from tensors: statistics compared with sums in long double, values at the edges
 * of bins. */
#include "cu_test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "derive/work.h"
#include "derive/task.h"
#include "derive/stats.h"
#include "quant/types.h"

/* ---- statistics ---- */

static uint32_t draw(uint32_t *state)
{
    *state = *state * 1664525 + 1013904223;
    return *state >> 8;
}

/* Return the moments of n floats, added in stretches of the given length, which must not affect the
 * result. */
static struct moments measured(const float *x, size_t n, size_t stretch)
{
    static float room[STATS_STRETCH];
    struct moments all = MOMENTS_NONE;
    for (size_t at = 0; at < n; at += stretch) {
        size_t k = (size_t)min_u64(stretch, n - at);
        memcpy(room, x + at, k * sizeof(*x));
        moments_add(&all, room, k);
    }
    return all;
}

static void is_near(double got, long double want)
{
    CU_ASSERT_TRUE(fabsl((long double)got - want) <= 1e-12L * fabsl(want));
}

/* The mean is far from zero, so a sum of squares would lose the deviation. */
TEST("moments do not depend on the lengths of stretches")
{
    enum { N = 100003 };
    CLEANUP(free_it) float *x = malloc(N * sizeof(*x));
    long double sum = 0, squares = 0;
    uint32_t state = 1;
    CU_ASSERT_PTR_NOT_NULL_FATAL(x);
    for (size_t i = 0; i < N; i++) {
        x[i] = 10000 + (float)draw(&state) * 0x1p-24f;
        sum += (long double)x[i];
    }
    for (size_t i = 0; i < N; i++)
        squares += ((long double)x[i] - sum / N) * ((long double)x[i] - sum / N);
    for (size_t stretch = 1; stretch <= STATS_STRETCH; stretch = 3 * stretch + 1) {
        struct moments m = measured(x, N, stretch);
        CU_ASSERT_EQUAL(m.n, N);
        is_near(m.mean, sum / N);
        CU_ASSERT_TRUE(fabsl((long double)m.squares - squares) < 1e-8L * squares);
    }
}

TEST("NaN and infinities are counted and left out")
{
    float x[] = {NAN, 1, INFINITY, -0.0f, -2, -INFINITY, 0, NAN, NAN, 3};
    struct moments m = measured(x, 10, 10);
    CU_ASSERT_EQUAL(m.n, 5);
    CU_ASSERT_EQUAL(m.nan, 3);
    CU_ASSERT_EQUAL(m.inf, 2);
    CU_ASSERT_EQUAL(m.zeros, 2);
    CU_ASSERT_EQUAL(m.min, -2);
    CU_ASSERT_EQUAL(m.max, 3);
    CU_ASSERT_EQUAL(moments_absmax(&m), 3);
    CU_ASSERT_EQUAL(m.mean, 0.4);
    float none[] = {NAN, INFINITY};
    m = measured(none, 2, 1);
    CU_ASSERT_EQUAL(m.n + m.zeros, 0);
    CU_ASSERT_EQUAL(moments_absmax(&m), 0);
}

TEST("zeros of either sign are one value")
{
    float x[][3] = {
        {0, -0.0f, -0.0f}, {-0.0f, 0, -0.0f}, {-0.0f, -0.0f, 0}, {-0.0f, -1, 0}, {1, -0.0f, 0}};
    for (size_t i = 0; i < 5; i++)
        for (size_t stretch = 1; stretch <= 3; stretch++) {
            struct moments m = measured(x[i], 3, stretch);
            CU_ASSERT_FALSE(m.min == 0 && signbit(m.min));
            CU_ASSERT_FALSE(m.max == 0 && signbit(m.max));
            CU_ASSERT_FALSE(signbit(moments_absmax(&m)));
        }
}

/* Make a two-dimensional tensor. `dims` has room for 16 bytes. */
static struct gguf_tensor matrix(struct gguf *g, uint8_t *dims, uint64_t columns, uint64_t rows)
{
    put_u64(dims, columns, false);
    put_u64(dims + 8, rows, false);
    *g = (struct gguf){.head = dims, .fmt = {.len_width = 8}};
    return (struct gguf_tensor){.n_elem = columns * rows, .n_dims = 2};
}

/* Dead rows and columns, and the first of several equal maxima, are found whatever the length of
 * the stretches. */
TEST("dead rows and columns, and the first of several equal maxima, are found")
{
    enum { COLUMNS = 78, ROWS = 50, N = COLUMNS * ROWS };
    static float x[N], room[STATS_STRETCH];
    uint8_t dims[16];
    struct gguf g;
    struct gguf_tensor t = matrix(&g, dims, COLUMNS, ROWS);
    for (int i = 0; i < N; i++) {
        int row = i / COLUMNS, column = i % COLUMNS;
        x[i] = row == 3 || row >= 48 || column == 0 || column == 70 ? 0 : (float)(i % 7 - 3);
        x[i] = column == 11 && x[i] > 0 ? 0 : x[i]; /* negative values only */
    }
    x[7 * COLUMNS + 9] = x[9 * COLUMNS + 1] = -40;
    x[5] = NAN; /* a NaN is not zero */
    struct moments m = measured(x, N, 1000);
    for (size_t stretch = 1; stretch <= STATS_STRETCH; stretch = 3 * stretch + 1) {
        CLEANUP(buf_free) struct buf out = BUF_INIT;
        struct spread s = {0};
        struct alive a;
        CU_ASSERT_EQUAL_FATAL(alive_begin(&a, &g, &t), 0);
        for (size_t at = 0; at < N; at += stretch) {
            size_t n = (size_t)min_u64(stretch, N - at);
            memcpy(room, x + at, n * sizeof(*x));
            spread_add(&s, &a, &m, room, at, n);
        }
        stats_text(&g, &t, &m, &s, &a, &out);
        buf_char(&out, '\0');
        CU_ASSERT_PTR_NOT_NULL(strstr((char *)out.data, "\nabsmax_at     7 9 "));
        CU_ASSERT_PTR_NOT_NULL(strstr((char *)out.data, "\nbeyond_6_std  2 "));
        CU_ASSERT_PTR_NOT_NULL(strstr((char *)out.data, "\nzero_rows     3 "));
        CU_ASSERT_PTR_NOT_NULL(strstr((char *)out.data, "\nzero_columns  2 "));
        alive_free(&a);
    }
}

/* Return the bin of x by the definition of bins. */
static size_t bin_of(double x, double mean, double std)
{
    size_t i = 0;
    while (i < STATS_BINS - 1 && x >= mean + std * ((int)i + 1 - 25) / 4)
        i++;
    return i;
}

static void bins_are(float *x, size_t n, double mean, double std)
{
    const struct moments m = {.n = 1, .mean = mean, .squares = std * std};
    struct alive none = {0};
    struct spread s = {.count = {3}};
    uint64_t own[STATS_BINS] = {3};
    for (size_t i = 0; i < n; i++)
        own[bin_of((double)x[i], mean, std)]++;
    spread_add(&s, &none, &m, x, 0, n);
    CU_ASSERT_EQUAL(memcmp(own, s.count, sizeof(own)), 0);
}

/* Each bin edge and its neighbours are counted correctly, for means and deviations of all
 * magnitudes. */
TEST("each bin includes exactly its lower edge")
{
    uint64_t state = 7;
    for (int round = 0; round < 1000; round++) {
        float x[3 * 41];
        size_t n = 0;
        state = state * 6364136223846793005u + 1442695040888963407u;
        double std = ldexp((double)(state >> 40 | 1), (int)(state % 200) - 140);
        double mean = round % 3 ? std * ((double)(state >> 20 & 0xfff) - 2048) / 512 : 0;
        for (int i = -20; i <= 20; i++) {
            x[n] = (float)(mean + std * i / 4);
            x[n + 1] = nextafterf(x[n], -INFINITY);
            x[n + 2] = nextafterf(x[n], INFINITY);
            n += 3;
        }
        bins_are(x, n, mean, std);
    }
}

TEST("a text has the announced size for all numbers")
{
    const double largest[] = {0, 1, 3.4028234663852886e38, 1.401298464324817e-45};
    uint8_t dims[16];
    struct gguf g;
    struct gguf_tensor t = matrix(&g, dims, (uint64_t)1 << 31, (uint64_t)1 << 31);
    for (size_t i = 0; i < 4; i++) {
        CLEANUP(buf_free) struct buf out = BUF_INIT;
        struct spread s = {{UINT64_MAX >> 4, 1}, t.n_elem, 1e300};
        struct alive a = {.columns = 1, .rows = 1};
        struct moments m = {.n = UINT64_MAX >> 4,
                            .min = (float)-largest[i],
                            .max = (float)largest[i],
                            .mean = -2.2250738585072014e-308,
                            .squares = 1e300};
        stats_text(&g, &t, &m, &s, &a, &out);
        CU_ASSERT_EQUAL(out.len, STATS_TEXT);
    }
}

/* ---- pictures ---- */

static struct picture picture_with(uint64_t columns, uint64_t rows)
{
    uint8_t dims[16];
    struct gguf g;
    struct gguf_tensor t = matrix(&g, dims, columns, rows);
    return picture_of(&g, &t);
}

/* The rows of pixels are contiguous and cover all values. */
TEST("the rows of a picture are contiguous and cover all values")
{
    const uint64_t many = (uint64_t)1 << 31;
    const uint64_t dims[][2] = {
        {many, 1},       {1, many}, {many / 3, 3}, {3, many / 3}, {4096, many / 4096},
        {4 << 20, 1023}, {9, 5},    {1, 1},        {0, 0}};
    for (size_t i = 0; i < 9; i++) {
        struct picture p = picture_with(dims[i][0], dims[i][1]);
        uint64_t at = 0;
        for (uint64_t y = 0; y < p.height; y++) {
            uint64_t first, end;
            picture_values(&p, y, &first, &end);
            CU_ASSERT_EQUAL_FATAL(first, at);
            at = end;
        }
        CU_ASSERT_EQUAL(at, p.n);
    }
}

/* Return a pixel, computed row by row from the values of its block. */
static float pixel_of(const struct picture *p, const float *v, uint64_t y, uint64_t x)
{
    double sum = 0;
    uint64_t n = 0;
    for (uint64_t r = y * p->rows / p->height; r < (y + 1) * p->rows / p->height; r++)
        for (uint64_t c = x * p->columns / p->width; c < (x + 1) * p->columns / p->width; c++, n++)
            sum += (double)v[r * p->columns + c] * (double)v[r * p->columns + c];
    return (float)sqrt(sum / (double)n);
}

/* All values are multiples of 1/256, so sums of their squares are exact in any order. */
TEST("pixels have the mean squares of their values")
{
    enum { N = 9 << 20 };
    const uint64_t columns[] = {N, N / 2, 1, 3, 4096, 4608, 9000};
    float room[PICTURE_ROOM];
    CLEANUP(free_it) float *v = malloc(N * sizeof(*v));
    CLEANUP(free_it) uint8_t *stored = malloc(N * sizeof(*v));
    uint32_t state = 3;
    CU_ASSERT_PTR_NOT_NULL_FATAL(v);
    CU_ASSERT_PTR_NOT_NULL_FATAL(stored);
    for (size_t i = 0; i < N; i++) {
        uint32_t bits;
        v[i] = (float)(draw(&state) & 0xfff) / 256;
        memcpy(&bits, &v[i], sizeof(bits));
        put_u32(stored + 4 * i, bits, false);
    }
    for (size_t i = 0; i < 7; i++) {
        struct picture p = picture_with(columns[i], N / columns[i]);
        size_t pixels = (size_t)p.width * p.height, wrong = 0;
        CLEANUP(free_it) float *pixel = calloc(pixels, sizeof(*pixel));
        CU_ASSERT_PTR_NOT_NULL_FATAL(pixel);
        for (uint64_t y = 0; y < p.height; y++)
            picture_pixels(&p, quant_find(F32_ID), false, stored, y, room, pixel);
        for (size_t at = 0; at < pixels; at++)
            wrong += pixel[at] != pixel_of(&p, v, at / p.width, at % p.width);
        CU_ASSERT_EQUAL(wrong, 0);
    }
}

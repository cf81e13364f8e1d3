/* SPDX-License-Identifier: MIT */
/* Checks the golden data for the tensor types: see golden.h. */
#include "golden.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/bytes.h"
#include "cu_main.h"

const struct golden golden_figures[] = {
#include "data/quant_golden.inc"
};
const size_t n_golden = COUNT(golden_figures);

uint64_t golden_word(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

void golden_bytes(uint8_t *dst, size_t n, uint64_t seed)
{
    for (size_t i = 0; i < n; i += 8) {
        uint8_t word[8];
        put_u64(word, golden_word(&seed), false);
        memcpy(dst + i, word, n - i < 8 ? n - i : 8);
    }
}

size_t golden_canon(float *f, size_t n)
{
    size_t n_nan = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, f + i, sizeof(bits));
        if (isnan(f[i])) {
            n_nan++;
            bits = 0x7fc00000;
        }
        put_u32(f + i, bits, false);
    }
    return n_nan;
}

uint64_t golden_hash(const void *bytes, size_t n)
{
    const uint8_t *p = bytes;
    uint64_t h = 0xcbf29ce484222325;
    for (size_t i = 0; i < n; i++)
        h = (h ^ p[i]) * 0x100000001b3;
    return h;
}

bool golden_check(const struct golden *g, const struct quant_type *t)
{
    const size_t raw_size = (size_t)g->blocks * t->block_bytes;
    const size_t values = (size_t)g->blocks * t->block_len;
    CLEANUP(free_it) uint8_t *raw = malloc(raw_size);
    CLEANUP(free_it) float *f = malloc(values * sizeof(float));
    if (!raw || !f)
        return false;
    golden_bytes(raw, raw_size, g->seed);
    if (golden_hash(raw, raw_size) != g->raw_hash)
        return false;
    t->decode(raw, g->blocks, f);
    return golden_canon(f, values) == g->n_nan && golden_hash(f, 4 * values) == g->f32_hash;
}

/* ---- encoders: values ---- */

const struct golden_encode golden_encodes[] = {
#include "data/encode_golden.inc"
};
const size_t n_golden_encodes = COUNT(golden_encodes);

static float from_bits(unsigned sign, int exponent, uint32_t fraction)
{
    const uint32_t bits = (uint32_t)sign << 31 | (uint32_t)(exponent + 127) << 23 | fraction;
    float f;
    memcpy(&f, &bits, sizeof(f));
    return f;
}

/* Return 24 random bits as a number in [0, 1). */
static float unit(uint64_t word)
{
    return (float)(word >> 40) * 0x1p-24f;
}

static float uniform(uint64_t *state)
{
    return (unit(golden_word(state)) * 2 - 1) * 0.1f;
}

/* The sum of four uniform numbers is close enough to a normal distribution. */
static float gaussian(uint64_t *state)
{
    float sum = unit(golden_word(state));
    for (int i = 0; i < 3; i++)
        sum += unit(golden_word(state));
    return (sum - 2) * 0.02f;
}

static float wide(uint64_t *state)
{
    const uint64_t w = golden_word(state);
    return from_bits((unsigned)(w >> 63), (int)((w >> 32 & 0x7fffffff) % 31) - 20, w & 0x7fffff);
}

/*
 * Edges and tiny values are generated in groups, which are blocks or parts of blocks. A group has a
 * random word h, and each of its values i has a word w.
 */
struct group {
    size_t len, number, p, q; /* p, q: positions of the special values */
    int reach;                /* the code of the largest value, or the number of steps */
    bool one_sided;           /* the type has a minimum */
    unsigned b, c, sign;
    uint32_t fraction;
};

struct value {
    size_t i;
    uint64_t w;
    unsigned sign;
    uint32_t fraction, t;
};

static void group_form(struct group *g, uint32_t id)
{
    static const struct {
        uint8_t id, reach;
        uint16_t len;
    } forms[] = {{1, 1, 64},   {2, 8, 32},   {3, 15, 32},  {6, 16, 32},  {7, 31, 32},
                 {8, 127, 32}, {30, 1, 64},  {34, 1, 256}, {35, 1, 256}, {39, 6, 32},
                 {40, 6, 16},  {41, 1, 128}, {42, 1, 64}};
    g->len = 256;
    g->reach = 1;
    for (size_t i = 0; i < COUNT(forms); i++)
        if (forms[i].id == id) {
            g->len = forms[i].len;
            g->reach = forms[i].reach;
        }
    g->one_sided = id == 3 || id == 7;
}

static void group_word(struct group *g, uint64_t h)
{
    g->b = h >> 16 & 0xffff;
    g->c = h >> 32 & 0xffff;
    g->sign = (unsigned)(h >> 63);
    g->fraction = h >> 16 & 0x7fffff;
    g->p = (h & 0xffff) % g->len;
    g->q = (g->p + 1) % g->len;
}

static float power(int n)
{
    return ldexpf(1, n);
}

static float signed_by(unsigned sign, float z)
{
    return sign ? -z : z;
}

static float tiny(const struct group *g, const struct value *v)
{
    switch (g->number % 4) {
    case 0:
        return from_bits(v->sign, -127, v->fraction);
    case 1:
        return from_bits(v->sign, -127, v->fraction & 7);
    case 2:
        return from_bits(v->sign, (int)(g->b % 17) - 126, v->fraction);
    default:
        return from_bits(v->sign, (int)(v->t % 12) - 127, v->fraction);
    }
}

/* Return a value for types without scales. */
static float edge_plain(const struct group *g, const struct value *v)
{
    switch (g->number % 24) {
    case 0:
        return 0;
    case 1:
        return -0.0f;
    case 2:
        return from_bits(v->sign, -127, 0);
    case 3:
        return from_bits(g->sign, (int)(g->b % 31) - 20, g->fraction);
    case 4:
        return from_bits(v->sign, (int)(g->b % 31) - 20, g->fraction);
    case 18: /* halfway between two values of binary16 or bfloat16 */
        return from_bits(v->sign, (int)(v->t % 40) - 26, (v->fraction & 0x7fe000) | 0x1000);
    case 19:
        return from_bits(v->sign, (int)(v->t % 40) - 26, (v->fraction & 0x7f0000) | 0x8000);
    case 20: /* just below a power of two */
        return from_bits(v->sign, (int)(g->b % 75) - 60, 0x7fffff - v->t % 64);
    case 21:
        return from_bits(v->sign, 10 - (int)(v->i % 40), 0);
    default: /* 22 */
        return (float)((int)(v->t % 257) - 128);
    }
}

/* Return x moved one step up or down. */
static float nudged(const struct value *v, float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    bits += v->w & 1 ? 1 : UINT32_MAX;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

/* Value P, and often Q, determine the scale; the other values lie on codes or halfway between two
 * codes. */
static float edge_codes(const struct group *g, const struct value *v)
{
    const int k = (int)(g->b % 9) - 8, r = g->reach, t = (int)v->t, o = (int)g->c % (r + 1);
    const bool p = v->i == g->p, q = v->i == g->q;
    float x;
    switch (g->number % 24) {
    case 5:
        return p ? from_bits(g->sign, (int)(g->b % 11), g->fraction)
                 : from_bits(v->sign, -11 - t % 10, v->fraction);
    case 6:
    case 10:
        x = p ? signed_by(g->sign, (float)r * power(k))
              : (float)(t % (4 * r + 1) - 2 * r) * power(k - 1);
        return g->number % 24 == 10 && !p && x != 0 ? nudged(v, x) : x;
    case 7:
    case 11:
        x = p ? (float)r * power(k) : q ? 0 : (float)(t % (2 * r + 1)) * power(k - 1);
        return g->number % 24 == 11 && !p && !q && x != 0 ? nudged(v, x) : x;
    case 8:
        return p ? signed_by(g->sign, (float)r * power(k))
                 : (float)(t % (8 * r + 1) - 4 * r) * power(k - 2);
    case 9:
        return p   ? (float)(r - o) * power(k)
               : q ? (float)-o * power(k)
                   : (float)(t % (2 * r + 1) - 2 * o) * power(k - 1);
    default: /* 17 */
        return p ? signed_by(g->sign, (float)r * power(-10))
                 : from_bits(v->sign, -127, v->fraction);
    }
}

/* Return a value for a block whose scales are at the limits of binary16, or halfway between two of
 * its numbers. */
static float edge_scales(const struct group *g, const struct value *v)
{
    const int r = g->reach, b = (int)g->b, c = (int)g->c;
    const bool p = v->i == g->p;
    const struct {
        int t, n;
    } forms[] = {{65504 * r, 0},
                 {65519 * r, 0},
                 {r * (2 * (c % 1024) + 2049), b % 9 - 16},
                 {r * (1 + c % 2048), -25},
                 {r, -26 - b % 35},
                 {r * (17 + 2 * (c % 8)), b % 17 - 14}};
    const size_t which = g->number % 24 == 23 ? 5 : g->number % 24 - 12;
    const float z = (float)forms[which].t * power(forms[which].n), x = p ? z : z * unit(v->w);
    if (g->one_sided)
        return v->i == g->q ? 0 : x;
    return signed_by(p ? g->sign : v->sign, x);
}

static float edge(const struct group *g, const struct value *v)
{
    const size_t n = g->number % 24;
    if (n <= 4 || (n >= 18 && n <= 22))
        return edge_plain(g, v);
    if ((n >= 5 && n <= 11) || n == 17)
        return edge_codes(g, v);
    return edge_scales(g, v);
}

static void grouped(float *dst, size_t n, uint32_t id, bool edges, uint64_t *state)
{
    struct group g = {0};
    group_form(&g, id);
    for (size_t at = 0; at < n; at += g.len, g.number++) {
        group_word(&g, golden_word(state));
        for (size_t i = 0; i < g.len && at + i < n; i++) {
            const uint64_t w = golden_word(state);
            const struct value v = {i, w, (unsigned)(w >> 63), w & 0x7fffff, (uint32_t)(w >> 40)};
            dst[at + i] = edges ? edge(&g, &v) : tiny(&g, &v);
        }
    }
}

void golden_values(float *dst, size_t n, uint32_t id, enum golden_kind kind, uint64_t seed)
{
    static float (*const one[])(uint64_t *) = {
        [UNIFORM] = uniform, [GAUSSIAN] = gaussian, [WIDE] = wide};
    if (kind == EDGES || kind == TINY)
        grouped(dst, n, id, kind == EDGES, &seed);
    else
        for (size_t i = 0; i < n; i++)
            dst[i] = one[kind](&seed);
}

double golden_error(const float *x, const float *y, size_t n, const float *weight, size_t columns)
{
    double off = 0, all = 0;
    for (size_t i = 0; i < n; i++) {
        const double w = weight ? (double)weight[i % columns] : 1, e = (double)x[i] - (double)y[i];
        off += w * e * e;
        all += w * (double)x[i] * (double)x[i];
    }
    return sqrt(off / all);
}

static bool near_enough(const struct golden_encode *g, const struct quant_type *t, const float *x,
                        const uint8_t *raw)
{
    const size_t n = (size_t)g->blocks * t->block_len;
    CLEANUP(free_it) float *y = malloc(n * sizeof(float));
    if (!y)
        return false;
    t->decode(raw, g->blocks, y);
    return golden_error(x, y, n, NULL, 1) <= 1.01 * g->error;
}

bool golden_encode_check(const struct golden_encode *g, const struct quant_type *t)
{
    const size_t n = (size_t)g->blocks * t->block_len, size = (size_t)g->blocks * t->block_bytes;
    CLEANUP(free_it) float *x = malloc(n * sizeof(float));
    CLEANUP(free_it) uint8_t *raw = malloc(size);
    if (!x || !raw)
        return false;
    golden_values(x, n, g->id, g->kind, g->seed);
    if (t->encode(x, NULL, g->blocks, raw) != g->blocks || golden_hash(raw, size) != g->raw_hash)
        return false;
    if (g->error > 0 && !near_enough(g, t, x, raw))
        return false;
    (void)golden_canon(x, n);
    return golden_hash(x, 4 * n) == g->f32_hash;
}

/* ---- with importances ---- */

const struct golden_weighed golden_weighed[] = {
#include "data/encode_weighed.inc"
};
const size_t n_golden_weighed = COUNT(golden_weighed);

/* Return the factor of a column. One column in 64 has a larger factor. */
static float column_size(uint64_t w)
{
    const float size = (float)(64 + (w >> 16) % 64) * 0x1p-6f;
    return (w >> 40) % 64 ? size : size * (float)(1 << (1 + (w >> 8) % 4));
}

static float importance(uint64_t w)
{
    return (w >> 32 & 31) == 0 ? 0 : from_bits(0, (int)((w >> 40) % 12) - 6, w & 0x7fffff);
}

void golden_table(const struct golden_weighed *g, float *values, float *importances)
{
    const size_t n = (size_t)g->rows * g->columns;
    uint64_t seed = g->seed, other = g->importances;
    for (size_t i = 0; i < g->columns && g->kind == OUTLIERS; i++)
        importances[i] = column_size(golden_word(&seed));
    for (size_t i = 0; i < n; i++)
        values[i] = g->kind == UNIFORM    ? uniform(&seed)
                    : g->kind == OUTLIERS ? gaussian(&seed) * importances[i % g->columns]
                                          : gaussian(&seed);
    for (size_t i = 0; i < g->columns; i++)
        importances[i] = g->importances ? importance(golden_word(&other)) : 1;
}

double golden_weighed_error(const struct golden_weighed *g, const struct quant_type *t,
                            const float *values, const float *importances)
{
    const size_t n = g->columns / t->block_len, all = (size_t)g->rows * g->columns;
    CLEANUP(free_it) float *y = malloc(all * sizeof(float));
    CLEANUP(free_it) uint8_t *raw = malloc(n * t->block_bytes);
    if (!y || !raw)
        return -1;
    for (size_t r = 0; r < g->rows; r++) {
        const float *x = values + r * g->columns;
        if (t->encode(x, g->importances ? importances : NULL, n, raw) != n)
            return -1;
        t->decode(raw, n, y + r * g->columns);
    }
    return golden_error(values, y, all, importances, g->columns);
}

const struct quant_importances *golden_needed(const struct quant_type *t)
{
    static float ones[QUANT_MAX_BLOCK_LEN];
    static const struct quant_importances imp = {ones, QUANT_MAX_BLOCK_LEN, UINT64_MAX, 0};
    for (size_t i = 0; i < QUANT_MAX_BLOCK_LEN; i++)
        ones[i] = 1;
    return t->weighs == QUANT_NEEDS ? &imp : NULL;
}

/* SPDX-License-Identifier: MIT */
/*
 * quant: encoding values with importances. Compares errors with those of ggml's quantisers, and
 * tries unusual importances.
 */
#include "cu_test.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "golden.h"
#include "quant/encode.h"
#include "quant/types.h"

enum { MOST_VALUES = 1 << 16, COLUMNS = 4096 };

static float values[MOST_VALUES], importances[COLUMNS], back[MOST_VALUES];
static uint8_t raw[MOST_VALUES * 2], more[MOST_VALUES * 2];

static const uint32_t points[] = {IQ2_XXS_ID, IQ2_XS_ID, IQ2_S_ID, IQ3_XXS_ID,
                                  IQ3_S_ID,   IQ1_S_ID,  IQ1_M_ID};
static const uint32_t weighing[] = {Q4_0_ID,   Q4_1_ID,    Q5_0_ID,   Q5_1_ID,  Q2_K_ID,
                                    Q3_K_ID,   Q4_K_ID,    Q5_K_ID,   Q6_K_ID,  IQ4_NL_ID,
                                    IQ4_XS_ID, IQ2_XXS_ID, IQ2_XS_ID, IQ2_S_ID, IQ3_XXS_ID,
                                    IQ3_S_ID,  IQ1_S_ID,   IQ1_M_ID};
#define COUNT_OF(a) (sizeof(a) / sizeof((a)[0]))

static bool is_point(uint32_t id)
{
    bool is = false;
    for (size_t i = 0; i < COUNT_OF(points); i++)
        is |= points[i] == id;
    return is;
}

/* Hash floats as little-endian bytes. */
static uint64_t hash_of(const float *f, size_t n)
{
    (void)memcpy(back, f, n * sizeof(float));
    (void)golden_canon(back, n);
    return golden_hash(back, n * sizeof(float));
}

/* The error of each row is at most 1.01 times the reference's. For IQ1 to IQ3, the mean ratio per
 * type is at most 0.96. */
TEST("errors are close to the reference's")
{
    double sum[QUANT_N_TYPES] = {0};
    unsigned n[QUANT_N_TYPES] = {0};
    for (size_t i = 0; i < n_golden_weighed; i++) {
        const struct golden_weighed *g = &golden_weighed[i];
        const size_t all = (size_t)g->rows * g->columns;
        if (quant_find(g->id)->weighs == QUANT_IGNORES)
            continue;
        golden_table(g, values, importances);
        CU_ASSERT_EQUAL(hash_of(values, all), g->f32_hash);
        CU_ASSERT_TRUE(!g->importances || hash_of(importances, g->columns) == g->importances_hash);
        const double error = golden_weighed_error(g, quant_find(g->id), values, importances);
        CU_ASSERT_TRUE(error > 0 && error <= 1.01 * g->error);
        if (!(error > 0 && error <= 1.01 * g->error))
            (void)printf("%s, seed %llu: %.4f of the reference\n", quant_find(g->id)->name,
                         (unsigned long long)g->seed, error / g->error);
        sum[g->id] += g->importances ? error / g->error : 0;
        n[g->id] += g->importances != 0;
    }
    for (uint32_t id = 0; id < QUANT_N_TYPES; id++) {
        CU_ASSERT_TRUE(!is_point(id) || sum[id] / n[id] <= 0.96);
        if (n[id])
            (void)printf("%s %.3f, ", quant_find(id)->name, sum[id] / n[id]);
    }
}

/* All machines must produce the same bytes. After changing a search, copy the test's output here
 * and check it with scripts/test-arch. */
TEST("all machines produce the same bytes")
{
    static const struct {
        uint32_t id;
        uint64_t hash;
    } rows[] = {
        {Q4_0_ID, 0x041597847ada41f3},   {Q4_1_ID, 0x284be362397bf8f6},
        {Q5_0_ID, 0x9edffc407cdc6700},   {Q5_1_ID, 0x4c3dfa8a0f9af36e},
        {Q2_K_ID, 0x78dd4ca35bf90b14},   {Q3_K_ID, 0x181e902d7f39dab2},
        {Q4_K_ID, 0xc40ebd44b4089f0f},   {Q5_K_ID, 0xfb7e1a1bae01c0b0},
        {Q6_K_ID, 0x3dc6614fad3d3608},   {IQ2_XXS_ID, 0x2dd1889d204d378d},
        {IQ2_XS_ID, 0x8b3d4a2c1a430e4d}, {IQ3_XXS_ID, 0x0ae80252cfcae22e},
        {IQ1_S_ID, 0x802b5f461c3de8e1},  {IQ4_NL_ID, 0xebf22bb85a741421},
        {IQ3_S_ID, 0x61e67c46480a8345},  {IQ2_S_ID, 0x24c269c387a9a30f},
        {IQ4_XS_ID, 0xf72b8fbb65f629c3}, {IQ1_M_ID, 0x1d90f33cb0543608},
    };
    const size_t n = 16 * 1024;
    for (size_t k = 0; k < COUNT_OF(rows); k++) {
        const struct quant_type *t = quant_find(rows[k].id);
        const struct golden_weighed g = {t->id, OUTLIERS, 77 + t->id, 16, 1024, 99, 0, 0, 0};
        golden_table(&g, values, importances);
        for (size_t r = 0; r < g.rows; r++)
            (void)t->encode(values + r * g.columns, importances, g.columns / t->block_len,
                            raw + r * g.columns / t->block_len * t->block_bytes);
        const uint64_t hash = golden_hash(raw, n / t->block_len * t->block_bytes);
        CU_ASSERT_EQUAL(hash, rows[k].hash);
        if (hash != rows[k].hash)
            (void)printf("{%s_ID, 0x%016llx},\n", t->name, (unsigned long long)hash);
    }
}

/* Generate n blocks of weights like those of a model. */
static void fill(size_t n)
{
    golden_values(values, n, 0, GAUSSIAN, 5);
    for (size_t i = 0; i < COLUMNS; i++)
        importances[i] = (float)(i * 37 % 101 + 1);
}

/* Return the error of the 256 values that start at `at`, all weighted equally. */
static double error_of(size_t at)
{
    double off = 0, all = 0;
    for (size_t i = at; i < at + 256; i++) {
        off += pow((double)values[i] - (double)back[i], 2);
        all += pow((double)values[i], 2);
    }
    return sqrt(off / all);
}

static void encode(const struct quant_type *t, size_t n, const float *weight, uint8_t *dst)
{
    CU_ASSERT_EQUAL(t->encode(values, weight, n / t->block_len, dst), n / t->block_len);
    t->decode(dst, n / t->block_len, back);
}

/* Encode zeros, and values of every magnitude that the type's scale can express. */
TEST("values of every magnitude are encoded")
{
    for (size_t k = 0; k < COUNT_OF(weighing); k++) {
        const struct quant_type *t = quant_find(weighing[k]);
        fill(256);
        memset(values, 0, sizeof(values[0]) * 256);
        encode(t, 256, importances, raw);
        for (size_t i = 0; i < 256; i++) {
            CU_ASSERT_EQUAL(back[i], 0);
            importances[i] = 1;
        }
        for (int e = -120; e < 128; e++) {
            struct quant_fault fault;
            const struct quant_importances imp = {importances, 256, 256, 0};
            golden_values(values, 256, 0, UNIFORM, 3);
            for (size_t i = 0; i < 256; i++)
                values[i] = ldexpf(values[i], e);
            const int r = quant_encode(t, false, values, 256 / t->block_len, raw, &imp, &fault);
            CU_ASSERT_TRUE(r == 0 || (r == -ERANGE && e > 14));
            if (r == 0)
                t->decode(raw, 256 / t->block_len, back);
            CU_ASSERT_TRUE(r || quant_all_finite((const uint8_t *)back, 256));
            CU_ASSERT_TRUE(r || error_of(0) <= (e < -12 ? 1.0001 : is_point(t->id) ? 0.6 : 0.45));
            CU_ASSERT_TRUE(r || e < -14 || error_of(0) < 0.99);
        }
    }
}

/* Types that need importances fail without them. Each matrix has its own importances. */
TEST("rows and matrices have their own importances")
{
    struct quant_fault fault;
    fill(2048);
    const struct quant_importances imp = {importances, 256, 512, 256};
    for (size_t k = 0; k < COUNT_OF(weighing); k++) {
        const struct quant_type *t = quant_find(weighing[k]);
        const size_t n = 256u / t->block_len, bytes = n * t->block_bytes;
        const int r = quant_encode(t, false, values, n, raw, NULL, &fault);
        CU_ASSERT_EQUAL(r, t->weighs == QUANT_NEEDS ? -EOPNOTSUPP : 0);
        CU_ASSERT_TRUE(r == 0 || fault.element == 0);
        /* Encoding begins at element 256, the second row of the first matrix, and continues with
         * the two rows of each of the next two matrices. */
        CU_ASSERT_EQUAL(quant_encode(t, false, values, 5 * n, raw, &imp, &fault), 0);
        for (size_t b = 0; b < 5; b++) {
            const size_t matrix = (256 + b * 256) / 512;
            (void)t->encode(values + b * 256, importances + matrix * 256, n, more);
            CU_ASSERT_EQUAL(memcmp(raw + b * bytes, more, bytes), 0);
        }
    }
}

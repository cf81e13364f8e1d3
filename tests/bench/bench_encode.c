/* SPDX-License-Identifier: MIT */
/*
 * Measures how fast each kernel set encodes each type, in GB/s (10^9 bytes) of float32 read.
 *
 *     bench_encode [TYPE...]        all types with an encoder by default
 *
 * "weighed" means with importances. The values resemble weights; for integer types, they are whole
 * numbers. There are 256 KiB of them, which stay in the cache; they are encoded again and again for
 * about MIN_SECONDS per round. Each figure is the median of several rounds, in which the sets take
 * turns. Output: comment lines with `#`, then tab-separated lines type, set, GB/s, ratio to the
 * generic set.
 */
#include <stdio.h>

#include "golden.h"
#include "golden_encode.h"
#include "quant/set.h"
#include "quant/quant.h"
#include "timing.h"

enum { ROUNDS = 7, MAX_SETS = 4, VALUES = 1 << 16 };
#define MIN_SECONDS 0.01

static float values[VALUES], importances[VALUES];
static uint8_t blocks[VALUES * sizeof(double)]; /* F64 and I64 are the largest */

/* Return the seconds of one pass over all values. */
static double one_round(const struct quant_type *t, const float *weight)
{
    const size_t n = VALUES / t->block_len;
    const double start = now();
    unsigned passes = 0;
    double taken;
    do {
        if (t->encode(values, weight, n, blocks) != n)
            abort();
        __asm__ volatile("" : : "r"(blocks) : "memory"); /* each pass must produce its output */
        passes++;
        taken = now() - start;
    } while (taken < MIN_SECONDS);
    return taken / passes;
}

static void run(uint32_t id, size_t n_sets, const float *weight)
{
    double seconds[MAX_SETS][ROUNDS], generic = 0;
    const bool whole = id >= 24 && id <= 27; /* I8 to I64 */
    golden_values(values, VALUES, id, GAUSSIAN, 1);
    for (size_t i = 0; i < VALUES && whole; i++)
        values[i] = (float)(int)(values[i] * 1000);
    for (size_t r = 0; r < ROUNDS; r++)
        for (size_t s = 0; s < n_sets; s++)
            seconds[s][r] = one_round(&quant_set_at(s)->types[id], weight);
    for (size_t s = 0; s < n_sets; s++) {
        const double rate = sizeof(values) / median(seconds[s], ROUNDS) / 1e9;
        generic = s == 0 ? rate : generic;
        (void)printf("%s%s\t%s\t%.3f\t%.2f\n", quant_find(id)->name, weight ? " weighed" : "",
                     quant_set_at(s)->name, rate, rate / generic);
    }
}

int main(int argc, char **argv)
{
    size_t n_sets = 0;
    while (n_sets < MAX_SETS && quant_set_at(n_sets))
        n_sets++;
    (void)printf("# GB/s of float32 input, one thread, median of %d rounds\n", ROUNDS);
    (void)printf("# type\tset\tGB/s\tof generic\n");
    golden_values(importances, VALUES, 0, UNIFORM, 2);
    for (size_t i = 0; i < VALUES; i++)
        importances[i] *= importances[i];
    for (uint32_t id = 0; quant_find(id); id++) {
        const struct quant_type *t = quant_find(id);
        if (!t->encode || !wanted(t->name, argc, argv))
            continue;
        if (t->weighs != QUANT_NEEDS)
            run(id, n_sets, NULL);
        if (t->weighs != QUANT_IGNORES)
            run(id, n_sets, importances);
    }
    return 0;
}

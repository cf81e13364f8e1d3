/* SPDX-License-Identifier: MIT */
/*
 * Measures how fast each kernel set decodes each type on one core: lines type, set, GB/s (10^9
 * bytes) of float32 written, ratio to memcpy of the same output, ratio to the generic set.
 *
 * 64 KiB of output are written again and again, from blocks that move through 1 MiB, so that
 * branches cannot be learned. Each figure is the median of several rounds in which memcpy and the
 * sets take turns: compare ratios rather than figures.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "golden.h"
#include "quant/quant.h"
#include "quant/set.h"

enum { ROUNDS = 11, PASSES = 200, MAX_WAYS = 5, OUT = 64 << 10, SOURCE = 1 << 20 };

static uint8_t raw[2 * SOURCE];
static float to[OUT / sizeof(float)];

/* Other load affects processor time less than elapsed time. */
static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int ascending(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* Return the seconds of one round: way 0 is memcpy, way i is the decoder of set i - 1. */
static double one_round(uint32_t id, size_t way)
{
    const struct quant_type *t = way ? &quant_set_at(way - 1)->types[id] : NULL;
    const size_t blocks = t ? OUT / sizeof(float) / t->block_len : 0;
    const size_t step = t ? blocks * t->block_bytes : OUT;
    const double start = now();
    size_t at = 0;
    for (unsigned i = 0; i < PASSES; i++) {
        if (t)
            t->decode(raw + at, blocks, to);
        else
            memcpy(to, raw + at, OUT);
        at = at + 2 * step <= SOURCE ? at + step : 0;
        __asm__ volatile("" : : "r"(to) : "memory"); /* each pass must produce its output */
    }
    return now() - start;
}

static void run(uint32_t id, size_t n_ways)
{
    double seconds[MAX_WAYS][ROUNDS], rate[MAX_WAYS];
    for (size_t r = 0; r < ROUNDS; r++)
        for (size_t way = 0; way < n_ways; way++)
            seconds[way][r] = one_round(id, way);
    for (size_t way = 0; way < n_ways; way++) {
        qsort(seconds[way], ROUNDS, sizeof(double), ascending);
        rate[way] = (double)OUT * PASSES / seconds[way][ROUNDS / 2] / 1e9;
    }
    for (size_t way = 1; way < n_ways; way++)
        (void)printf("%s\t%s\t%.2f\t%.2f\t%.2f\n", quant_find(id)->name,
                     quant_set_at(way - 1)->name, rate[way], rate[way] / rate[0],
                     rate[way] / rate[1]);
}

int main(void)
{
    size_t n_ways = 1;
    while (n_ways < MAX_WAYS && quant_set_at(n_ways - 1))
        n_ways++;
    /* Random bytes would give random exponents, so keep scales ordinary (0x2x: small halves). */
    golden_bytes(raw, sizeof(raw), 1);
    for (size_t i = 0; i < sizeof(raw); i++)
        if ((raw[i] & 0x7c) == 0 || (raw[i] & 0x7c) == 0x7c)
            raw[i] ^= 0x28;
    for (uint32_t id = 0; quant_find(id); id++)
        if (quant_find(id)->decode)
            run(id, n_ways);
    return 0;
}

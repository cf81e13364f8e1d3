/* SPDX-License-Identifier: MIT */
/*
 * Measures how fast each kernel set decodes each type, in GB/s (10^9 bytes) of float32 written.
 *
 *     bench_decode [TYPE...]        all types by default, and functions of floats: to_f16, to_bf16,
 *                                   moments and bins (the two passes of statistics)
 *
 * Two cases: `cache`, where the same 64 KiB of output are written again and again, from blocks that
 * move through 1 MiB (so that branches cannot be learned), and `stream`, where 64 MiB of output are
 * written once per round. Each figure is the median of several rounds in which memcpy and the sets
 * take turns, so a slow moment of the machine affects all of them; compare ratios rather than
 * figures. Output: comment lines with `#`, then tab-separated lines type, case, set, GB/s, ratio to
 * memcpy of the same output, ratio to the generic set.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "golden.h"
#include "quant/set.h"
#include "quant/quant.h"
#include "timing.h"

enum { ROUNDS = 11, MAX_SETS = 4, MAX_WAYS = MAX_SETS + 1, SOURCE_BYTES = 1 << 20 };

struct workload {
    const char *name;
    size_t out_bytes; /* bytes written by one pass */
    unsigned passes;  /* number of passes in a timed round */
};

static const struct workload workloads[] = {
    {"cache", (size_t)64 << 10, 200},
    {"stream", (size_t)64 << 20, 1},
};

/* Buffers for the larger case: blocks to decode, floats to copy, and their destination. */
struct buffers {
    uint8_t *raw;
    float *from, *to;
};

/* Return the seconds of one round: way 0 is memcpy, way i is the decoder of set i - 1. */
static double one_round(const struct workload *w, uint32_t id, size_t way, struct buffers b)
{
    const struct quant_type *t = way ? &quant_set_at(way - 1)->types[id] : NULL;
    const size_t blocks = t ? w->out_bytes / sizeof(float) / t->block_len : 0;
    const size_t step = t ? blocks * t->block_bytes : w->out_bytes;
    const double start = now();
    size_t at = 0;
    for (unsigned i = 0; i < w->passes; i++) {
        if (t)
            t->decode(b.raw + at, blocks, b.to);
        else
            memcpy(b.to, (const uint8_t *)b.from + at, w->out_bytes);
        at = at + 2 * step <= SOURCE_BYTES ? at + step : 0;
        __asm__ volatile("" : : "r"(b.to) : "memory"); /* each pass must produce its output */
    }
    return now() - start;
}

/* Functions other than decoders, applied to n floats. */
static void to_f16(const struct quant_set *set, struct buffers b, size_t n)
{
    set->f32_to_f16(b.from, n, (uint16_t *)(void *)b.to);
}

static void to_bf16(const struct quant_set *set, struct buffers b, size_t n)
{
    set->f32_to_bf16(b.from, n, (uint16_t *)(void *)b.to);
}

static const struct {
    const char *name;
    void (*run)(const struct quant_set *set, struct buffers b, size_t n);
} others[] = {{"to_f16", to_f16}, {"to_bf16", to_bf16}};

/* Measure a function on data in the cache, and print a line for each set: GB/s of float32 read. */
static void run_other(size_t which, struct buffers b)
{
    const size_t n = ((size_t)64 << 10) / sizeof(float);
    double generic = 0;
    for (size_t s = 0; quant_set_at(s); s++) {
        const struct quant_set *set = quant_set_at(s);
        double seconds[ROUNDS];
        for (size_t r = 0; r < ROUNDS; r++) {
            const double start = now();
            for (unsigned i = 0; i < 200; i++)
                others[which].run(set, b, n);
            seconds[r] = now() - start;
        }
        const double rate = 200 * sizeof(float) * (double)n / median(seconds, ROUNDS) / 1e9;
        generic = s == 0 ? rate : generic;
        (void)printf("%s\tcache\t%s\t%.2f\t-\t%.2f\n", others[which].name, set->name, rate,
                     rate / generic);
    }
}

static void run(const struct workload *w, uint32_t id, size_t n_ways, struct buffers b)
{
    double seconds[MAX_WAYS][ROUNDS], rate[MAX_WAYS];
    for (size_t way = 0; way < n_ways; way++)
        (void)one_round(w, id, way, b);
    for (size_t r = 0; r < ROUNDS; r++)
        for (size_t way = 0; way < n_ways; way++)
            seconds[way][r] = one_round(w, id, way, b);
    for (size_t way = 0; way < n_ways; way++)
        rate[way] = (double)w->out_bytes * w->passes / median(seconds[way], ROUNDS) / 1e9;
    for (size_t way = 1; way < n_ways; way++)
        (void)printf("%s\t%s\t%s\t%.2f\t%.2f\t%.2f\n", quant_find(id)->name, w->name,
                     quant_set_at(way - 1)->name, rate[way], rate[way] / rate[0],
                     rate[way] / rate[1]);
}

/* Random bytes would give random exponents, so keep scales ordinary (0x2x: small positive
 * halves). */
static void fill_blocks(uint8_t *raw, size_t n)
{
    golden_bytes(raw, n, 1);
    for (size_t i = 0; i < n; i++)
        if ((raw[i] & 0x7c) == 0 || (raw[i] & 0x7c) == 0x7c)
            raw[i] ^= 0x28;
}

int main(int argc, char **argv)
{
    size_t n_ways = 1;
    while (n_ways < MAX_WAYS && quant_set_at(n_ways - 1))
        n_ways++;
    const size_t most = workloads[1].out_bytes;
    struct buffers b = {malloc(2 * most), malloc(most), malloc(most)};
    if (!b.raw || !b.from || !b.to)
        return 1;
    fill_blocks(b.raw, 2 * most); /* I64 and F64 are twice as large as their output */
    for (size_t i = 0; i < most / sizeof(float); i++)
        b.from[i] = (float)(int)(i % 1000) - 500;
    (void)printf("# GB/s of float32 output, one thread, median of %d rounds\n", ROUNDS);
    (void)printf("# type\tcase\tset\tGB/s\tof memcpy\tof generic\n");
    for (uint32_t id = 0; quant_find(id); id++)
        for (size_t i = 0; i < sizeof(workloads) / sizeof(workloads[0]); i++)
            if (quant_find(id)->decode && wanted(quant_find(id)->name, argc, argv))
                run(&workloads[i], id, n_ways, b);
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        if (wanted(others[i].name, argc, argv))
            run_other(i, b);
    free(b.raw);
    free(b.from);
    free(b.to);
    return 0;
}

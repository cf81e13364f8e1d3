/* SPDX-License-Identifier: MIT */
/* Checks the golden data for the tensor types: see golden.h. */
#include "golden.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/bytes.h"

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

static void free_ptr(void *p)
{
    free(*(void **)p);
}

bool golden_check(const struct golden *g, const struct quant_type *t)
{
    const size_t raw_size = (size_t)g->blocks * t->block_bytes;
    const size_t values = (size_t)g->blocks * t->block_len;
    CLEANUP(free_ptr) uint8_t *raw = malloc(raw_size);
    CLEANUP(free_ptr) float *f = malloc(values * sizeof(float));
    if (!raw || !f)
        return false;
    golden_bytes(raw, raw_size, g->seed);
    if (golden_hash(raw, raw_size) != g->raw_hash)
        return false;
    t->decode(raw, g->blocks, f);
    return golden_canon(f, values) == g->n_nan && golden_hash(f, 4 * values) == g->f32_hash;
}

/* SPDX-License-Identifier: MIT */
/* quant: every kernel set gives the same results as the generic one, and accesses nothing outside
 * its blocks. */
#include "cu_test.h"

#include <math.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/bytes.h"
#include "golden.h"
#include "quant/set.h"
#include "quant/quant.h"
#include "quant/types.h"

/* As quant_set_at(), which executes a slow instruction each time. */
static const struct quant_set *set_at(size_t i)
{
    static const struct quant_set *set[8];
    static size_t n;
    while (n == 0 || (n < COUNT(set) && set[n - 1])) {
        set[n] = quant_set_at(n);
        n++;
    }
    return i < n ? set[i] : NULL;
}

enum { MOST_BLOCKS = 4096 };

/* The blocks, and the output of two sets. */
static uint8_t raw[MOST_BLOCKS * QUANT_MAX_BLOCK_BYTES];
static float want[MOST_BLOCKS * QUANT_MAX_BLOCK_LEN], got[MOST_BLOCKS * QUANT_MAX_BLOCK_LEN];

/* Returns true if every set decodes the first n blocks of `raw` like the generic one; all NaNs
 * count as equal. */
static bool sets_agree(uint32_t id, size_t n)
{
    const struct quant_type *t = &set_at(0)->types[id];
    const size_t values = n * t->block_len;
    t->decode(raw, n, want);
    (void)golden_canon(want, values);
    for (size_t i = 1; set_at(i); i++) {
        got[values] = 7;
        set_at(i)->types[id].decode(raw, n, got);
        if (got[values] != 7)
            return false;
        (void)golden_canon(got, values);
        if (memcmp(want, got, values * sizeof(float)) != 0)
            return false;
    }
    return true;
}

static bool encoders_agree_with(uint32_t id, size_t n, const float *weight)
{
    const struct quant_type *t = &set_at(0)->types[id];
    const size_t size = n * t->block_bytes;
    static uint8_t other[sizeof(raw) + 1];
    const size_t done = t->encode(want, weight, n, raw);
    for (size_t i = 1; set_at(i); i++) {
        other[size] = 0xa5;
        if (set_at(i)->types[id].encode(want, weight, n, other) != done || other[size] != 0xa5)
            return false;
        if (memcmp(raw, other, done * t->block_bytes) != 0)
            return false;
    }
    return true;
}

/* Returns true if every set encodes the first n blocks of `want` like the generic one, with and
 * without importances. */
static bool encoders_agree(uint32_t id, size_t n)
{
    static float weight[COUNT(want)];
    const size_t values = n * quant_find(id)->block_len;
    if (!encoders_agree_with(id, n, NULL))
        return false;
    if (quant_find(id)->weighs == QUANT_IGNORES)
        return true;
    golden_values(weight, values, id, WIDE, id + n);
    for (size_t i = 0; i < values; i++)
        weight[i] = i % 17 ? fabsf(weight[i]) : 0;
    return encoders_agree_with(id, n, weight);
}

TEST("random blocks decode alike, however many there are")
{
    for (uint32_t id = 0; id < QUANT_N_TYPES; id++) {
        const struct quant_type *t = quant_find(id);
        if (!t->decode)
            continue;
        for (size_t n = 0; n < 20; n++) {
            golden_bytes(raw, n * t->block_bytes, id * 100 + n);
            CU_ASSERT_TRUE(sets_agree(id, n));
        }
        golden_bytes(raw, 3000u * t->block_bytes, id);
        CU_ASSERT_TRUE(sets_agree(id, 3000));
    }
}

/* Kernel sets agree on random bits, on values between 2^-64 and 2^63 that are similar within each
 * block, and on such blocks with a few values that can only just be stored, or not at all. */
TEST("any values are encoded or refused alike")
{
    static const uint32_t odd[] = {0x7f800000, 0xffc00000, 0x7f7fffff, 0xff7fffff, 0x80000000,
                                   0x00000001, 0x477fefff, 0x477ff000, 0x4affefff, 0xc8fff000};
    for (uint32_t id = 0; id < QUANT_N_TYPES; id++)
        for (uint64_t round = 0; quant_find(id)->encode && round < 96; round++) {
            const size_t len = quant_find(id)->block_len, n = 1 + round % 12;
            uint64_t state = id * 1000 + round;
            golden_bytes((uint8_t *)want, n * len * sizeof(float), state);
            for (size_t i = 0; i < n * len && round % 3; i++) {
                uint32_t bits = get_u32(want + i, HOST_BIG);
                bits = (bits & 0x83ffffff) | (uint32_t)(round / 3 % 32) << 26;
                if (round % 3 == 2 && golden_word(&state) % (2 * len) == 0)
                    bits = odd[golden_word(&state) % (COUNT(odd))];
                put_u32(want + i, bits, HOST_BIG);
            }
            CU_ASSERT_TRUE(encoders_agree(id, n));
        }
}

/* Kernel sets agree on every binary16, and on float32s around every binary16 and bfloat16. */
TEST("all 16-bit floats are converted alike")
{
    static uint16_t h[2][1 << 18];
    static float f[1 << 18];
    for (size_t i = 0; i < 1 << 16; i++)
        put_u16(raw + 2 * i, (uint16_t)i, false);
    CU_ASSERT_TRUE(sets_agree(1, 1 << 16));
    CU_ASSERT_TRUE(sets_agree(30, 1 << 16));
    golden_bytes((uint8_t *)f, sizeof(f), 5);
    for (size_t i = 0; i < 1 << 18; i += 2) /* every other value is a tie or next to one */
        put_u32(f + i, (uint32_t)i << 14 | 0x1000 | (uint32_t)(i >> 1 & 3) << 11, HOST_BIG);
    for (size_t s = 1; set_at(s); s++)
        for (size_t n = 1 << 18; n > (1 << 18) - 9; n--) {
            set_at(0)->f32_to_f16(f, n, h[0]);
            set_at(s)->f32_to_f16(f, n, h[1]);
            CU_ASSERT_EQUAL(memcmp(h[0], h[1], 2 * n), 0);
            set_at(0)->f32_to_bf16(f, n, h[0]);
            set_at(s)->f32_to_bf16(f, n, h[1]);
            CU_ASSERT_EQUAL(memcmp(h[0], h[1], 2 * n), 0);
        }
}

/* Memory between two inaccessible pages. */
struct guarded {
    uint8_t *map, *first, *end; /* usable range: [first, end) */
    size_t size;
};

static struct guarded guarded_new(size_t usable)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), inside = (usable + page - 1) / page * page;
    struct guarded g = {.size = inside + 2 * page};
    g.map = mmap(NULL, g.size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CU_ASSERT_TRUE_FATAL(g.map != MAP_FAILED);
    g.first = g.map + page;
    g.end = g.first + inside;
    CU_ASSERT_EQUAL_FATAL(mprotect(g.first, inside, PROT_READ | PROT_WRITE), 0);
    return g;
}

static void guarded_free(struct guarded *g)
{
    (void)munmap(g->map, g->size);
}

/* Run decoders on blocks and floats that end just before an inaccessible page or begin just after
 * one. */
TEST("nothing outside the blocks is read, and nothing outside the floats is written")
{
    CLEANUP(guarded_free) struct guarded in = guarded_new(1 << 16), out = guarded_new(1 << 18);
    for (size_t s = 0; set_at(s); s++)
        for (uint32_t id = 0; id < QUANT_N_TYPES; id++) {
            const struct quant_type *t = &set_at(s)->types[id];
            for (size_t n = 1; t->decode && n <= 40; n++) {
                const size_t bytes = n * t->block_bytes, values = n * t->block_len;
                golden_bytes(in.end - bytes, bytes, n);
                t->decode(in.end - bytes, n, (float *)(void *)out.end - values);
                golden_bytes(in.first, bytes, n);
                t->decode(in.first, n, (float *)(void *)out.first);
                (void)golden_canon((float *)(void *)out.first, values);
                (void)golden_canon((float *)(void *)out.end - values, values);
                CU_ASSERT_EQUAL(memcmp(out.first, out.end - 4 * values, 4 * values), 0);
            }
        }
}

/* Reading a range accesses no block outside it; all such blocks are in inaccessible pages. */
TEST("a read accesses only the blocks of its range")
{
    CLEANUP(guarded_free) struct guarded in = guarded_new(1 << 16);
    for (size_t s = 0; set_at(s); s++) {
        quant_use(set_at(s));
        for (uint32_t id = 0; id < QUANT_N_TYPES; id++) {
            const struct quant_type *t = quant_find(id);
            if (!t->decode)
                continue;
            const size_t per_block = 4u * t->block_len;
            uint8_t *out = (uint8_t *)got, *data = in.end - 3u * t->block_bytes;
            golden_bytes(data, 3u * t->block_bytes, id);
            quant_read(&quant_f32, t, false, data, 0, 3 * per_block, want);
            quant_read(&quant_f32, t, false, data, per_block - 1, 2 * per_block + 1, out);
            CU_ASSERT_EQUAL(memcmp(out, (uint8_t *)want + per_block - 1, 2 * per_block + 1), 0);
            /* the tensor begins one block before the usable bytes */
            data = in.first - t->block_bytes;
            golden_bytes(in.first, t->block_bytes, id);
            quant_read(&quant_f32, t, false, data, per_block, per_block, out);
            quant_read(&quant_f32, t, false, data, per_block + 1, per_block - 2, out + per_block);
            CU_ASSERT_EQUAL(memcmp(out + 1, out + per_block, per_block - 2), 0);
            CU_ASSERT_EQUAL(memcmp(out, want, per_block), 0);
            const size_t half = per_block / 2;
            quant_read(&quant_f16, t, false, data, half, half, out);
            quant_read(&quant_f16, t, false, data, half + 1, half - 1, out + half);
            CU_ASSERT_EQUAL(memcmp(out + 1, out + half, half - 1), 0);
        }
    }
}

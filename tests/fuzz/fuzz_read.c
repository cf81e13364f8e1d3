/* SPDX-License-Identifier: MIT */
/*
 * Treats arbitrary bytes as a tensor: the first bytes choose its type, byte order and length, and
 * the ranges to read; the rest is its data. Reading any range of the values must return the same
 * bytes as reading all values at once. Bytes outside the blocks that quant_extent() returns must
 * not be read.
 */
#include "fuzz.h"

#include <string.h>

#include "base/bytes.h"
#include "quant/quant.h"

enum { RANGES = 6, HEAD = 3 + 4 * RANGES, LARGEST = 1 << 16 }; /* LARGEST: in bytes of values */

typedef void read_fn(const struct quant_type *t, bool big, const uint8_t *data, uint64_t off,
                     size_t n, void *dst);

struct form {
    unsigned width;
    read_fn *read;
};

static const struct form forms[] = {{4, quant_read_f32}, {2, quant_read_f16}, {2, quant_read_bf16}};

struct stored {
    const struct quant_type *type;
    bool big;
    const uint8_t *data;
    size_t blocks;
};

/*
 * Read the range from a copy of only its blocks, so that a sanitizer detects reads outside them.
 * The copy is read as a tensor that begins with these blocks.
 */
static void read_extent(const struct stored *s, const struct form *f, uint64_t off, size_t n,
                        uint8_t *dst)
{
    uint64_t first, last;
    quant_extent(s->type, f->width, off, n, &first, &last);
    FUZZ_CHECK(first <= last && last <= s->blocks * s->type->block_bytes);
    FUZZ_CHECK(first % s->type->block_bytes == 0);
    uint8_t *part = malloc((size_t)(last - first) + 1);
    FUZZ_CHECK(part);
    memcpy(part, s->data + first, (size_t)(last - first));
    uint64_t skipped = first / s->type->block_bytes * s->type->block_len * f->width;
    f->read(s->type, s->big, part, off - skipped, n, dst);
    free(part);
}

static void check_ranges(const struct stored *s, const struct form *f, const uint8_t *choice)
{
    size_t size = s->blocks * s->type->block_len * f->width;
    uint8_t *all = malloc(size + 1), *some = malloc(size + 2);
    FUZZ_CHECK(all && some);
    f->read(s->type, s->big, s->data, 0, size, all);
    for (int i = 0; i < RANGES; i++, choice += 4) {
        size_t off = get_u16(choice, false) % size;
        size_t n = get_u16(choice + 2, false) % (size - off + 1), odd = choice[1] & 1;
        memset(some, 0xa5, size + 2);
        read_extent(s, f, off, n, some + odd);
        FUZZ_CHECK(memcmp(some + odd, all + off, n) == 0);
        FUZZ_CHECK(some[odd + n] == 0xa5);
    }
    free(all);
    free(some);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < HEAD)
        return 0;
    const struct quant_type *type = quant_find(data[0] % 64);
    const bool big = data[1] & 1;
    if (!quant_has_values(type, big))
        return 0;
    quant_init();
    size_t blocks = (size - HEAD) / type->block_bytes;
    size_t most = LARGEST / 4 / type->block_len;
    struct stored s = {type, big, data + HEAD, blocks < most ? blocks : most};
    if (s.blocks > 0)
        check_ranges(&s, &forms[data[2] % 3], data + 3);
    return 0;
}

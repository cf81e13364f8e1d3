/* SPDX-License-Identifier: MIT */
/* check/check: NaN and infinity, in values and in scales, in every type that can have them. */
#include "cu_test.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/bytes.h"
#include "check/check.h"
#include "build_gguf.h"
#include "quant/types.h"

/* Damage to one block in the middle: `n` bytes at `at`. */
static const struct spoil {
    uint32_t id;
    uint8_t at, n, bytes[8];
    bool nan, inf, scale; /* expected findings; nan, inf: in any value */
} spoils[] = {
    {F32_ID, 0, 4, {0, 0, 0x80, 0x7f}, false, true, false},
    {F32_ID, 0, 4, {1, 0, 0x80, 0xff}, true, false, false},
    {F16_ID, 0, 2, {0, 0xfc}, false, true, false},
    {F16_ID, 0, 2, {0, 0x7e}, true, false, false},
    {BF16_ID, 0, 2, {0x80, 0x7f}, false, true, false},
    {BF16_ID, 0, 2, {0xc0, 0x7f}, true, false, false},
    {F64_ID, 0, 8, {0, 0, 0, 0, 0, 0, 0xf0, 0x7f}, false, true, false},
    {F64_ID, 0, 8, {1, 0, 0, 0, 0, 0, 0xf0, 0x7f}, true, false, false},
    {F64_ID, 0, 8, {0, 0, 0, 0, 0, 0, 0xe0, 0x7f}, false, false, false}, /* beyond float32 */
    {I32_ID, 0, 4, {0, 0, 0x80, 0x7f}, false, false, false},
    {Q4_0_ID, 0, 2, {0, 0x7e}, true, false, true},
    {Q4_1_ID, 2, 2, {0, 0x7e}, true, false, true},
    {Q5_0_ID, 0, 2, {0, 0x7e}, true, false, true},
    {Q5_1_ID, 2, 2, {0, 0x7e}, true, false, true},
    {Q8_0_ID, 0, 2, {0, 0x7e}, true, false, true},
    {Q8_1_ID, 0, 2, {0, 0x7e}, true, false, true},
    {Q8_1_ID, 2, 2, {0, 0x7c}, false, false, true}, /* the sum affects no value */
    {Q2_K_ID, 80, 2, {0, 0x7e}, true, false, true},
    {Q2_K_ID, 82, 2, {0, 0x7e}, true, false, true},
    {Q3_K_ID, 108, 2, {0, 0x7e}, true, false, true},
    {Q4_K_ID, 0, 2, {0, 0x7e}, true, false, true},
    {Q4_K_ID, 2, 2, {0, 0x7e}, true, false, true},
    {Q5_K_ID, 2, 2, {0, 0x7e}, true, false, true},
    {Q6_K_ID, 208, 2, {0, 0x7e}, true, false, true},
    {Q8_K_ID, 0, 4, {0, 0, 0xc0, 0x7f}, true, false, true},
    {IQ2_XXS_ID, 0, 2, {0, 0x7e}, true, false, true},
    {IQ2_XS_ID, 0, 2, {0, 0x7e}, true, false, true},
    {IQ2_S_ID, 0, 2, {0, 0x7e}, true, false, true},
    {IQ3_XXS_ID, 0, 2, {0, 0x7e}, true, false, true},
    {IQ3_S_ID, 0, 2, {0, 0x7e}, true, false, true},
    {IQ1_S_ID, 0, 2, {0, 0x7e}, true, false, true},
    {IQ1_M_ID, 48, 8, {0, 0, 0, 0, 0, 0xe0, 0, 0x70}, true, false, true},
    {IQ4_NL_ID, 0, 2, {0, 0x7e}, true, false, true},
    {IQ4_XS_ID, 0, 2, {0, 0x7e}, true, false, true},
    {TQ1_0_ID, 52, 2, {0, 0x7e}, true, false, true},
    {TQ2_0_ID, 64, 2, {0, 0x7e}, true, false, true},
    {MXFP4_ID, 0, 1, {0xff}, false, false, true},
    {NVFP4_ID, 3, 1, {0x7f}, false, false, true},
    {Q1_0_ID, 0, 2, {0, 0x7e}, true, false, true},
    {Q2_0_ID, 0, 2, {0, 0x7e}, true, false, true},
};

enum { BLOCKS = 301, SPOILT = 217 };

/* Return the findings in the first tensor; the second one must have none. */
static struct scan_result scan_one(struct parsed *p)
{
    struct scan_result found[2] = {{0}};
    const struct source src = source_mem(p->image, p->size);
    CU_ASSERT_EQUAL(scan_run(p->g, &src, NULL, found), 0);
    CU_ASSERT_FALSE(found[1].nan || found[1].inf || found[1].scales || found[1].unread);
    return found[0];
}

static struct scan_result scan_blocks(uint32_t id, const uint8_t *bytes, bool big)
{
    const struct quant_type *t = quant_find(id);
    struct build b = build_of(3, big);
    build_tensor(&b, "t", id, (uint64_t[]){t->block_len, BLOCKS}, 2, bytes,
                 (size_t)BLOCKS * t->block_bytes);
    build_tensor(&b, "u", I8_ID, (uint64_t[]){3}, 1, "abc", 3);
    struct parsed p = parse_build(&b, 0);
    struct scan_result r = scan_one(&p);
    parsed_free(&p);
    return r;
}

TEST("bad values and scales of each type are counted")
{
    for (size_t i = 0; i < COUNT(spoils); i++) {
        const struct spoil *s = &spoils[i];
        const struct quant_type *t = quant_find(s->id);
        CLEANUP(free_it) uint8_t *bytes = calloc(BLOCKS, t->block_bytes);
        CU_ASSERT_PTR_NOT_NULL_FATAL(bytes);
        struct scan_result r = scan_blocks(s->id, bytes, false);
        CU_ASSERT_FALSE(r.nan || r.inf || r.scales || r.unread);
        memcpy(bytes + SPOILT * t->block_bytes + s->at, s->bytes, s->n);
        r = scan_blocks(s->id, bytes, false);
        CU_ASSERT_EQUAL(r.nan > 0, s->nan);
        CU_ASSERT_EQUAL(r.inf > 0, s->inf);
        CU_ASSERT_EQUAL(r.scales, s->scale);
        CU_ASSERT_TRUE(r.nan + r.inf <= t->block_len);
        if (s->nan || s->inf || s->scale)
            CU_ASSERT_EQUAL(r.first / t->block_len, SPOILT);
    }
}

/* The table above contains every type with scales. */
TEST("every type with scales is tested")
{
    for (uint32_t id = 0; quant_find(id); id++) {
        size_t k = 0;
        while (k < COUNT(spoils) && spoils[k].id != id)
            k++;
        CU_ASSERT_TRUE(spoils[k % (COUNT(spoils))].id == id || quant_find(id)->block_len <= 1);
    }
}

/* A big-endian file, and one with a type that has no values in such files. */
TEST("big-endian files are scanned")
{
    CLEANUP(free_it) uint8_t *bytes = calloc(BLOCKS, 34);
    put_u16(bytes + 5 * 34, 0x7e00, true);
    struct scan_result r = scan_blocks(Q8_0_ID, bytes, true);
    CU_ASSERT_EQUAL(r.nan, 32);
    CU_ASSERT_EQUAL(r.scales, 1);
    CU_ASSERT_EQUAL(r.first, 5 * 32);
    r = scan_blocks(Q5_0_ID, bytes, true);
    CU_ASSERT_TRUE(r.unread);
}

/* Several pieces each have a finding. The one that comes first in the tensor is reported. */
TEST("the first finding of several pieces is reported")
{
    enum { N = 3000000 };
    CLEANUP(free_it) uint8_t *bytes = calloc(N, 4);
    CU_ASSERT_PTR_NOT_NULL_FATAL(bytes);
    for (size_t i = 123457; i < N; i += 1000000)
        put_u32(bytes + 4 * i, 0x7f800000 + (uint32_t)(i & 2), false);
    struct build b = build_of(3, false);
    build_tensor(&b, "t", F32_ID, (uint64_t[]){N}, 1, bytes, 4 * (size_t)N);
    CLEANUP(parsed_free) struct parsed p = parse_build(&b, 0);
    struct scan_result r = scan_one(&p);
    CU_ASSERT_EQUAL(r.inf, 3);
    CU_ASSERT_EQUAL(r.first, 123457);
}

TEST("data is truncated during a scan")
{
    struct source src;
    struct scan_result found[1] = {{0}};
    struct build b = build_of(3, false);
    build_tensor(&b, "t", F32_ID, (uint64_t[]){5000}, 1, NULL, 20000);
    CLEANUP(parsed_free) struct parsed p = parse_build(&b, 0);
    int fd = memfd_create("model", MFD_CLOEXEC);
    CU_ASSERT_EQUAL_FATAL(write(fd, p.image, p.size), (ssize_t)p.size);
    CU_ASSERT_EQUAL_FATAL(source_fd(fd, &src, NULL), 0);
    CU_ASSERT_EQUAL_FATAL(ftruncate(fd, 100), 0);
    CU_ASSERT_EQUAL(scan_run(p.g, &src, NULL, found), -EIO);
    (void)close(fd);
}

/* Missing data is not read. */
TEST("missing data is not read")
{
    struct build b = build_of(3, false);
    build_tensor(&b, "t", F32_ID, (uint64_t[]){1000}, 1, NULL, 4000);
    CLEANUP(parsed_free) struct parsed p = parse_build(&b, 0);
    p.size -= 100;
    CU_ASSERT_TRUE(scan_one(&p).unread);
}

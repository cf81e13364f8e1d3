/* SPDX-License-Identifier: MIT */
/* gguf/gguf: the position of tensor data in valid files. test_malformed.c tests refused files. */
#include "cu_main.h"

#include <stdlib.h>

#include "parsed.h"

enum { F32 = 0, I8 = 24 };

static void two(struct build *b, uint64_t first, uint64_t second)
{
    build_tensor_at(b, "a", F32, (uint64_t[]){3}, 1, first, NULL, 12);
    build_tensor_at(b, "b", F32, (uint64_t[]){8}, 1, second, NULL, 32);
}

static void odd_is(struct build *b, unsigned odd, uint64_t first, uint64_t end)
{
    struct parsed p = parse_build(b, 0);
    CU_ASSERT_EQUAL(p.g->anomalies, odd);
    CU_ASSERT_EQUAL(p.g->tensor[0].off, p.g->data_off + first);
    CU_ASSERT_EQUAL(p.g->data_end, p.g->data_off + end);
    CU_ASSERT_NOT_EQUAL(p.image[p.g->tensor[0].off], 0);
    parsed_free(&p);
}

static void test_odd(void)
{
    struct build b;
    build_init(&b, 3, false);
    two(&b, 0, 32);
    odd_is(&b, 0, 0, 64);
    build_init(&b, 3, false);
    two(&b, 0, 96);
    odd_is(&b, GGUF_ANOMALY_GAPS, 0, 128);
    build_init(&b, 3, false);
    two(&b, 32, 64);
    odd_is(&b, GGUF_ANOMALY_GAPS, 32, 96);
    build_init(&b, 3, false);
    two(&b, 32, 0);
    odd_is(&b, GGUF_ANOMALY_ORDER, 32, 44);
    build_init(&b, 3, false);
    two(&b, 32, 0);
    b.no_tail = true;
    odd_is(&b, GGUF_ANOMALY_ORDER | GGUF_ANOMALY_NO_TAIL, 32, 44);
    build_init(&b, 3, false);
    two(&b, 0, 32);
    buf_zero(&b.data, 1); /* padded to 32 bytes */
    odd_is(&b, GGUF_ANOMALY_TRAILING, 0, 64);
}

/* A tensor without elements may share the offset of another tensor, and does not affect the
 * order. */
static void test_zero_shares(void)
{
    struct build b;
    build_init(&b, 3, false);
    build_tensor_at(&b, "zero", F32, (uint64_t[]){0}, 1, 0, NULL, 0);
    build_tensor_at(&b, "a", F32, (uint64_t[]){3}, 1, 0, NULL, 12);
    build_tensor_at(&b, "b", F32, (uint64_t[]){3}, 1, 32, NULL, 12);
    struct parsed p = parse_build(&b, 0);
    CU_ASSERT_EQUAL(p.g->anomalies, 0);
    parsed_free(&p);
}

static void test_alignments(void)
{
    for (uint32_t align = 1; align <= 1 << 16; align *= 2) {
        struct build b;
        build_init(&b, 3, align & 0x5555);
        b.alignment = align;
        build_u32(&b, "general.alignment", align);
        build_tensor(&b, "a", I8, (uint64_t[]){3}, 1, NULL, 3);
        build_tensor(&b, "b", I8, (uint64_t[]){3}, 1, NULL, 3);
        struct parsed p = parse_build(&b, 0);
        CU_ASSERT_EQUAL(p.g->alignment, align);
        CU_ASSERT_EQUAL(p.g->data_off % align, 0);
        CU_ASSERT_TRUE(p.g->data_off - p.g->head_len < align);
        CU_ASSERT_EQUAL(p.g->tensor[1].off - p.g->tensor[0].off,
                        align < 4 ? 4 - (align == 1) : align);
        CU_ASSERT_EQUAL(p.g->anomalies, 0);
        parsed_free(&p);
    }
}

/* A file that is truncated anywhere after its header is still shown, and is reported as
 * incomplete. */
static void test_partial(void)
{
    struct build b;
    build_init(&b, 3, false);
    two(&b, 0, 32);
    size_t n;
    uint8_t *image = build_finish(&b, &n);
    struct source s = source_mem(image, n);
    struct gguf *g = NULL;
    CU_ASSERT_EQUAL_FATAL(gguf_parse(&s, GGUF_PARTIAL, &g, NULL), 0);
    CU_ASSERT_EQUAL(g->anomalies, 0);
    uint64_t head = g->head_len;
    gguf_free(g);
    for (uint64_t cut = head; cut < n; cut++) {
        s = source_mem(image, (size_t)cut);
        CU_ASSERT_EQUAL_FATAL(gguf_parse(&s, GGUF_PARTIAL, &g, NULL), 0);
        CU_ASSERT_TRUE(g->anomalies & GGUF_ANOMALY_PARTIAL);
        CU_ASSERT_EQUAL(g->tensor[1].nbytes, 32);
        CU_ASSERT_EQUAL(g->data_end, n);
        gguf_free(g);
    }
    free(image);
}

static CU_TestInfo tests[] = {
    {"gaps, order, a missing tail and trailing bytes are noted", test_odd},
    {"tensors without elements may share an offset", test_zero_shares},
    {"alignments from 1 to 65536 are accepted", test_alignments},
    {"an incomplete download is shown on request", test_partial},
    CU_TEST_INFO_NULL,
};

CU_MAIN("layout", tests)

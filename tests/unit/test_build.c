/* SPDX-License-Identifier: MIT */
/* tests/lib/build_gguf: the parser reads the built images back, in every layout. */
#include "cu_main.h"

#include <stdlib.h>
#include <string.h>

#include "build_gguf.h"
#include "gguf/gguf.h"

/* These tests check layouts only, so they ignore unknown types. */
#define ANY_TYPE (unsigned)GGUF_ANOMALY_UNKNOWN

static struct gguf *parse(struct build *b, uint8_t **image)
{
    size_t n;
    *image = build_finish(b, &n);
    struct source s = source_mem(*image, n);
    struct gguf *g = NULL;
    struct err e = {0};
    if (gguf_parse(&s, 0, &g, &e) < 0) {
        CU_FAIL("parse");
        (void)puts(e.msg);
    }
    return g;
}

static void check(struct build *b)
{
    bool nul = b->fmt.nul, draft = b->fmt.draft;
    build_str(b, "general.architecture", "test");
    build_num(b, "a.u16", GGUF_U16, 0x1234);
    build_array(b, "a.list", GGUF_STRING, 2);
    build_item_str(b, "one");
    build_item_str(b, "");
    build_tensor(b, "first", 0, (uint64_t[]){3}, 1, NULL, 12);
    build_f32(b, "a.f", 0.5f);
    build_tensor(b, "second", 0, (uint64_t[]){8, 2}, 2, NULL, 64);
    uint8_t *image;
    struct gguf *g = parse(b, &image);
    CU_ASSERT_PTR_NOT_NULL_FATAL(g);
    CU_ASSERT_EQUAL(g->fmt.nul, nul);
    CU_ASSERT_EQUAL(g->fmt.draft, draft);
    CU_ASSERT_EQUAL(g->n_kv, 4);
    CU_ASSERT_EQUAL_FATAL(g->n_tensors, 2);
    CU_ASSERT_EQUAL(g->anomalies & ~ANY_TYPE, 0);
    uint32_t i = gguf_find_key(g, "a.u16", 5);
    CU_ASSERT_EQUAL_FATAL(i, 1);
    struct gguf_value v = gguf_value(g, &g->kv[i]);
    CU_ASSERT_EQUAL(gguf_uint(&v), 0x1234);
    CU_ASSERT_EQUAL(gguf_find_key(g, "a.f", 3), 3);
    CU_ASSERT_EQUAL(g->tensor[0].off, g->data_off);
    CU_ASSERT_EQUAL(g->tensor[1].nbytes, 64);
    CU_ASSERT_NOT_EQUAL(image[g->tensor[1].off], 0);
    gguf_free(g);
    free(image);
}

static void test_layouts(void)
{
    for (uint8_t version = 1; version <= 3; version++)
        for (int kind = 0; kind < 4; kind++) {
            struct build b;
            bool big = kind & 1, nul = kind & 2;
            if ((version == 1 && big) || (version == 3 && nul))
                continue;
            build_init(&b, version, big);
            b.fmt.nul = nul;
            check(&b);
        }
    struct build b;
    build_init_draft(&b);
    check(&b);
}

static void test_odd(void)
{
    struct build b;
    build_init(&b, 3, false);
    b.pad_byte = 0xee;
    b.no_tail = true;
    build_tensor_at(&b, "late", 0, (uint64_t[]){3}, 1, 64, NULL, 12);
    build_tensor_at(&b, "early", 0, (uint64_t[]){3}, 1, 0, NULL, 12);
    uint8_t *image;
    struct gguf *g = parse(&b, &image);
    CU_ASSERT_PTR_NOT_NULL_FATAL(g);
    CU_ASSERT_EQUAL(g->anomalies & ~ANY_TYPE, GGUF_ANOMALY_ORDER | GGUF_ANOMALY_NO_TAIL);
    CU_ASSERT_EQUAL(image[g->data_off + 12], 0xee);
    gguf_free(g);
    free(image);
}

static CU_TestInfo tests[] = {
    {"every version, byte order and early layout can be parsed", test_layouts},
    {"an irregular layout is built as requested", test_odd},
    CU_TEST_INFO_NULL,
};

CU_MAIN("build", tests)

/* SPDX-License-Identifier: MIT */
/* model/: single values by key, parameter counts and their labels, and the mix of types; both formats
 * of importance matrices; headers of NumPy; sizes of shapes, logs, and tensor contents made of pieces,
 * holes. */
#include "cu_test.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/bytes.h"
#include "build_gguf.h"
#include "changes.h"
#include "model/facts.h"
#include "model/imatrix.h"
#include "model/npy.h"
#include "model/store.h"
#include "quant/f16.h"
#include "quant/types.h"
#include "soak.h"

enum { F32 = 0, Q4_0 = 2, Q4_2 = 4, Q8_0 = 8, F64 = 28 };

#define SHAPE(...) (uint64_t[]){__VA_ARGS__}, (uint32_t)(sizeof(uint64_t[]){__VA_ARGS__} / 8)

/* Make a model of an architecture, with a key that holds two numbers and optionally with tokens. */
static struct parsed with_arch(const char *arch, const char *key, bool tokens)
{
    struct build b = build_of(3, false);
    if (arch)
        build_str(&b, "general.architecture", arch);
    build_u32(&b, key, 7);
    if (tokens)
        build_text(&b, "tokenizer.ggml.tokens:array=string[t,t,t]");
    return parse_build(&b, 0);
}

TEST("keys of the architecture and the size of the vocabulary are found")
{
    uint64_t v = 0;
    struct parsed p = with_arch("llama", "llama.vocab_size", false);
    CU_ASSERT_EQUAL(fact_arch_key(p.g, "vocab_size"), 1);
    CU_ASSERT_EQUAL(fact_arch_key(p.g, "block_count"), UINT32_MAX);
    CU_ASSERT_TRUE(fact_arch_uint(p.g, "vocab_size", &v) && v == 7);
    CU_ASSERT_FALSE(fact_arch_uint(p.g, "block_count", &v));
    CU_ASSERT_TRUE(fact_vocabulary(p.g, &v) && v == 7);
    parsed_free(&p);
    p = with_arch("llama", "llama.vocab_size", true);
    CU_ASSERT_TRUE(fact_vocabulary(p.g, &v) && v == 3);
    parsed_free(&p);
    p = with_arch(NULL, "llama.vocab_size", false);
    CU_ASSERT_EQUAL(fact_arch_key(p.g, "vocab_size"), UINT32_MAX);
    CU_ASSERT_FALSE(fact_vocabulary(p.g, &v));
    parsed_free(&p);
    p = with_arch("llama", "tokenizer.ggml.tokens", false); /* not an array */
    CU_ASSERT_FALSE(fact_vocabulary(p.g, &v));
    parsed_free(&p);
}

/* Count the parameters of a model with tensors of 10 and 60 elements. The larger one has the name
 * `expert`, which decides whether it counts as a tensor of experts. */
static struct params params_of(const char *expert, bool arch, uint32_t experts)
{
    struct build b = build_of(3, false);
    if (arch)
        build_str(&b, "general.architecture", "llama");
    if (experts)
        build_u32(&b, "llama.expert_count", experts);
    build_tensor(&b, "output.weight", F32, SHAPE(10), NULL, 40);
    build_tensor(&b, expert, F32, SHAPE(6, 5, 2), NULL, 240);
    CLEANUP(gguf_drop) struct gguf *g = gguf_of(&b);
    return fact_params(g);
}

TEST("parameters are counted in all experts and in one")
{
    struct params n = params_of("blk.0.ffn_up_exps.weight", true, 4);
    CU_ASSERT_TRUE(n.total == 70 && n.one == 25 && n.experts == 4);
    n = params_of("blk.0.ffn_up.weight", true, 4); /* not a tensor of experts */
    CU_ASSERT_TRUE(n.total == 70 && n.one == 70 && n.experts == 0);
    n = params_of("blk.0.ffn_up_exps.weight", true, 0);
    CU_ASSERT_TRUE(n.total == 70 && n.one == 70 && n.experts == 0);
    n = params_of("blk.0.ffn_up_exps.weight", false, 4);
    CU_ASSERT_TRUE(n.total == 70 && n.one == 70 && n.experts == 0);
}

TEST("counts of parameters are rounded to labels")
{
    static const struct {
        uint64_t n;
        const char *label;
    } rows[] = {
        {0, "0K"},
        {1, "0K"},
        {10, "0.01K"},
        {994, "0.99K"},
        {995, "1K"},
        {1000, "1K"},
        {1049, "1K"},
        {1051, "1.1K"},
        {9949, "9.9K"},
        {9951, "10K"},
        {999499, "999K"},
        {999500, "1M"},
        {7241732096, "7.2B"},
        {1000000000000, "1T"},
        {999499999999999, "999T"},
        {1000000000000000, "1Q"},
        {UINT64_MAX, "18447Q"},
    };
    char label[SIZE_LABEL_MAX];
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        fact_count_label(rows[i].n, label);
        CU_ASSERT_STRING_EQUAL(label, rows[i].label);
    }
    fact_size_label(&(struct params){.total = 46000000000, .one = 7200000000, .experts = 8}, label);
    CU_ASSERT_STRING_EQUAL(label, "8x7.2B");
    fact_size_label(&(struct params){.total = 7200000000, .one = 7200000000}, label);
    CU_ASSERT_STRING_EQUAL(label, "7.2B");
}

TEST("general.file_type has its names")
{
    static const char *const name[] = {
        "F32",   "F16",     "Q4_0",   "Q4_1",   NULL,     NULL,      NULL,     "Q8_0",   "Q5_0",
        "Q5_1",  "Q2_K",    "Q3_K_S", "Q3_K_M", "Q3_K_L", "Q4_K_S",  "Q4_K_M", "Q5_K_S", "Q5_K_M",
        "Q6_K",  "IQ2_XXS", "IQ2_XS", "Q2_K_S", "IQ3_XS", "IQ3_XXS", "IQ1_S",  "IQ4_NL", "IQ3_S",
        "IQ3_M", "IQ2_S",   "IQ2_M",  "IQ4_XS", "IQ1_M",  "BF16",    NULL,     NULL,     NULL,
        "TQ1_0", "TQ2_0",   "MXFP4",  "NVFP4",  "Q1_0",   "Q2_0",    NULL,
    };
    for (uint32_t i = 0; i < sizeof(name) / sizeof(name[0]); i++) {
        struct build b = build_of(3, false);
        build_u32(&b, "general.file_type", i);
        CLEANUP(parsed_free) struct parsed p = parse_build(&b, 0);
        const char *got = fact_file_type(p.g);
        CU_ASSERT_TRUE(name[i] ? got && strcmp(got, name[i]) == 0 : !got);
    }
    CLEANUP(parsed_free) struct parsed p = with_arch("llama", "llama.file_type", false);
    CU_ASSERT_PTR_NULL(fact_file_type(p.g));
}

/* Parse a file. Returns NULL if it is refused; the message must then contain `why`. */
static struct imatrix *parse(const void *bytes, size_t n, const char *why)
{
    const struct source s = source_mem(bytes, n);
    struct imatrix *m = NULL;
    struct err e = {0};
    const int r = imatrix_parse(&s, "it", &m, &e);
    CU_ASSERT_EQUAL(r == 0, why == NULL);
    CU_ASSERT_TRUE(r == 0 || (r == e.code && (r == -EBADMSG || r == -ENODATA)));
    CU_SAYS(!why || strstr(e.msg, why), "want '%s', is '%s'", why, e.msg);
    return m;
}

static void add(struct build *b, const char *name, uint64_t n, const float *v)
{
    CLEANUP(buf_free) struct buf bytes = BUF_INIT;
    for (uint64_t i = 0; i < n; i++)
        buf_uint(&bytes, f32_bits(v[i]), 4, b->fmt.big);
    build_tensor(b, name, 0, &n, 1, bytes.data, bytes.len);
}

static struct imatrix *finish(struct build *b, const char *why)
{
    size_t n;
    uint8_t *image = build_finish(b, &n);
    struct imatrix *m = parse(image, n, why);
    if (!why) /* no truncated file is accepted */
        for (size_t i = 0; i < n - 31; i++) {
            const struct source s = source_mem(image, i);
            struct imatrix *part = NULL;
            CU_ASSERT_TRUE(imatrix_parse(&s, "it", &part, NULL) < 0);
        }
    free(image);
    return m;
}

static void has(const struct imatrix *m, const char *name, uint64_t n, const float *v)
{
    const struct imatrix_row *r = imatrix_find(m, name, strlen(name));
    CU_ASSERT_PTR_NOT_NULL_FATAL(r);
    CU_ASSERT_EQUAL_FATAL(r->n, n);
    CU_ASSERT_EQUAL(memcmp(r->of, v, n * sizeof(float)), 0);
}

TEST("GGUF files of either byte order are read")
{
    static const float sums[] = {8, 0, 2, 4, 6, 8}, one = 2, three[] = {2, 0, 4};
    for (unsigned big = 0; big < 2; big++) {
        struct build b = build_of(3, big);
        build_text(&b, "general.type=imatrix|imatrix.chunk_count:u32=7");
        add(&b, "a.counts", 1, &one);
        add(&b, "a.in_sum2", 6, sums);
        add(&b, "e.in_sum2", 6, sums);
        add(&b, "e.counts", 3, three);
        add(&b, "other", 1, &one);
        struct imatrix *m = finish(&b, NULL);
        CU_ASSERT_PTR_NOT_NULL_FATAL(m);
        CU_ASSERT_EQUAL(m->n, 2);
        has(m, "a", 6, (const float[]){4, 0, 1, 2, 3, 4});
        has(m, "e", 6, (const float[]){4, 0, 1, 1, 1.5f, 2}); /* expert 1 saw no tokens */
        CU_ASSERT_PTR_NULL(imatrix_find(m, "other", 5));
        CU_ASSERT_PTR_NULL(imatrix_find(NULL, "a", 1));
        imatrix_free(m);
    }
}

TEST("bad GGUF files are refused")
{
    static const float ok[] = {1, 2, 3, 4}, bad[] = {NAN, INFINITY, -1, -INFINITY, 0x1p63f};
    static const struct {
        const char *tensors, *why;
    } rows[] = {
        {">a.in_sum2 F32 4", "'a.in_sum2': has no matching tensor '....counts'"},
        {">a.counts F32 4", "'a.counts': has no matching tensor '....in_sum2'"},
        {">a.in_sum2 F32 4|>a.counts F32 3", "4 sums and 3 counts"},
        {">a.in_sum2 F32 0|>a.counts F32 1", "0 sums and 1 counts"},
        {">a.in_sum2 F32 4|>a.counts F32 0", "4 sums and 0 counts"},
        {">a.in_sum2 F16 1|>a.counts F32 1", "not a pair of F32"},
        {">a.in_sum2 F32 4|>a.counts F16 1", "not a pair of F32"},
        {">a.in_sum2 F32 9223372036854775808 16", "a.in_sum2"},
        {">a.in_sum2 F32 4|>a.counts F32 1|>a.in_sum2 F32 4|>a.counts F32 1", "a.in_sum2"},
        {">a F32 4", "is not an importance matrix"},
    };
    struct build b;
    for (size_t i = 0; i < 5; i++) {
        const float sums[4] = {1, 2, 3, bad[i]};
        const bool fine = i == 4; /* 2^63 is as valid as any other count */
        b = build_of(3, false);
        add(&b, "a.in_sum2", 4, ok);
        add(&b, "a.counts", 1, &bad[i]);
        imatrix_free(finish(&b, fine ? NULL : "'a.in_sum2': count 0 is"));
        b = build_of(3, false);
        add(&b, "a.in_sum2", 4, sums);
        add(&b, "a.counts", 1, ok);
        imatrix_free(finish(&b, fine ? NULL : "'a.in_sum2': number 3 is"));
    }
    for (size_t i = 0; i < COUNT(rows); i++) {
        b = build_of(3, false);
        build_text(&b, rows[i].tensors);
        (void)finish(&b, rows[i].why);
    }
}

static void put_row(struct buf *b, const char *name, uint32_t calls, uint32_t n, const float *v)
{
    buf_uint(b, name ? strlen(name) : 65536, 4, false);
    buf_str(b, name ? name : "");
    buf_uint(b, calls, 4, false);
    buf_uint(b, n, 4, false);
    for (uint32_t i = 0; i < n && v; i++)
        buf_uint(b, f32_bits(v[i]), 4, false);
}

TEST("files in the older list format are read")
{
    static const float v[] = {2, 4, 6};
    CLEANUP(buf_free) struct buf b = BUF_INIT;
    buf_uint(&b, 2, 4, false);
    put_row(&b, "a", 2, 3, v);
    put_row(&b, "b", 0, 3, v);
    for (size_t i = 0; i < b.len; i++)
        imatrix_free(parse(b.data, i, i < 4 ? "too short" : "the file ends in"));
    struct imatrix *m = parse(b.data, b.len, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(m);
    has(m, "a", 3, (const float[]){1, 2, 3});
    has(m, "b", 3, v);
    imatrix_free(m);
    buf_uint(&b, 9, 4, false);
    m = parse(b.data, b.len, NULL);
    CU_ASSERT_TRUE(m && m->n == 2);
    imatrix_free(m);
}

TEST("bad lists are refused")
{
    static const float v[] = {2, NAN, 6}, ok[] = {1};
    static const struct {
        uint32_t entries;
        const char *name;
        uint32_t n;
        const float *v;
        const char *why;
    } rows[] = {
        {0, "a", 1, ok, "the number of tensors is 0"},
        {UINT32_MAX, "a", 1, ok, "the number of tensors is -1"},
        {1, "", 1, ok, "the length of a name is 0"},
        {1, "a", 0, ok, "a number of columns is 0"},
        {1, NULL, 0, NULL, "a name has 65536 bytes"},
        {1, "a", 0x7fffffff, NULL, "the file ends in importances"},
        {1, "a", 0x80000000, NULL, "a number of columns is -"},
        {1, "a\n", 3, v, "'a\\x0a': number 1 is nan"},
        {3, "a", 1, ok, "the file ends in"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        CLEANUP(buf_free) struct buf b = BUF_INIT;
        buf_uint(&b, rows[i].entries, 4, false);
        for (uint32_t k = 0; k < (rows[i].entries < 3 ? rows[i].entries : 1) || k < 1; k++)
            put_row(&b, rows[i].name, 1, rows[i].n, rows[i].v);
        (void)parse(b.data, b.len, rows[i].why);
    }
}

TEST("rows fit tensors whose dimensions match")
{
    float of[12] = {0};
    const struct imatrix_row row = {.of = of, .n = 12};
    static const struct {
        uint32_t n_dims;
        uint64_t dims[4];
        uint64_t matrix; /* 0: the shape is refused */
    } rows[] = {{1, {12}, 12},      {2, {12, 5}, 60}, {3, {4, 5, 3}, 20}, {4, {2, 1, 3, 2}, 2},
                {3, {12, 5, 2}, 0}, {2, {4, 3}, 0},   {0, {0}, 0},        {2, {0, 5}, 0}};
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct quant_importances imp = {0};
        struct err e = {0};
        const int r = imatrix_fit(&row, rows[i].n_dims, rows[i].dims, &imp, &e);
        CU_ASSERT_EQUAL(r, rows[i].matrix ? 0 : -EINVAL);
        CU_ASSERT_EQUAL(imp.matrix, rows[i].matrix);
        CU_ASSERT_TRUE(r || (imp.of == of && imp.columns == rows[i].dims[0] && imp.first == 0));
        CU_ASSERT_TRUE(r == 0 || strstr(e.msg, "has 12 columns"));
    }
}

/* Write a header of the given version with exactly this dict. */
static size_t header(uint8_t *dst, uint8_t version, const char *dict)
{
    size_t n = strlen(dict), fixed = version == 1 ? 10 : 12;
    memcpy(dst, "\x93NUMPY", 6);
    dst[6] = version;
    dst[7] = 0;
    if (version == 1)
        put_u16(dst + 8, (uint16_t)n, false);
    else
        put_u32(dst + 8, (uint32_t)n, false);
    memcpy(dst + fixed, dict, n);
    return fixed + n;
}

static int parse_npy(uint8_t version, const char *dict, struct npy *ret, struct err *e)
{
    /* The copy has exactly the header's size, so that a sanitizer detects reads beyond it. */
    uint8_t room[512], *exact;
    size_t n = header(room, version, dict);
    exact = malloc(n);
    memcpy(exact, room, n);
    *e = (struct err){0};
    int r = npy_parse(exact, n, ret, e);
    if (r == 0)
        CU_ASSERT_EQUAL(ret->header, n);
    for (size_t i = 1; i < n; i++) {
        /* Incomplete headers are not refused. */
        CLEANUP(free_it) uint8_t *part = malloc(i);
        memcpy(part, exact, i);
        CU_ASSERT_EQUAL(npy_parse(part, i, ret, NULL), NPY_MORE);
    }
    free(exact);
    return r;
}

TEST("valid headers are accepted")
{
    static const struct {
        uint8_t version;
        const char *dict;
        uint32_t width, n_dims;
        uint64_t dims[4];
    } rows[] = {
        {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }   \n", 4, 2, {3, 2}},
        {1, "{'descr': '<f2', 'fortran_order': False, 'shape': (7,), }\n", 2, 1, {7}},
        {2,
         "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2, 3, 4), }\n",
         4,
         4,
         {4, 3, 2, 1}},
        {3, "{'shape': (5L, 6L), 'fortran_order': False, 'descr': '<f4'}", 4, 2, {6, 5}},
        {1, "{\"descr\":\"<f4\",\"fortran_order\":False,\"shape\":()}", 4, 1, {1}},
        {1, " { 'descr' : '<f4' , 'fortran_order' : True , 'shape' : ( 9 , ) } \n", 4, 1, {9}},
        {1, "{'descr': '<f4', 'fortran_order': True, 'shape': (), }", 4, 1, {1}},
        {1, "{\r\n\t'descr':\t'<f4', 'fortran_order': False, 'shape': (4)}\r\n", 4, 1, {4}},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct npy npy = {0}, part;
        struct err e;
        uint8_t room[512];
        (void)part;
        CU_ASSERT_EQUAL(parse_npy(rows[i].version, rows[i].dict, &part, &e), 0);
        size_t n = header(room, rows[i].version, rows[i].dict);
        CU_ASSERT_EQUAL(npy_parse(room, n, &npy, &e), 0);
        CU_ASSERT_EQUAL(npy.width, rows[i].width);
        CU_ASSERT_EQUAL(npy.n_dims, rows[i].n_dims);
        CU_ASSERT_EQUAL(memcmp(npy.dims, rows[i].dims, npy.n_dims * 8), 0);
    }
}

TEST("unsupported headers are refused")
{
    static const struct {
        const char *dict, *line;
    } rows[] = {
        {"{'descr': '>f4', 'fortran_order': False, 'shape': (2, 3), }", "'>f4'"},
        {"{'descr': '|i1', 'fortran_order': False, 'shape': (2, 3), }", "'|i1'"},
        {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,), }", "fields"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1, 1, 1, 1), }", "4 dimensions"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 0), }", "dimension of 0"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296), }",
         "too many"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }", "tuple"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }", "tuple"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2;3), }", "tuple"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,", "no dict"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,}", "tuple"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': 2}", "missing"},
        {"{'descr': '<f4', 'fortran_order': False}", "missing"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,)} x", "no dict"},
        {"{'descr': '<f4', 'fortran_order': 0, 'shape': (2,)}", "missing"},
        {"{'descr: '<f4', 'fortran_order': False, 'shape': (2,)}", "missing"},
        {"{'descr': '<f4', 'fortran_order': F}", "missing"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (18446744073709551616,), }", "tuple"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2}", "tuple"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2L}", "tuple"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (18446744073709551615, 2), }",
         "too many"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1152921504606846977,), }", "too many"},
        {"[]", "no dict"},
        {"{", "no dict"},
        {"", "no dict"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct npy npy;
        struct err e;
        CU_ASSERT_EQUAL(parse_npy(1, rows[i].dict, &npy, &e), -EINVAL);
        CU_SAYS(strstr(e.msg, rows[i].line), "%s: %s\n", rows[i].dict, e.msg);
    }
}

/* Bytes that cannot begin a header are refused as soon as that is certain. */
TEST("a bad header is refused as soon as it is recognised")
{
    struct npy npy;
    struct err e;
    uint8_t bytes[] = "\x93NUMPY\x01\x00\x10\x00";
    CU_ASSERT_EQUAL(npy_parse(bytes, 0, &npy, &e), NPY_MORE);
    CU_ASSERT_EQUAL(npy_parse(bytes, 10, &npy, &e), NPY_MORE);
    for (size_t i = 0; i < 6; i++) {
        bytes[i] ^= 1;
        CU_ASSERT_EQUAL(npy_parse(bytes, i, &npy, &e), NPY_MORE);
        CU_ASSERT_EQUAL(npy_parse(bytes, i + 1, &npy, &e), -EINVAL);
        bytes[i] ^= 1;
    }
    bytes[6] = 4;
    CU_ASSERT_EQUAL(npy_parse(bytes, 7, &npy, &e), -EINVAL);
    bytes[6] = 0;
    CU_ASSERT_EQUAL(npy_parse(bytes, 7, &npy, &e), -EINVAL);
    uint8_t large[] = "\x93NUMPY\x02\x00\xf5\xff\x00\x00";
    /* With the preceding bytes, this makes a header of 65536 + 1 bytes. */
    CU_ASSERT_EQUAL(npy_parse(large, 12, &npy, &e), -EINVAL);
    large[8] = 0xf4;
    CU_ASSERT_EQUAL(npy_parse(large, 12, &npy, &e), NPY_MORE);
}

/* ==== contents of tensors ==== */

/* ---- shapes ---- */

TEST("the size of a shape is computed, or its fault named")
{
    static const uint64_t most = GGUF_MAX_ELEMENTS;
    static const struct {
        struct tensor_shape shape;
        int r;
        uint64_t bytes;
        const char *line;
    } row[] = {
        {{F32, 1, {1}}, 0, 4, ""},
        {{F32, 4, {2, 3, 5, 7}}, 0, 840, ""},
        {{Q8_0, 2, {64, 3}}, 0, 204, ""},
        {{F32, 4, {1ull << 59, 2, 1, 1}}, 0, 1ull << 62, ""},
        {{F64, 1, {most - 1}}, 0, 8 * (most - 1), ""},
        {{F64, 1, {most}}, -EINVAL, 0, "the size in bytes overflows"},
        {{F32, 1, {most + 1}}, -EINVAL, 0, "the number of elements overflows"},
        {{F32, 2, {1ull << 32, 1ull << 32}}, -EINVAL, 0, "the number of elements overflows"},
        {{F32, 1, {UINT64_MAX}}, -EINVAL, 0, "the number of elements overflows"},
        {{F32, 0, {1}}, -EINVAL, 0, "a shape has 1 to 4 dimensions, not 0"},
        {{F32, 5, {1, 1, 1, 1}}, -EINVAL, 0, "a shape has 1 to 4 dimensions, not 5"},
        {{F32, 2, {1, 0}}, -EINVAL, 0, "a dimension is 0"},
        {{F32, 1, {1, 0}}, 0, 4, ""},
        {{Q4_0, 2, {33, 32}},
         -EINVAL,
         0,
         "a row of 33 elements is not a whole number of blocks of 32 (Q4_0)"},
        {{Q4_2, 1, {32}}, -EOPNOTSUPP, 0, "a tensor of unknown type 4 cannot be created"},
        {{9999, 1, {32}}, -EOPNOTSUPP, 0, "a tensor of unknown type 9999 cannot be created"},
    };
    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        struct err e = {0};
        uint64_t bytes = 0;
        CU_ASSERT_EQUAL(tensor_shape_bytes(&row[i].shape, &bytes, &e), row[i].r);
        CU_ASSERT_EQUAL(e.code, row[i].r);
        CU_ASSERT_STRING_EQUAL(e.msg, row[i].line);
        if (row[i].r == 0)
            CU_ASSERT_EQUAL(bytes, row[i].bytes);
    }
}

/* ---- logs ---- */

enum { BYTES = 60, LOG = 500 };

static struct log *made(void)
{
    static const uint8_t bytes[LOG];
    struct log *log = memory_draft(bytes, LOG);
    CU_ASSERT_PTR_NOT_NULL_FATAL(log);
    return log;
}

/* ---- pieces ---- */

/* Where a byte of a tensor is stored; log NULL: in the base. */
struct place {
    struct log *log;
    uint64_t src;
};

static uint64_t seed = 1;

/* Draw random pieces in ascending order. Some are adjacent; some start where the previous piece
 * ends in its log. */
static size_t draw_pieces(struct log *const logs[2], struct tensor_piece *ret)
{
    size_t n = 0;
    for (uint64_t at = soak_draw(&seed, 20); at < BYTES;) {
        struct tensor_piece p = {at, 1 + soak_draw(&seed, 12), soak_draw(&seed, LOG - BYTES),
                                 logs[soak_draw(&seed, 2)]};
        const struct tensor_piece *last = n ? &ret[n - 1] : NULL;
        p.len = p.len < BYTES - at ? p.len : BYTES - at;
        if (last && soak_draw(&seed, 2)) {
            p.log = last->log;
            p.src = last->src + last->len;
        }
        if (p.src + p.len > LOG)
            p.src = 0;
        ret[n++] = p;
        at += p.len + (soak_draw(&seed, 2) ? soak_draw(&seed, 9) : 0);
    }
    return n;
}

static void lay(struct place *shown, const struct tensor_piece *piece, size_t n)
{
    for (size_t i = 0; i < n; i++)
        for (uint64_t k = 0; k < piece[i].len; k++)
            shown[piece[i].at + k] = (struct place){piece[i].log, piece[i].src + k};
}

static bool continues(const struct place *shown, size_t i)
{
    return shown[i].log == shown[i - 1].log &&
           (!shown[i].log || shown[i].src == shown[i - 1].src + 1);
}

/* Check that the pieces are exactly the longest runs in `shown`, and that a search from any byte
 * finds the rest of its run. */
static void check(const struct tensor_content *k, const struct place *shown, size_t size)
{
    uint64_t fresh = 0;
    size_t n = 0;
    for (size_t i = 0, end; i < size; i = end) {
        for (end = i + 1; end < size && continues(shown, end);)
            end++;
        if (shown[i].log) {
            CU_ASSERT_TRUE_FATAL(n < k->n);
            const struct tensor_piece *p = &k->piece[n++];
            CU_ASSERT_TRUE(p->at == i && p->len == end - i && p->src == shown[i].src &&
                           p->log == shown[i].log);
            fresh += p->len;
        }
        for (size_t off = i; off < end; off++)
            for (uint64_t most = 1; most <= end - off + 1; most++) {
                const struct tensor_piece *p = NULL;
                uint64_t got = tensor_content_stretch(k, off, most, &p);
                CU_ASSERT_EQUAL(
                    got, most <= end - off || (end == size && !shown[i].log) ? most : end - off);
                CU_ASSERT_PTR_EQUAL(p, shown[i].log ? &k->piece[n - 1] : NULL);
            }
    }
    CU_ASSERT_EQUAL(k->n, n);
    CU_ASSERT_EQUAL(k->fresh, fresh);
    CU_ASSERT_EQUAL(tensor_content_covers(k), fresh == size);
}

TEST("random pieces over earlier ones give the bytes of a plain array")
{
    struct log *logs[2] = {made(), made()};
    for (int i = 0; i < 400; i++) {
        struct place shown[BYTES] = {{0}};
        struct tensor_content *old = NULL, *now = NULL;
        for (int step = 0; step < 5; step++) {
            struct tensor_piece piece[BYTES];
            size_t n = draw_pieces(logs, piece);
            CU_ASSERT_EQUAL_FATAL(tensor_content_make(NULL, BYTES, old, piece, n, &now), 0);
            lay(shown, piece, n);
            check(now, shown, BYTES);
            tensor_content_unref(old);
            old = now;
        }
        size_t less = 1 + soak_draw(&seed, BYTES - 1); /* the tensor becomes shorter */
        CU_ASSERT_EQUAL_FATAL(tensor_content_make(NULL, less, old, NULL, 0, &now), 0);
        check(now, shown, less);
        tensor_content_unref(now);
        tensor_content_unref(old);
    }
    CU_ASSERT_EQUAL(logs[0]->refs, 1);
    CU_ASSERT_EQUAL(logs[1]->refs, 1);
    log_unref(logs[0]);
    log_unref(logs[1]);
}

TEST("invalid pieces are refused")
{
    CLEANUP(log_drop) struct log *log = made();
    const struct {
        struct tensor_piece piece[2];
        size_t n;
        int r;
    } row[] = {
        {{{0, BYTES, LOG - BYTES, log}}, 1, 0},
        {{{0, 5, 0, log}, {5, 5, 0, log}}, 2, 0},
        {{{0, 5, 0, log}, {4, 5, 0, log}}, 2, -EINVAL},
        {{{9, 5, 0, log}, {0, 5, 0, log}}, 2, -EINVAL},
        {{{0, 0, 0, log}}, 1, -EINVAL},
        {{{0, BYTES + 1, 0, log}}, 1, -EINVAL},
        {{{BYTES, 1, 0, log}}, 1, -EINVAL},
        {{{1, UINT64_MAX, 0, log}}, 1, -EINVAL},
        {{{0, BYTES, LOG - BYTES + 1, log}}, 1, -EINVAL},
        {{{0, BYTES, UINT64_MAX, log}}, 1, -EINVAL},
        {{{0, 5, 0, log}, {5, BYTES, 0, log}}, 2, -EINVAL},
    };
    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        struct tensor_content *k = NULL;
        int r = tensor_content_make(NULL, BYTES, NULL, row[i].piece, row[i].n, &k);
        CU_ASSERT_EQUAL(r, row[i].r);
        CU_ASSERT_EQUAL(k == NULL, r < 0);
        tensor_content_unref(k);
    }
}

/* ---- mapped files ---- */

/* A hole before data reads as zeros. Once the file is truncated, the hole is gone too. */
TEST("a hole reads as zeros without touching its pages")
{
    enum { HOLE = 3 * (64 << 10) };
    struct mapped *m = NULL;
    CLEANUP(free_it) uint8_t *bytes = malloc(HOLE + 1);
    int fd = memfd_create("model", MFD_CLOEXEC);
    CU_ASSERT_TRUE_FATAL(fd >= 0);
    CU_ASSERT_EQUAL(pwrite(fd, "x", 1, HOLE), 1);
    CU_ASSERT_EQUAL_FATAL(mapped_open(fd, HOLE + 1, &m, NULL), 0);
    const struct source s = mapped_source(m);
    memset(bytes, 1, HOLE + 1);
    CU_ASSERT_EQUAL(s.read(&s, 0, bytes, HOLE), 0);
    CU_ASSERT_TRUE(bytes[0] == 0 && memcmp(bytes, bytes + 1, HOLE - 1) == 0);
    CU_ASSERT_EQUAL(s.read(&s, 0, bytes, HOLE + 1), 0);
    CU_ASSERT_EQUAL(bytes[HOLE], 'x');
    CU_ASSERT_EQUAL(ftruncate(fd, 4096), 0);
    CU_ASSERT_EQUAL(s.read(&s, 0, bytes, HOLE), -EIO);
    (void)close(fd);
    mapped_unref(m);
}

/* SPDX-License-Identifier: MIT */
/* model/facts: single values by key, parameter counts and their labels, and the mix of types. */
#include <stdlib.h>
#include <string.h>

#include "build_gguf.h"
#include "cu_main.h"
#include "model/facts.h"
#include "parsed.h"

enum { F32 = 0, Q4_0 = 2, Q8_0 = 8, REMOVED = 4, UNKNOWN = 200 };

#define SHAPE(...) (uint64_t[]){__VA_ARGS__}, (uint32_t)(sizeof(uint64_t[]){__VA_ARGS__} / 8)

static void test_uint(void)
{
    struct build b;
    uint64_t v = 77;
    build_init(&b, 3, false);
    build_num(&b, "u8", GGUF_U8, 200);
    build_num(&b, "u64", GGUF_U64, UINT64_MAX);
    build_num(&b, "i8", GGUF_I8, 100);
    build_num(&b, "i16", GGUF_I16, 0xffff);
    build_num(&b, "i32 zero", GGUF_I32, 0);
    build_num(&b, "bool", GGUF_BOOL, 1);
    build_f32(&b, "f32", 1);
    build_str(&b, "string", "1");
    struct parsed p = parse_build(&b, 0);
    CU_ASSERT_TRUE(fact_uint(p.g, "u8", &v) && v == 200);
    CU_ASSERT_TRUE(fact_uint(p.g, "u64", &v) && v == UINT64_MAX);
    CU_ASSERT_TRUE(fact_uint(p.g, "i8", &v) && v == 100);
    CU_ASSERT_TRUE(fact_uint(p.g, "i32 zero", &v) && v == 0);
    const char *const no[] = {"i16", "bool", "f32", "string", "missing"};
    for (size_t i = 0; i < sizeof(no) / sizeof(no[0]); i++)
        CU_ASSERT_FALSE(fact_uint(p.g, no[i], &v));
    CU_ASSERT_TRUE(text_is(fact_text(p.g, "string"), "1"));
    CU_ASSERT_FALSE(text_is(fact_text(p.g, "string"), "12"));
    CU_ASSERT_PTR_NULL(fact_text(p.g, "u8").at);
    CU_ASSERT_PTR_NULL(fact_text(p.g, "missing").at);
    CU_ASSERT_FALSE(text_is(fact_text(p.g, "missing"), ""));
    parsed_free(&p);
}

/* Make a model of an architecture, with a key that holds two numbers and optionally with tokens. */
static struct parsed with_arch(const char *arch, const char *key, bool tokens)
{
    struct build b;
    build_init(&b, 3, false);
    if (arch)
        build_str(&b, "general.architecture", arch);
    build_u32(&b, key, 7);
    if (tokens) {
        build_array(&b, "tokenizer.ggml.tokens", GGUF_STRING, 3);
        for (int i = 0; i < 3; i++)
            build_item_str(&b, "t");
    }
    return parse_build(&b, 0);
}

static void test_arch(void)
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

/* A key has one value for all layers, or one value for each layer. */
static void test_layers(void)
{
    static const struct {
        uint32_t key;
        uint64_t layer;
        bool known;
        uint64_t value;
    } rows[] = {{0, 0, true, 7},  {0, 99, true, 7},         {1, 1, true, 5},  {1, 2, false, 0},
                {2, 0, true, 1},  {2, 1, true, 0},          {3, 0, false, 0}, {4, 0, true, 1},
                {5, 0, false, 0}, {UINT32_MAX, 0, false, 0}};
    struct build b;
    build_init(&b, 3, false);
    build_u32(&b, "one", 7);
    build_array(&b, "numbers", GGUF_U16, 2);
    build_item_num(&b, GGUF_U16, 4);
    build_item_num(&b, GGUF_U16, 5);
    build_array(&b, "bools", GGUF_BOOL, 2);
    build_item_num(&b, GGUF_BOOL, 1);
    build_item_num(&b, GGUF_BOOL, 0);
    build_array(&b, "texts", GGUF_STRING, 1);
    build_item_str(&b, "1");
    build_num(&b, "bool", GGUF_BOOL, 1);
    build_str(&b, "text", "1");
    struct parsed p = parse_build(&b, 0);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint64_t v = 0;
        CU_ASSERT_EQUAL(fact_layer_uint(p.g, rows[i].key, rows[i].layer, &v), rows[i].known);
        CU_ASSERT_EQUAL(v, rows[i].value);
    }
    CU_ASSERT_TRUE(text_ends((struct text){"a.b", 3}, ".b"));
    CU_ASSERT_FALSE(text_ends((struct text){".b", 2}, ".b"));
    CU_ASSERT_FALSE(text_ends((struct text){"a.c", 3}, ".b"));
    parsed_free(&p);
}

/* Keys built from the architecture's name have up to 256 bytes; longer ones count as missing. */
static void test_long_arch(void)
{
    for (size_t n = 244; n <= 247; n++) {
        char arch[300], key[300];
        memset(arch, 'a', n);
        arch[n] = '\0';
        (void)strcpy(key, arch);
        (void)strcat(key, ".vocab_size");
        struct parsed p = with_arch(arch, key, false);
        CU_ASSERT_EQUAL(fact_arch_key(p.g, "vocab_size"), n <= 245 ? 1 : UINT32_MAX);
        parsed_free(&p);
    }
}

static void test_shard(void)
{
    static const struct {
        int count, no; /* -1: no such key */
        bool shard, later;
    } rows[] = {
        {-1, -1, false, false}, {1, 0, false, false}, {1, 1, false, false}, {2, 0, true, false},
        {2, 1, true, true},     {3, 2, true, true},   {2, -1, true, false}, {-1, 1, false, false},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct build b;
        build_init(&b, 3, false);
        if (rows[i].count >= 0)
            build_num(&b, "split.count", GGUF_U16, (uint64_t)rows[i].count);
        if (rows[i].no >= 0)
            build_num(&b, "split.no", GGUF_U16, (uint64_t)rows[i].no);
        struct parsed p = parse_build(&b, 0);
        CU_ASSERT_EQUAL(fact_shard(p.g), rows[i].shard);
        CU_ASSERT_EQUAL(fact_later_shard(p.g), rows[i].later);
        parsed_free(&p);
    }
}

static void test_is_model(void)
{
    static const struct {
        const char *type;
        bool is;
    } rows[] = {{NULL, true}, {"model", true}, {"adapter", false}, {"", false}, {"models", false}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct build b;
        build_init(&b, 3, false);
        if (rows[i].type)
            build_str(&b, "general.type", rows[i].type);
        struct parsed p = parse_build(&b, 0);
        CU_ASSERT_EQUAL(fact_is_model(p.g), rows[i].is);
        parsed_free(&p);
    }
}

/* Count the parameters of a model with tensors of 10 and 60 elements. The larger one has the name
 * `expert`, which decides whether it counts as a tensor of experts. */
static struct params params_of(const char *expert, bool arch, uint32_t experts)
{
    struct build b;
    build_init(&b, 3, false);
    if (arch)
        build_str(&b, "general.architecture", "llama");
    if (experts)
        build_u32(&b, "llama.expert_count", experts);
    build_tensor(&b, "output.weight", F32, SHAPE(10), NULL, 40);
    build_tensor(&b, expert, F32, SHAPE(6, 5, 2), NULL, 240);
    struct parsed p = parse_build(&b, 0);
    struct params n = fact_params(p.g);
    parsed_free(&p);
    return n;
}

static void test_params(void)
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

static void test_labels(void)
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

static void test_shares(void)
{
    struct share s[SHARES_MAX];
    struct build b;
    build_init(&b, 3, false);
    build_tensor(&b, "b", Q4_0, SHAPE(32, 2), NULL, 36);
    build_tensor(&b, "a", F32, SHAPE(2), NULL, 8);
    build_tensor(&b, "c", F32, SHAPE(7), NULL, 28);
    build_tensor(&b, "d", Q8_0, SHAPE(32), NULL, 34);
    struct parsed p = parse_build(&b, 0);
    CU_ASSERT_EQUAL_FATAL(fact_shares(p.g, s), 3);
    /* F32 and Q4_0 take the same number of bytes, so the lower id comes first */
    CU_ASSERT_TRUE(s[0].id == F32 && s[0].tensors == 2 && s[0].bytes == 36);
    CU_ASSERT_PTR_EQUAL(s[0].first, &p.g->tensor[1]);
    CU_ASSERT_TRUE(s[1].id == Q4_0 && s[1].tensors == 1 && s[1].bytes == 36);
    CU_ASSERT_TRUE(s[2].id == Q8_0 && s[2].bytes == 34);
    CU_ASSERT_PTR_EQUAL(s[2].first, &p.g->tensor[3]);
    parsed_free(&p);
}

/* If there are more types than the list can hold, the first ones stay and are still counted. */
static void test_many_shares(void)
{
    /* The extra element reveals a write past the end. */
    struct share s[SHARES_MAX + 1];
    static const struct share mark = {.id = 12345};
    struct gguf g = {.n_tensors = SHARES_MAX + 2};
    g.tensor = calloc(g.n_tensors, sizeof(*g.tensor));
    for (uint32_t i = 0; i < g.n_tensors; i++)
        g.tensor[i] = (struct gguf_tensor){.stored_id = 1000 + i, .nbytes = 1};
    g.tensor[SHARES_MAX + 1].stored_id = 1003;
    s[SHARES_MAX] = mark;
    CU_ASSERT_EQUAL(fact_shares(&g, s), SHARES_MAX);
    CU_ASSERT_TRUE(s[0].id == 1003 && s[0].bytes == 2);
    CU_ASSERT_EQUAL(s[SHARES_MAX].id, mark.id);
    free(g.tensor);
}

static void test_file_type(void)
{
    static const char *const name[] = {
        "F32",   "F16",     "Q4_0",   "Q4_1",   NULL,     NULL,      NULL,     "Q8_0",   "Q5_0",
        "Q5_1",  "Q2_K",    "Q3_K_S", "Q3_K_M", "Q3_K_L", "Q4_K_S",  "Q4_K_M", "Q5_K_S", "Q5_K_M",
        "Q6_K",  "IQ2_XXS", "IQ2_XS", "Q2_K_S", "IQ3_XS", "IQ3_XXS", "IQ1_S",  "IQ4_NL", "IQ3_S",
        "IQ3_M", "IQ2_S",   "IQ2_M",  "IQ4_XS", "IQ1_M",  "BF16",    NULL,     NULL,     NULL,
        "TQ1_0", "TQ2_0",   "MXFP4",  "NVFP4",  "Q1_0",   "Q2_0",    NULL,
    };
    for (uint32_t i = 0; i < sizeof(name) / sizeof(name[0]); i++) {
        struct build b;
        build_init(&b, 3, false);
        build_u32(&b, "general.file_type", i);
        struct parsed p = parse_build(&b, 0);
        const char *got = fact_file_type(p.g);
        CU_ASSERT_TRUE(name[i] ? got && strcmp(got, name[i]) == 0 : !got);
        parsed_free(&p);
    }
    struct parsed p = with_arch("llama", "llama.file_type", false);
    CU_ASSERT_PTR_NULL(fact_file_type(p.g));
    parsed_free(&p);
}

static void test_type_name(void)
{
    static const struct {
        uint32_t id;
        const char *name;
    } rows[] = {{Q8_0, "Q8_0"}, {REMOVED, "unknown:4"}, {UNKNOWN, "unknown:200"}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        CLEANUP(buf_free) struct buf out = BUF_INIT;
        struct gguf_tensor t = {.type_id = rows[i].id, .stored_id = rows[i].id};
        fact_type_name(&t, &out);
        buf_char(&out, '\0');
        CU_ASSERT_STRING_EQUAL((char *)out.data, rows[i].name);
    }
}

static CU_TestInfo tests[] = {
    {"a key has one value for all layers or one for each", test_layers},
    {"numbers and texts are found by key", test_uint},
    {"keys of the architecture and the size of the vocabulary are found", test_arch},
    {"keys of architectures with long names are found up to 256 bytes", test_long_arch},
    {"shards of a split model are recognised", test_shard},
    {"a model is recognised by general.type", test_is_model},
    {"parameters are counted in all experts and in one", test_params},
    {"counts of parameters are rounded to labels", test_labels},
    {"types are listed with their shares of the bytes", test_shares},
    {"types beyond the length of the list are omitted", test_many_shares},
    {"general.file_type has its names", test_file_type},
    {"types are shown by name, unknown ones by number", test_type_name},
    CU_TEST_INFO_NULL,
};

CU_MAIN("model/facts", tests)

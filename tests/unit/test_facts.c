/* SPDX-License-Identifier: MIT */
/* model/facts: single values by key, parameter counts and their labels, and the mix of types. */
#include <string.h>

#include "build_gguf.h"
#include "cu_test.h"
#include "model/facts.h"
#include "quant/types.h"

enum { F32 = 0 };

#define SHAPE(...) (uint64_t[]){__VA_ARGS__}, (uint32_t)(sizeof(uint64_t[]){__VA_ARGS__} / 8)

/* Make a model of an architecture, with a key that holds two numbers and optionally with tokens. */
static struct parsed with_arch(const char *arch, const char *key, bool tokens)
{
    struct build b = build_of(3, false);
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
    struct parsed p = parse_build(&b, 0);
    struct params n = fact_params(p.g);
    parsed_free(&p);
    return n;
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

/* SPDX-License-Identifier: MIT */
/* check/filename: parsing and generating file names by the naming convention. */
#include "cu_test.h"

#include <math.h>
#include <string.h>

#include "check/filename.h"
#include "build_gguf.h"

/* size, encoding, shard; "" if absent */
static const struct {
    const char *name;
    const char *part[FILE_PARTS];
} good[] = {
    /* examples from the specification */
    {"Mixtral-8x7B-v0.1-KQ2.gguf", {"8x7B", "KQ2", ""}},
    {"Grok-100B-v1.0-Q4_0-00003-of-00009.gguf", {"100B", "Q4_0", "00003-of-00009"}},
    {"Hermes-2-Pro-Llama-3-8B-v1.0-F16.gguf", {"8B", "F16", ""}},
    {"Phi-3-mini-3.8B-ContextLength4k-instruct-v1.0.gguf", {"3.8B-ContextLength4k", "", ""}},
    {"mtp-Qwen3-27B-v1.0-Q4_K_M.gguf", {"27B", "Q4_K_M", ""}},
    {"mmproj-Qwen2-VL-7B-v1.0-F16.gguf", {"7B", "F16", ""}},
    /* other names */
    {"A-7B-v1.gguf", {"7B", "", ""}},
    {"A-7B-v1.2.3-LoRA.gguf", {"7B", "", ""}},
    {"A-7B-v1-Q8_0-vocab.gguf", {"7B", "Q8_0", ""}},
    {"A B-7B-v1.gguf", {"7B", "", ""}},
    {"A-30B-A3B-Chat-2-v1.gguf", {"30B-A3B", "", ""}},
    {"A-7B-v1-v2.gguf", {"7B", "", ""}},
    {"A-7B-v1.0-v2.gguf", {"7B", "v2", ""}},
    {"7B-8B-v1.gguf", {"8B", "", ""}},
    {"mtp-7B-v1.gguf", {"7B", "", ""}},
    {"mtp-A-7B-v1.gguf", {"7B", "", ""}},
};

static const char *const bad[] = {
    "not-a-known-arrangement.gguf", /* from the specification */
    "",
    ".gguf",
    "A-7B-v1",
    "A-7B-v1.bin",
    "A-7B.gguf",
    "A-v1.gguf",
    "7B-v1.gguf",
    "A-7B-1.0.gguf",
    "Hermes-2-Pro-Llama-3-8B-F16.gguf",
    "Qwen2.5-7B-v1.gguf",
    "A-7-v1.gguf",
    "A-7BB-v1.gguf",
    "A-7B-v1-LoRAx.gguf",
    "A-7B-v1-Q8_0-0003-of-0009.gguf",
    "A-7B-v1-F16-Q8.gguf",
    "A_B-7B-v1.gguf",
    "A-7B-C_D-v1.gguf",
    "A-7B-v.gguf",
    "A-7B-v1..gguf",
    "A-7B-v1.x.gguf",
    "A-x7B-v1.gguf",
};

TEST("names that follow the convention are parsed")
{
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        struct text part[FILE_PARTS];
        CU_ASSERT_TRUE_FATAL(file_name_parse(good[i].name, part));
        for (int k = 0; k < FILE_PARTS; k++) {
            const char *want = good[i].part[k];
            CU_ASSERT_EQUAL(part[k].at != NULL, want[0] != '\0');
            CU_ASSERT_TRUE(!part[k].at || text_is(part[k], want));
        }
    }
}

TEST("names that do not follow the convention are refused")
{
    struct text part[FILE_PARTS];
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        CU_ASSERT_FALSE(file_name_parse(bad[i], part));
    char dashes[600];
    memset(dashes, '-', sizeof(dashes));
    memcpy(dashes + sizeof(dashes) - 6, ".gguf", 6);
    CU_ASSERT_FALSE(file_name_parse(dashes, part));
}

TEST("size labels are parsed")
{
    static const struct {
        const char *label;
        uint64_t experts;
        double params;
    } want[] = {{"7B", 0, 7e9},
                {"3.8B", 0, 3.8e9},
                {"8x7B", 8, 7e9},
                {"100M", 0, 100e6},
                {"1.5K-A2b", 0, 1500},
                {"2T", 0, 2e12},
                {"99999999999999999999999x7B", UINT64_MAX, 7e9}};
    for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
        uint64_t experts = 99;
        double params = 0;
        struct text t = {want[i].label, strlen(want[i].label)};
        CU_ASSERT_TRUE(file_size_parse(t, &experts, &params));
        CU_ASSERT_EQUAL(experts, want[i].experts);
        CU_ASSERT_TRUE(fabs(params / want[i].params - 1) < 1e-12);
    }
    uint64_t experts;
    double params;
    CU_ASSERT_FALSE(file_size_parse((struct text){"7Z", 2}, &experts, &params));
    CU_ASSERT_FALSE(file_size_parse((struct text){"B", 1}, &experts, &params));
}

TEST("size labels are compared with the number of parameters")
{
    struct params dense = {7241732096, 7241732096, 0}, mixed = {46702792704, 7241732096, 8};
    CU_ASSERT_TRUE(file_size_fits((struct text){"7B", 2}, &dense));
    CU_ASSERT_FALSE(file_size_fits((struct text){"13B", 3}, &dense));
    CU_ASSERT_FALSE(file_size_fits((struct text){"8x7B", 4}, &dense));
    CU_ASSERT_TRUE(file_size_fits((struct text){"8x7B", 4}, &mixed));
    CU_ASSERT_FALSE(file_size_fits((struct text){"4x7B", 4}, &mixed));
    CU_ASSERT_TRUE(file_size_fits((struct text){"47B", 3}, &mixed));
}

/* ---- suggestions ---- */

static void suggests(struct build *b, const char *want)
{
    CLEANUP(buf_free) struct buf name = BUF_INIT;
    struct text part[FILE_PARTS];
    CLEANUP(parsed_free) struct parsed p = parse_build(b, 0);
    file_name_suggest(p.g, &name);
    buf_char(&name, '\0');
    CU_ASSERT_STRING_EQUAL((const char *)name.data, want);
    CU_ASSERT_TRUE(file_name_parse((const char *)name.data, part));
}

TEST("a name is suggested from the keys")
{
    struct build b = build_of(3, false);
    suggests(&b, "model-0K-v1.0.gguf");

    b = build_of(3, false);
    build_text(&b, "general.name=My Model 7b v2.5 (beta)|>t F32 1000");
    suggests(&b, "My-Model-v2-5-beta-1K-v1.0-F32.gguf");

    b = build_of(3, false);
    build_text(&b, "general.basename=Hermes 2 Pro|general.name=not this|general.size_label=1.1K|"
                   "general.finetune=chat, 4k|general.version=2.1|general.file_type:u32=15|"
                   "split.no:u16=2|split.count:u16=9|>t F32 1000");
    suggests(&b, "Hermes-2-Pro-1.1K-chat-4k-v2.1-Q4_K_M-00003-of-00009.gguf");

    b = build_of(3, false); /* a label that contradicts the parameter count */
    build_text(&b, "general.type=adapter|general.version=new");
    build_str(&b, "general.basename", "\xff/..");
    build_text(&b, "general.architecture=llama|general.size_label=7B|>t 9999 1000 4000");
    suggests(&b, "llama-1K-v1.0-LoRA.gguf");

    b = build_of(3, false);
    build_text(&b, "general.name=mistral|tokenizer.ggml.tokens:array=string[]");
    suggests(&b, "mistral-0K-v1.0-vocab.gguf");
}

#define HEX16 "0123456789abcdef"

/* A SHA-256 is recognised in upper or lower case, with or without ollama's prefix. 63 or 65 digits
 * are not a hash. */
TEST("names that are a hash are recognised")
{
    CU_ASSERT_TRUE(file_name_is_hash(HEX16 HEX16 HEX16 HEX16));
    CU_ASSERT_TRUE(file_name_is_hash("sha256-" HEX16 HEX16 HEX16 "0123456789ABCDEF"));
    CU_ASSERT_FALSE(file_name_is_hash(HEX16 HEX16 HEX16 "0123456789abcde"));
    CU_ASSERT_FALSE(file_name_is_hash(HEX16 HEX16 HEX16 HEX16 "0"));
    CU_ASSERT_FALSE(file_name_is_hash(HEX16 HEX16 HEX16 "0123456789abcdeg"));
    CU_ASSERT_FALSE(file_name_is_hash("sha256-"));
}
